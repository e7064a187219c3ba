"""Evidence for others: plans that are sealed before the model runs, and packs that the other side can verify.

The package contains plans and their timestamps, the writer of packs, and their verification. The findings themselves
belong to statistics/, extras/extraction/ and pipeline/evaluate_pair.py, and their presentation to report/.
"""
