"""Dataset inference: a test of whether a set of texts was in the training data, against texts known to be held out.

Source: Maini et al. 2024, arXiv 2406.06443, section 5.1. A linear model is fitted to one half of the texts. It learns
which detectors separate audited from held-out texts. The test uses the model's outputs on the other half. The p-value
therefore needs no correction for the number of detectors. This implementation differs from the paper:

- The unit is the group (the book, the patent). Groups are divided into halves, the model is fitted to group means, and
  the test compares group means. Windows of one document therefore do not count as independent.
- Values are clipped at the 2.5th and 97.5th percentile and standardised. Both are measured on the fitted half.
- The linear model is a ridge regression whose penalty is chosen by leave-one-group-out. Detectors at many settings are
  nearly collinear, and plain least squares needs more groups than features.
- The texts are divided into halves several times, which reduces the effect of chance. The p-values of these splits
  depend on each other, so they are combined by a rule that is valid under dependence (:func:`combine_p_values`).
- The test is one-sided in the direction of training: every score is higher for likelier members. On the fitted half,
  each split determines the direction of its features by the sign of sum_j |w_j| d_j. Here w_j is the weight of the
  standardised feature j, and d_j its mean over audited groups minus its mean over held-out groups.
- A split in which held-out groups score higher has a p-value of 1. The tested half has no part in that decision, so the
  p-values hold their level.
- Known members outside of the test show the direction of each feature. If they score lower than the held-out groups of
  the fitted half (Mann-Whitney test, 2.5%), the split omits the feature.
- A p-value is never below the smallest p-value of a permutation test of the same number of groups. Otherwise it could
  become arbitrarily small, because Welch's t grows without bound if the scores of a side hardly vary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.claims import SMALLEST_P, ClaimLevel, compute_detectable_auroc
from audit_pipeline.statistics.group_means import TEST_LEVEL, Direction, compute_group_means, merge_tied_means
from audit_pipeline.statistics.roc import Bools, Floats, Places

NAME = "dataset_inference"
ASSUMPTION = (
    "Without training, the held-out groups and the audited ones are draws from one distribution, and groups are "
    "independent of each other. The p-value speaks of the audited set as a whole, not of any one text."
)
DESIGNS = ("exchangeable", "randomised")
MIN_GROUPS = 20
SPLITS = 10

_CLIP_PERCENTILES = (2.5, 97.5)
_PENALTIES = np.logspace(-1, 5, 13)
# Smaller values, relative to the magnitude of the data, are rounding errors.
_MIN_RELATIVE_SPREAD = 1e-10
_MIN_RELATIVE_DIFFERENCE = 1e-6


@dataclass(frozen=True)
class DatasetInference:
    """The result of dataset inference. ``findings.describe_method`` describes its method in a sentence.

    Attributes:
        reason: Why the test is refused, or None. A refused test has no numbers.
        p_value: The combined p-value in the direction of training.
        statistic: The median of Welch's t over splits, in the direction of training.
        n: Number of audited texts.
        n_held_out: Number of held-out texts.
        n_features: Number of features (detector settings) that have a score for every text.
        n_splits: Number of random splits.
        split_p_values: The p-value of each split in the direction of training. It is 1 if held-out groups score higher
            in the fitted half of the split.
        undirected_p_value: The combined p-value regardless of direction.
        n_splits_with_training: Number of splits in which audited groups score higher in the fitted half.
        n_features_against: The largest number of features in a split by which known members score lower.
        omitted_features: The features without a score for some texts, with the number of these texts.
        claim_level: The claim level of the benchmark.
        direction: The side that scores higher, at a level of 5%. It is ``opposite`` if the undirected p-value is
            significant and held-out groups score higher in most splits.
        detectable_auroc: The smallest AUROC between group means that a test at 5% detects with a power of 80%, by
            Noether's formula (Noether 1987, Journal of the American Statistical Association 82).
        assumption: The assumption of the p-value.
    """

    reason: str | None
    p_value: float | None
    statistic: float | None
    n: int
    n_held_out: int
    n_features: int
    n_splits: int
    split_p_values: tuple[float, ...]
    undirected_p_value: float | None
    n_splits_with_training: int
    n_features_against: int
    omitted_features: Mapping[str, int]
    claim_level: ClaimLevel
    direction: Direction | None
    detectable_auroc: float | None
    assumption: str = ASSUMPTION

    @property
    def status(self) -> Literal["ok", "refused"]:
        """Return ``refused`` if there is a reason."""
        return "ok" if self.reason is None else "refused"


@dataclass(frozen=True, eq=False)
class Features:
    """The scores of texts as a matrix.

    Attributes:
        example_ids: The texts.
        names: The features.
        values: Array of shape (n_texts, n_features). A missing score is NaN.
    """

    example_ids: tuple[str, ...]
    names: tuple[str, ...]
    values: Floats


def build_feature_matrix(example_ids: Sequence[str], names: Sequence[str], scores: Sequence[float | None]) -> Features:
    """Convert a long table of scores (one entry per text and feature) to a matrix.

    The texts and features of the matrix are in alphabetical order.

    Args:
        example_ids: The text of each entry.
        names: The feature of each entry.
        scores: The score of each entry, or None if it is missing.

    Raises:
        DataError: If a text has two entries of a feature.
    """
    texts, row = np.unique(np.array(example_ids, dtype=object), return_inverse=True)
    features, column = np.unique(np.array(names, dtype=object), return_inverse=True)
    if len(np.unique(row * max(1, len(features)) + column)) < len(row):
        raise DataError("a text has two scores of one feature. Use the scores of a single run.")
    values = np.full((len(texts), len(features)), np.nan)
    # numpy converts None to NaN.
    values[row, column] = np.array(scores, dtype=np.float64)
    return Features(tuple(texts), tuple(features), values)


@dataclass(frozen=True, eq=False)
class ComparedTexts:
    """The texts that the test compares.

    Attributes:
        values: Array of shape (n_texts, n_features). A missing value is NaN.
        names: The features.
        held_out: Boolean array of shape (n_texts,). True for held-out texts, False for audited texts of any label.
        groups: The document of each text.
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
    """Test audited texts against held-out texts.

    A feature without a score for some text is omitted. A group with texts of both sides is assigned to one half with
    all its texts, which makes the test conservative. A higher value of a feature must indicate a member. If audited
    texts score lower than held-out texts, the test finds nothing, and ``direction`` is ``opposite``. Except for
    rounding, the result does not depend on the order of the texts.

    Args:
        texts: The texts.
        design: The design of the benchmark.
        claim_level: The claim level of the benchmark.
        known_members: Values of shape (n_members, n_features) and groups of known members outside of ``texts``. They
            show which features run against training.
        splits: Number of random splits.
        seed: The seed of the splits.

    Returns:
        The result. The test is refused if the design is neither exchangeable nor randomised, or if no feature has a
        score for every text. It is also refused if a side has fewer than 20 groups, which are 10 means per side and
        half. A t-test of fewer skewed means is unreliable. The error rate of the test was measured with at least 10.
    """
    n_lacking = (~np.isfinite(texts.values)).sum(axis=0)
    complete = n_lacking == 0
    units = _group_texts(texts)
    result = DatasetInference(
        reason=_explain_refusal(design, units, has_feature=bool(complete.any())),
        p_value=None,
        statistic=None,
        n=int((~texts.held_out).sum()),
        n_held_out=int(texts.held_out.sum()),
        n_features=int(complete.sum()),
        n_splits=splits,
        split_p_values=(),
        undirected_p_value=None,
        n_splits_with_training=0,
        n_features_against=0,
        omitted_features={name: n for name, n in zip(texts.names, n_lacking.tolist(), strict=True) if n},
        claim_level=claim_level,
        direction=None,
        detectable_auroc=None,
    )
    if result.reason is not None:
        return result
    ordered = texts.values[units.order][:, complete]
    members = None if known_members is None else _select_complete_members(*known_members, complete)
    tested = [_run_test(ordered, units, members, np.random.default_rng([seed, split])) for split in range(splits)]
    p_values = [split.directed_p_value for split in tested]
    p_value = combine_p_values(p_values)
    undirected_p_value = combine_p_values([split.p_value for split in tested])
    n_with_training = sum(split.audited_scores_higher for split in tested)
    n_audited_tested = int(units.has_audited.sum()) // 2
    n_held_out_tested = int(units.has_held_out.sum()) // 2
    deviation = math.sqrt((n_audited_tested + n_held_out_tested + 1) / (12 * n_audited_tested * n_held_out_tested))
    return replace(
        result,
        p_value=p_value,
        statistic=_compute_median_t(tested),
        split_p_values=tuple(p_values),
        undirected_p_value=undirected_p_value,
        n_splits_with_training=n_with_training,
        n_features_against=max(split.n_features_against for split in tested),
        direction=_decide_direction(p_value, undirected_p_value, is_mostly_against=n_with_training < splits / 2),
        # The tests of the halves have this standard error. Twice the median p-value is at most 5% if half of the splits
        # have a p-value of at most 2.5%, so the level is halved.
        detectable_auroc=compute_detectable_auroc(deviation, TEST_LEVEL / 2),
    )


