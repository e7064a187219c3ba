"""Means of scores per group of texts: their ties, and the direction in which members and non-members differ.

Means that differ only by rounding have the same rank. The mean of 0.1 and 0.7 equals that of 0.3 and 0.5, but their
float64 sums differ in the last digit. Ranks must not depend on such rounding. Before ranking, two means are therefore
set to the same number if their difference is at most the sum of their rounding errors.

The direction of scores is ``training`` if texts of the training data score higher, as the scores of detectors should. A
detector with the wrong sign, such as a raw perplexity, ranks members below non-members. A difference in that direction
must not be reported as a finding of training.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.statistics.roc import Floats, Places
from audit_pipeline.tables import MEMBER, NON_MEMBER

ROUNDINGS_OF_A_SCORE = 32
"""The maximum number of additions that a token's value passes through in a score, which is a mean over tokens.

numpy adds blocks of 128 values directly and the sums of blocks pairwise. With up to a million tokens, each value passes
through at most 16 + 3 + 13 additions."""


def bound_mean_error(mean_magnitudes: npt.ArrayLike, counts: npt.ArrayLike) -> Floats:
    """Return a bound of the rounding error of means of scores.

    Each addition and division has a rounding error of at most half of epsilon, relative to the sum of the magnitudes
    (Higham 2002, section 4.2). The bound is twice the sum of these errors.

    Args:
        mean_magnitudes: The means of the scores' absolute values, float array of shape (n_means,).
        counts: Number of scores per mean, an array of shape (n_means,) or a single number.
    """
    roundings = np.asarray(counts, dtype=np.float64) + ROUNDINGS_OF_A_SCORE
    return np.asarray(roundings * np.finfo(np.float64).eps * np.asarray(mean_magnitudes, dtype=np.float64))


def compute_group_means(values: Floats, places: Places) -> tuple[Floats, Floats]:
    """Return the mean of each group and its error bound: two float arrays of shape (n_groups,).

    Args:
        values: Scores, float array of shape (n,).
        places: The number of each score's group, from 0, of shape (n,).
    """
    counts = np.bincount(places)
    magnitudes = np.bincount(places, weights=np.abs(values)) / counts
    return np.bincount(places, weights=values) / counts, bound_mean_error(magnitudes, counts)


def merge_ties(values: Floats, errors: Floats) -> Floats:
    """Return the values, with one common number for values that differ only by rounding.

    Args:
        values: Means, float array of shape (n,).
        errors: The error bounds of :func:`bound_mean_error`, of the same shape.

    Returns:
        Float array of shape (n,). If a value exceeds the next smaller value by at most the sum of their errors, it is
        replaced by the smaller value.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ordered_errors = errors[order]
    is_new_value = np.ones(len(values), dtype=bool)
    is_new_value[1:] = np.diff(ordered) > ordered_errors[1:] + ordered_errors[:-1]
    merged = np.empty_like(values)
    merged[order] = ordered[is_new_value][np.cumsum(is_new_value) - 1]
    return merged


def merge_tied_means(first: Floats, first_errors: Floats, second: Floats, second_errors: Floats) -> list[Floats]:
    """Return two sets of means, of shapes (n,) and (m,), with ties between and within them merged."""
    merged = merge_ties(np.concatenate([first, second]), np.concatenate([first_errors, second_errors]))
    return np.split(merged, [len(first)])


Direction = Literal["training", "opposite", "none"]

TEST_LEVEL = 0.05
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
    if scipy.stats.mannwhitneyu(*means, alternative="greater").pvalue <= TEST_LEVEL / 2:
        return "training"
    return "opposite" if scipy.stats.mannwhitneyu(*means, alternative="less").pvalue <= TEST_LEVEL / 2 else "none"
