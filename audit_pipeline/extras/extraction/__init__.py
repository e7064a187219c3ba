"""Probabilistic extraction: the probability that a model reproduces passages of a document.

This package chooses the windows of a document, runs a model on them and draws conclusions about the document. The
forward pass is in token_statistics/. Commands and their output are in commands.py and command_output.py.
"""
