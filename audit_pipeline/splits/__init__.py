"""Quality of a split: differences of members and non-members that are measured without a model.

The package measures blind controls, overlap, near-duplicates, balance, dates, lengths and languages of the two sides.
split_quality.py collects the measures in one table. matching.py chooses sides that are hard to separate. Checks that a
benchmark must pass are in benchmarks/checks.py. No module of this package reads the scores of a model.
"""
