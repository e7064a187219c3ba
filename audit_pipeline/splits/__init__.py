"""Quality of a split: measures of how members and non-members differ, computed without a model.

This package holds blind controls, overlap, near-duplicates, balance, dates, lengths and languages of the two sides.
split_quality.py collects them in one table; matching.py chooses sides that are hard to separate.
Checks that a benchmark must pass belong in benchmarks/checks.py. Code that reads a model's scores does not belong here.
"""
