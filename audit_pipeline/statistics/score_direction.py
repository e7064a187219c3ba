"""Which way scores run: higher for texts of training, as every score here should, or the other way.

A detector whose sign was forgotten (a raw perplexity) ranks members below non-members. Whatever is found with it then
runs against training, and must not be called a finding of training.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.tables import MEMBER, NON_MEMBER

Direction = Literal["training", "opposite", "none"]

LEVEL = 0.05
"""Two-sided: a direction is reported where chance alone would give one in at most 5% of cases."""


def detect_score_direction(scores: npt.ArrayLike, labels: npt.ArrayLike, groups: npt.NDArray[Any]) -> Direction | None:
    """Which side of n texts scores higher: ``training`` (members), ``opposite`` (non-members) or, unclear, ``none``.

    ``labels`` [n] are 1 (member), 0 (non-member) or anything else, which is left aside. By a Mann-Whitney test at 5%
    of one mean per group and side, so that texts of one group do not count as independent. None where a side has no
    text.
    """
    values, classes = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    means = []
    for side in (MEMBER, NON_MEMBER):
        _, codes = np.unique(groups[classes == side], return_inverse=True)
        means.append(np.bincount(codes, weights=values[classes == side]) / np.bincount(codes))
    if not all(map(len, means)):
        return None
    if scipy.stats.mannwhitneyu(*means, alternative="greater").pvalue <= LEVEL / 2:
        return "training"
    return "opposite" if scipy.stats.mannwhitneyu(*means, alternative="less").pvalue <= LEVEL / 2 else "none"
