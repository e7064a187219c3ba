"""The comparison of a model before and after unlearning: what it forgot, and what only looks forgotten.

This package computes statistics of texts under two or three models, writes the table of them and draws the conclusion.
Models are run in token_statistics/ and trained in controls/. Passages that a model reproduces are in extraction/.
"""
