"""95% intervals of an AUROC and of means over grouped texts, in closed form.

Texts of one group (the windows of one book) are not independent, so a group counts as one observation.

For each text, compute the share of texts of the other side that are ordered correctly relative to it. The influence of
the text on the AUROC is this share minus its mean over the text's side (DeLong, DeLong and Clarke-Pearson 1988). The
influences are summed by group, over members and non-members. The variance of these sums is the variance of clustered
data (Obuchowski 1997, Biometrics 53). Here each sum is also divided by the share of the side's texts that belong to
other groups. Except for terms of second order, the quotient is the change of the AUROC if the group is omitted, as in
the jackknife. A group with most texts of a side therefore counts in full. With one text per group the result is
DeLong's variance.

The variance has three parts: groups with only members, groups with only non-members, and groups with both. The degrees
of freedom are those of Satterthwaite for these parts. The interval of the AUROC is computed on the logit scale (Pepe
2003). The methods were chosen by their measured coverage (docs/intervals.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import SMALLEST_P
from audit_pipeline.statistics.roc import ALL_EQUAL, AUROC, Floats, RocPoints, compute_roc_points, explain_undefined
from audit_pipeline.tables import MEMBER

Groups = Sequence[str] | npt.NDArray[Any]
"""The group of each example: its name or its number."""
TAIL = 0.025
"""The probability beyond each end of a two-sided 95% interval."""
NOTHING_VARIES = "no interval: the groups do not differ"
"""The reason for a missing interval if the influences of all groups are equal, so that the standard error is 0."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Interval:
    """A 95% interval. Both ends are None if there is no interval."""

    low: float | None
    high: float | None


NO_INTERVAL = Interval(None, None)


@dataclass(frozen=True)
class Measurement:
    """A number with its 95% interval.

    Attributes:
        value: The number, or None if it is undefined.
        interval: The interval.
        method: How the number and the interval were computed, or the reason why one of them is missing.
    """

    value: float | None
    interval: Interval
    method: str


def encode_groups(groups: Groups) -> npt.NDArray[np.intp]:
    """Return the index of each example's group in the sorted list of distinct group names, of shape (n,)."""
    encoded = pa.array(groups).dictionary_encode()
    numbers = np.empty(len(encoded.dictionary), dtype=np.intp)
    numbers[pc.sort_indices(encoded.dictionary)] = np.arange(len(numbers))
    return np.asarray(numbers[encoded.indices.to_numpy()])


