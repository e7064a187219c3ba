"""Controls with known truth: models trained here on texts that are known, and control models that never saw them.

What belongs here: which texts are members and how often, training on them, the manifest that says so, and studies of
what makes members easier to detect. What does not: the detectors, their metrics, and audits of models of others.
"""
