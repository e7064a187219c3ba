"""95% intervals of texts that come in groups, in closed form: of an AUROC, and of means over texts.

Texts of one group (the windows of one book) are not independent, so a group counts as one observation. A text's part in
an AUROC is the share of the other side that it is ordered with as members and non-members should be (DeLong, DeLong and
Clarke-Pearson 1988), minus its mean; summed by group, and a group's members and non-members together, this gives the
variance of clustered data (Obuchowski 1997, Biometrics 53). Each sum is divided by the share of its side that is of
other groups: that is by how much the AUROC changes where the group is left out, the jackknife but for terms of second
order, so that a group that holds most of a side counts in full. With one text per group this is DeLong's variance.

The degrees of freedom are Satterthwaite's of three parts: groups of members only, of non-members only, and of both. The
AUROC's interval is built on the logit scale (Pepe 2003). It was all chosen by measured coverage: docs/intervals.md.
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
from audit_pipeline.statistics.roc import ALL_EQUAL, AUROC, Floats, RocPoints, explain_undefined, roc_points
from audit_pipeline.tables import MEMBER

Groups = Sequence[str] | npt.NDArray[Any]
"""The group of each of n examples: its name, or a number of it."""
TAIL = 0.025
"""Of a two-sided 95% interval."""
NOTHING_VARIES = "no interval: the groups do not differ"
"""Why there is none although there are groups enough: their parts are all the same, so the standard error is 0."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Interval:
    """A 95% interval; both ends are None where there is none."""

    low: float | None
    high: float | None


NO_INTERVAL = Interval(None, None)


@dataclass(frozen=True)
class Measurement:
    """A number with its 95% interval; ``method`` says how both were computed, or why one of them is missing."""

    value: float | None
    interval: Interval
    method: str


def encode_groups(groups: Groups) -> npt.NDArray[np.intp]:
    """Return the place of each group's name among the names given, in order: [n]."""
    encoded = pa.array(groups).dictionary_encode()
    places = np.empty(len(encoded.dictionary), dtype=np.intp)
    places[pc.sort_indices(encoded.dictionary)] = np.arange(len(places))
    return np.asarray(places[encoded.indices.to_numpy()])


