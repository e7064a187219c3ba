"""How documents are asked for unless the user says otherwise: what the command line reads without waiting."""

DRAWS = 2
"""Drawn answers besides the likeliest one."""
PASSAGES = 5
"""The most passages of a document."""
