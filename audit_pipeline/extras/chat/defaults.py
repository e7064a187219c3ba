"""Default numbers of the command ask. The module imports nothing, so that the help of the command stays fast."""

DRAWS = 2
"""Number of drawn answers in addition to the answer at temperature 0."""
PASSAGES = 5
"""Maximum number of passages of a document."""
