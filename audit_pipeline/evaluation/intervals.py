"""95% percentile intervals from a bootstrap over groups.

What belongs here: drawing groups and turning metrics of the draws into intervals. What does not: the metrics
themselves (metrics.py).

Texts of one group (the windows of one book) are not independent, so whole groups are drawn with replacement, as many
as there are. They are drawn within strata of label composition: groups of members only, of non-members only, and of
both. So both classes are in every resample, and as many groups of each kind as there are. A stratum of one group would
add nothing to the interval's width, being drawn exactly once every time; where there is one, groups are drawn from
all strata together, and a draw that lacks a class is drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.contracts import MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.evaluation.metrics import METRICS, Floats, Ranking, rank, undefined, weighted_metrics

PERCENTILES = (2.5, 97.5)
RESAMPLES = 2000

_BLOCK = 64
_BLOCK_ELEMENTS = 1 << 15  # weights of one block fit into a core's cache: twice as fast as larger blocks

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
        self._has_member = np.bincount(self._group, weights=member, minlength=self.n_groups) > 0
        self._has_nonmember = np.bincount(self._group, weights=~member, minlength=self.n_groups) > 0
        self.problem = undefined(classes) or self._too_few_groups()

    def _too_few_groups(self) -> str | None:
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

    def metrics(self, rankings: Sequence[Ranking]) -> Floats:
        """The metrics of each ranking of the n examples on each resample: [len(rankings), resamples, 3].

        One sort a ranking was enough; memory is bounded by blocks of resamples. [.., 0, 3] where there is a problem.
        """
        blocks = [
            np.stack([weighted_metrics(ranking, part[:, self._group]) for ranking in rankings])
            for counts in self.counts()
            for part in _split(counts, len(self._group))
        ]
        return np.concatenate(blocks, axis=1) if blocks and rankings else np.empty((len(rankings), 0, len(METRICS)))


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
    """The 95% interval of each metric of one column of scores; raises DataError as metrics.rank does."""
    bootstrap = GroupBootstrap(groups, labels, resamples=resamples, seed=seed)
    resampled = bootstrap.metrics([rank(scores, labels)])[0]
    return {name: percentile_interval(resampled[:, column]) for column, name in enumerate(METRICS)}


def _split(counts: Counts, n: int) -> list[Counts]:
    """``counts`` in parts of few enough rows that a weight for each of n examples fits into a bounded block."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, n))
    return [counts[start : start + rows] for start in range(0, len(counts), rows)]
