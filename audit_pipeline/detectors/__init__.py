"""Scores: how likely a text was seen in training, from the token statistics of one pass of the model.

What belongs here: detectors, one module a family, and the registry that lists them; pure functions of cached numbers.
What does not: running a model (token_statistics/), and judging how well scores separate members
(statistics/).
"""
