"""Scored texts for tests of thresholds, contamination rates and p-values of groups."""

import numpy as np

from audit_pipeline.statistics.thresholds import ScoredTexts, compute_sampling_keys


def build_scored_texts(scores, labels=None, groups=None, *, seed=0, prefix="e"):
    """Build texts with scores. By default each text is a non-member and its own group."""
    scores = np.asarray(scores, dtype=np.float64)
    ids = [f"{prefix}{index}" for index in range(len(scores))]
    groups = ids if groups is None else [str(group) for group in groups]
    labels = np.zeros(len(scores), dtype=np.int8) if labels is None else np.asarray(labels)
    return ScoredTexts(scores, labels, np.array(groups, dtype=str), compute_sampling_keys(groups, ids, seed))