@dataclass(frozen=True)
class _Split:
    """The result of one split.

    Attributes:
        t: Welch's t of the tested half, regardless of the direction of the fitted half.
        p_value: The one-sided p-value of ``t``.
        audited_scores_higher: True if audited groups score higher in the fitted half.
        n_features_against: Number of omitted features, by which known members score lower than held-out texts.
    """

    t: float
    p_value: float
    audited_scores_higher: bool
    n_features_against: int = 0

    @property
    def directed_p_value(self) -> float:
        """Return the one-sided p-value, or 1 if held-out groups score higher in the fitted half."""
        return self.p_value if self.audited_scores_higher else 1.0

    @property
    def directed_t(self) -> float:
        """Return Welch's t, negated if held-out groups score higher in the fitted half."""
        # A subtraction from 0.0 never yields a negative zero.
        return self.t if self.audited_scores_higher else 0.0 - self.t


def _decide_direction(p_value: float, undirected_p_value: float, *, is_mostly_against: bool) -> Direction:
    """Return the side that scores higher, or ``none`` if no p-value is significant at 5%."""
    if p_value <= TEST_LEVEL:
        return "training"
    return "opposite" if undirected_p_value <= TEST_LEVEL and is_mostly_against else "none"


def _select_complete_members(values: Floats, groups: Sequence[str], features: Bools) -> tuple[Floats, Places] | None:
    """Return the values and the group numbers of the members that have all features, or None if there are none."""
    selected = values[:, features]
    is_complete = np.isfinite(selected).all(axis=1)
    if not is_complete.any():
        return None
    _, group_numbers = np.unique(np.array(groups, dtype=object)[is_complete], return_inverse=True)
    return selected[is_complete], group_numbers