@dataclass(frozen=True)
class Scatter:
    """How far a statistic scatters over draws of groups: its standard error, with so many degrees of ``freedom``."""

    standard_error: float
    freedom: float

    def compute_half_width(self, tail: float = TAIL) -> float:
        """Half the width of the interval with ``tail`` beyond each end."""
        return float(scipy.special.stdtrit(self.freedom, 1 - tail)) * self.standard_error

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of no difference, of t = ``value`` over the standard error."""
        return max(SMALLEST_P, float(2 * scipy.special.stdtr(self.freedom, -abs(value) / self.standard_error)))

    @property
    def description(self) -> str:
        return f"Student's t with {self.freedom:.3g} degrees of freedom"


class GroupedSides:
    """Which groups n labelled examples are of, by side."""

    def __init__(self, groups: Groups, labels: npt.ArrayLike) -> None:
        """``groups`` and ``labels`` (0 or 1): [n]. Raises DataError for unequal lengths."""
        self.labels = np.asarray(labels)
        if len(groups) != len(self.labels):
            raise DataError(f"one group for each label is needed: {len(groups)} groups, {len(self.labels)} labels")
        self.groups = encode_groups(groups)
        self.n_groups = int(self.groups.max(initial=-1)) + 1
        is_member = self.labels == MEMBER
        self._sides = (is_member, ~is_member)
        self._sizes = [np.bincount(self.groups[side], minlength=self.n_groups) for side in self._sides]
        single_group = [
            f"no interval: all {name} are of one group"
            for name, count in zip(("members", "non-members"), self.groups_by_side, strict=True)
            if count < 2
        ]
        self.problem = explain_undefined(self.labels) or next(iter(single_group), None)
        """Why there is no interval; None where there can be one."""

    @property
    def groups_by_side(self) -> tuple[int, int]:
        """How many groups have members, and how many non-members."""
        members, nonmembers = (int(np.count_nonzero(sizes)) for sizes in self._sizes)
        return members, nonmembers

    @property
    def independent_pairs(self) -> int:
        """How many pairs of a member and a non-member there are at most of which no two share a group."""
        return min(*self.groups_by_side, self.n_groups // 2)

    def compute_influences(self, values: Floats) -> Floats:
        """Return each group's part in the mean of the members' ``values`` [n] plus that of the others': [groups].

        It is by how much the statistic would change, but for the sign, if the group were left out of either mean.
        """
        parts = np.zeros(self.n_groups)
        for side, sizes in zip(self._sides, self._sizes, strict=True):
            of_side = values[side]
            if not len(of_side):
                continue
            sums = np.bincount(self.groups[side], weights=of_side, minlength=self.n_groups)
            # A side of one group has no others; its problem is said elsewhere.
            parts += (sums - of_side.mean() * sizes) / np.maximum(len(of_side) - sizes, 1)
        return parts

    def compute_scatter(self, parts: Floats) -> Scatter | None:
        """Return the standard error of a statistic with these ``parts`` [groups]; None where they do not differ.

        The degrees of freedom are Satterthwaite's, and never more than if all groups scattered alike: of two groups
        against twenty, the two may happen to scatter too little to count.
        """
        own, other = (1 / max(1, count) for count in self.groups_by_side)
        has_member, has_nonmember = (sizes > 0 for sizes in self._sizes)
        found: list[tuple[float, float, float]] = []
        for chosen, lost, single in (
            (has_member & ~has_nonmember, own, own**2),
            (has_nonmember & ~has_member, other, other**2),
            (has_member & has_nonmember, max(own, other), own**2 + other**2),
        ):
            # Each group loses its share of the degree of freedom that the side's mean takes.
            if chosen.any() and lost < 1:
                count = np.count_nonzero(chosen)
                found.append(((1 - lost) * float(parts[chosen] @ parts[chosen]), count * single, count * (1 - lost)))
        observed, alike, freedoms = np.array(found).T if found else np.zeros((3, 1))
        if observed.sum() <= _ROUNDING**2:
            return None
        freedom = min(float(variances.sum() ** 2 / (variances**2 / freedoms).sum()) for variances in (observed, alike))
        return Scatter(float(np.sqrt(observed.sum())), max(1.0, freedom))


@dataclass(frozen=True, eq=False)
class MeasuredAuroc(Measurement):
    """An AUROC, and each group's part in it (``parts`` [groups]); those of two detectors on the same texts can be
    subtracted."""

    value: float
    parts: Floats


def measure_auroc(curve: RocPoints, sides: GroupedSides) -> MeasuredAuroc:
    """Return the AUROC of a ROC ``curve`` of the examples of ``sides``, with its interval by group.

    An AUROC that is less than half a pair of groups away from 0 or 1 counts as 0 or 1, and has the exact bound of k
    independent pairs that are all ordered alike (Clopper and Pearson: 0.025 ** (1/k)): so few texts out of order say
    nothing of other groups.
    """
    false, true = curve.false, curve.true
    # Half of the tied ones count. In whole numbers, whose sums do not depend on the order of the examples.
    twice_pairs = 2 * false[-1] * true[-1]
    right_of_member = (2 * false[-1] - false[1:] - false[:-1]) * true[-1]
    right_of_nonmember = (true[1:] + true[:-1]) * false[-1]
    ordered = np.where(sides.labels == MEMBER, right_of_member[curve.place - 1], right_of_nonmember[curve.place - 1])
    value, parts = AUROC.of_curve(curve), sides.compute_influences(ordered) / twice_pairs
    if sides.problem:
        return MeasuredAuroc(value, NO_INTERVAL, sides.problem, parts)
    if len(curve.threshold) == 2:
        return MeasuredAuroc(value, NO_INTERVAL, ALL_EQUAL, parts)
    members, nonmembers = sides.groups_by_side
    if min(value, 1 - value) * members * nonmembers <= 0.5 + _ROUNDING:
        pairs = sides.independent_pairs
        bound = TAIL ** (1 / pairs)
        how = f"95% interval by the exact bound of {pairs} independent pairs of groups, all ordered alike"
        return MeasuredAuroc(value, Interval(bound, 1.0) if value > 0.5 else Interval(0.0, 1 - bound), how, parts)
    scatter = sides.compute_scatter(parts)
    if scatter is None:
        return MeasuredAuroc(value, NO_INTERVAL, NOTHING_VARIES, parts)
    # The logit's deviation by the delta method.
    reach = scatter.compute_half_width() / (value * (1 - value))
    low, high = scipy.special.expit(scipy.special.logit(value) + np.array([-reach, reach]))
    how = f"95% interval by the variance over {sides.n_groups} groups, on the logit scale, {scatter.description}"
    return MeasuredAuroc(value, Interval(float(low), float(high)), how, parts)


def measure_auroc_of_scores(scores: npt.ArrayLike, labels: npt.ArrayLike, groups: Groups) -> MeasuredAuroc:
    """As :func:`measure_auroc`, of ``scores``, ``labels`` and ``groups`` [n]; raises DataError as roc_points does."""
    return measure_auroc(roc_points(scores, labels), GroupedSides(groups, labels))
