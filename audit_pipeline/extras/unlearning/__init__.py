"""The comparison of a model before and after unlearning: what it forgot, and what only looks forgotten.

This package computes measures of texts under two or three models, writes them to a table and draws the conclusion.
Models are run in token_statistics/ and trained in controls/. The search for passages that a model reproduces is in
extraction/.
"""
