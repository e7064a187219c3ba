"""95% intervals from a bootstrap over groups.

What belongs here: drawing groups and turning metrics of the draws into intervals. What does not: the metrics
themselves (roc.py), and intervals of a share of texts (rates.py).

Texts of one group (the windows of one book) are not independent, so whole groups are drawn with replacement, as many
as there are. They are drawn within strata of label composition: groups of members only, of non-members only, and of
both. So both classes are in every resample, and as many groups of each kind as there are. A stratum of one group would
add nothing to the interval's width, being drawn exactly once every time; where there is one, groups are drawn from
all strata together, and a draw that lacks a class is drawn again.

The AUROC's interval is normal on the logit scale: logit of the AUROC, plus and minus 1.96 standard deviations of the
logit over the resamples (Pepe 2003, The Statistical Evaluation of Medical Tests for Classification and Prediction,
with the bootstrap's deviation). It was chosen by measured coverage (docs/intervals.md): percentiles fall to 80.5% where
the AUROC is high and groups are few. Other metrics keep percentile intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.catalogue.contracts import MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.roc import (
    METRICS,
    RESAMPLED,
    Floats,
    Metric,
    Ranking,
    explain_undefined,
    rank,
    weighted_metrics,
)

PERCENTILES = (2.5, 97.5)
RESAMPLES = 2000
TAIL = 0.025
"""Of a two-sided 95% interval."""

_BLOCK = 64
# Arrays of a block stay below 128 KB: larger ones the C library may ask of the system each time, and up to five times
# as slow is what that comes to.
_BLOCK_ELEMENTS = 16_000

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A 95% interval; both ends are None where there is none."""

    low: float | None
    high: float | None


NO_INTERVAL = Interval(None, None)


