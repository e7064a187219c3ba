"""Thresholds chosen on a calibration split, their rates on other texts, and a check of their false-positive rates.

A text is called a member if score >= threshold. If a rule selects an order statistic, the threshold is the next float
above it. A text tied with the order statistic is therefore not called a member.

The check (:func:`check_calibration`) chooses thresholds on some non-members and applies them to other non-members. It
tests the method and not a model: it shows whether the groups are exchangeable and the rules correct. It shows nothing
about texts of another kind.
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
from audit_pipeline.statistics.share_bounds import Rate, estimate_grouped_rate
from audit_pipeline.tables import MEMBER, NON_MEMBER

Rule = Literal["largest_accuracy", "marginal", "certified"]
Keys = npt.NDArray[np.uint64]

RISK = 0.05
"""The share of calibrations in which the false-positive rate of a certified threshold may exceed alpha."""

_DRAW = "one text per group, drawn by a hash of seed, group and example"


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """Texts with a score. All arrays have the shape (n_texts,).

    Attributes:
        scores: The scores.
        labels: 1 (member), 0 (non-member) or another number (unknown).
        groups: The names or numbers of the groups.
        keys: Pseudo-random numbers that order the texts of a group, see :func:`compute_sampling_keys`.
    """

    scores: Floats
    labels: npt.NDArray[np.integer]
    groups: npt.NDArray[Any]
    keys: Keys

    def __post_init__(self) -> None:
        """Raise DataError if the lengths differ or a score is not finite."""
        if not len(self.scores) == len(self.labels) == len(self.groups) == len(self.keys):
            raise DataError(
                "the arrays of scores, labels, groups and keys differ in length. Pass one value per text in each."
            )
        if not np.isfinite(self.scores).all():
            raise DataError("a score is not a finite number. Omit texts without a score.")

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.scores)

    def take(self, selection: Bools | Places) -> ScoredTexts:
        """Return the texts that a mask or positions select."""
        return ScoredTexts(self.scores[selection], self.labels[selection], self.groups[selection], self.keys[selection])

    @property
    def members(self) -> ScoredTexts:
        """Return the texts with label 1."""
        return self.take(self.labels == MEMBER)

    @property
    def nonmembers(self) -> ScoredTexts:
        """Return the texts with label 0."""
        return self.take(self.labels == NON_MEMBER)

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(np.unique(self.groups))

    def draw_one_per_group(self) -> ScoredTexts:
        """Return the text with the smallest key of each group. The result does not depend on the order of the texts."""
        names, codes = np.unique(self.groups, return_inverse=True)
        order = np.lexsort((self.keys, codes))
        return self.take(order[np.searchsorted(codes[order], np.arange(len(names)))])


@dataclass(frozen=True)
class Threshold:
    """The threshold that a rule chose.

    Attributes:
        rule: The rule.
        alpha: The false-positive rate that the rule allows, or None for the largest accuracy.
        threshold: The threshold, or None if the rule is refused.
        reason: Why the rule is refused, or None.
        method: How the threshold was chosen, in words.
        order_statistic: The score just below the threshold, for rules that select an order statistic.
    """

    rule: Rule
    alpha: float | None
    threshold: float | None
    reason: str | None
    method: str
    order_statistic: float | None = None

    @property
    def status(self) -> Literal["ok", "refused"]:
        """Return ``refused`` if there is a reason."""
        return "ok" if self.reason is None else "refused"


def compute_sampling_keys(groups: Sequence[str], example_ids: Sequence[str], seed: int) -> Keys:
    """Compute a pseudo-random number for each text, from a hash of seed, group and example id.

    The keys order the texts of a group at random, independent of the order of rows. Two texts of a group must have
    different ids.

    Returns:
        Array of shape (n_texts,).
    """
    keys: list[int] = []
    for group, example_id in zip(groups, example_ids, strict=True):
        hashed = hashlib.blake2b(f"{seed}\0{group}\0{example_id}".encode(), digest_size=8)
        keys.append(int.from_bytes(hashed.digest(), "big"))
    return np.array(keys, dtype=np.uint64)


def choose_largest_accuracy(calibration: ScoredTexts) -> Threshold:
    """Choose the threshold that classifies most calibration texts correctly (Shi et al. 2024, section 5.1).

    Every text counts once, so the larger side has more weight. The candidates are the scores and the next float above
    the largest score. Among candidates with equal accuracy the largest is chosen, which flags the fewest texts. The
    rule is refused if a side has no text.
    """
    sides = (("non-members", calibration.nonmembers), ("members", calibration.members))
    missing = [name for name, side in sides if not len(side)]
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
    """Choose the threshold just above an order statistic of the non-members.

    Texts of one group are not independent, so one text is drawn from each of the n groups. There are two rules:

    - marginal: E[FPR] <= alpha, over calibrations and classified texts. The rank is ceil((n + 1)(1 - alpha)), as in
      split conformal prediction (Vovk et al., 2005; Papadopoulos et al., 2002). The rule is refused if it exceeds n.
    - certified: P(FPR > alpha) <= 0.05 over calibrations. The rank is the smallest k with
      P(Binomial(n, 1 - alpha) >= k) <= 0.05. The share of the population at or below the k-th smallest score is
      Beta(k, n - k + 1), or more with ties (tolerance limits of Wilks, 1941). The rule is refused if
      (1 - alpha)^n > 0.05, which means fewer than 59 groups at 5% and 299 at 1%.

    Both bounds of the FPR apply to one random text from each of many new groups, which must be exchangeable with the
    calibration groups. The FPR among the texts of a single group may be higher.

    Raises:
        ConfigError: If alpha is not between 0 and 1.
    """
    drawn = calibration.nonmembers.draw_one_per_group()
    n = len(drawn)
    find_rank, count_needed_groups = _RANKS[rule]
    rank = find_rank(n, alpha)
    if rank is None:
        available = f"there {'is' if n == 1 else 'are'} {n or 'no'} group{'s' * (n != 1)} of calibration non-members"
        reason = f"{available} with a score; a {rule} threshold at {alpha:g} needs {count_needed_groups(alpha)}"
        return Threshold(rule, alpha, None, reason, f"refused: {reason}")
    statistic = float(np.partition(drawn.scores, rank - 1)[rank - 1])
    promise = f"mean FPR at most {alpha:g}"
    if rule == "certified":
        promise = f"FPR above {alpha:g} in at most {RISK:.0%} of calibrations"
    method = f"order statistic {rank} of {n} calibration non-members ({_DRAW}): {promise}"
    return Threshold(rule, alpha, float(np.nextafter(statistic, np.inf)), None, method, statistic)


def find_marginal_rank(n: int, alpha: float) -> int | None:
    """Return ceil((n + 1)(1 - alpha)), or None if it exceeds n.

    The decimal digits of alpha are used exactly, without floating-point rounding.
    """
    rank = math.ceil((n + 1) * (1 - _alpha_to_fraction(alpha)))
    return rank if rank <= n else None


def find_certified_rank(n: int, alpha: float) -> int | None:
    """Return the smallest k <= n with P(Binomial(n, 1 - alpha) >= k) <= 0.05, or None if no k satisfies it."""
    _alpha_to_fraction(alpha)
    if not n:
        return None
    rank = int(scipy.stats.binom.isf(RISK, n, 1 - alpha)) + 1
    return rank if rank <= n else None


def min_marginal_groups(alpha: float) -> int:
    """Return the minimum number of calibration non-member groups for a marginal threshold."""
    return math.ceil(1 / _alpha_to_fraction(alpha)) - 1


def min_certified_groups(alpha: float) -> int:
    """Return the minimum number of calibration non-member groups for a certified threshold."""
    return math.ceil(math.log(RISK) / math.log1p(-float(_alpha_to_fraction(alpha))))


def choose_thresholds(calibration: ScoredTexts, alphas: Sequence[float]) -> list[Threshold]:
    """Choose a threshold by each rule: the largest accuracy, then the other rules at each alpha."""
    thresholds = [choose_largest_accuracy(calibration)]
    for rule in _RANKS:
        thresholds += [choose_order_statistic(rule, calibration, alpha) for alpha in alphas]
    return thresholds


def estimate_achieved_rates(threshold: float | None, evaluated_texts: ScoredTexts) -> tuple[Rate, Rate]:
    """Estimate FPR and TPR of a threshold on labelled texts that it was not chosen on.

    If the threshold is None, the rates have no value, but still the numbers of texts and groups.
    """
    fpr = _estimate_rate(threshold, evaluated_texts.nonmembers)
    tpr = _estimate_rate(threshold, evaluated_texts.members)
    return fpr, tpr


def _estimate_rate(threshold: float | None, texts: ScoredTexts) -> Rate:
    if threshold is None:
        return Rate(None, None, None, len(texts), texts.n_groups, None)
    return estimate_grouped_rate(texts.scores >= threshold, texts.groups)


def _alpha_to_fraction(alpha: float) -> Fraction:
    if not 0 < alpha < 1:
        raise ConfigError(f"the false-positive rate is {alpha}. Give a rate between 0 and 1.")
    # The fraction is exact. In floats, (n + 1) * 0.05 may be on the wrong side of a whole number.
    return Fraction(str(float(alpha)))


ALPHAS = (0.01, 0.05, 0.10)
SPLITS = 200

_SLACK = 1e-9
"""The relative tolerance of alpha, so that a rate equal to alpha does not exceed it due to rounding errors."""

_RANKS: Mapping[Rule, tuple[Callable[[int, float], int | None], Callable[[float], int]]] = {
    "marginal": (find_marginal_rank, min_marginal_groups),
    "certified": (find_certified_rank, min_certified_groups),
}
"""Two functions per rule: one returns the rank of the order statistic, the other the minimum number of groups."""


@dataclass(frozen=True)
class CalibrationCheck:
    """The result of checking a rule at one alpha on random halves of the groups.

    Attributes:
        rule: The rule.
        alpha: The false-positive rate that the rule allows.
        splits: Number of random splits.
        n_groups: Number of groups of non-members.
        mean_fpr: The mean false-positive rate over the splits, or None if the rule is refused.
        standard_error: The standard deviation of the rates, divided by the square root of ``splits``. All splits divide
            the same groups. This is therefore the error due to the random splits, not due to the choice of groups.
        over_alpha: The share of splits with a false-positive rate above alpha.
        reason: Why the rule is refused, or None.
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
    """Check the false-positive rate of each rule at each alpha on random halves of the groups.

    In each split, the threshold is chosen on the smaller half, with one text drawn from each of its groups. The rate of
    the split is the flagged share of a group's texts, averaged over the groups of the other half. It estimates the
    probability that a random text of a new group is flagged. The result does not depend on the order of texts.

    Raises:
        DataError: If there are fewer than two splits.
        ConfigError: If an alpha is not between 0 and 1.
    """
    if splits < 2:
        raise DataError(f"the calibration check requires at least two splits, but splits is {splits}")
    n_groups = nonmembers.n_groups
    half = n_groups // 2
    ranks: dict[tuple[Rule, float], int | None] = {}
    for rule, (find_rank, _) in _RANKS.items():
        for alpha in alphas:
            ranks[rule, alpha] = find_rank(half, alpha)
    distinct_ranks = sorted({rank for rank in ranks.values() if rank is not None})
    rates_by_rank: dict[int, Floats] = {}
    if distinct_ranks:
        simulated = _simulate_rates(nonmembers, half, distinct_ranks, splits, seed)
        rates_by_rank = dict(zip(distinct_ranks, simulated.T, strict=True))
    checks: list[CalibrationCheck] = []
    for (rule, alpha), rank in ranks.items():
        if rank is None:
            reason = (
                f"{n_groups} groups of non-members, {half} of them calibrate; "
                f"a {rule} threshold at {alpha:g} needs {_RANKS[rule][1](alpha)}"
            )
            checks.append(CalibrationCheck(rule, alpha, splits, n_groups, None, None, None, reason))
            continue
        rates = rates_by_rank[rank]
        standard_error = float(rates.std(ddof=1) / np.sqrt(splits))
        over_alpha = float((rates > alpha * (1 + _SLACK)).mean())
        check = CalibrationCheck(
            rule, alpha, splits, n_groups, float(rates.mean()), standard_error, over_alpha, reason=None
        )
        checks.append(check)
    return checks


def _simulate_rates(texts: ScoredTexts, half: int, ranks: Sequence[int], splits: int, seed: int) -> Floats:
    """Compute the false-positive rates of random splits, one for each rank of the order statistic.

    Returns:
        Array of shape (splits, n_ranks).
    """
    names, codes = np.unique(texts.groups, return_inverse=True)
    order = np.lexsort((texts.keys, codes))
    scores = texts.scores[order]
    codes = codes[order]
    sizes = np.bincount(codes)
    starts = np.cumsum(sizes) - sizes
    generator = np.random.default_rng(seed)
    rank_indices = np.array(ranks) - 1
    rates = np.empty((splits, len(ranks)))
    for split in range(splits):
        calibrating = generator.permutation(len(names))[:half]
        drawn = starts[calibrating] + (generator.random(half) * sizes[calibrating]).astype(np.intp)
        limits = np.sort(scores[drawn])[rank_indices]
        weights = 1 / sizes
        weights[calibrating] = 0
        weights /= len(names) - half
        by_text = weights[codes]
        for column, limit in enumerate(limits):
            rates[split, column] = by_text[scores > limit].sum()
    return rates
