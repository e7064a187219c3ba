"""From what each model makes of the texts to the rows of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from audit_pipeline.extras.unlearning.statistics import (
    LEAST_RATIO,
    STATED_REFERENCE,
    difference_of_means,
    group_means,
    is_nearly_unchanged,
    kolmogorov_smirnov,
    mean_of,
    privleak,
    privleak_against_retrained,
)
from audit_pipeline.statistics.evaluation import compare_aurocs
from audit_pipeline.statistics.intervals import GroupedSides, Measurement, measure_auroc
from audit_pipeline.statistics.rates import describe_interval_method, grouped_rate
from audit_pipeline.statistics.roc import Bools, Floats, roc_points
from audit_pipeline.tables import ComparedModel, ComparedSide

FIRST_CHOICES = ("exact_memorization", "extraction_strength")
"""Measures of the model's first choices: absent where its interface does not give these."""
READS_OF_FIRST_CHOICES = ("argmax_id",)
MEANS = (*FIRST_CHOICES, "mean_log_probability")
"""The values of a text whose means are compared, side by side."""
MIN_40, MIN_K = "min_40", "min_k"
"""Two Min-K% scores of a text: of 40% (PrivLeak), and of the share that the threshold was chosen for."""
REPRODUCED = "verbatim_reproduced"
OF_DOCUMENTS = ("verbatim_coverage", "verbatim_log_p", REPRODUCED)
"""The values of a document whose means are compared, side by side."""
STILL_REPRODUCED = "verbatim_still_reproduced"
"""The share of the documents to be forgotten of which the model after still gives a passage, and their names."""
OUTPUTS = ("exact_memorization", "extraction_strength", "verbatim_coverage", REPRODUCED)
"""How much of a text the model says. A fall of one of them that held-out texts do not share is a change that a user
sees; where the texts to be forgotten are clearly above held-out ones, something of them remains."""

METRIC_IN_WORDS: Mapping[str, str] = {
    "privleak": "PrivLeak",
    "auroc_min_40": "AUROC of Min-40%, texts to be forgotten as members",
    "forget_quality": "forget quality: p-value of no difference from the retrained model",
    "suspicious": "share suspicious: called a member before, and hardly moved since",
    "member_before": "share called a member before",
    "unchanged": "share whose Min-K% hardly moved",
    "exact_memorization": "exact memorisation: share of tokens that are the model's first choice",
    "extraction_strength": "extraction strength: share of tokens after the last that is no first choice",
    "mean_log_probability": "mean log-probability of a token",
    "verbatim_coverage": "verbatim: share of characters given with a probability of at least .001",
    "verbatim_log_p": "verbatim: log-probability of a document's strongest window",
    "verbatim_reproduced": "verbatim: share of documents with a passage that is reproduced",
    "verbatim_still_reproduced": "verbatim: the same after, without documents that the retrained model reproduces, too",
}
"""Every metric of a comparison for people, in the order in which they are shown."""

NO_RETRAINED = "no retrained model was named"

Side = tuple[ComparedSide, Bools]
Values = Mapping[str, Floats]


@dataclass(frozen=True)
class Finding:
    """One number of a comparison: a row of UNLEARNING but for what was compared."""

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
    """From which Min-K% score on the model before calls a text a member, as an audit chose it.

    ``value`` and ``benchmark``, whose calibration texts chose it, are None, and ``reason`` says why, where there is
    none; ``share`` is K.
    """

    share: float
    value: float | None = None
    benchmark: str | None = None
    words: str = ""
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class TextValues:
    """n texts and what every model makes of them.

    ``forget`` [n] says which are to be forgotten; the others are held out. ``values`` are [n] each, by model and name.
    ``chosen_on`` [n] are the texts that chose the threshold. ``no_first_choices``: why nothing is known of a model's
    first choices; None where they are known of all.
    """

    forget: Bools
    groups: Sequence[str]
    values: Mapping[ComparedModel, Values]
    threshold: ThresholdBefore
    chosen_on: Bools
    no_first_choices: str | None = None


@dataclass(frozen=True, eq=False)
class DocumentValues:
    """n documents and what was extracted of them; where ``reason`` says why nothing can be compared, n is 0."""

    forget: Bools
    groups: Sequence[str]
    values: Mapping[ComparedModel, Values]
    reason: str | None


