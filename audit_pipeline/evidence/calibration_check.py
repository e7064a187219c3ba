"""Whether the thresholds keep their word: non-members calibrate, and other non-members are called.

What belongs here: splitting non-members at random many times, and what comes of it. What does not: the thresholds
(thresholds.py).

A test of the instrument, not of a model: it says whether the groups are exchangeable with each other and the rules
right, and nothing about texts of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.errors import DataError
from audit_pipeline.evidence.thresholds import (
    Rule,
    ScoredTexts,
    certified_needs,
    certified_rank,
    marginal_needs,
    marginal_rank,
)
from audit_pipeline.metrics.curves import Floats

ALPHAS = (0.01, 0.05, 0.10)
SPLITS = 200

_SLACK = 1e-9
"""Relative: a rate that equals alpha does not exceed it, whatever the rounding of its sum."""

_RULES: tuple[tuple[Rule, Callable[[int, float], int | None], Callable[[float], int]], ...] = (
    ("marginal", marginal_rank, marginal_needs),
    ("certified", certified_rank, certified_needs),
)


@dataclass(frozen=True)
class CalibrationCheck:
    """A rule at one alpha over ``splits`` random halves of ``n_groups`` groups.

    ``mean_fpr`` is the mean of the splits' rates, ``standard_error`` their standard deviation over the root of
    ``splits`` (the splits share their groups, so it is the error of drawing splits, not of drawing groups), and
    ``over_alpha`` the share of splits with a rate above alpha. None, with the reason, where the rule refuses.
    """

    rule: Rule
    alpha: float
    splits: int
    n_groups: int
    mean_fpr: float | None
    standard_error: float | None
    over_alpha: float | None
    reason: str | None


def calibration_check(
    nonmembers: ScoredTexts, *, alphas: Sequence[float] = ALPHAS, splits: int = SPLITS, seed: int = 0
) -> list[CalibrationCheck]:
    """Each rule at each alpha, on random halves of the groups of ``nonmembers``: the smaller half calibrates.

    In every split one text is drawn of each calibration group, and the rate is the mean over the other groups of
    the share of a group's texts that is flagged: how often a text drawn from a new group is. The same for every order
    of texts. Raises DataError for fewer than two splits, ConfigError for an alpha outside (0, 1).
    """
    if splits < 2:
        raise DataError(f"the calibration check needs at least two splits, not {splits}")
    n_groups = nonmembers.n_groups
    half = n_groups // 2
    ranks = {(rule, alpha): rank_of(half, alpha) for rule, rank_of, _ in _RULES for alpha in alphas}
    wanted = sorted({rank for rank in ranks.values() if rank is not None})
    rates = dict(zip(wanted, _rates(nonmembers, half, wanted, splits, seed).T, strict=True)) if wanted else {}
    checks = []
    for rule, _, needed in _RULES:
        for alpha in alphas:
            rank = ranks[rule, alpha]
            if rank is None:
                reason = (
                    f"{n_groups} groups of non-members, of which {half} calibrate; "
                    f"a {rule} threshold at {alpha:g} needs {needed(alpha)}"
                )
                checks.append(CalibrationCheck(rule, alpha, splits, n_groups, None, None, None, reason))
                continue
            found = rates[rank]
            error = float(found.std(ddof=1) / np.sqrt(splits))
            over = float((found > alpha * (1 + _SLACK)).mean())
            checks.append(CalibrationCheck(rule, alpha, splits, n_groups, float(found.mean()), error, over, None))
    return checks


def _rates(texts: ScoredTexts, half: int, ranks: Sequence[int], splits: int, seed: int) -> Floats:
    """The false-positive rate on the other half, where the order statistics of ``ranks`` are the limit: [splits, r]."""
    names, codes = np.unique(texts.groups, return_inverse=True)
    order = np.lexsort((texts.keys, codes))
    scores, codes = texts.scores[order], codes[order]
    sizes = np.bincount(codes)
    starts = np.cumsum(sizes) - sizes
    generator = np.random.default_rng(seed)
    places = np.array(ranks) - 1
    rates = np.empty((splits, len(ranks)))
    for split in range(splits):
        calibrating = generator.permutation(len(names))[:half]
        drawn = starts[calibrating] + (generator.random(half) * sizes[calibrating]).astype(np.intp)
        limits = np.sort(scores[drawn])[places]
        weights = 1 / sizes
        weights[calibrating] = 0
        weights /= len(names) - half
        by_text = weights[codes]
        for column, limit in enumerate(limits):
            rates[split, column] = by_text[scores > limit].sum()
    return rates
