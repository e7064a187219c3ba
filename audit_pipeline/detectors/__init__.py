"""Scores: how likely a text was seen in training, from the token statistics that one pass of the model left behind.

What belongs here: detectors, one module a family, and the registry that lists them; pure functions of cached numbers.
What does not: running a model (token_statistics/), and judging how well scores tell members apart (metrics/,
evidence/).
"""