@dataclass(frozen=True, eq=False)
class ReproducedDocuments:
    """The n documents to be forgotten that the model after was searched for.

    ``reproduced`` [n]: it gives a passage of them, and the retrained model, if any, was not seen to.
    ``names`` are for people. Where ``reason`` says why nothing is known, n is 0.
    """

    names: Sequence[str]
    groups: Sequence[str]
    reproduced: Bools
    reason: str | None


def compare_texts(texts: TextValues) -> list[Finding]:
    """Return every number that the texts' token statistics give.

    Raises DataError where there are no texts to be forgotten, or none held out.
    """
    unknown = FIRST_CHOICES if texts.no_first_choices is not None else ()
    return [
        *_compute_leakage(texts),
        *_compute_forget_quality(texts),
        *_compute_unchanged_shares(texts),
        *(_build_missing_finding(metric, "after", "forget", 0, texts.no_first_choices or "") for metric in unknown),
        *(row for metric in MEANS if metric not in unknown for row in _compute_means(metric, texts, "texts")),
    ]


def compare_documents(documents: DocumentValues) -> list[Finding]:
    """Return every number that extraction gives, before and after."""
    if documents.reason is not None:
        # One row a metric says so: who asks for a metric finds the reason.
        return [_build_missing_finding(metric, "after", "forget", 0, documents.reason) for metric in OF_DOCUMENTS]
    return [row for metric in OF_DOCUMENTS for row in _compute_means(metric, documents, "documents")]


def find_still_reproduced(documents: ReproducedDocuments) -> Finding:
    """The documents to be forgotten that are still reproduced: a direct observation, which no average outweighs."""
    if documents.reason is not None:
        return _build_missing_finding(STILL_REPRODUCED, "after", "forget", 0, documents.reason)
    meaning = "share of documents with a passage that is reproduced, and was not seen to be by the retrained model"
    share = _build_share_finding(
        STILL_REPRODUCED, "after", "forget", documents.reproduced, documents.groups, meaning, things="documents"
    )
    return replace(share, documents=_select_names(documents.names, documents.reproduced))


def _split_sides(forget: Bools) -> tuple[Side, Side]:
    return ("forget", forget), ("holdout", ~forget)


def _compute_means(metric: str, subjects: TextValues | DocumentValues, things: str) -> Iterator[Finding]:
    """Yield the mean under every model and of the change, on each side, over what every model gives a number of."""
    columns: dict[ComparedModel, Floats] = {role: values[metric] for role, values in subjects.values.items()}
    columns["change"] = columns["after"] - columns["before"]
    known = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    for role, column in columns.items():
        for side, chosen in _split_sides(subjects.forget):
            compared_here = chosen & known
            n, groups = int(compared_here.sum()), _select_names(subjects.groups, compared_here)
            if not n:
                yield _build_missing_finding(metric, role, side, 0, "there is nothing on this side to take a mean of")
            elif metric == REPRODUCED and role != "change":
                yield _build_share_finding(
                    metric, role, side, column[compared_here], groups, f"share of {things}", things
                )
            else:
                # A share, a logarithm of one, or the change of either.
                bounds = (-1.0 if role == "change" else 0.0, 1.0)
                if metric not in OUTPUTS:
                    bounds = (-math.inf, math.inf if role == "change" else 0.0)
                mean = mean_of(column[compared_here], groups, things=things, bounds=bounds)
                yield _build_finding(metric, role, side, mean, n)
    if metric in OUTPUTS and all((chosen & known).any() for _, chosen in _split_sides(subjects.forget)):
        difference = difference_of_means(
            columns["change"][known],
            subjects.forget[known],
            _select_names(subjects.groups, known),
            n_measures=len(OUTPUTS),
            things=things,
        )
        yield _build_finding(metric, "change", "both", difference, int(known.sum()))


