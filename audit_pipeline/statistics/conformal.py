"""Conformal p-values of groups of texts against calibration groups, and q-values over many of them.

Windows of one document are not independent, so each group has one statistic: the mean score of some of its texts. A
mean of few texts varies more than a mean of many texts. An audited group and the calibration groups that it is compared
with therefore average the same number of texts. For an audited group of n texts this number is c = min(n, q). The
number q is chosen so that most calibration groups have at least q texts (:func:`choose_texts_per_group`). A hash
selects the c texts. Calibration groups with fewer than c texts are omitted from the comparison.

The p-value is valid under two assumptions. First, groups that the model has not read are exchangeable with the
calibration groups. Second, the score of a text does not depend on the size of its group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.group_means import bound_mean_error, merge_tied_means
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.thresholds import ScoredTexts

SHARE_COMPARED = 0.8
MIN_COMPARED = 19
"""The minimum number of calibration groups for a p-value of 0.05."""

METHOD = (
    "conformal p-value of the mean score of the compared texts (chosen by a hash), against calibration non-member "
    "groups of as many texts; ties count against significance"
)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GroupTests:
    """One test per audited group. All arrays have the shape (n_groups,) and are in the order of ``groups``.

    Attributes:
        groups: The groups, sorted.
        n_texts: Number of texts of the group.
        n_compared: Number of the group's texts that are averaged.
        statistic: The mean score of the averaged texts.
        p_value: The conformal p-value.
        n_calibration_groups: Number of calibration groups of the comparison.
        reason: Why the test is refused, or None. The arrays of a refused test are empty.
    """

    groups: npt.NDArray[Any]
    n_texts: Counts
    n_compared: Counts
    statistic: Floats
    p_value: Floats
    n_calibration_groups: Counts
    reason: str | None = None

    def __len__(self) -> int:
        """Return the number of tests."""
        return len(self.groups)


def compute_conformal_p_values(statistics: npt.ArrayLike, calibration: npt.ArrayLike) -> Floats:
    """Compute (1 + #{calibration >= s}) / (n + 1) for each statistic s and n calibration values.

    The p-value is valid, P(p <= a) <= a, if s is exchangeable with the calibration values. Ties count against
    significance. Without calibration values the p-value is 1.

    Args:
        statistics: The statistics, of shape (m,).
        calibration: The calibration values, of shape (n,).

    Returns:
        The p-values, of shape (m,).

    Raises:
        DataError: If a value is not a number.
    """
    audited = np.asarray(statistics, dtype=np.float64)
    known = np.sort(np.asarray(calibration, dtype=np.float64))
    if np.isnan(audited).any() or np.isnan(known).any():
        raise DataError("a statistic is not a number. Omit texts without a score.")
    n_at_least = len(known) - np.searchsorted(known, audited, side="left")
    return np.asarray((1 + n_at_least) / (len(known) + 1))


def choose_texts_per_group(sizes: npt.ArrayLike) -> int:
    """Return q, the largest number of texts that at least 80% of the calibration groups have.

    If 80% of the groups are fewer than 19 groups, then q is the largest number that 19 groups (or all groups) have.
    With fewer than 19 groups, the p-value cannot be as small as 0.05.

    Args:
        sizes: The number of texts of each calibration group.

    Raises:
        DataError: If there are no groups.
    """
    descending = np.sort(np.asarray(sizes))[::-1]
    if not len(descending):
        raise DataError("there are no calibration groups to compare with")
    n_compared = min(len(descending), max(math.ceil(SHARE_COMPARED * len(descending)), MIN_COMPARED))
    return int(descending[n_compared - 1])


def run_group_tests(audited: ScoredTexts, calibration: ScoredTexts) -> GroupTests:
    """Test the audited groups against the groups of calibration non-members.

    Means that differ only by rounding are tied (statistics/group_means.py). The test is refused if a side has no text.
    """
    known = calibration.nonmembers
    if not len(audited) or not len(known):
        side = "calibration non-members" if len(audited) else "audited texts"
        none = np.zeros(0, dtype=np.int64)
        return GroupTests(audited.groups[:0], none, none, np.empty(0), np.empty(0), none, f"there are no {side}")
    _, known_sizes = np.unique(known.groups, return_counts=True)
    groups, sizes = np.unique(audited.groups, return_counts=True)
    max_texts = choose_texts_per_group(known_sizes)
    n_compared = np.minimum(sizes, max_texts)
    scores = _select_texts_of_groups(audited, max_texts)
    known_scores = _select_texts_of_groups(known, max_texts)
    statistic = np.empty(len(groups))
    p_value = np.empty(len(groups))
    n_calibration = np.empty(len(groups), dtype=np.int64)
    for count in np.unique(n_compared):
        is_compared = n_compared == count
        means, errors = _compute_means(scores[is_compared], count)
        known_means, known_errors = _compute_means(known_scores[known_sizes >= count], count)
        statistic[is_compared] = means
        p_value[is_compared] = compute_conformal_p_values(*merge_tied_means(means, errors, known_means, known_errors))
        n_calibration[is_compared] = len(known_means)
    return GroupTests(groups, sizes, n_compared, statistic, p_value, n_calibration)


def compute_q_values(p_values: npt.ArrayLike, method: Literal["bh", "by"]) -> Floats:
    """Compute the adjusted p-values of a family (Benjamini-Hochberg, 1995; Benjamini-Yekutieli, 2001)."""
    values = np.asarray(p_values, dtype=np.float64)
    if not len(values):
        return values
    return np.asarray(scipy.stats.false_discovery_control(values, method=method))


def compute_benjamini_yekutieli_factor(n_tests: int) -> float:
    """Compute the ratio of Benjamini and Yekutieli's q-values to Benjamini and Hochberg's: sum of 1/i, i = 1..n."""
    return sum(1 / rank for rank in range(1, n_tests + 1))


def count_held_out_needed(n_tests: int, n_discoveries: int, level: float, factor: float = 1.0) -> int:
    """Return the minimum number of calibration groups with which ``n_discoveries`` tests can reach a q-value.

    The computation assumes that each of these tests has the smallest possible p-value.

    Args:
        n_tests: Number of tested groups.
        n_discoveries: Number of groups that must be able to reach a q-value of ``level``.
        level: The q-value.
        factor: The factor by which the q-values are larger than those of Benjamini and Hochberg.
    """
    return math.ceil(factor * n_tests / (level * n_discoveries) - 1e-9) - 1


def compute_joint_q_values(families: Sequence[npt.ArrayLike]) -> list[Floats]:
    """Compute Benjamini-Yekutieli q-values over all tests of all families, and return them by family.

    A family consists of the p-values of one detector. Detectors score the same texts, so their p-values depend on each
    other in an unknown way. The method of Benjamini and Yekutieli is valid under any dependence.
    """
    values = [np.asarray(family, dtype=np.float64) for family in families]
    if not values:
        return []
    ends = np.cumsum([len(family) for family in values])
    return np.split(compute_q_values(np.concatenate(values), "by"), ends[:-1])


def _select_texts_of_groups(texts: ScoredTexts, max_texts: int) -> Floats:
    """Select the scores of the first ``max_texts`` texts of each group, in the order of the texts' keys.

    Returns:
        Array of shape (n_groups, max_texts). Smaller groups are filled with NaN.
    """
    names, codes = np.unique(texts.groups, return_inverse=True)
    order = np.lexsort((texts.keys, codes))
    ordered_codes = codes[order]
    starts = np.searchsorted(ordered_codes, np.arange(len(names)))
    rank_in_group = np.arange(len(order)) - starts[ordered_codes]
    is_selected = rank_in_group < max_texts
    scores = np.full((len(names), max_texts), np.nan)
    scores[ordered_codes[is_selected], rank_in_group[is_selected]] = texts.scores[order][is_selected]
    return scores


def _compute_means(scores: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the mean of the first ``count`` scores of each group, and the bound of its rounding error."""
    # The scores are sorted, so that the rounding error of a mean does not depend on the order of the group's texts.
    compared = np.sort(scores[:, :count], axis=1)
    return np.asarray(compared.mean(axis=1)), bound_mean_error(np.abs(compared).mean(axis=1), count)
