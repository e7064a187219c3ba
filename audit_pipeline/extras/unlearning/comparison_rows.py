"""The rows of a comparison, computed from each model's values for the texts and documents.

Each row is one number with its interval, or the reason why the number is missing. measures.py has the formulas. *The
model before* and *the model after* are the model before and after unlearning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit_pipeline.extras.unlearning import measures
from audit_pipeline.statistics import intervals
from audit_pipeline.statistics.evaluation import compare_aurocs
from audit_pipeline.statistics.group_means import compute_group_means, merge_tied_means
from audit_pipeline.statistics.roc import Bools, Floats, compute_roc_points
from audit_pipeline.statistics.share_bounds import describe_interval_method, estimate_grouped_rate
from audit_pipeline.tables import ComparedModel, ComparedSide

FIRST_CHOICES = ("exact_memorization", "extraction_strength")
"""The measures that need the model's first choices. Some interfaces do not return these."""
FIRST_CHOICE_COLUMNS = ("argmax_id",)
"""The token statistics that ``FIRST_CHOICES`` read."""
TEXT_MEASURES = (*FIRST_CHOICES, "mean_log_probability")
"""The values of a text whose means are compared."""
MIN_40 = "min_40"
"""The name of a text's Min-K% score with K = 40%, for PrivLeak."""
MIN_K = "min_k"
"""The name of a text's Min-K% score with the share that the threshold was chosen for."""
REPRODUCED = "verbatim_reproduced"
DOCUMENT_MEASURES = ("verbatim_coverage", "verbatim_log_p", REPRODUCED)
"""The values of a document whose means are compared."""
STILL_REPRODUCED = "verbatim_still_reproduced"
"""The share of documents to be forgotten with a passage that the model after still reproduces. The row names them."""
OUTPUTS = ("exact_memorization", "extraction_strength", "verbatim_coverage", REPRODUCED)
"""The measures of how much of a text the model reproduces.

If a measure falls for the texts to be forgotten only, the model says less of them than before. If it is clearly higher
for these texts than for held-out texts, the model still knows some of them.
"""

NO_RETRAINED = "no retrained model was named"

Side = tuple[ComparedSide, Bools]
Values = Mapping[str, Floats]


@dataclass(frozen=True)
class ComparisonFinding:
    """A row of UNLEARNING, without the columns of the models, benchmarks and run.

    Attributes:
        metric: The name of the measure.
        role: The model that the number describes, or ``change`` for the model after compared with the model before.
        side: The texts that the number describes.
        value: The number, or None if it is missing.
        ci_low: The lower end of the interval, or None.
        ci_high: The upper end of the interval, or None.
        n: The number of texts, documents or groups.
        method: How number and interval were computed.
        reason: Why the number is missing, or None.
        documents: The names of documents, for measures that name them.
    """

    metric: str
    role: ComparedModel
    side: ComparedSide
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    method: str
    reason: str | None
    documents: Sequence[str] | None = None


