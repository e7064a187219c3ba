"""How documents are asked for unless the user says otherwise.

What belongs here: numbers that the command line shows without waiting for anything else. What does not: all the rest
of how documents are asked for (ladder.py).
"""

DRAWS = 2
"""Drawn answers besides the one at temperature 0."""
PASSAGES = 5
"""The most passages of a document."""
