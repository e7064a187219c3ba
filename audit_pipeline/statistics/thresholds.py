"""Thresholds from a calibration split, what they achieve on texts that chose nothing, and whether they keep their word.

A text is called a member where score >= threshold, so the order statistic that a rule picks is stepped over: the
threshold is the next float above it, and a text tied with it is not called a member.

In the check non-members calibrate, and other non-members are called. It is a test of the instrument, not of a model: it
says whether the groups are exchangeable with each other and the rules right, and nothing about texts of another kind.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.statistics.roc import Bools, Floats, Places
from audit_pipeline.statistics.share_bounds import Rate, grouped_rate
from audit_pipeline.tables import MEMBER, NON_MEMBER

Rule = Literal["largest_accuracy", "marginal", "certified"]
Keys = npt.NDArray[np.uint64]

RISK = 0.05
"""How often, over calibrations, the false-positive rate of a certified threshold may exceed alpha."""

_DRAW = "one text a group, drawn by a hash of seed, group and example"


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """n texts with a score: [n] each.

    ``labels`` are 1 (member), 0 (non-member) or anything else (unknown), ``groups`` names or numbers, ``keys`` the
    random order of texts (:func:`compute_sampling_keys`). Raises DataError for unequal lengths or scores not finite.
    """

    scores: Floats
    labels: npt.NDArray[np.integer]
    groups: npt.NDArray[Any]
    keys: Keys

    def __post_init__(self) -> None:
        if not len(self.scores) == len(self.labels) == len(self.groups) == len(self.keys):
            raise DataError("one score, label, group and key for each text are needed")
        if not np.isfinite(self.scores).all():
            raise DataError("a score is not a finite number: leave texts without a score out")

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, selection: Bools | Places) -> ScoredTexts:
        """Return those of the texts that a mask or places choose."""
        return ScoredTexts(self.scores[selection], self.labels[selection], self.groups[selection], self.keys[selection])

    @property
    def members(self) -> ScoredTexts:
        """Those with label 1."""
        return self.take(self.labels == MEMBER)

    @property
    def nonmembers(self) -> ScoredTexts:
        """Those with label 0."""
        return self.take(self.labels == NON_MEMBER)

    @property
    def n_groups(self) -> int:
        """How many groups the texts are of."""
        return len(np.unique(self.groups))

    def draw_one_per_group(self) -> ScoredTexts:
        """Return the text of the smallest key of each group; as random as the keys, whatever the order of texts."""
        names, codes = np.unique(self.groups, return_inverse=True)
        order = np.lexsort((self.keys, codes))
        return self.take(order[np.searchsorted(codes[order], np.arange(len(names)))])


@dataclass(frozen=True)
class Threshold:
    """What a rule chose; where it refused, ``threshold`` is None and ``reason`` says why.

    ``order_statistic`` is the score that the threshold is the next float above of, for the two rules that pick one.
    """

    rule: Rule
    alpha: float | None
    threshold: float | None
    reason: str | None
    method: str
    order_statistic: float | None = None

    @property
    def status(self) -> Literal["ok", "refused"]:
        return "ok" if self.reason is None else "refused"


def compute_sampling_keys(groups: Sequence[str], example_ids: Sequence[str], seed: int) -> Keys:
    """Return a pseudo-random number for each of n texts, from a hash of (seed, group, example id): [n].

    The texts of a group in the order of their keys are in random order, which does not depend on the order of rows.
    Two texts of a group need two ids, or the order of rows decides between them.
    """
    return np.array(
        [
            int.from_bytes(hashlib.blake2b(f"{seed}\0{group}\0{example_id}".encode(), digest_size=8).digest(), "big")
            for group, example_id in zip(groups, example_ids, strict=True)
        ],
        dtype=np.uint64,
    )


def choose_largest_accuracy(calibration: ScoredTexts) -> Threshold:
    """Return the threshold that classifies most calibration texts correctly (Shi et al. 2024, section 5.1).

    Every text counts once, so with unequal sides the larger one weighs more. The candidates are the scores and the
    next float above the largest; of candidates with the same accuracy the largest is taken, which flags fewest texts.
    Refused without members or without non-members.
    """
    missing = [
        name
        for name, side in (("non-members", calibration.nonmembers), ("members", calibration.members))
        if not len(side)
    ]
    method = "largest share of calibration texts on the right side; of equals the largest threshold"
    if missing:
        reason = f"there are no calibration {' and no '.join(missing)} with a score, and largest accuracy needs both"
        return Threshold("largest_accuracy", None, None, reason, method)
    known = calibration.take(np.isin(calibration.labels, (MEMBER, NON_MEMBER)))
    order = np.argsort(-known.scores, kind="stable")
    ordered = known.scores[order]
    gain = np.cumsum(np.where(known.labels[order] == MEMBER, 1, -1))
    last_of_ties = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    gains = np.append(0, gain[last_of_ties])
    candidates = np.append(np.nextafter(ordered[0], np.inf), ordered[last_of_ties])
    return Threshold("largest_accuracy", None, float(candidates[np.argmax(gains)]), None, method)


def choose_order_statistic(rule: Rule, calibration: ScoredTexts, alpha: float) -> Threshold:
    """Return the threshold just above an order statistic of the non-members, one text drawn of each of their n groups.

    ``marginal``: E[FPR] <= alpha, over calibrations and the text that is then called, by the
    ceil((n + 1)(1 - alpha))-th smallest of the n scores: split conformal prediction (Vovk et al., 2005; Papadopoulos
    et al., 2002). Refused where that exceeds n.

    ``certified``: P(FPR > alpha) <= 0.05 over calibrations, by the smallest rank k with
    P(Binomial(n, 1 - alpha) >= k) <= 0.05: the share of the population at or below the k-th smallest is
    Beta(k, n - k + 1), or more where scores tie (tolerance limits of Wilks, 1941). Refused where no rank has that,
    which (1 - alpha)^n > 0.05 says: under 59 groups at 5%, 299 at 1%.

    Texts of one group are not independent, so one text is drawn of each. Both promises are about texts drawn at random
    from new groups that are exchangeable with the calibration groups, each group once; a single group's own rate may be
    higher. Raises ConfigError for an alpha outside (0, 1).
    """
    drawn = calibration.nonmembers.draw_one_per_group()
    n, (rank_of, needed) = len(drawn), _RANKS[rule]
    rank = rank_of(n, alpha)
    if rank is None:
        has = f"there {'is' if n == 1 else 'are'} {n or 'no'} group{'s' * (n != 1)} of calibration non-members"
        reason = f"{has} with a score; a {rule} threshold at {alpha:g} needs {needed(alpha)}"
        return Threshold(rule, alpha, None, reason, f"refused: {reason}")
    statistic = float(np.partition(drawn.scores, rank - 1)[rank - 1])
    promise = f"mean FPR at most {alpha:g}"
    if rule == "certified":
        promise = f"FPR above {alpha:g} in at most {RISK:.0%} of calibrations"
    method = f"order statistic {rank} of {n} calibration non-members ({_DRAW}): {promise}"
    return Threshold(rule, alpha, float(np.nextafter(statistic, np.inf)), None, method, statistic)


def find_marginal_rank(n: int, alpha: float) -> int | None:
    """ceil((n + 1)(1 - alpha)), with alpha as it is written in decimal; None where it exceeds ``n``."""
    rank = math.ceil((n + 1) * (1 - _alpha_to_fraction(alpha)))
    return rank if rank <= n else None


def find_certified_rank(n: int, alpha: float) -> int | None:
    """Return the smallest k with P(Binomial(n, 1 - alpha) >= k) <= 0.05; None where there is none up to ``n``."""
    _alpha_to_fraction(alpha)
    if not n:
        return None
    rank = int(scipy.stats.binom.isf(RISK, n, 1 - alpha)) + 1
    return rank if rank <= n else None


def min_marginal_groups(alpha: float) -> int:
    """Return the fewest groups of calibration non-members that a marginal threshold needs."""
    return math.ceil(1 / _alpha_to_fraction(alpha)) - 1


def min_certified_groups(alpha: float) -> int:
    """Return the fewest groups of calibration non-members that a certified threshold needs."""
    return math.ceil(math.log(RISK) / math.log1p(-float(_alpha_to_fraction(alpha))))


def choose_thresholds(calibration: ScoredTexts, alphas: Sequence[float]) -> list[Threshold]:
    """Return every rule at every alpha; largest accuracy, which has none, comes once and first."""
    return [
        choose_largest_accuracy(calibration),
        *(choose_order_statistic(rule, calibration, alpha) for rule in _RANKS for alpha in alphas),
    ]


def estimate_achieved_rates(threshold: float | None, evaluated_texts: ScoredTexts) -> tuple[Rate, Rate]:
    """Return FPR and TPR of ``threshold`` on those of the ``evaluated_texts`` with a label, which did not choose it.

    Where ``threshold`` is None the rates are None and only the texts are counted.
    """
    fpr, tpr = (
        Rate(None, None, None, len(side), side.n_groups, None)
        if threshold is None
        else grouped_rate(side.scores >= threshold, side.groups)
        for side in (evaluated_texts.nonmembers, evaluated_texts.members)
    )
    return fpr, tpr


def _alpha_to_fraction(alpha: float) -> Fraction:
    if not 0 < alpha < 1:
        raise ConfigError(f"a false-positive rate of {alpha} cannot be aimed at: give a rate between 0 and 1")
    # As written: (n + 1) * 0.05 in floats may fall on the wrong side of a whole number.
    return Fraction(str(float(alpha)))


ALPHAS = (0.01, 0.05, 0.10)
SPLITS = 200

_SLACK = 1e-9
"""Relative: a rate that equals alpha does not exceed it, whatever the rounding of its sum."""

_RANKS: Mapping[Rule, tuple[Callable[[int, float], int | None], Callable[[float], int]]] = {
    "marginal": (find_marginal_rank, min_marginal_groups),
    "certified": (find_certified_rank, min_certified_groups),
}
"""Of the rules that take an order statistic: which of n, and how many groups they need."""


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


def check_calibration(
    nonmembers: ScoredTexts, *, alphas: Sequence[float] = ALPHAS, splits: int = SPLITS, seed: int = 0
) -> list[CalibrationCheck]:
    """Return each rule at each alpha, on random halves of the groups of ``nonmembers``: the smaller half calibrates.

    In every split one text is drawn of each calibration group, and the rate is the mean over the other groups of
    the share of a group's texts that is flagged: how often a text drawn from a new group is. The same for every order
    of texts. Raises DataError for fewer than two splits, ConfigError for an alpha outside (0, 1).
    """
    if splits < 2:
        raise DataError(f"the calibration check needs at least two splits, not {splits}")
    n_groups = nonmembers.n_groups
    half = n_groups // 2
    ranks = {(rule, alpha): rank_of(half, alpha) for rule, (rank_of, _) in _RANKS.items() for alpha in alphas}
    distinct_ranks = sorted({rank for rank in ranks.values() if rank is not None})
    rates = {}
    if distinct_ranks:
        simulated = _simulate_rates(nonmembers, half, distinct_ranks, splits, seed)
        rates = dict(zip(distinct_ranks, simulated.T, strict=True))
    checks = []
    for (rule, alpha), rank in ranks.items():
        if rank is None:
            reason = (
                f"{n_groups} groups of non-members, of which {half} calibrate; "
                f"a {rule} threshold at {alpha:g} needs {_RANKS[rule][1](alpha)}"
            )
            checks.append(CalibrationCheck(rule, alpha, splits, n_groups, None, None, None, reason))
            continue
        found = rates[rank]
        error = float(found.std(ddof=1) / np.sqrt(splits))
        over = float((found > alpha * (1 + _SLACK)).mean())
        checks.append(CalibrationCheck(rule, alpha, splits, n_groups, float(found.mean()), error, over, None))
    return checks


def _simulate_rates(texts: ScoredTexts, half: int, ranks: Sequence[int], splits: int, seed: int) -> Floats:
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
