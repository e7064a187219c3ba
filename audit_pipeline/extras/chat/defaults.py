"""How documents are asked for unless the user says otherwise."""

DRAWS = 2
"""Drawn answers besides the one at temperature 0."""
PASSAGES = 5
"""The most passages of a document."""
