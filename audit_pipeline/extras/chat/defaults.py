"""How documents are asked for unless the user says otherwise."""

DRAWS = 2
"""Drawn answers in addition to the answer at temperature 0."""
PASSAGES = 5
"""The most passages of a document."""
