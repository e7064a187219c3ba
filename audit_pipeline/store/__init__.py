"""The files of a data folder: where they are, and how they are written, explained, read and compared.

What belongs here: paths, digests, locks, the ledger. What does not: which tables there are (tables/), and any
computation of a number.
"""