@dataclass(frozen=True)
class Scatter:
    """The variation of a statistic over samples of groups.

    Attributes:
        standard_error: The standard error of the statistic.
        freedom: The degrees of freedom of the standard error.
    """

    standard_error: float
    freedom: float

    def compute_half_width(self, tail: float = TAIL) -> float:
        """Return half the width of the interval with probability ``tail`` beyond each end."""
        return float(scipy.special.stdtrit(self.freedom, 1 - tail)) * self.standard_error

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of t = value / standard_error."""
        return max(SMALLEST_P, float(2 * scipy.special.stdtr(self.freedom, -abs(value) / self.standard_error)))

    @property
    def description(self) -> str:
        """Return the name of the distribution, which becomes part of ``Measurement.method``."""
        return f"Student's t with {self.freedom:.3g} degrees of freedom"


class GroupedSides:
    """The groups of labelled examples, by side.

    Attributes:
        labels: The label of each example, 0 or 1.
        groups: The group number of each example.
        n_groups: Number of groups.
        problem: The reason why no interval can be computed, or None.
    """

    def __init__(self, groups: Groups, labels: npt.ArrayLike) -> None:
        """Count the groups of each side.

        Args:
            groups: The group of each example.
            labels: The label of each example, 0 or 1.

        Raises:
            DataError: If the lengths differ.
        """
        self.labels = np.asarray(labels)
        if len(groups) != len(self.labels):
            raise DataError(
                f"there must be one group per label, but there are {len(groups)} groups and {len(self.labels)} labels"
            )
        self.groups = encode_groups(groups)
        self.n_groups = int(self.groups.max(initial=-1)) + 1
        is_member = self.labels == MEMBER
        self._sides = (is_member, ~is_member)
        self._sizes = [np.bincount(self.groups[side], minlength=self.n_groups) for side in self._sides]
        self.problem = explain_undefined(self.labels) or self._explain_single_group()

    def _explain_single_group(self) -> str | None:
        for name, count in zip(("members", "non-members"), self.groups_by_side, strict=True):
            if count < 2:
                return f"no interval: all {name} are of one group"
        return None

    @property
    def groups_by_side(self) -> tuple[int, int]:
        """Return the number of groups with members and the number of groups with non-members."""
        members, nonmembers = self._sizes
        return int(np.count_nonzero(members)), int(np.count_nonzero(nonmembers))

    @property
    def independent_pairs(self) -> int:
        """Return the maximum number of pairs of a member and a non-member such that no two pairs share a group."""
        return min(*self.groups_by_side, self.n_groups // 2)

    def compute_influences(self, values: Floats) -> Floats:
        """Compute the influence of each group on the statistic "mean of the members + mean of the non-members".

        Except for the sign, the influence is the change of the statistic if the group is omitted from both means.

        Args:
            values: The values of the examples, of shape (n,).

        Returns:
            Array of shape (n_groups,).
        """
        influences = np.zeros(self.n_groups)
        for side, sizes in zip(self._sides, self._sizes, strict=True):
            side_values = values[side]
            if not len(side_values):
                continue
            sums = np.bincount(self.groups[side], weights=side_values, minlength=self.n_groups)
            # If a side has a single group, the divisor would be 0. ``problem`` reports that case.
            influences += (sums - side_values.mean() * sizes) / np.maximum(len(side_values) - sizes, 1)
        return influences

    def compute_scatter(self, parts: Floats) -> Scatter | None:
        """Compute the standard error of a statistic, or return None if the influences are equal.

        The degrees of freedom are those of Satterthwaite, but at most those of groups with equal variance. Otherwise
        two groups of members that by chance hardly vary would have no effect beside twenty groups of non-members.

        Args:
            parts: The influences of the groups, of shape (n_groups,).
        """
        n_member_groups, n_nonmember_groups = self.groups_by_side
        member_share = 1 / max(1, n_member_groups)
        nonmember_share = 1 / max(1, n_nonmember_groups)
        member_sizes, nonmember_sizes = self._sizes
        has_member = member_sizes > 0
        has_nonmember = nonmember_sizes > 0
        # One entry per part: its variance, its variance if all groups vary equally, and its degrees of freedom.
        terms: list[tuple[float, float, float]] = []
        for selected, lost_share, equal_variance in (
            (has_member & ~has_nonmember, member_share, member_share**2),
            (has_nonmember & ~has_member, nonmember_share, nonmember_share**2),
            (
                has_member & has_nonmember,
                max(member_share, nonmember_share),
                member_share**2 + nonmember_share**2,
            ),
        ):
            # The estimated mean of a side costs one degree of freedom, which is divided among the side's groups.
            if selected.any() and lost_share < 1:
                count = np.count_nonzero(selected)
                variance = (1 - lost_share) * float(parts[selected] @ parts[selected])
                terms.append((variance, count * equal_variance, count * (1 - lost_share)))
        observed, equal, freedoms = np.array(terms).T if terms else np.zeros((3, 1))
        if observed.sum() <= _ROUNDING**2:
            return None
        freedom = min(float(variances.sum() ** 2 / (variances**2 / freedoms).sum()) for variances in (observed, equal))
        return Scatter(float(np.sqrt(observed.sum())), max(1.0, freedom))


@dataclass(frozen=True, eq=False)
class MeasuredAuroc(Measurement):
    """An AUROC with the influences of groups.

    Attributes:
        value: The AUROC.
        parts: The influence of each group, of shape (n_groups,). The difference of two AUROCs on the same texts has the
            difference of their influences.
    """

    value: float
    parts: Floats


def measure_auroc(curve: RocPoints, sides: GroupedSides) -> MeasuredAuroc:
    """Measure the AUROC of a ROC curve, with its interval by group.

    Let n be the number of pairs of a group of members and a group of non-members. An AUROC within 0.5 / n of 0 or 1 has
    the same interval as 0 or 1. Its inner end is the exact bound of k independent pairs of groups with the same order,
    0.025 ** (1/k) (Clopper and Pearson). The variance is not used in this case, because a few texts in the opposite
    order show nothing about other groups.

    Args:
        curve: The ROC curve.
        sides: The groups of the same examples.
    """
    false = curve.false
    true = curve.true
    # Ties count half. The sums are whole numbers, so they do not depend on the order of the examples.
    twice_pairs = 2 * false[-1] * true[-1]
    right_of_member = (2 * false[-1] - false[1:] - false[:-1]) * true[-1]
    right_of_nonmember = (true[1:] + true[:-1]) * false[-1]
    ordered = np.where(
        sides.labels == MEMBER,
        right_of_member[curve.threshold_index - 1],
        right_of_nonmember[curve.threshold_index - 1],
    )
    value = AUROC.compute_value(curve)
    parts = sides.compute_influences(ordered) / twice_pairs
    if sides.problem:
        return MeasuredAuroc(value, NO_INTERVAL, sides.problem, parts)
    if len(curve.threshold) == 2:
        return MeasuredAuroc(value, NO_INTERVAL, ALL_EQUAL, parts)
    members, nonmembers = sides.groups_by_side
    if min(value, 1 - value) * members * nonmembers <= 0.5 + _ROUNDING:
        pairs = sides.independent_pairs
        bound = TAIL ** (1 / pairs)
        interval = Interval(bound, 1.0) if value > 0.5 else Interval(0.0, 1 - bound)
        method = f"95% interval by the exact bound of {pairs} independent pairs of groups, all ordered alike"
        return MeasuredAuroc(value, interval, method, parts)
    scatter = sides.compute_scatter(parts)
    if scatter is None:
        return MeasuredAuroc(value, NO_INTERVAL, NOTHING_VARIES, parts)
    # The delta method converts the standard error to the logit scale.
    half_width = scatter.compute_half_width() / (value * (1 - value))
    low, high = scipy.special.expit(scipy.special.logit(value) + np.array([-half_width, half_width]))
    method = f"95% interval by the variance over {sides.n_groups} groups, on the logit scale, {scatter.description}"
    return MeasuredAuroc(value, Interval(float(low), float(high)), method, parts)


def measure_auroc_of_scores(scores: npt.ArrayLike, labels: npt.ArrayLike, groups: Groups) -> MeasuredAuroc:
    """Measure the AUROC of scores with its interval by group.

    Raises:
        DataError: In the cases of :func:`compute_roc_points`.
    """
    return measure_auroc(compute_roc_points(scores, labels), GroupedSides(groups, labels))