def _compute_leakage(texts: TextValues) -> Iterator[Finding]:
    """AUROC of Min-40%, the texts to be forgotten being the members, and PrivLeak."""
    labels = texts.forget.astype(np.int8)
    sides, n = GroupedSides(texts.groups, labels), len(labels)
    aurocs = {role: measure_auroc(roc_points(of[MIN_40], labels), sides) for role, of in texts.values.items()}
    for role, auroc in aurocs.items():
        yield _build_finding("auroc_min_40", role, "both", auroc, n)
    change = compare_aurocs(
        aurocs["after"], aurocs["before"], sides, meaning="AUROC after less AUROC before, on the same texts"
    )
    yield _build_finding("auroc_min_40", "change", "both", change, n)
    for role in ("before", "after"):
        auroc = aurocs[role]
        if "retrained" not in aurocs:
            how = f"reference .5, as stated; AUROC: {auroc.method}"
            leak = privleak(auroc.value, auroc.interval, STATED_REFERENCE, how)
            yield _build_finding("privleak", role, "both", leak, n)
        elif aurocs["retrained"].value == 1:
            reason = "the retrained model separates all forget texts from held-out texts: there is nothing to divide by"
            yield _build_missing_finding("privleak", role, "both", n, reason)
        else:
            leak = privleak_against_retrained(auroc, aurocs["retrained"], sides)
            yield _build_finding("privleak", role, "both", leak, n)


def _compute_forget_quality(texts: TextValues) -> Iterator[Finding]:
    """Yield the p-value of no difference from the retrained model, in the mean log-probability of groups of texts."""
    score = "mean_log_probability"
    for role in ("before", "after"):
        for side, chosen in _split_sides(texts.forget):
            groups = _select_names(texts.groups, chosen)
            n = len(set(groups))
            if "retrained" not in texts.values:
                yield _build_missing_finding("forget_quality", role, side, n, NO_RETRAINED)
                continue
            own, other = (group_means(texts.values[model][score][chosen], groups) for model in (role, "retrained"))
            p_value, statistic = kolmogorov_smirnov(own, other)
            method = (
                "p-value of the two-sample Kolmogorov-Smirnov test against the retrained model, of the mean "
                f"log-probability of each group of texts; largest distance {statistic:.3g}"
            )
            yield Finding("forget_quality", role, side, p_value, None, None, n, method, None)


def _compute_unchanged_shares(texts: TextValues) -> Iterator[Finding]:
    """Shares of texts that were members before, whose Min-K% hardly moved, and both: after, and in the retrained model.

    What hardly moves in the retrained model shows how much the rule finds where the texts were never read.
    """
    before, threshold = texts.values["before"][MIN_K], texts.threshold
    member = np.zeros(len(before), dtype=np.bool_) if threshold.value is None else before >= threshold.value
    every, eligible = np.ones(len(before), dtype=np.bool_), ~texts.chosen_on
    words = f"texts called members before ({threshold.words})"
    yield from _compute_share_by_side("member_before", "before", member, texts, eligible, words, threshold.reason)
    moved = f"texts whose Min-K% score changed by less than the factor {LEAST_RATIO}"
    other: dict[ComparedModel, ComparedModel] = {"change": "after", "retrained": "retrained"}
    for role, model in other.items():
        if model in texts.values:
            still = is_nearly_unchanged(before, texts.values[model][MIN_K])
            yield from _compute_share_by_side("unchanged", role, still, texts, every, moved, None)
            yield from _compute_share_by_side(
                "suspicious", role, still & member, texts, eligible, f"{words}, {moved}", threshold.reason
            )


def _compute_share_by_side(
    metric: str, role: ComparedModel, hits: Bools, texts: TextValues, eligible: Bools, words: str, reason: str | None
) -> Iterator[Finding]:
    for side, of_side in _split_sides(texts.forget):
        chosen = of_side & eligible
        n = int(chosen.sum())
        if reason is not None or not n:
            yield _build_missing_finding(metric, role, side, n, reason or "every text of this side chose the threshold")
            continue
        yield _build_share_finding(
            metric, role, side, hits[chosen], _select_names(texts.groups, chosen), f"share of {words}"
        )


def _build_share_finding(
    metric: str,
    role: ComparedModel,
    side: ComparedSide,
    hits: Bools | Floats,
    groups: Sequence[str],
    meaning: str,
    things: str = "texts",
) -> Finding:
    rate = grouped_rate(hits, groups)
    method = f"{meaning}; {describe_interval_method(rate, things)}"
    return Finding(metric, role, side, rate.value, rate.low, rate.high, rate.n, method, None)


def _build_finding(metric: str, role: ComparedModel, side: ComparedSide, found: Measurement, n: int) -> Finding:
    return Finding(metric, role, side, found.value, found.interval.low, found.interval.high, n, found.method, None)


def _build_missing_finding(metric: str, role: ComparedModel, side: ComparedSide, n: int, reason: str) -> Finding:
    return Finding(metric, role, side, None, None, None, n, "", reason)


def _select_names(names: Sequence[str], chosen: Bools) -> list[str]:
    return [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
