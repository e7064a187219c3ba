"""Two detectors on the same texts: whether one separates members better than the other.

What belongs here: the difference of two AUROCs on shared texts and shared resamples of groups. What does not: a single
detector's interval (intervals.py), and what a difference means for a claim (it never raises a level).

As in table 11 of Raoof et al. 2025: difference, standard error and two-sided p-value from 1,000 bootstrap iterations.
Both detectors are read on the same draws of groups, so what they have in common cancels.

The p-value is of the centred bootstrap (Hall and Wilson 1991, Biometrics 47): the share of the resamples whose
difference lies as far from the observed difference as that lies from 0, one added to both counts. Twice the smaller
tail, which the paper's even thousandths suggest, calls 8.0% of equal detectors different at 5% with ten groups per
side, the centred one 5.9% (docs/intervals.md). The interval goes with it: the observed difference plus and minus the
95th percentile of those distances.

Resamples of few groups cannot tell more than the groups do. With k pairs of groups that share none, no p-value is
smaller than 2^(1-k), the least of a two-sided sign test of k pairs; below six pairs that is above 0.05 and there is no
95% interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.catalogue.contracts import COMPARISONS
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.evidence.columns import ScoreColumn
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.declared import AUROC
from audit_pipeline.metrics.intervals import NO_INTERVAL, TAIL, GroupBootstrap, Interval
from audit_pipeline.metrics.metrics import rank, undefined, weighted_metrics
from audit_pipeline.separability import blind_control as blind

ITERATIONS = 1000

_AUROC = (AUROC.name,)
_MEANING = "AUROC less the other's, on the same texts and resamples"
_ROUNDING = 1e-12
"""Differences of AUROCs that are equal but for rounding count as equal."""
_BLIND_NOTE = "the blind control's scores are taken as given, so that the interval is too narrow rather than too wide"


@dataclass(frozen=True)
class Comparison:
    """AUROC of one detector less that of another on the same texts; the rest is None where there are no resamples."""

    difference: float
    standard_error: float | None
    interval: Interval
    p_value: float | None
    method: str


def compared(difference: float, resampled: Floats, bootstrap: GroupBootstrap, *, meaning: str = _MEANING) -> Comparison:
    """The comparison from an observed ``difference`` and its values [iterations] on the resamples of ``bootstrap``.

    ``meaning`` begins the method.
    """
    if bootstrap.problem or not resampled.size:
        return Comparison(difference, None, NO_INTERVAL, None, f"{meaning}; {bootstrap.problem}")
    distances = np.abs(resampled - difference)
    as_far = int(np.count_nonzero(distances >= abs(difference) - _ROUNDING))
    least = 2.0 ** (1 - bootstrap.independent_pairs)
    method = f"{meaning}; standard error and two-sided p-value of the centred bootstrap from {bootstrap.description}"
    if least > 1 / (resampled.size + 1):
        method += f"; no p-value below 2^(1-k) with k = {bootstrap.independent_pairs} independent pairs of groups"
    if least > 2 * TAIL:
        interval = NO_INTERVAL
        method += "; no 95% interval: six are needed"
    else:
        width = float(np.quantile(distances, 1 - 2 * TAIL, method="higher"))
        interval = Interval(max(-1.0, difference - width), min(1.0, difference + width))
        method += "; 95% interval: the difference ± the 95th percentile of the resamples' distances from it"
    return Comparison(
        difference,
        float(resampled.std(ddof=min(1, resampled.size - 1))),
        interval,
        max(min(1.0, least), (1 + as_far) / (resampled.size + 1)),
        method,
    )


def comparisons(
    columns: Sequence[ScoreColumn],
    *,
    model: str,
    benchmark: str,
    run_id: str,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> pa.Table:
    """Every two default-setting detectors of ``columns``, and each against the blind control where it is among them.

    ``columns`` are an Evaluation's. The table has the columns of COMPARISONS, one row per pair, in the columns' order,
    the blind control always the other. A pair is compared on the texts that both have scored; where these are not of
    both classes there is no difference, and no row.
    """
    defaults = [column for column in columns if column.is_default]
    defaults.sort(key=lambda column: column.detector == blind.NAME)
    found: dict[tuple[int, int], dict[str, object]] = {}
    for shared, pairs in _by_texts(defaults).items():
        kept = np.frombuffer(shared, dtype=np.bool_)
        first = defaults[pairs[0][0]]
        own = kept[first.scored]
        labels = first.labels[own]
        if undefined(labels):
            continue
        groups = [group for group, one in zip(first.groups, own, strict=True) if one]
        used = sorted({index for pair in pairs for index in pair})
        scores = np.stack([defaults[index].scores[kept[defaults[index].scored]] for index in used])
        places = [(used.index(one), used.index(other)) for one, other in pairs]
        results = _compare_all(scores, labels, groups, places, iterations, seed)
        n_members = int(labels.sum())
        for (one, other), result in zip(pairs, results, strict=True):
            against_blind = defaults[other].detector == blind.NAME
            found[one, other] = {
                "model": model,
                "benchmark": benchmark,
                "detector": defaults[one].detector,
                "parameters": defaults[one].parameters,
                "other": defaults[other].detector,
                "other_parameters": defaults[other].parameters,
                "n_members": n_members,
                "n_nonmembers": len(labels) - n_members,
                "n_groups": len(set(groups)),
                "difference": result.difference,
                "standard_error": result.standard_error,
                "ci_low": result.interval.low,
                "ci_high": result.interval.high,
                "p_value": result.p_value,
                "method": f"{result.method}; {_BLIND_NOTE}" if against_blind else result.method,
                "run_id": run_id,
            }
    return table_from_rows((found[pair] for pair in sorted(found)), COMPARISONS)


def _by_texts(columns: Sequence[ScoreColumn]) -> dict[bytes, list[tuple[int, int]]]:
    """The pairs of columns by the texts that both have scored: one draw of resamples serves all pairs of a list."""
    same: dict[bytes, list[tuple[int, int]]] = {}
    for one, other in combinations(range(len(columns)), 2):
        same.setdefault((columns[one].scored & columns[other].scored).tobytes(), []).append((one, other))
    return same


def _compare_all(
    scores: Floats,
    labels: npt.ArrayLike,
    groups: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    iterations: int,
    seed: int,
) -> list[Comparison]:
    """The comparisons of ``pairs`` of rows of ``scores`` [detectors, n], all on the same resamples."""
    rankings = [rank(row, labels) for row in scores]
    bootstrap = GroupBootstrap(groups, labels, resamples=iterations, seed=seed)
    aurocs = [float(weighted_metrics(ranking, names=_AUROC)[0, 0]) for ranking in rankings]
    resampled = bootstrap.metrics(rankings, _AUROC)[:, :, 0]
    return [compared(aurocs[one] - aurocs[other], resampled[one] - resampled[other], bootstrap) for one, other in pairs]
