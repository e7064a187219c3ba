"""The direction of scores: ``training`` if texts of the training data score higher, as the scores of detectors should.

A detector with the wrong sign, such as a raw perplexity, ranks members below non-members. A difference in that
direction must not be reported as a finding of training.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.statistics.ties import compute_group_means, merge_tied_means
from audit_pipeline.tables import MEMBER, NON_MEMBER

Direction = Literal["training", "opposite", "none"]

LEVEL = 0.05
"""The level of the two-sided test. By chance, a direction is reported in at most 5% of cases."""


def detect_score_direction(scores: npt.ArrayLike, labels: npt.ArrayLike, groups: npt.NDArray[Any]) -> Direction | None:
    """Return which side scores higher, by a two-sided Mann-Whitney test at 5%.

    The test compares one mean per group and side, so that texts of one group do not count as independent. Means that
    differ only by rounding are tied.

    Args:
        scores: Float array of shape (n_texts,).
        labels: 1 (member), 0 (non-member) or anything else, which is skipped, of shape (n_texts,).
        groups: The group of each text, of shape (n_texts,).

    Returns:
        ``training`` if members score higher, ``opposite`` if non-members do, ``none`` if it is unclear, and None if a
        side has no text.
    """
    values = np.asarray(scores, dtype=np.float64)
    classes = np.asarray(labels)
    sides = []
    for side in (MEMBER, NON_MEMBER):
        _, codes = np.unique(groups[classes == side], return_inverse=True)
        sides.append(compute_group_means(values[classes == side], codes))
    if not all(len(means) for means, _ in sides):
        return None
    means = merge_tied_means(*sides[0], *sides[1])
    if scipy.stats.mannwhitneyu(*means, alternative="greater").pvalue <= LEVEL / 2:
        return "training"
    return "opposite" if scipy.stats.mannwhitneyu(*means, alternative="less").pvalue <= LEVEL / 2 else "none"