@dataclass(frozen=True)
class ThresholdBefore:
    """The Min-K% score from which an audit of the model before unlearning calls a text a member.

    Attributes:
        share: The share K of the Min-K% score.
        value: The threshold, or None if it is missing.
        benchmark: The benchmark whose calibration texts chose the threshold, or None.
        description: The rule and benchmark of the threshold, for the method of a number.
        reason: Why the threshold is missing, or None.
    """

    share: float
    value: float | None = None
    benchmark: str | None = None
    description: str = ""
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class ComparedValues:
    """The values of n texts or documents under each model.

    Attributes:
        forget: A mask of shape (n,) of the subjects to be forgotten. The others are held out.
        groups: The group of each subject.
        values: Float arrays of shape (n,), by model and name.
        reason: Why nothing can be compared, or None. With a reason, n is 0.
    """

    forget: Bools
    groups: Sequence[str]
    values: Mapping[ComparedModel, Values]
    reason: str | None = None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Return both sides, each with the mask of its subjects."""
        return ("forget", self.forget), ("holdout", ~self.forget)


@dataclass(frozen=True, eq=False)
class ReproducedDocuments:
    """The n documents to be forgotten, and which of them the model after reproduces.

    Attributes:
        names: The titles of the documents, or their ids if they have no title.
        groups: The group of each document.
        reproduced: A mask of shape (n,) of the documents with passages that the model after reproduces, but not the
            retrained model.
        reason: Why nothing is known, or None. With a reason, n is 0.
    """

    names: Sequence[str]
    groups: Sequence[str]
    reproduced: Bools
    reason: str | None


def compare_texts(
    texts: ComparedValues, threshold: ThresholdBefore, calibration_mask: Bools, missing_choices_reason: str | None
) -> list[ComparisonFinding]:
    """Compute all rows that are based on the texts' token statistics.

    Args:
        texts: The values of n texts.
        threshold: The threshold of the model before.
        calibration_mask: A mask of shape (n,) of the texts that chose the threshold.
        missing_choices_reason: Why the first choices of a model are unknown, or None if they are known.

    Raises:
        DataError: If a side has no texts.
    """
    findings = [
        *_compute_leakage(texts),
        *_compute_forget_quality(texts),
        *_compute_member_and_unchanged_shares(texts, threshold, calibration_mask),
    ]
    metrics: Sequence[str] = TEXT_MEASURES
    if missing_choices_reason is not None:
        metrics = [metric for metric in TEXT_MEASURES if metric not in FIRST_CHOICES]
        findings += [_build_finding(metric, "after", "forget", 0, missing_choices_reason) for metric in FIRST_CHOICES]
    for metric in metrics:
        findings += _compute_means(metric, texts, "texts")
    return findings


def compare_documents(documents: ComparedValues) -> list[ComparisonFinding]:
    """Compute all rows that are based on the extraction results of the documents under each model."""
    findings: list[ComparisonFinding] = []
    for metric in DOCUMENT_MEASURES:
        if documents.reason is None:
            findings += _compute_means(metric, documents, "documents")
        else:
            # Each metric has a row with the reason, so that a query for it finds the reason.
            findings.append(_build_finding(metric, "after", "forget", 0, documents.reason))
    return findings


def measure_still_reproduced(documents: ReproducedDocuments) -> ComparisonFinding:
    """Return the row with the share and the names of the documents to be forgotten that are still reproduced."""
    if documents.reason is not None:
        return _build_finding(STILL_REPRODUCED, "after", "forget", 0, documents.reason)
    meaning = "share of documents with a passage that is reproduced, and was not seen to be by the retrained model"
    share = _measure_share(documents.reproduced, documents.groups, meaning, "documents")
    finding = _build_finding(STILL_REPRODUCED, "after", "forget", len(documents.names), share)
    return replace(finding, documents=_select_names(documents.names, documents.reproduced))


def _compute_means(metric: str, subjects: ComparedValues, unit: str) -> Iterator[ComparisonFinding]:
    """Yield the mean of a metric under each model and of its change, on each side.

    The means cover the subjects for which every model has a number.
    """
    columns: dict[ComparedModel, Floats] = {role: values[metric] for role, values in subjects.values.items()}
    columns["change"] = columns["after"] - columns["before"]
    is_known = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    for role, column in columns.items():
        for side, on_side in subjects.sides:
            mask = on_side & is_known
            mean = _measure_mean(metric, role, column[mask], _select_names(subjects.groups, mask), unit)
            yield _build_finding(metric, role, side, int(mask.sum()), mean)
    if metric in OUTPUTS and all((on_side & is_known).any() for _, on_side in subjects.sides):
        difference = measures.compute_difference_of_means(
            columns["change"][is_known],
            subjects.forget[is_known],
            _select_names(subjects.groups, is_known),
            n_measures=len(OUTPUTS),
            unit=unit,
        )
        yield _build_finding(metric, "change", "both", int(is_known.sum()), difference)


def _measure_mean(
    metric: str, role: ComparedModel, values: Floats, groups: Sequence[str], unit: str
) -> intervals.Measurement | str:
    if not len(values):
        return f"no {unit} of this side have a value, so there is no mean"
    is_change = role == "change"
    if metric == REPRODUCED and not is_change:
        return _measure_share(values, groups, f"share of {unit}", unit)
    # Metrics of OUTPUTS are shares. The others are logarithms of a probability.
    low, high = (0.0, 1.0) if metric in OUTPUTS else (-math.inf, 0.0)
    if is_change:
        low, high = (-1.0, 1.0) if metric in OUTPUTS else (-math.inf, math.inf)
    return measures.compute_mean(values, groups, unit=unit, bounds=(low, high))


def _compute_leakage(texts: ComparedValues) -> Iterator[ComparisonFinding]:
    """Yield the AUROC of Min-40%, with the texts to be forgotten as members, and PrivLeak."""
    labels = texts.forget.astype(np.int8)
    sides = intervals.GroupedSides(texts.groups, labels)
    n = len(labels)
    aurocs = {
        role: intervals.measure_auroc(compute_roc_points(values[MIN_40], labels), sides)
        for role, values in texts.values.items()
    }
    for role, auroc in aurocs.items():
        yield _build_finding("auroc_min_40", role, "both", n, auroc)
    meaning = "AUROC after minus AUROC before, on the same texts"
    change = compare_aurocs(aurocs["after"], aurocs["before"], sides, meaning=meaning)
    yield _build_finding("auroc_min_40", "change", "both", n, change)
    for role in ("before", "after"):
        leakage = _measure_privleak(aurocs[role], aurocs.get("retrained"), sides)
        yield _build_finding("privleak", role, "both", n, leakage)


def _measure_privleak(
    auroc: intervals.MeasuredAuroc, retrained: intervals.MeasuredAuroc | None, sides: intervals.GroupedSides
) -> intervals.Measurement | str:
    if retrained is None:
        method = f"reference .5, as stated; AUROC: {auroc.method}"
        return measures.compute_privleak(auroc.value, auroc.interval, measures.STATED_REFERENCE, method)
    if retrained.value == 1:
        return (
            "the retrained model separates all texts to be forgotten from held-out texts, so PrivLeak would be "
            "divided by 0"
        )
    return measures.compute_relative_privleak(auroc, retrained, sides)


def _compute_forget_quality(texts: ComparedValues) -> Iterator[ComparisonFinding]:
    """Yield the p-values of a test whether a model differs from the retrained model.

    The test compares the mean log-probabilities of groups of texts.
    """
    for role in ("before", "after"):
        for side, on_side in texts.sides:
            groups = _select_names(texts.groups, on_side)
            quality: intervals.Measurement | str = NO_RETRAINED
            if "retrained" in texts.values:
                values = texts.values[role]["mean_log_probability"][on_side]
                retrained = texts.values["retrained"]["mean_log_probability"][on_side]
                quality = _measure_forget_quality(values, retrained, groups)
            yield _build_finding("forget_quality", role, side, len(set(groups)), quality)


def _measure_forget_quality(values: Floats, retrained: Floats, groups: Sequence[str]) -> intervals.Measurement:
    codes = intervals.encode_groups(groups)
    group_means = compute_group_means(values, codes)
    retrained_means = compute_group_means(retrained, codes)
    p_value, statistic = measures.compute_kolmogorov_smirnov(*merge_tied_means(*group_means, *retrained_means))
    method = (
        "p-value of a two-sample Kolmogorov-Smirnov test that compares the groups' mean log-probabilities with those "
        f"under the retrained model; statistic {statistic:.3g}"
    )
    return intervals.Measurement(p_value, intervals.NO_INTERVAL, method)


def _compute_member_and_unchanged_shares(
    texts: ComparedValues, threshold: ThresholdBefore, calibration_mask: Bools
) -> Iterator[ComparisonFinding]:
    """Yield the shares of texts that were called members before unlearning, have a nearly unchanged score, or both.

    A text is called a member if its Min-K% score under the model before reaches the threshold. Texts that were used
    to choose the threshold are excluded from shares that depend on it. Scores of the model before are compared with
    those of the model after and of the retrained model. The retrained model shows how often scores are nearly
    unchanged although the model never read the texts.
    """

    def measure_sides(metric: str, role: ComparedModel, hits: Bools, description: str) -> Iterator[ComparisonFinding]:
        needs_threshold = metric != "unchanged"
        for side, on_side in texts.sides:
            mask = on_side
            if needs_threshold:
                mask = on_side & ~calibration_mask
            share: intervals.Measurement | str
            if needs_threshold and threshold.reason is not None:
                share = threshold.reason
            elif not mask.any():
                share = "the threshold was chosen on all texts of this side, so no text is left to compare"
            else:
                share = _measure_share(hits[mask], _select_names(texts.groups, mask), f"share of {description}")
            yield _build_finding(metric, role, side, int(mask.sum()), share)

    before = texts.values["before"][MIN_K]
    is_member = np.zeros(len(before), dtype=np.bool_)
    if threshold.value is not None:
        is_member = before >= threshold.value
    members = f"texts called members before ({threshold.description})"
    unmoved = f"texts whose Min-K% score changed by less than the factor {measures.MIN_RATIO}"
    yield from measure_sides("member_before", "before", is_member, members)
    compared: dict[ComparedModel, ComparedModel] = {"change": "after", "retrained": "retrained"}
    for role, model in compared.items():
        if model in texts.values:
            is_unchanged = measures.is_nearly_unchanged(before, texts.values[model][MIN_K])
            yield from measure_sides("unchanged", role, is_unchanged, unmoved)
            yield from measure_sides("suspicious", role, is_unchanged & is_member, f"{members}, {unmoved}")


def _measure_share(
    hits: Bools | Floats, groups: Sequence[str], meaning: str, unit: str = "texts"
) -> intervals.Measurement:
    rate = estimate_grouped_rate(hits, groups)
    return intervals.Measurement(rate.value, rate.interval, f"{meaning}; {describe_interval_method(rate, unit)}")


def _build_finding(
    metric: str, role: ComparedModel, side: ComparedSide, n: int, result: intervals.Measurement | str
) -> ComparisonFinding:
    """Build a row with a number, or with the reason why it is missing."""
    if isinstance(result, str):
        return ComparisonFinding(metric, role, side, None, None, None, n, "", result)
    interval = result.interval
    return ComparisonFinding(metric, role, side, result.value, interval.low, interval.high, n, result.method, None)


def _select_names(names: Sequence[str], mask: Bools) -> list[str]:
    return [name for name, is_selected in zip(names, mask, strict=True) if is_selected]
