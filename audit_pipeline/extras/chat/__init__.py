"""Questions to chat models: how much of a document their answers contain, compared with held-out documents.

The package contains the configuration of chat models, the prompts, the requests and the measures of answers. It also
contains the results per document and the import of answers that other people requested. Models that return
probabilities belong to servers/ and extraction/.

This file imports nothing, so the help of the command `ask` stays fast.
"""

DRAWS = 2
"""Number of drawn answers in addition to the answer at temperature 0."""
PASSAGES = 5
"""Maximum number of passages of a document."""
