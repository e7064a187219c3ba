"""Detectors: scores of how likely a text was in the training data, from the token statistics of one model pass.

The package has one module per family of detectors, and the registry that lists them. The scores are pure functions of
cached numbers. The package token_statistics/ runs models. The package statistics/ measures how well scores separate
members from non-members.
"""
