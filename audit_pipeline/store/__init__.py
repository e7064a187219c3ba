"""The files of a data folder: their paths, writing, reading and verification, and the ledger that explains them.

The declarations of tables are in tables/. This package computes no numbers.
"""