class GroupBootstrap:
    """Resamples of n examples by group, the same ones each time they are asked for.

    They depend on the seed and on the groups' names and label composition, not on the order of the examples; two sets
    of examples whose groups agree in both share their resamples, so that metrics on them are paired.
    """

    def __init__(
        self,
        groups: Sequence[str],
        labels: npt.ArrayLike,
        *,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        """``groups`` and ``labels`` (0 or 1): [n]. Raises DataError for unequal lengths or fewer than one resample."""
        classes = np.asarray(labels)
        if len(groups) != len(classes):
            raise DataError(f"one group for each label is needed: {len(groups)} groups, {len(classes)} labels")
        if resamples < 1:
            raise DataError(f"the bootstrap needs at least one resample, not {resamples}")
        names, self._group = np.unique(np.array(groups, dtype=object), return_inverse=True)
        self.n_groups = len(names)
        self.resamples = resamples
        self.seed = seed
        member = classes == MEMBER
        self._pairs_of_texts = int(member.sum()) * int((~member).sum())
        self._has_member = np.bincount(self._group, weights=member, minlength=self.n_groups) > 0
        self._has_nonmember = np.bincount(self._group, weights=~member, minlength=self.n_groups) > 0
        self.problem = explain_undefined(classes) or self._explain_too_few_groups()

    @property
    def independent_pairs(self) -> int:
        """How many pairs of a member and a non-member there are at most of which no two share a group."""
        return min(int(self._has_member.sum()), int(self._has_nonmember.sum()), self.n_groups // 2)

    @property
    def description(self) -> str:
        """What was drawn, in words."""
        return f"{self.resamples} bootstrap resamples of {self.n_groups} groups (seed {self.seed})"

    @property
    def percentile_method(self) -> str:
        """How :func:`percentile_interval` has come about, or why there is none."""
        return self.problem or f"95% percentile interval from {self.description}"

    def interval_of(self, metric: Metric, value: float, resampled: npt.ArrayLike) -> tuple[Interval, str]:
        """The 95% interval of a ``RESAMPLED`` metric's ``value`` from its values [resamples], and how it came about."""
        if metric.interval == "logit":
            return self.auroc_interval(value, resampled), self.describe_auroc_method(value)
        return percentile_interval(resampled), self.percentile_method

    def auroc_interval(self, auroc: float, resampled: npt.ArrayLike) -> Interval:
        """The 95% interval of an ``auroc`` of the n examples, from its values [resamples] on the resamples.

        Logit of the AUROC, plus and minus 1.96 standard deviations of the resamples' logits; resamples of 0 or 1 are
        clipped by half a pair of texts. Where the AUROC itself is 0 or 1 no resample differs from it: then the exact
        bound of k independent pairs, all ordered alike (Clopper-Pearson: 0.025 ** (1/k)). None where there is a
        problem.
        """
        values = np.asarray(resampled, dtype=np.float64)
        if self.problem or not values.size:
            return NO_INTERVAL
        if _is_extreme(auroc):
            bound = TAIL ** (1 / self.independent_pairs)
            return Interval(bound, 1.0) if auroc == 1 else Interval(0.0, 1 - bound)
        half_a_pair = 0.5 / self._pairs_of_texts
        deviation = scipy.special.logit(np.clip(values, half_a_pair, 1 - half_a_pair)).std(ddof=min(1, values.size - 1))
        low, high = scipy.special.expit(scipy.special.logit(auroc) + scipy.special.ndtri([TAIL, 1 - TAIL]) * deviation)
        return Interval(float(low), float(high))

    def describe_auroc_method(self, auroc: float) -> str:
        """How :meth:`auroc_interval` has come about, or why there is none."""
        if self.problem:
            return self.problem
        if _is_extreme(auroc):
            return (
                f"95% interval by the exact bound of {self.independent_pairs} independent pairs of groups, all ordered "
                "alike: no resample differs"
            )
        return f"95% interval: logit of the AUROC ± 1.96 of its standard deviations over {self.description}"

    def _explain_too_few_groups(self) -> str | None:
        for name, groups in (("members", self._has_member), ("non-members", self._has_nonmember)):
            if groups.sum() < 2:
                return f"no interval: all {name} are of one group"
        return None

    def counts(self) -> Iterator[Counts]:
        """How often each group is drawn: blocks [b, n_groups], ``resamples`` rows in all; nothing after a problem."""
        if self.problem:
            return
        composition = self._has_member + 2 * self._has_nonmember
        strata = [np.flatnonzero(composition == kind) for kind in (1, 2, 3)]
        strata = [stratum for stratum in strata if len(stratum)]
        generator = np.random.default_rng(self.seed)
        pooled = any(len(stratum) == 1 for stratum in strata)
        if pooled:
            strata = [np.arange(self.n_groups)]
        for start in range(0, self.resamples, _BLOCK):
            rows = min(_BLOCK, self.resamples - start)
            drawn = self._draw(generator, strata, rows)
            while pooled and len(lacking := np.flatnonzero(~self._has_both(drawn))):
                drawn[lacking] = self._draw(generator, strata, len(lacking))
            yield drawn

    def _draw(self, generator: np.random.Generator, strata: Sequence[npt.NDArray[np.intp]], rows: int) -> Counts:
        counts = np.zeros((rows, self.n_groups), dtype=np.int64)
        for stratum in strata:
            size = len(stratum)
            places = generator.integers(0, size, (rows, size)) + size * np.arange(rows)[:, None]
            counts[:, stratum] = np.bincount(places.ravel(), minlength=rows * size).reshape(rows, size)
        return counts

    def _has_both(self, counts: Counts) -> npt.NDArray[np.bool_]:
        return np.asarray((counts @ self._has_member > 0) & (counts @ self._has_nonmember > 0))

    def metrics(self, rankings: Sequence[Ranking], names: Sequence[str] = RESAMPLED) -> Floats:
        """The metrics ``names`` of each ranking of the n examples on each resample: [rankings, resamples, names].

        One sort a ranking was enough; memory is bounded by blocks of resamples. [.., 0, ..] where there is a problem.
        """
        blocks = [
            np.stack([weighted_metrics(ranking, weights, names) for ranking in rankings])
            for counts in self.counts()
            for part in _split_counts(counts, len(self._group))
            for weights in [np.take(part, self._group, axis=1)]
        ]
        return np.concatenate(blocks, axis=1) if blocks and rankings else np.empty((len(rankings), 0, len(names)))


def percentile_interval(values: npt.ArrayLike) -> Interval:
    """The 2.5th and 97.5th percentile of resampled ``values``; no interval where there are none."""
    resampled = np.asarray(values, dtype=np.float64)
    if not resampled.size:
        return NO_INTERVAL
    low, high = np.percentile(resampled, PERCENTILES)
    return Interval(float(low), float(high))


def metric_intervals(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """The 95% interval of each ``RESAMPLED`` metric of one column of scores; raises DataError as metrics.rank does."""
    bootstrap = GroupBootstrap(groups, labels, resamples=resamples, seed=seed)
    ranking = rank(scores, labels)
    values = weighted_metrics(ranking, names=RESAMPLED)[0].tolist()
    resampled = bootstrap.metrics([ranking])[0].T
    return {
        name: bootstrap.interval_of(METRICS[name], value, draws)[0]
        for name, value, draws in zip(RESAMPLED, values, resampled, strict=True)
    }


def _is_extreme(auroc: float) -> bool:
    return auroc in (0.0, 1.0)


def _split_counts(counts: Counts, n: int) -> list[Counts]:
    """``counts`` in parts of few enough rows that a weight for each of n examples fits into a bounded block."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, n))
    return [counts[start : start + rows] for start in range(0, len(counts), rows)]
