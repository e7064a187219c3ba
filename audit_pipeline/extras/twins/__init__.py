"""Twins: versions of a text, one of them published at random, and the test whether a model prefers that version.

The package contains the draw and the secret files, canaries (versions that are random words), the test of a model, its
stage and its commands. The statistics of ranks belong to statistics/twin_ranks.py.
"""

DETECTORS = ("loss",)
"""The default detectors of the test."""
