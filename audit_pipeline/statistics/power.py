"""How many texts are needed to see a given contamination at a given false-positive rate.

One false-positive rate serves throughout: of a threshold (a clean text called a member), and of a test of many texts
(clean texts called contaminated). The effect is the contamination rate: the share of the audited texts that are
members; 1: all of them. Power is computed for two tests:

- the mean score: a one-sided Mann-Whitney test of the audited texts against held-out non-members, by Noether's formula
  (Noether 1987, Journal of the American Statistical Association 82), and by resampling the scores at hand;
- the count of flagged texts: a one-sided exact binomial test against the threshold's false-positive rate.

Both take texts as independent, one per document. Windows of one document count for less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, mannwhitneyu, norm

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.roc import Floats, compute_metrics, find_threshold_at_fpr, roc_points
from audit_pipeline.statistics.share_bounds import count_groups_to_resolve
from audit_pipeline.statistics.thresholds import min_certified_groups
from audit_pipeline.tables import MEMBER, NON_MEMBER

CONFIDENCE = 0.95
DRAWS = 1000
MOST_TEXTS = 1_000_000
"""Beyond this many audited texts no number is looked for."""

_SLACK = 1e-9
_BLOCK_SCORES = 1 << 21


@dataclass(frozen=True)
class PowerGoal:
    """What an audit is planned to see: with ``power``, that a share ``effect`` of the audited texts are members.

    ``fpr``: the false-positive rate throughout. ``n_held_out``: the non-members that the mean score is compared with;
    as many as are audited where None. ``sizes``: the numbers of texts of the curve. Raises DataError for a rate that is
    none.
    """

    fpr: float = 0.05
    power: float = 0.8
    effect: float = 1.0
    n_held_out: int | None = None
    sizes: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000)

    def __post_init__(self) -> None:
        if not 0 < self.fpr < self.power < 1:
            raise DataError(
                f"0 < false-positive rate < power < 1 is needed, not a rate of {self.fpr} and a power of {self.power}"
            )
        if not 0 < self.effect <= 1:
            raise DataError(
                f"an effect is the share of members among the audited texts, above 0 and up to 1: {self.effect}"
            )
        if (self.n_held_out is not None and self.n_held_out < 1) or min(self.sizes, default=1) < 1:
            raise DataError("a number of texts is at least 1")


@dataclass(frozen=True)
class PowerPoint:
    """The power of each test with ``n`` audited texts.

    ``flagged`` is None without a TPR, ``resampled`` (of the test of the mean score) without scores at hand.
    """

    n: int
    mean_score: float
    flagged: float | None
    resampled: float | None


@dataclass(frozen=True)
class PowerReport:
    """What an audit needs; ``sentence`` says it in words.

    ``source`` is what AUROC and TPR were taken from. ``tpr`` is None where the non-members at hand are too few to
    resolve the FPR. ``n_mean_score`` and ``n_flagged`` are the fewest audited texts that give the wanted power; None
    where no number up to a million does, or there is no TPR.
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
        """The report in words."""
        goal = self.goal
        held_out = "as many" if goal.n_held_out is None else str(goal.n_held_out)
        by_mean = (
            f"the mean score, compared with {held_out} held-out texts, takes {_format_texts_needed(self.n_mean_score)}"
        )
        if self.tpr is None:
            by_count = "nothing can be said about the number of flagged texts: too few non-members to measure this FPR"
        else:
            by_count = f"the number of flagged texts (TPR {self.tpr:.1%}) takes {_format_texts_needed(self.n_flagged)}"
        return (
            f"At an FPR of {100 * goal.fpr:.3g}%, calibration needs {self.groups_to_resolve} groups of non-members to "
            f"measure such a rate at all, and {self.groups_to_certify} for a threshold certified with {CONFIDENCE:.0%} "
            f"confidence. By {self.source} (AUROC {self.auroc:.3f}), to see with {100 * goal.power:.3g}% power that "
            f"{100 * goal.effect:.3g}% of the audited texts are members: {by_mean}; {by_count}. Texts are "
            "taken as independent, one per document."
        )


