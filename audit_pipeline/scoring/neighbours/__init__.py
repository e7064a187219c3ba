"""Neighbours of a text: texts that differ from it in one word, for the detector `neighbour`.

What belongs here: proposers, one module a way of making neighbours, with one interface (proposer.py). What does not:
the audited model's passes over the neighbours (token_statistics/), and the score (detectors/neighbour.py).
"""
