"""Twins: versions of an item of which chance publishes one, and the test whether a model prefers what was published.

What belongs here: drawing and keeping the versions, canaries (versions that are random words), the test of a model, its
stage and commands. What does not: the statistics of ranks (statistics/twin_ranks.py).
"""

DETECTORS = ("loss",)