def compute_mann_whitney_power(auroc: float, n: int, n_held_out: int, level: float) -> float:
    """The power of a one-sided Mann-Whitney test of ``n`` audited against ``n_held_out`` texts, by Noether's formula.

    ``auroc``: the chance that an audited text's score is above a held-out one's.
    """
    deviation = math.sqrt((n + n_held_out + 1) / (12 * n * n_held_out))
    return float(norm.sf(norm.isf(level) - (auroc - 0.5) / deviation))


def find_mean_score_sample_size(auroc: float, level: float, power: float, n_held_out: int | None = None) -> int | None:
    """Return the fewest audited texts that give a one-sided Mann-Whitney test that power, by Noether's formula.

    ``n_held_out`` texts to compare with; as many as audited where None. None where no number up to a million does:
    the AUROC is not above 0.5, or the held-out texts are too few for any number.
    """
    enough = 12 * ((auroc - 0.5) / (norm.isf(level) + norm.isf(1 - power))) ** 2
    if auroc <= 0.5:
        return None
    # The power reaches its goal where n m / (n + m + 1) * enough >= 1; with m = n that is a quadratic in n.
    if n_held_out is None:
        n = (1 + math.sqrt(1 + enough)) / enough
    elif n_held_out * enough > 1:
        n = (n_held_out + 1) / (n_held_out * enough - 1)
    else:
        return None
    fewest = max(1, math.ceil(n - _SLACK * n))
    return fewest if fewest <= MOST_TEXTS else None


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
    """The share of ``draws`` audits, made of the scores at hand, in which the mean-score test rejects at ``level``.

    Each draws ``n_held_out`` of the non-members, and ``n`` audited texts that are each a member's with the chance
    ``effect`` and else a non-member's, all with replacement; the test is the normal Mann-Whitney test with ties.
    """
    inside, outside = _require_finite_scores(members, "members"), _require_finite_scores(nonmembers, "non-members")
    generator = np.random.default_rng(seed)
    rejected = 0
    rows = max(1, _BLOCK_SCORES // (n + n_held_out))
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        is_member = generator.random((size, n)) < effect
        audited = np.where(is_member, generator.choice(inside, (size, n)), generator.choice(outside, (size, n)))
        held_out = generator.choice(outside, (size, n_held_out))
        # Where every score is equal the test has no p-value: it does not reject.
        p_values = mannwhitneyu(
            audited, held_out, alternative="greater", axis=1, method="asymptotic", use_continuity=False
        ).pvalue
        rejected += int(np.count_nonzero(p_values <= level))
    return rejected / draws


def compute_flagged_power(n: npt.ArrayLike, tpr: float, fpr: float, effect: float, level: float) -> Floats:
    """Return the power of a one-sided exact binomial test of how many of ``n`` texts are flagged, for each n: [len(n)].

    A clean text is flagged at the rate ``fpr``, taken as known, and a contaminated set's texts at
    fpr + effect * (tpr - fpr).
    """
    sizes = np.atleast_1d(np.asarray(n, dtype=np.int64))
    # P(count > most) <= level for clean texts, with the smallest such count.
    most = binom.isf(level, sizes, fpr)
    return np.asarray(binom.sf(most, sizes, fpr + effect * (tpr - fpr)), dtype=np.float64)


def find_flagged_sample_size(tpr: float, fpr: float, effect: float, level: float, power: float) -> int | None:
    """The fewest texts from which on every number gives the test of flagged texts that power; None: none to a million.

    The power of a test of counts rises in a saw: one text more may lower it a little, so that the last number that
    falls short is looked for.
    """
    if effect * (tpr - fpr) <= 0:
        return None
    contaminated = fpr + effect * (tpr - fpr)
    # Fleiss, Levin and Paik 2003, section 2.5: the normal sample size of one share, which the saw lies around.
    deviations = norm.isf(level) * math.sqrt(fpr * (1 - fpr))
    deviations += norm.isf(1 - power) * math.sqrt(contaminated * (1 - contaminated))
    about = (deviations / (contaminated - fpr)) ** 2
    if about > MOST_TEXTS:
        return None
    sizes = np.arange(1, int(2 * about + 10 / (contaminated - fpr)) + 100)
    short = np.flatnonzero(compute_flagged_power(sizes, tpr, fpr, effect, level) < power)
    fewest = int(sizes[short[-1]]) + 1 if len(short) else 1
    return fewest if fewest <= MOST_TEXTS else None


def compute_binormal_tpr(auroc: float, fpr: float) -> float:
    """Return the TPR at a FPR of normal scores of equal spread with that AUROC: Phi(sqrt(2) Phi^-1(AUROC) - z)."""
    return float(norm.sf(norm.isf(fpr) - math.sqrt(2) * norm.ppf(auroc)))


def power_report_from_scores(
    members: npt.ArrayLike,
    nonmembers: npt.ArrayLike,
    goal: PowerGoal,
    *,
    draws: int = DRAWS,
) -> PowerReport:
    """What an audit needs for ``goal``, from the scores at hand of members and of non-members (one per document, [n]).

    Raises DataError for an empty side, and for a score that is not a finite number.
    """
    inside, outside = _require_finite_scores(members, "members"), _require_finite_scores(nonmembers, "non-members")
    scores = np.concatenate([inside, outside])
    labels = np.repeat([MEMBER, NON_MEMBER], [len(inside), len(outside)])
    tpr = None
    if len(outside) >= count_groups_to_resolve(goal.fpr):
        tpr = float((inside >= find_threshold_at_fpr(roc_points(scores, labels), goal.fpr)).mean())
    resampled = [
        simulate_power(
            inside, outside, n, goal.n_held_out or n, level=goal.fpr, effect=goal.effect, draws=draws, seed=place
        )
        for place, n in enumerate(goal.sizes)
    ]
    auroc = compute_metrics(scores, labels)["auroc"]
    source = f"the {len(inside)} members and {len(outside)} non-members at hand"
    return _build_report(auroc, tpr, goal, resampled, source)


def power_report_from_auroc(auroc: float, goal: PowerGoal) -> PowerReport:
    """What an audit needs for ``goal`` of a detector with that AUROC, its scores taken as normal with equal spread.

    Raises DataError for an AUROC that is none.
    """
    if not 0 < auroc < 1:
        raise DataError(f"an AUROC to plan for lies between 0 and 1, both left out: {auroc}")
    resampled: list[float | None] = [None] * len(goal.sizes)
    return _build_report(auroc, compute_binormal_tpr(auroc, goal.fpr), goal, resampled, "normal scores of equal spread")


def _build_report(
    auroc: float, tpr: float | None, goal: PowerGoal, resampled: Sequence[float | None], source: str
) -> PowerReport:
    fpr, effect, n_held_out = goal.fpr, goal.effect, goal.n_held_out
    diluted = 0.5 + effect * (auroc - 0.5)
    flagged: list[float | None] = [None] * len(goal.sizes)
    if tpr is not None:
        flagged = compute_flagged_power(list(goal.sizes), tpr, fpr, effect, fpr).tolist()
    return PowerReport(
        goal=goal,
        auroc=auroc,
        tpr=tpr,
        source=source,
        groups_to_resolve=count_groups_to_resolve(fpr),
        groups_to_certify=min_certified_groups(fpr),
        n_mean_score=find_mean_score_sample_size(diluted, fpr, goal.power, n_held_out),
        n_flagged=None if tpr is None else find_flagged_sample_size(tpr, fpr, effect, fpr, goal.power),
        curve=tuple(
            PowerPoint(n, compute_mann_whitney_power(diluted, n, n_held_out or n, fpr), counted, drawn)
            for n, counted, drawn in zip(goal.sizes, flagged, resampled, strict=True)
        ),
    )


def _format_texts_needed(n: int | None) -> str:
    return f"more than {MOST_TEXTS} texts or cannot be done" if n is None else f"{n} texts"


def _require_finite_scores(values: npt.ArrayLike, side: str) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise DataError(f"the scores of the {side} are not a list of finite numbers, or empty: leave out what has none")
    return scores
