"""Controls with known truth: models that are trained here on known texts, and twins that never read these texts.

This package draws the members and their occurrences, trains on them, writes the manifest and runs studies. A study
shows which settings make members easier to detect. Detectors, metrics and audits of other models are elsewhere.
"""
