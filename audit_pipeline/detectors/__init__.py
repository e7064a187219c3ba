"""Detectors: scores of how likely a text was in the training data, from the token statistics of one model pass.

The package holds one module per family of detectors, and the registry that lists them. All are pure functions of
cached numbers. Running a model belongs in token_statistics/. Measuring how well scores separate members belongs in
statistics/.
"""
