"""Groups of texts against calibration groups: conformal p-values, and what many of them allow to say.

Windows of one document are not independent, so a group has one statistic, the mean score of some of its texts. A mean
of few texts scatters more than one of many, so both sides average equally many: c = min(n, q) of a group of n texts,
where q is what most calibration groups have. Which c texts is decided by a hash. Calibration groups of fewer are left
out of that comparison. The p-value holds where an audited group that the model has not read is exchangeable with the
calibration groups, and where scores of texts do not depend on how many texts their group has.
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
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.thresholds import ScoredTexts
from audit_pipeline.statistics.ties import bound_mean_error, merge_tied_means

SHARE_COMPARED = 0.8
MIN_COMPARED = 19
"""With fewer calibration groups no p-value can be as small as 0.05."""

METHOD = (
    "conformal p-value of the mean score of the compared texts (chosen by a hash), against calibration non-member "
    "groups of as many texts; ties count against significance"
)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GroupTests:
    """One test for each of g audited groups, by name: [g] each; empty where ``reason`` says why there is none."""

    groups: npt.NDArray[Any]
    n_texts: Counts
    n_compared: Counts
    statistic: Floats
    p_value: Floats
    n_calibration_groups: Counts
    reason: str | None = None

    def __len__(self) -> int:
        return len(self.groups)


def conformal_p_values(statistics: npt.ArrayLike, calibration: npt.ArrayLike) -> Floats:
    """(1 + #{calibration >= s}) / (n + 1) for each statistic s and n calibration values: [m] from [m] and [n].

    Valid (P(p <= a) <= a) where s is exchangeable with the calibration values; ties count against significance.
    Without calibration values it is 1. Raises DataError for a value that is not a number.
    """
    audited, known = np.asarray(statistics, dtype=np.float64), np.sort(np.asarray(calibration, dtype=np.float64))
    if np.isnan(audited).any() or np.isnan(known).any():
        raise DataError("a statistic is not a number: leave texts without a score out")
    at_least = len(known) - np.searchsorted(known, audited, side="left")
    return np.asarray((1 + at_least) / (len(known) + 1))


def choose_texts_per_group(sizes: npt.ArrayLike) -> int:
    """q: the largest number of texts that at least 80% of the calibration groups, of ``sizes`` texts, have.

    Where 80% are fewer than 19 groups, that many (or all) have to have it: with fewer no p-value could be as small as
    0.05. Raises DataError without groups.
    """
    descending = np.sort(np.asarray(sizes))[::-1]
    if not len(descending):
        raise DataError("there are no calibration groups to compare with")
    n_compared = min(len(descending), max(math.ceil(SHARE_COMPARED * len(descending)), MIN_COMPARED))
    return int(descending[n_compared - 1])


def run_group_tests(audited: ScoredTexts, calibration: ScoredTexts) -> GroupTests:
    """Test the audited groups, in the order of their names, against the groups of calibration non-members.

    Means that are equal but for rounding are tied (statistics/ties.py). The test is refused, with a
    reason, if either side has no text.
    """
    known = calibration.nonmembers
    if not len(audited) or not len(known):
        side = "calibration non-members" if len(audited) else "audited texts"
        none = np.zeros(0, dtype=np.int64)
        return GroupTests(audited.groups[:0], none, none, np.empty(0), np.empty(0), none, f"there are no {side}")
    _, known_sizes = np.unique(known.groups, return_counts=True)
    groups, sizes = np.unique(audited.groups, return_counts=True)
    most = choose_texts_per_group(known_sizes)
    compared = np.minimum(sizes, most)
    first, known_first = _select_first_of_group(audited, most), _select_first_of_group(known, most)
    statistic, p_value = np.empty(len(groups)), np.empty(len(groups))
    n_calibration = np.empty(len(groups), dtype=np.int64)
    for count in np.unique(compared):
        is_compared = compared == count
        own, own_errors = _compute_means(first[is_compared], count)
        against, errors = _compute_means(known_first[known_sizes >= count], count)
        statistic[is_compared] = own
        p_value[is_compared] = conformal_p_values(*merge_tied_means(own, own_errors, against, errors))
        n_calibration[is_compared] = len(against)
    return GroupTests(groups, sizes, compared, statistic, p_value, n_calibration)


def q_values(p_values: npt.ArrayLike, method: Literal["bh", "by"]) -> Floats:
    """Adjusted p-values of one family (Benjamini-Hochberg, 1995; Benjamini-Yekutieli, 2001); empty stays empty."""
    values = np.asarray(p_values, dtype=np.float64)
    return np.asarray(scipy.stats.false_discovery_control(values, method=method)) if len(values) else values


def count_held_out_needed(n_tests: int, n_discoveries: int, level: float, factor: float = 1.0) -> int:
    """The fewest calibration groups with which ``n_discoveries`` of ``n_tests`` groups can have a q-value of ``level``.

    Each of them has the smallest p-value there can be then. ``factor``: by how much other q-values than Benjamini and
    Hochberg's exceed those.
    """
    return math.ceil(factor * n_tests / (level * n_discoveries) - 1e-9) - 1


def compute_joint_q_values(families: Sequence[npt.ArrayLike]) -> list[Floats]:
    """Benjamini-Yekutieli over all tests of all ``families`` (one per detector that was tried), family by family.

    Detectors score the same texts, so their p-values depend on each other in an unknown way.
    """
    values = [np.asarray(family, dtype=np.float64) for family in families]
    if not values:
        return []
    ends = np.cumsum([len(family) for family in values])
    return np.split(q_values(np.concatenate(values), "by"), ends[:-1])


def _select_first_of_group(texts: ScoredTexts, max_texts: int) -> Floats:
    """The scores of each group's first ``max_texts`` texts by key, [groups, max_texts]; what a group lacks is NaN."""
    names, codes = np.unique(texts.groups, return_inverse=True)
    order = np.lexsort((texts.keys, codes))
    place = np.arange(len(order)) - np.searchsorted(codes[order], np.arange(len(names)))[codes[order]]
    is_first = place < max_texts
    first = np.full((len(names), max_texts), np.nan)
    first[codes[order][is_first], place[is_first]] = texts.scores[order][is_first]
    return first


def _compute_means(scores: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the mean of the first ``count`` scores of each group, and by how much it may be off."""
    # Sorted, so that the order of a group's texts changes no digit of its statistic.
    compared = np.sort(scores[:, :count], axis=1)
    return np.asarray(compared.mean(axis=1)), bound_mean_error(np.abs(compared).mean(axis=1), count)
