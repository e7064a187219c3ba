"""Where a corpus is open: which passages of audited texts stand in it, where, and what follows for a test set.

What belongs here: one stream over a corpus with the audited texts as its index, what was found as tables, lists of
documents' identities, and the items of a test set beside a model's evidence. What does not: models, detectors and
statistics of them; the core imports nothing of this package.
"""