@dataclass(frozen=True, eq=False)
class _Units:
    """The units whose mean scores are compared. A unit consists of the texts that a group has on one side.

    Attributes:
        order: Sorts the texts by unit, of shape (n_texts,).
        start: The position of each unit's first text in that order, of shape (n_units,).
        held_out: The side of each unit, of shape (n_units,).
        group: The group number of each unit, of shape (n_units,).
        has_audited: True for groups with audited texts, of shape (n_groups,).
        has_held_out: True for groups with held-out texts, of shape (n_groups,).
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
    unit_of_text = 2 * group_of_text + held_out
    order = np.argsort(unit_of_text, kind="stable")
    units, start = np.unique(unit_of_text[order], return_index=True)
    return _Units(
        order=order,
        start=start,
        held_out=units % 2 == 1,
        group=units // 2,
        has_audited=np.bincount(group_of_text, weights=~held_out, minlength=len(names)) > 0,
        has_held_out=np.bincount(group_of_text, weights=held_out, minlength=len(names)) > 0,
    )


def _explain_refusal(design: str, units: _Units, *, has_feature: bool) -> str | None:
    if design not in DESIGNS:
        return (
            f"the benchmark's design is '{design}', so held-out and audited texts may differ in more than training. "
            "The test requires an exchangeable or randomised benchmark"
        )
    for name, has_side in (("audited", units.has_audited), ("held-out", units.has_held_out)):
        n_groups = int(has_side.sum())
        if n_groups < MIN_GROUPS:
            return (
                f"the {name} texts have {n_groups} group{'' if n_groups == 1 else 's'}, but the test "
                f"requires {MIN_GROUPS}"
            )
    return None if has_feature else "every feature is missing for some text"


def _run_test(
    values: Floats, units: _Units, members: tuple[Floats, Places] | None, generator: np.random.Generator
) -> _Split:
    """Fit the model to a random half of the groups and test it on the other half.

    Args:
        values: Array of shape (n_texts, n_features), ordered by unit.
        units: The units.
        members: Values of shape (n_members, n_features) and group numbers of known members.
        generator: The source of random numbers.
    """
    # scikit-learn is slow to import.
    from sklearn.linear_model import RidgeCV  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    is_fitted = _draw_fitted_units(units, generator)
    lengths = np.diff(np.append(units.start, len(values)))
    is_fitted_text = np.repeat(is_fitted, lengths)
    limits = np.percentile(values[is_fitted_text], _CLIP_PERCENTILES, axis=0)
    clipped = np.clip(values, *limits)
    scaler = StandardScaler().fit(clipped[is_fitted_text])
    means = np.add.reduceat(scaler.transform(clipped), units.start, axis=0) / lengths[:, None]
    is_against = np.zeros(values.shape[1], dtype=bool)
    if members is not None:
        member_values, member_groups = members
        is_compared = is_fitted & units.held_out
        is_against = _find_features_against(
            np.clip(member_values, *limits),
            member_groups,
            clipped[np.repeat(is_compared, lengths)],
            np.repeat(np.arange(np.count_nonzero(is_compared)), lengths[is_compared]),
        )
    # If known members score lower by every feature, all features are used. This random split then never counts as a
    # finding. Its t only shows the direction of the features.
    features = means if is_against.all() else means[:, ~is_against]
    is_held_out = units.held_out[is_fitted]
    regression = RidgeCV(alphas=_PENALTIES).fit(features[is_fitted], np.where(is_held_out, 0.0, 1.0))
    outputs = regression.predict(features[~is_fitted])
    is_audited = ~units.held_out[~is_fitted]
    weights = np.abs(regression.coef_)
    differences = features[is_fitted][~is_held_out].mean(axis=0) - features[is_fitted][is_held_out].mean(axis=0)
    # A sum below this bound is only the rounding error of terms that cancel out.
    min_sum = _MIN_RELATIVE_DIFFERENCE * float(weights @ np.abs(differences))
    is_audited_higher = float(weights @ differences) > min_sum
    t, p_value = _run_welch_test(outputs[is_audited], outputs[~is_audited])
    return _Split(t, p_value, is_audited_higher and not is_against.all(), int(is_against.sum()))


def _draw_fitted_units(units: _Units, generator: np.random.Generator) -> Bools:
    """Draw the groups of the fitted half, and return the mask of their units.

    The draw takes half of the groups with only audited texts, half of those with only held-out texts, and half of those
    with both.
    """
    composition = units.has_audited + 2 * units.has_held_out
    is_drawn = np.zeros(len(composition), dtype=bool)
    for kind in (1, 2, 3):
        groups = np.flatnonzero(composition == kind)
        is_drawn[generator.permutation(groups)[: len(groups) // 2]] = True
    return is_drawn[units.group]


def _find_features_against(members: Floats, member_groups: Places, held_out: Floats, groups: Places) -> Bools:
    """Find the features by which members score lower than held-out texts.

    Group means are compared by a Mann-Whitney test at 2.5%.

    Args:
        members: Values of shape (n_members, n_features).
        member_groups: The group number of each member.
        held_out: Values of shape (n_held_out, n_features).
        groups: The group number of each held-out text.
    """
    is_against = np.zeros(members.shape[1], dtype=bool)
    for feature in range(members.shape[1]):
        member_means = compute_group_means(members[:, feature], member_groups)
        held_out_means = compute_group_means(held_out[:, feature], groups)
        means = merge_tied_means(*member_means, *held_out_means)
        is_against[feature] = scipy.stats.mannwhitneyu(*means, alternative="less").pvalue <= TEST_LEVEL / 2
    return is_against


def _run_welch_test(audited: Floats, held_out: Floats) -> tuple[float, float]:
    """Return Welch's t and its one-sided p-value.

    The p-value is at least the smallest p-value of a permutation test of the same groups, and never 0.
    """
    # With a few thousand groups, one over the number of permutations is 0 in floating point.
    min_p_value = max(SMALLEST_P, 1 / math.comb(len(audited) + len(held_out), len(audited)))
    difference = float(audited.mean() - held_out.mean())
    min_spread = _MIN_RELATIVE_SPREAD * float(np.abs(np.concatenate([audited, held_out])).max())
    if max(np.ptp(audited), np.ptp(held_out)) <= min_spread:
        # Both sides have constant values, so t is undefined or infinite.
        if abs(difference) <= min_spread:
            return 0.0, 1.0
        return math.copysign(math.inf, difference), min_p_value if difference > 0 else 1.0
    test = scipy.stats.ttest_ind(audited, held_out, equal_var=False, alternative="greater")
    return float(test.statistic), max(min_p_value, float(test.pvalue))


def _compute_median_t(splits: Sequence[_Split]) -> float | None:
    """Return the median of t over splits, or None if it is infinite because the values of a side are all equal."""
    ordered = sorted(split.directed_t for split in splits)
    low = ordered[(len(ordered) - 1) // 2]
    high = ordered[len(ordered) // 2]
    # The mean of +infinity and -infinity is undefined.
    return (low + high) / 2 if math.isfinite(low) and math.isfinite(high) else None


def combine_p_values(p_values: npt.ArrayLike) -> float:
    """Combine p-values that depend on each other: twice their median, at most 1.

    The result is a p-value under any dependence. k/j times the j-th smallest of k p-values is a p-value (Rüger 1978).
    Meinshausen, Meier and Bühlmann 2009 use that for random splits. The price is a factor of two. Fisher's and
    Stouffer's methods assume independence. On random splits of the same texts they would report findings without a
    difference.

    Args:
        p_values: The p-values, of shape (k,).

    Raises:
        DataError: If there is no p-value, or if one is not between 0 and 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise DataError("there is no p-value to combine, or a p-value is not between 0 and 1")
    return float(min(1.0, 2.0 * np.median(values)))
