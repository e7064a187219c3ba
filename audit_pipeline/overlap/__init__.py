"""What open corpora hold of audited texts, word for word, and what follows for the items of a test set.

What belongs here: one stream over a corpus with the audited texts as its index, what was found as tables, and the items
of a test set beside a model's evidence. What does not: models, detectors and statistics of them; the core imports
nothing of this package.
"""
