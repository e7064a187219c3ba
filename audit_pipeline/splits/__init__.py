"""Quality of a split: what separates a benchmark's two sides, or links them, without any model.

What belongs here: blind controls, overlap, near-duplicates, balance, dates, lengths and languages of the two sides, and
the table of them (split_quality.py). What does not: choosing other sides (splits/matching.py), the checks that a
benchmark must pass (benchmarks/checks.py), and anything that has seen a model's scores.
"""
