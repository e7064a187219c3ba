"""Dataset inference: is a whole set of texts likelier to have been trained on than texts known not to have been?

Source: Maini et al. 2024, arXiv 2406.06443, section 5.1. A linear model learns on one half which detectors separate the
audited texts from held-out ones, and is tested on the other half, which it has not seen. So however many detectors
there are, the p-value needs no correction for them. This version differs from the paper's:

* Everything goes by group (the book, the patent): groups are divided into halves, the model is fitted to group means
  and the test compares group means, so that windows of one document do not count as independent.
* Values are clipped at the 2.5th and 97.5th percentile and standardised, both as measured on the fitted half alone.
* The linear model is a ridge regression whose penalty is chosen by leaving out one group at a time: detectors at many
  settings are nearly collinear, and plain least squares needs more groups than features.
* Several random splits make the result less of a lottery. Their p-values overlap, so they are combined by a rule that
  holds under dependence.
* The test is one-sided in the direction of training. Every score is higher for likelier members, so on the fitted half
  alone each split decides which way the features that it uses run: by the sign of sum_j |w_j| d_j, w_j the weight of
  the standardised feature j and d_j its mean over audited groups minus that over held-out ones. A split in which
  held-out groups score higher has a p-value of 1: it can find nothing, and as the tested half had no part in that, the
  p-values hold their level. Where texts are known to be members and are not tested, they say the same of every feature:
  one by which they score lower than the fitted half's held-out groups (Mann-Whitney, 2.5%) is left out of that split.
* No p-value lies below that of a permutation test of as many groups, were the two sides to share no value: Welch's t
  has no bound where a side hardly varies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import SMALLEST_P, ClaimLevel, detectable_auroc
from audit_pipeline.statistics.roc import Bools, Floats, Places
from audit_pipeline.statistics.score_direction import LEVEL, Direction
from audit_pipeline.statistics.ties import compute_group_means, merge_tied_means

NAME = "dataset_inference"
ASSUMPTION = (
    "Without training, the held-out groups and the audited ones are draws from one distribution, and groups are "
    "independent of each other. The p-value speaks of the audited set as a whole, not of any one text."
)
DESIGNS = ("exchangeable", "randomised")
MIN_GROUPS = 20
SPLITS = 10

_CLIPPED_AT = (2.5, 97.5)
_PENALTIES = np.logspace(-1, 5, 13)
_NAMED_AT_MOST = 5
# Relative: what lies below is rounding.
_NO_SPREAD, _CANCELS = 1e-10, 1e-6


@dataclass(frozen=True)
class DatasetInference:
    """The test's result: p-value and Welch's t of each split, and of all together (``statistic``: the median t).

    Both are in the direction of training: the t of a split that runs the other way is negative, its p-value 1.
    ``direction`` is that of a difference at 5%: ``opposite`` where the p-values without regard to direction find one
    and most splits run the other way. ``n`` and ``n_held_out`` count texts. ``left_out`` names features that some text
    lacks, with how many lack it. ``detectable_auroc`` is that between group means that one p-value at 5% finds four
    times in five, by Noether's formula (Noether 1987, Journal of the American Statistical Association 82). Where
    ``status`` is ``refused``, ``reason`` says why and there is none of these numbers.
    """

    reason: str | None
    p_value: float | None
    statistic: float | None
    n: int
    n_held_out: int
    split_p_values: tuple[float, ...]
    left_out: tuple[str, ...]
    claim_level: ClaimLevel
    method: str
    direction: Direction | None
    detectable_auroc: float | None
    assumption: str = ASSUMPTION

    @property
    def status(self) -> Literal["ok", "refused"]:
        return "ok" if self.reason is None else "refused"


@dataclass(frozen=True, eq=False)
class Features:
    """Scores of texts as a matrix ``values`` [texts, features], NaN where a text lacks one."""

    example_ids: tuple[str, ...]
    names: tuple[str, ...]
    values: Floats


def build_feature_matrix(example_ids: Sequence[str], names: Sequence[str], scores: Sequence[float | None]) -> Features:
    """Return the matrix of a long table of scores: one entry per text and feature, None where there is no score.

    Texts and features are in alphabetical order. Raises DataError where a text has two entries of one feature.
    """
    texts, row = np.unique(np.array(example_ids, dtype=object), return_inverse=True)
    features, column = np.unique(np.array(names, dtype=object), return_inverse=True)
    if len(np.unique(row * max(1, len(features)) + column)) < len(row):
        raise DataError("a text has two scores of one feature: give one run's scores only")
    values = np.full((len(texts), len(features)), np.nan)
    values[row, column] = [np.nan if score is None else score for score in scores]
    return Features(tuple(texts), tuple(features), values)


@dataclass(frozen=True, eq=False)
class ComparedTexts:
    """n texts that the test compares, with d features each: ``values`` [n, d] (NaN: missing) and ``names`` [d].

    ``held_out`` [n] is True for texts known not to have been trained on, False for the audited ones (whether their
    label is 1 or unknown). ``groups`` [n] are their documents.
    """

    values: Floats
    names: Sequence[str]
    held_out: Bools
    groups: Sequence[str]


def run_dataset_inference(
    texts: ComparedTexts,
    *,
    design: str,
    claim_level: ClaimLevel,
    known_members: tuple[Floats, Sequence[str]] | None = None,
    splits: int = SPLITS,
    seed: int = 0,
) -> DatasetInference:
    """Test audited ``texts`` against held-out ones.

    A feature that any text lacks is left out and named. Groups with texts of both sides stay in one half with both; the
    test then errs on the safe side. ``known_members``: values [m, d] and groups [m] of texts that are known to be
    members and are none of the n; they say which features run against training.

    Refused where ``design`` is neither exchangeable nor randomised, where a side has fewer than 20 groups (each half
    then has at least 10 means a side; its level was measured from there on, and with fewer a t-test of skewed means is
    not to be relied on), and where no feature is left. Every feature is oriented: the higher, the likelier a member.
    Audited texts that score lower than held-out ones are no finding: see ``direction``. The result does not depend on
    the order of the texts, but for rounding.
    """
    n_lacking = (~np.isfinite(texts.values)).sum(axis=0)
    complete = n_lacking == 0
    left_out = tuple(
        f"{name} ({n} of {len(texts.values)} texts lack it)"
        for name, n in zip(texts.names, n_lacking.tolist(), strict=True)
        if n
    )
    units = _group_texts(texts)
    reason = _explain_refusal(design, units, bool(complete.any()))
    tested = []
    if reason is None:
        ordered = texts.values[units.order][:, complete]
        audited, held_out = int(units.has_audited.sum()) // 2, int(units.has_held_out.sum()) // 2
        deviation = math.sqrt((audited + held_out + 1) / (12 * audited * held_out))
        members = None
        if known_members is not None:
            of_members = known_members[0][:, complete]
            whole = np.isfinite(of_members).all(axis=1)
            _, group = np.unique(np.array(known_members[1], dtype=object)[whole], return_inverse=True)
            members = (of_members[whole], group) if whole.any() else None
        tested = [_run_test(ordered, units, members, np.random.default_rng([seed, split])) for split in range(splits)]
    p_values = [split.directed_p_value for split in tested]
    return DatasetInference(
        reason=reason,
        p_value=None if reason is not None else combine_p_values(p_values),
        statistic=None if reason is not None else _median_t(tested),
        n=int((~texts.held_out).sum()),
        n_held_out=int(texts.held_out.sum()),
        split_p_values=tuple(p_values),
        left_out=left_out,
        claim_level=claim_level,
        method=_format_method(int(complete.sum()), splits, tested, left_out),
        direction=None if reason is not None else _combine_directions(tested),
        # Of a test of the smaller halves; twice the median p-value is at most 5% where half of the splits are at 2.5%.
        detectable_auroc=None if reason is not None else detectable_auroc(deviation, LEVEL / 2),
    )


@dataclass(frozen=True)
class _Split:
    """One split: which way the fitted half runs, and what a test of the other half says without regard to it."""

    t: float
    p_value: float
    runs_with_training: bool
    n_against: int = 0
    """Features by which known members score lower."""

    @property
    def directed_p_value(self) -> float:
        """The p-value in the direction of training: 1 where the fitted half runs the other way."""
        return self.p_value if self.runs_with_training else 1.0

    @property
    def directed_t(self) -> float:
        # No negative zero.
        return self.t if self.runs_with_training else 0.0 - self.t


def _combine_directions(split_results: Sequence[_Split]) -> Direction:
    """Return the direction of the difference that the splits together find at 5%; ``none`` where they find none."""
    if combine_p_values([split.directed_p_value for split in split_results]) <= LEVEL:
        return "training"
    against = sum(not split.runs_with_training for split in split_results)
    found = combine_p_values([split.p_value for split in split_results]) <= LEVEL
    return "opposite" if found and against > len(split_results) / 2 else "none"


def _format_method(
    n_features: int, splits: int, split_results: Sequence[_Split], omitted_features: Sequence[str]
) -> str:
    words = (
        f"{n_features} feature{'' if n_features == 1 else 's'}, ridge regression of group means, one-sided Welch test "
        f"of group means of the other half in the direction of training, {splits} random splits by group, "
        "twice the median p-value"
    )
    if split_results:
        with_training = sum(split.runs_with_training for split in split_results)
        words += f"; {with_training} of {len(split_results)} fitted halves run in the direction of training"
        if against := max(split.n_against for split in split_results):
            words += f", up to {against} feature(s) left aside by which known members score lower"
        if with_training < len(split_results):
            p_value = combine_p_values([split.p_value for split in split_results])
            words += f" (p = {p_value:.2g} without regard to direction)"
    if omitted_features:
        more = len(omitted_features) - _NAMED_AT_MOST
        words += f"; left out: {', '.join(omitted_features[:_NAMED_AT_MOST])}" + (
            f" and {more} more" if more > 0 else ""
        )
    return words


@dataclass(frozen=True, eq=False)
class _Units:
    """Texts by what is averaged: the texts of one group on one side.

    ``order`` [n] sorts the texts by unit; ``start`` [u] is where each unit begins among them. ``held_out`` and
    ``group`` [u] are each unit's side and group; ``has_audited`` and ``has_held_out`` [g] are each group's sides.
    """

    order: Places
    start: Places
    held_out: Bools
    group: Places
    has_audited: Bools
    has_held_out: Bools


def _group_texts(texts: ComparedTexts) -> _Units:
    held_out = texts.held_out
    names, group_of_text = np.unique(np.array(texts.groups, dtype=object), return_inverse=True)
    both = 2 * group_of_text + held_out
    order = np.argsort(both, kind="stable")
    units, start = np.unique(both[order], return_index=True)
    return _Units(
        order=order,
        start=start,
        held_out=units % 2 == 1,
        group=units // 2,
        has_audited=np.bincount(group_of_text, weights=~held_out, minlength=len(names)) > 0,
        has_held_out=np.bincount(group_of_text, weights=held_out, minlength=len(names)) > 0,
    )


def _explain_refusal(design: str, units: _Units, any_feature: bool) -> str | None:
    if design not in DESIGNS:
        return (
            f"the benchmark's design is '{design}': there are no held-out texts of the audited texts' distribution, so "
            "a difference would not be training's; it needs a benchmark that is exchangeable or randomised"
        )
    for name, has in (("audited", units.has_audited), ("held-out", units.has_held_out)):
        if has.sum() < MIN_GROUPS:
            n = int(has.sum())
            return f"the {name} texts are of {n} group{'' if n == 1 else 's'}, the test needs {MIN_GROUPS}"
    return None if any_feature else "every feature is missing for some text"


def _run_test(
    values: Floats, units: _Units, members: tuple[Floats, Places] | None, generator: np.random.Generator
) -> _Split:
    """Welch's t and its one-sided p-value on one random half, of the model fitted to the other.

    ``members``: values [m, d] of texts that are known to be members, and the place of each text's group [m].
    """
    from sklearn.linear_model import RidgeCV  # noqa: PLC0415 - it is heavy
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    # Half of the groups of each composition (audited, held out, both) are fitted.
    composition = units.has_audited + 2 * units.has_held_out
    chosen = np.zeros(len(composition), dtype=bool)
    for kind in (1, 2, 3):
        places = np.flatnonzero(composition == kind)
        chosen[generator.permutation(places)[: len(places) // 2]] = True
    fitted = chosen[units.group]
    lengths = np.diff(np.append(units.start, len(values)))
    texts = np.repeat(fitted, lengths)
    ends = np.percentile(values[texts], _CLIPPED_AT, axis=0)
    scaler = StandardScaler().fit(np.clip(values, *ends)[texts])
    means = np.add.reduceat(scaler.transform(np.clip(values, *ends)), units.start, axis=0) / lengths[:, None]
    against = np.zeros(values.shape[1], dtype=bool)
    if members is not None:
        known, group = members
        compared = fitted & units.held_out
        against = _find_features_against(
            np.clip(known, *ends),
            group,
            np.clip(values, *ends)[np.repeat(compared, lengths)],
            np.repeat(np.arange(np.count_nonzero(compared)), lengths[compared]),
        )
    # Where all run against training the split finds nothing, and its t says how they run.
    used = means if against.all() else means[:, ~against]
    regression = RidgeCV(alphas=_PENALTIES).fit(used[fitted], np.where(units.held_out[fitted], 0.0, 1.0))
    outputs = regression.predict(used[~fitted])
    audited = ~units.held_out[~fitted]
    weights = np.abs(regression.coef_)
    is_held_out = units.held_out[fitted]
    # By how much each feature is higher in audited units than in held-out ones.
    differences = used[fitted][~is_held_out].mean(axis=0) - used[fitted][is_held_out].mean(axis=0)
    # By more than the rounding of what cancels.
    runs = float(weights @ differences) > _CANCELS * float(weights @ np.abs(differences))
    t, p_value = _welch_test(outputs[audited], outputs[~audited])
    return _Split(t, p_value, runs and not against.all(), int(against.sum()))


def _find_features_against(members: Floats, member_groups: Places, held_out: Floats, groups: Places) -> Bools:
    """Return by which features members score lower than held-out texts: Mann-Whitney of group means, 2.5%.

    Args:
        members: Values of shape (n_members, n_features).
        member_groups: The place of each member's group.
        held_out: Values of shape (n_held_out, n_features).
        groups: The place of each held-out text's group.
    """
    is_against = np.zeros(members.shape[1], dtype=bool)
    for feature in range(members.shape[1]):
        inside = compute_group_means(members[:, feature], member_groups)
        outside = compute_group_means(held_out[:, feature], groups)
        means = merge_tied_means(*inside, *outside)
        is_against[feature] = scipy.stats.mannwhitneyu(*means, alternative="less").pvalue <= LEVEL / 2
    return is_against


def _welch_test(audited: Floats, held_out: Floats) -> tuple[float, float]:
    """Return Welch's t and its one-sided p-value.

    The p-value is at least that of a permutation test of two sides without a shared value, and never 0.
    """
    # With some thousand groups, one over the number of permutations is 0 as a float.
    least = max(SMALLEST_P, 1 / math.comb(len(audited) + len(held_out), len(audited)))
    difference = float(audited.mean() - held_out.mean())
    least_spread = _NO_SPREAD * float(np.abs(np.concatenate([audited, held_out])).max())
    if max(np.ptp(audited), np.ptp(held_out)) <= least_spread:
        # Of features that are constant in the fitted half, or of sides that are: t is nothing, or has no bound.
        if abs(difference) <= least_spread:
            return 0.0, 1.0
        return math.copysign(math.inf, difference), least if difference > 0 else 1.0
    tested = scipy.stats.ttest_ind(audited, held_out, equal_var=False, alternative="greater")
    return float(tested.statistic), max(least, float(tested.pvalue))


def _median_t(split_results: Sequence[_Split]) -> float | None:
    """None where it has no bound: a side that hardly varies."""
    # Infinities of both signs have no mean.
    ordered = sorted(split.directed_t for split in split_results)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2 if math.isfinite(low) and math.isfinite(high) else None


def combine_p_values(p_values: npt.ArrayLike) -> float:
    """Return one p-value of several that are not independent: twice the median of the p-values [k], at most 1.

    A p-value whatever their dependence (Rüger 1978: k/j times the j-th smallest of k p-values is one; Meinshausen,
    Meier and Bühlmann 2009 use it for random splits). The price is a factor of two. Fisher's and Stouffer's methods
    take p-values for independent: on several random splits of the same texts they call a tie a finding. Raises
    DataError where there is no p-value, or one is not between 0 and 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise DataError("p-values to combine must be at least one, each between 0 and 1")
    return float(min(1.0, 2.0 * np.median(values)))
