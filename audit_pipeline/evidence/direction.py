"""Which way scores run: higher for texts of training, as every score here should, or the other way.

What belongs here: the three answers, and what texts of which it is known say. What does not: the tests that heed the
answer (dataset_inference.py, decision_tables.py), and what is said of it (report/answers.yaml).

A detector whose sign was forgotten (a raw perplexity) ranks members below non-members. Whatever is found with it then
runs against training, and must not be called a finding of training.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.roc import Floats

Direction = Literal["training", "opposite", "none"]

LEVEL = 0.05
"""Two-sided: a direction is reported where chance alone would give one in at most 5% of cases."""


def detect_score_direction(scores: npt.ArrayLike, labels: npt.ArrayLike, groups: npt.NDArray[Any]) -> Direction | None:
    """Which side of n texts scores higher: ``training`` (members), ``opposite`` (non-members) or, unclear, ``none``.

    ``labels`` [n] are 1 (member), 0 (non-member) or anything else, which is left aside. By a Mann-Whitney test at 5%
    of one mean per group and side, so that texts of one group do not count as independent. None where a side has no
    text. Raises DataError for unequal lengths.
    """
    values, classes = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if not len(values) == len(classes) == len(groups):
        raise DataError("one score, label and group for each text are needed")
    members, nonmembers = (
        _compute_group_means(values[classes == side], groups[classes == side]) for side in (MEMBER, NON_MEMBER)
    )
    if not len(members) or not len(nonmembers):
        return None
    if scipy.stats.mannwhitneyu(members, nonmembers, alternative="greater").pvalue <= LEVEL / 2:
        return "training"
    return (
        "opposite" if scipy.stats.mannwhitneyu(members, nonmembers, alternative="less").pvalue <= LEVEL / 2 else "none"
    )


def _compute_group_means(values: Floats, groups: npt.NDArray[Any]) -> Floats:
    names, codes = np.unique(groups, return_inverse=True)
    return np.bincount(codes, weights=values, minlength=len(names)) / np.bincount(codes, minlength=len(names))
