"""Sample sizes: the texts that an audit needs to detect a contamination, and the draws that reproduce a passage.

The same false-positive rate applies to thresholds and tests. A false positive of a threshold is a clean text that is
called a member. A false positive of a test is a set of clean texts that is called contaminated. The effect to detect is
the contamination rate: the share of members among the audited texts. Power is computed for two tests:

- The mean score: a one-sided Mann-Whitney test of the audited texts against held-out non-members. Its power is computed
  by Noether's formula (Noether 1987, Journal of the American Statistical Association 82) and by resampling scores.
- The number of flagged texts: a one-sided exact binomial test against the threshold's false-positive rate.

Both tests assume independent texts, one per document. Windows of the same document carry less information.

A passage is reproduced by drawing samples from the model. The expected number of draws determines the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.roc import Floats, compute_metrics, compute_roc_points, find_threshold_at_fpr
from audit_pipeline.statistics.share_bounds import count_groups_to_resolve
from audit_pipeline.statistics.thresholds import min_certified_groups
from audit_pipeline.tables import MEMBER, NON_MEMBER

CONFIDENCE = 0.95
DRAWS = 1000
MAX_TEXTS = 1_000_000
"""The searches for a sample size stop at this number of audited texts."""

_SLACK = 1e-9
_BLOCK_SCORES = 1 << 21


@dataclass(frozen=True)
class PowerGoal:
    """The effect that a planned audit must detect, with its error rate and power.

    Attributes:
        fpr: The false-positive rate of thresholds and tests.
        power: The probability of detecting the effect.
        effect: The share of members among the audited texts.
        n_held_out: Number of non-members that the mean score is compared with. By default as many as audited texts.
        sizes: The numbers of texts of the power curve.
    """

    fpr: float = 0.05
    power: float = 0.8
    effect: float = 1.0
    n_held_out: int | None = None
    sizes: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000)

    def __post_init__(self) -> None:
        """Raise DataError for a rate or a number that is out of range."""
        if not 0 < self.fpr < self.power < 1:
            raise DataError(
                f"the false-positive rate is {self.fpr} and the power is {self.power}. The rate must be above 0 and "
                "below the power, and the power must be below 1."
            )
        if not 0 < self.effect <= 1:
            raise DataError(
                f"the effect is {self.effect}. Give the share of members among the audited texts, above 0 and up to 1."
            )
        if self.n_held_out is not None and self.n_held_out < 1:
            raise DataError(f"the number of held-out texts is {self.n_held_out}. It must be at least 1.")
        if min(self.sizes, default=1) < 1:
            raise DataError(f"the sizes contain {min(self.sizes)}. Every number of texts must be at least 1.")


@dataclass(frozen=True)
class PowerPoint:
    """The power of each test for a number of audited texts.

    Attributes:
        n: Number of audited texts.
        mean_score: The power of the test of the mean score.
        flagged: The power of the test of flagged texts, or None without a TPR.
        resampled: The power of the test of the mean score by resampling, or None without scores.
    """

    n: int
    mean_score: float
    flagged: float | None
    resampled: float | None


@dataclass(frozen=True)
class PowerReport:
    """The number of texts that an audit needs.

    Attributes:
        goal: The effect to detect, with error rate and power.
        auroc: The AUROC of the detector.
        tpr: The TPR at the FPR, or None if the non-members are too few to resolve the FPR.
        source: The source of AUROC and TPR.
        groups_to_resolve: Minimum number of non-member groups to measure the FPR: the smallest n with 1/n <= FPR.
        groups_to_certify: Minimum number of non-member groups for a certified threshold (thresholds.py).
        n_mean_score: Number of audited texts for the test of the mean score, or None if a million texts are too few.
        n_flagged: Number of audited texts for the test of flagged texts, or None without a TPR or if a million texts
            are too few.
        curve: The power by number of texts.
    """

    goal: PowerGoal
    auroc: float
    tpr: float | None
    source: str
    groups_to_resolve: int
    groups_to_certify: int
    n_mean_score: int | None
    n_flagged: int | None
    curve: tuple[PowerPoint, ...]

    @property
    def sentence(self) -> str:
        """Return the report as a paragraph."""
        goal = self.goal
        held_out = "as many" if goal.n_held_out is None else str(goal.n_held_out)
        by_mean = (
            f"A test of the mean score, compared with {held_out} held-out texts, requires "
            f"{_format_texts_needed(self.n_mean_score)}."
        )
        if self.tpr is None:
            by_count = (
                "Nothing can be said about a test of the number of flagged texts, because the non-members are too few "
                "to measure this FPR."
            )
        else:
            by_count = (
                f"A test of the number of flagged texts (TPR {self.tpr:.1%}) requires "
                f"{_format_texts_needed(self.n_flagged)}."
            )
        return (
            f"At an FPR of {100 * goal.fpr:.3g}%, calibration requires {self.groups_to_resolve} groups of non-members "
            f"to measure such a rate, and {self.groups_to_certify} groups for a threshold certified with "
            f"{CONFIDENCE:.0%} confidence. The goal is to detect with {100 * goal.power:.3g}% power that "
            f"{100 * goal.effect:.3g}% of the audited texts are members, with the scores of {self.source} (AUROC "
            f"{self.auroc:.3f}). {by_mean} {by_count} These numbers assume independent texts, one per document."
        )


def compute_mann_whitney_power(auroc: float, n: int, n_held_out: int, level: float) -> float:
    """Compute the power of a one-sided Mann-Whitney test by Noether's formula.

    Args:
        auroc: The probability that the score of an audited text is above that of a held-out text.
        n: Number of audited texts.
        n_held_out: Number of held-out texts.
        level: The level of the test.
    """
    deviation = math.sqrt((n + n_held_out + 1) / (12 * n * n_held_out))
    return float(scipy.stats.norm.sf(scipy.stats.norm.isf(level) - (auroc - 0.5) / deviation))


def find_mean_score_sample_size(auroc: float, level: float, power: float, n_held_out: int | None = None) -> int | None:
    """Return the minimum number of audited texts for a power of the Mann-Whitney test, by Noether's formula.

    Args:
        auroc: The probability that the score of an audited text is above that of a held-out text.
        level: The level of the test.
        power: The required power.
        n_held_out: Number of held-out texts. By default as many as audited texts.

    Returns:
        The number, or None if no number up to a million suffices. The AUROC is then too low, or the held-out texts are
        too few.
    """
    enough = 12 * ((auroc - 0.5) / (scipy.stats.norm.isf(level) + scipy.stats.norm.isf(1 - power))) ** 2
    if auroc <= 0.5:
        return None
    # With m held-out texts the power suffices if n m / (n + m + 1) * enough >= 1. For m = n this inequality is
    # quadratic in n.
    if n_held_out is None:
        n = (1 + math.sqrt(1 + enough)) / enough
    elif n_held_out * enough > 1:
        n = (n_held_out + 1) / (n_held_out * enough - 1)
    else:
        return None
    n_texts = max(1, math.ceil(n - _SLACK * n))
    return n_texts if n_texts <= MAX_TEXTS else None


def simulate_power(
    members: npt.ArrayLike,
    nonmembers: npt.ArrayLike,
    n: int,
    n_held_out: int,
    *,
    level: float,
    effect: float = 1.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> float:
    """Return the share of simulated audits in which the test of the mean score rejects.

    An audit draws scores with replacement. Each audited text is a member with probability ``effect``. The test is the
    Mann-Whitney test with ties in its normal approximation.

    Args:
        members: The scores of members.
        nonmembers: The scores of non-members.
        n: Number of audited texts.
        n_held_out: Number of held-out texts.
        level: The level of the test.
        effect: The share of members among the audited texts.
        draws: Number of simulated audits.
        seed: The seed of the simulation.
    """
    member_scores = _require_finite_scores(members, "members")
    nonmember_scores = _require_finite_scores(nonmembers, "non-members")
    generator = np.random.default_rng(seed)
    n_rejected = 0
    draws_per_block = max(1, _BLOCK_SCORES // (n + n_held_out))
    for start in range(0, draws, draws_per_block):
        size = min(draws_per_block, draws - start)
        is_member = generator.random((size, n)) < effect
        drawn_members = generator.choice(member_scores, (size, n))
        drawn_nonmembers = generator.choice(nonmember_scores, (size, n))
        audited = np.where(is_member, drawn_members, drawn_nonmembers)
        held_out = generator.choice(nonmember_scores, (size, n_held_out))
        # If all scores are equal, the p-value is NaN and the test does not reject.
        p_values = scipy.stats.mannwhitneyu(
            audited, held_out, alternative="greater", axis=1, method="asymptotic", use_continuity=False
        ).pvalue
        n_rejected += int(np.count_nonzero(p_values <= level))
    return n_rejected / draws


def compute_flagged_power(n: npt.ArrayLike, tpr: float, fpr: float, effect: float, level: float) -> Floats:
    """Compute the power of a one-sided exact binomial test of the number of flagged texts.

    Clean texts are flagged at the rate ``fpr``, which is assumed to be known. Texts of a contaminated set are flagged
    at the rate fpr + effect * (tpr - fpr).

    Args:
        n: The numbers of texts, of shape (n_sizes,).
        tpr: The rate at which members are flagged.
        fpr: The rate at which non-members are flagged.
        effect: The share of members among the texts.
        level: The level of the test.

    Returns:
        Array of shape (n_sizes,).
    """
    sizes = np.atleast_1d(np.asarray(n, dtype=np.int64))
    # The smallest count with P(flagged > count) <= level for clean texts.
    max_clean_count = scipy.stats.binom.isf(level, sizes, fpr)
    return np.asarray(scipy.stats.binom.sf(max_clean_count, sizes, fpr + effect * (tpr - fpr)), dtype=np.float64)


def find_flagged_sample_size(tpr: float, fpr: float, effect: float, level: float, power: float) -> int | None:
    """Return the smallest number of texts such that the test has the required power with this and any larger number.

    The power of a test of counts is not monotonic, because a further text can lower it a little. The function therefore
    finds the largest number of texts with insufficient power and adds 1.

    Returns:
        The number, or None if no number up to a million suffices.
    """
    if effect * (tpr - fpr) <= 0:
        return None
    contaminated = fpr + effect * (tpr - fpr)
    # The sample size by the normal approximation is near the result (Fleiss, Levin and Paik 2003, section 2.5).
    deviations = scipy.stats.norm.isf(level) * math.sqrt(fpr * (1 - fpr))
    deviations += scipy.stats.norm.isf(1 - power) * math.sqrt(contaminated * (1 - contaminated))
    normal_size = (deviations / (contaminated - fpr)) ** 2
    if normal_size > MAX_TEXTS:
        return None
    sizes = np.arange(1, int(2 * normal_size + 10 / (contaminated - fpr)) + 100)
    insufficient = np.flatnonzero(compute_flagged_power(sizes, tpr, fpr, effect, level) < power)
    n_texts = int(sizes[insufficient[-1]]) + 1 if len(insufficient) else 1
    return n_texts if n_texts <= MAX_TEXTS else None


def compute_binormal_tpr(auroc: float, fpr: float) -> float:
    """Return the TPR of normal scores with equal spread: Phi(sqrt(2) Phi^-1(AUROC) - z_FPR)."""
    return float(scipy.stats.norm.sf(scipy.stats.norm.isf(fpr) - math.sqrt(2) * scipy.stats.norm.ppf(auroc)))


def power_report_from_scores(
    members: npt.ArrayLike,
    nonmembers: npt.ArrayLike,
    goal: PowerGoal,
    *,
    draws: int = DRAWS,
) -> PowerReport:
    """Compute the number of texts that an audit needs, from scores of members and non-members.

    Args:
        members: The scores of members, one per document.
        nonmembers: The scores of non-members, one per document.
        goal: The effect to detect.
        draws: Number of simulated audits per size.

    Raises:
        DataError: If a side is empty or a score is not finite.
    """
    member_scores = _require_finite_scores(members, "members")
    nonmember_scores = _require_finite_scores(nonmembers, "non-members")
    scores = np.concatenate([member_scores, nonmember_scores])
    labels = np.repeat([MEMBER, NON_MEMBER], [len(member_scores), len(nonmember_scores)])
    tpr = None
    if len(nonmember_scores) >= count_groups_to_resolve(goal.fpr):
        threshold = find_threshold_at_fpr(compute_roc_points(scores, labels), goal.fpr)
        tpr = float((member_scores >= threshold).mean())
    resampled: list[float | None] = []
    for seed, n in enumerate(goal.sizes):
        power = simulate_power(
            member_scores,
            nonmember_scores,
            n,
            goal.n_held_out or n,
            level=goal.fpr,
            effect=goal.effect,
            draws=draws,
            seed=seed,
        )
        resampled.append(power)
    auroc = compute_metrics(scores, labels)["auroc"]
    source = f"the {len(member_scores)} members and {len(nonmember_scores)} non-members at hand"
    return _build_report(auroc, tpr, goal, resampled, source)


def power_report_from_auroc(auroc: float, goal: PowerGoal) -> PowerReport:
    """Compute the number of texts that an audit needs, if scores are normal with equal spread and this AUROC.

    Raises:
        DataError: If the AUROC is not between 0 and 1.
    """
    if not 0 < auroc < 1:
        raise DataError(f"the AUROC is {auroc}. Give a number above 0 and below 1.")
    resampled: list[float | None] = [None] * len(goal.sizes)
    source = "two sides with normal scores of equal spread"
    return _build_report(auroc, compute_binormal_tpr(auroc, goal.fpr), goal, resampled, source)


def _build_report(
    auroc: float, tpr: float | None, goal: PowerGoal, resampled: Sequence[float | None], source: str
) -> PowerReport:
    fpr = goal.fpr
    diluted_auroc = 0.5 + goal.effect * (auroc - 0.5)
    flagged_powers: list[float | None] = [None] * len(goal.sizes)
    n_flagged: int | None = None
    if tpr is not None:
        flagged_powers = compute_flagged_power(list(goal.sizes), tpr, fpr, goal.effect, fpr).tolist()
        n_flagged = find_flagged_sample_size(tpr, fpr, goal.effect, fpr, goal.power)
    curve: list[PowerPoint] = []
    for n, flagged_power, resampled_power in zip(goal.sizes, flagged_powers, resampled, strict=True):
        mean_score_power = compute_mann_whitney_power(diluted_auroc, n, goal.n_held_out or n, fpr)
        curve.append(PowerPoint(n, mean_score_power, flagged_power, resampled_power))
    return PowerReport(
        goal=goal,
        auroc=auroc,
        tpr=tpr,
        source=source,
        groups_to_resolve=count_groups_to_resolve(fpr),
        groups_to_certify=min_certified_groups(fpr),
        n_mean_score=find_mean_score_sample_size(diluted_auroc, fpr, goal.power, goal.n_held_out),
        n_flagged=n_flagged,
        curve=tuple(curve),
    )


def _format_texts_needed(n: int | None) -> str:
    return f"more than {MAX_TEXTS:,} texts, or is impossible" if n is None else f"{n} texts"


def _require_finite_scores(values: npt.ArrayLike, side: str) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise DataError(f"the scores of the {side} are empty or not all finite numbers. Omit texts without a score.")
    return scores


def compute_log_draws(log_p: float, p: float = 0.5) -> float:
    """Return the log of the number of draws n that yield a suffix at least once with probability p.

    n = ln(1 - p) / ln(1 - p_z), with p_z the probability of the suffix ((n, p)-discoverable extraction, Hayes et al.
    2025). The computation uses logs, because p_z may be far below the smallest float.

    Args:
        log_p: The log of p_z, in nats.
        p: The probability of at least one reproduction.
    """
    if log_p >= 0.0:
        return 0.0
    # For a tiny p_z, -ln(1 - p_z) is p_z itself.
    log_rate = log_p if log_p < -30.0 else math.log(-math.log1p(-math.exp(log_p)))
    return max(0.0, math.log(-math.log1p(-p)) - log_rate)


def compute_log_cost_of_draws(log_p: float, tokens: int, price_per_million: float) -> float:
    """Return the log of the cost of the draws that yield a suffix at least once with probability 0.5.

    Args:
        log_p: The log of the probability of the suffix, in nats.
        tokens: Number of sent and received tokens per draw.
        price_per_million: The price of a million tokens, above 0.
    """
    return compute_log_draws(log_p) + math.log(tokens * price_per_million / 1e6)
