"""From what each model makes of the texts to the rows of a comparison.

Exact memorisation and extraction strength are as open-unlearning computes them (Dorna et al. 2025), PrivLeak as MUSE
does (Shi et al. 2025), forget quality after TOFU (Maini et al. 2024, TOFU). docs/unlearning.md says where ours differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from audit_pipeline.statistics.claims import SMALLEST_P
from audit_pipeline.statistics.evaluation import compare_aurocs
from audit_pipeline.statistics.intervals import (
    NO_INTERVAL,
    NOTHING_VARIES,
    TAIL,
    GroupedSides,
    Interval,
    MeasuredAuroc,
    Measurement,
    encode_groups,
    measure_auroc,
)
from audit_pipeline.statistics.roc import Bools, Floats, compute_roc_points
from audit_pipeline.statistics.share_bounds import describe_interval_method, estimate_grouped_rate
from audit_pipeline.statistics.ties import compute_group_means, merge_tied_means
from audit_pipeline.tables import ComparedModel, ComparedSide

LEAST_RATIO = 1.15
"""A Min-K% score that changes by less than this factor has hardly moved (Shi et al. 2024, section 7)."""
STATED_REFERENCE = 0.5
"""1 - AUROC of a model that cannot separate the two sides: the reference of PrivLeak without a retrained model."""

ALL_EQUAL = "no interval: all have the same value"
"""In the method of a mean that has no interval because nothing varies."""


def compute_exact_memorization(matches: Bools) -> float:
    """Return the share of the scored tokens that are the model's first choice; ``matches`` [n >= 1] says which are."""
    return float(matches.mean())


def compute_extraction_strength(matches: Bools) -> float:
    """Return the share of the scored tokens that follow the last one that is not the model's first choice.

    1 - k/n, with k the shortest beginning after which every one of the n >= 1 tokens is a first choice. 0 where the
    last token is none: open-unlearning returns 1/n then.
    """
    wrong = np.flatnonzero(~matches)
    return 1.0 if not len(wrong) else 1 - (int(wrong[-1]) + 1) / len(matches)


def is_nearly_unchanged(before: Floats, after: Floats) -> Bools:
    """Of each text whether its Min-K% score changed by less than the factor 1.15: |ln(after / before)| < ln 1.15: [n].

    Scores are means of log-probabilities, so at most 0; one that is 0 has moved unless the other is 0, too.
    """
    same = before == after
    both = (before < 0) & (after < 0)
    ratio = np.divide(after, before, out=np.ones(len(before)), where=both)
    return np.asarray(same | (both & (np.abs(np.log(ratio)) < np.log(LEAST_RATIO))))


def compute_mean(
    values: Floats,
    groups: Sequence[str],
    *,
    things: str = "texts",
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Measurement:
    """Return the mean of ``values`` [n >= 1] of ``things``, with the interval over groups [n] by Student's t.

    ``bounds``: the least and the largest value that there can be.
    """
    side, mean = GroupedSides(groups, np.ones(len(values))), float(values.mean())
    if side.n_groups < 2:
        return Measurement(mean, NO_INTERVAL, f"mean over {things}; no interval: all are of one group")
    scatter = side.compute_scatter(side.compute_influences(values))
    if scatter is None:
        why = ALL_EQUAL if (values == values[0]).all() else NOTHING_VARIES
        return Measurement(mean, NO_INTERVAL, f"mean over {things}; {why}")
    low, high = np.clip(mean + scatter.compute_half_width() * np.array([-1, 1]), *bounds)
    how = f"95% interval over {side.n_groups} groups by {scatter.description}"
    return Measurement(mean, Interval(float(low), float(high)), f"mean over {things}; {how}")


def compute_difference_of_means(
    values: Floats, forget: Bools, groups: Sequence[str], *, n_measures: int, things: str = "texts"
) -> Measurement:
    """Return the mean of ``values`` [n] where ``forget`` [n], minus that of the others; both sides have some.

    Its interval over groups [n] is wide enough that with a probability of 95% those of ``n_measures`` measures are
    right at once (Bonferroni). None where so few groups could not show that by a sign test: where few values are not 0,
    a handful of groups may hold none of them, and would seem not to vary.
    """
    difference = float(values[forget].mean() - values[~forget].mean())
    meaning = f"mean over {things} to be forgotten minus that over held-out ones"
    sides = GroupedSides(groups, forget.astype(np.int8))
    if sides.problem:
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {sides.problem}")
    tail = TAIL / n_measures
    needed = 1 - math.floor(math.log2(2 * tail))
    if sides.independent_pairs < needed:
        how = f"no interval: {needed} independent pairs of groups are needed"
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {how}")
    scatter = sides.compute_scatter(sides.compute_influences(np.where(forget, values, -values)))
    if scatter is None:
        return Measurement(difference, NO_INTERVAL, f"{meaning}; {NOTHING_VARIES}")
    reach = scatter.compute_half_width(tail)
    how = f"interval over {sides.n_groups} groups, 95% for {n_measures} measures together, by {scatter.description}"
    return Measurement(difference, Interval(difference - reach, difference + reach), f"{meaning}; {how}")


def compute_privleak(auroc: float, interval: Interval, reference: float, how: str) -> Measurement:
    """100 (A - A') / A' with A = 1 - AUROC (the forget texts are the members) and A' = ``reference`` > 0.

    ``interval`` is the AUROC's, and ``how`` it was computed: PrivLeak is a straight line in the AUROC.
    """
    low, high = (None if end is None else _privleak_from_auroc(end, reference) for end in (interval.high, interval.low))
    return Measurement(_privleak_from_auroc(auroc, reference), Interval(low, high), how)


def compute_relative_privleak(auroc: MeasuredAuroc, retrained: MeasuredAuroc, sides: GroupedSides) -> Measurement:
    """PrivLeak against the ``retrained`` model's A' = 1 - AUROC > 0; the interval holds its uncertainty, too.

    It is built for the logarithm of A / A'. Where the AUROC is 0 or 1, or as good as, A' is taken as it is, and the
    interval is the AUROC's exact bound.
    """
    reference = 1 - retrained.value
    if auroc.interval.low == 0.0 or auroc.interval.high == 1.0:
        how = f"reference: the retrained model, as it is; AUROC: {auroc.method}"
        return compute_privleak(auroc.value, auroc.interval, reference, how)
    meaning, value = "reference: the retrained model, on the same texts", _privleak_from_auroc(auroc.value, reference)
    scatter = None
    if not sides.problem:
        scatter = sides.compute_scatter(retrained.parts / reference - auroc.parts / (1 - auroc.value))
    if scatter is None:
        return Measurement(value, NO_INTERVAL, f"{meaning}; {sides.problem or NOTHING_VARIES}")
    low, high = 100 * (np.exp(scatter.compute_half_width() * np.array([-1, 1])) * (1 - auroc.value) / reference - 1)
    how = f"95% interval over {sides.n_groups} groups, of the logarithm of the ratio, by {scatter.description}"
    return Measurement(value, Interval(float(low), float(high)), f"{meaning}; {how}")


def compute_kolmogorov_smirnov(values: Floats, others: Floats) -> tuple[float, float]:
    """Return the two-sided p-value, never 0, and the statistic of the two-sample Kolmogorov-Smirnov test.

    Args:
        values: Float array of shape (n,).
        others: Float array of shape (m,).
    """
    found = scipy.stats.ks_2samp(values, others)
    return max(SMALLEST_P, float(found.pvalue)), float(found.statistic)


def _privleak_from_auroc(auroc: float, reference: float) -> float:
    return 100 * ((1 - auroc) / reference - 1)


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

NO_RETRAINED = "no retrained model was named"

Side = tuple[ComparedSide, Bools]
Values = Mapping[str, Floats]


@dataclass(frozen=True)
class ComparisonFinding:
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
class ComparedValues:
    """n texts, or documents, and what every model makes of them.

    ``forget`` [n] says which are to be forgotten; the others are held out. ``values`` are [n] each, by model and name.
    Where ``reason`` says why nothing can be compared, n is 0.
    """

    forget: Bools
    groups: Sequence[str]
    values: Mapping[ComparedModel, Values]
    reason: str | None = None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides, each with the mask of its texts [n]."""
        return ("forget", self.forget), ("holdout", ~self.forget)


@dataclass(frozen=True, eq=False)
class ReproducedDocuments:
    """The n documents to be forgotten that the model after was searched for.

    ``reproduced`` [n]: it gives a passage of them, and the retrained model, where there is one, was not seen to.
    ``names`` are for people. Where ``reason`` says why nothing is known, n is 0.
    """

    names: Sequence[str]
    groups: Sequence[str]
    reproduced: Bools
    reason: str | None


def compare_texts(
    texts: ComparedValues, threshold: ThresholdBefore, calibration_mask: Bools, missing_choices_reason: str | None
) -> list[ComparisonFinding]:
    """Return every number that the texts' token statistics give.

    ``chosen_on`` [n] are the texts that chose the threshold. ``no_first_choices``: why nothing is known of a model's
    first choices; None where they are known of all. Raises DataError where there are no texts to be forgotten, or none
    held out.
    """
    unknown = FIRST_CHOICES if missing_choices_reason is not None else ()
    return [
        *_compute_leakage(texts),
        *_compute_forget_quality(texts),
        *_compute_unchanged_shares(texts, threshold, calibration_mask),
        *(_build_finding(metric, "after", "forget", 0, missing_choices_reason or "") for metric in unknown),
        *(row for metric in MEANS if metric not in unknown for row in _compute_means(metric, texts, "texts")),
    ]


def compare_documents(documents: ComparedValues) -> list[ComparisonFinding]:
    """Return every number that extraction gives, before and after."""
    if documents.reason is not None:
        # One row a metric says so: who asks for a metric finds the reason.
        return [_build_finding(metric, "after", "forget", 0, documents.reason) for metric in OF_DOCUMENTS]
    return [row for metric in OF_DOCUMENTS for row in _compute_means(metric, documents, "documents")]


def find_still_reproduced(documents: ReproducedDocuments) -> ComparisonFinding:
    """The documents to be forgotten that are still reproduced: a direct observation, which no average outweighs."""
    if documents.reason is not None:
        return _build_finding(STILL_REPRODUCED, "after", "forget", 0, documents.reason)
    meaning = "share of documents with a passage that is reproduced, and was not seen to be by the retrained model"
    share = _measure_share(documents.reproduced, documents.groups, meaning, "documents")
    found = _build_finding(STILL_REPRODUCED, "after", "forget", len(documents.names), share)
    return replace(found, documents=_select_names(documents.names, documents.reproduced))


def _compute_means(metric: str, subjects: ComparedValues, things: str) -> Iterator[ComparisonFinding]:
    """Yield the mean under every model and of the change, on each side, over what every model gives a number of."""
    columns: dict[ComparedModel, Floats] = {role: values[metric] for role, values in subjects.values.items()}
    columns["change"] = columns["after"] - columns["before"]
    known = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    for role, column in columns.items():
        for side, chosen in subjects.sides:
            here = chosen & known
            mean = _measure_mean(metric, role, column[here], _select_names(subjects.groups, here), things)
            yield _build_finding(metric, role, side, int(here.sum()), mean)
    if metric in OUTPUTS and all((chosen & known).any() for _, chosen in subjects.sides):
        difference = compute_difference_of_means(
            columns["change"][known],
            subjects.forget[known],
            _select_names(subjects.groups, known),
            n_measures=len(OUTPUTS),
            things=things,
        )
        yield _build_finding(metric, "change", "both", int(known.sum()), difference)


def _measure_mean(
    metric: str, role: ComparedModel, values: Floats, groups: Sequence[str], things: str
) -> Measurement | str:
    if not len(values):
        return "there is nothing on this side to take a mean of"
    if metric == REPRODUCED and role != "change":
        return _measure_share(values, groups, f"share of {things}", things)
    # A share, a logarithm of one, or the change of either.
    bounds = (-1.0 if role == "change" else 0.0, 1.0)
    if metric not in OUTPUTS:
        bounds = (-math.inf, math.inf if role == "change" else 0.0)
    return compute_mean(values, groups, things=things, bounds=bounds)


def _compute_leakage(texts: ComparedValues) -> Iterator[ComparisonFinding]:
    """AUROC of Min-40%, the texts to be forgotten being the members, and PrivLeak."""
    labels = texts.forget.astype(np.int8)
    sides, n = GroupedSides(texts.groups, labels), len(labels)
    aurocs = {role: measure_auroc(compute_roc_points(of[MIN_40], labels), sides) for role, of in texts.values.items()}
    meaning = "AUROC after minus AUROC before, on the same texts"
    measured: dict[ComparedModel, Measurement] = {
        **aurocs,
        "change": compare_aurocs(aurocs["after"], aurocs["before"], sides, meaning=meaning),
    }
    yield from (_build_finding("auroc_min_40", role, "both", n, auroc) for role, auroc in measured.items())
    for role in ("before", "after"):
        leak: Measurement | str
        if "retrained" not in aurocs:
            how = f"reference .5, as stated; AUROC: {aurocs[role].method}"
            leak = compute_privleak(aurocs[role].value, aurocs[role].interval, STATED_REFERENCE, how)
        elif aurocs["retrained"].value == 1:
            leak = "the retrained model separates all forget texts from held-out texts: there is nothing to divide by"
        else:
            leak = compute_relative_privleak(aurocs[role], aurocs["retrained"], sides)
        yield _build_finding("privleak", role, "both", n, leak)


def _compute_forget_quality(texts: ComparedValues) -> Iterator[ComparisonFinding]:
    """Yield the p-value of no difference from the retrained model, in the mean log-probability of groups of texts."""
    for role in ("before", "after"):
        for side, chosen in texts.sides:
            groups = _select_names(texts.groups, chosen)
            found: Measurement | str = NO_RETRAINED
            if "retrained" in texts.values:
                places = encode_groups(groups)
                own, retrained = (
                    compute_group_means(texts.values[model]["mean_log_probability"][chosen], places)
                    for model in (role, "retrained")
                )
                p_value, statistic = compute_kolmogorov_smirnov(*merge_tied_means(*own, *retrained))
                method = (
                    "p-value of the two-sample Kolmogorov-Smirnov test against the retrained model, of the mean "
                    f"log-probability of each group of texts; largest distance {statistic:.3g}"
                )
                found = Measurement(p_value, NO_INTERVAL, method)
            yield _build_finding("forget_quality", role, side, len(set(groups)), found)


def _compute_unchanged_shares(
    texts: ComparedValues, threshold: ThresholdBefore, chosen_on: Bools
) -> Iterator[ComparisonFinding]:
    """Shares of texts that were members before, whose Min-K% hardly moved, and both: after, and in the retrained model.

    What hardly moves in the retrained model shows how much the rule finds where the texts were never read.
    """

    def measure_sides(metric: str, role: ComparedModel, hits: Bools, words: str) -> Iterator[ComparisonFinding]:
        is_of_threshold = metric != "unchanged"
        for side, of_side in texts.sides:
            chosen = of_side & ~chosen_on if is_of_threshold else of_side
            share: Measurement | str
            if is_of_threshold and threshold.reason is not None:
                share = threshold.reason
            elif not chosen.any():
                share = "every text of this side chose the threshold"
            else:
                share = _measure_share(hits[chosen], _select_names(texts.groups, chosen), f"share of {words}")
            yield _build_finding(metric, role, side, int(chosen.sum()), share)

    before = texts.values["before"][MIN_K]
    member = np.zeros(len(before), dtype=np.bool_) if threshold.value is None else before >= threshold.value
    words = f"texts called members before ({threshold.words})"
    moved = f"texts whose Min-K% score changed by less than the factor {LEAST_RATIO}"
    yield from measure_sides("member_before", "before", member, words)
    other: dict[ComparedModel, ComparedModel] = {"change": "after", "retrained": "retrained"}
    for role, model in other.items():
        if model in texts.values:
            still = is_nearly_unchanged(before, texts.values[model][MIN_K])
            yield from measure_sides("unchanged", role, still, moved)
            yield from measure_sides("suspicious", role, still & member, f"{words}, {moved}")


def _measure_share(hits: Bools | Floats, groups: Sequence[str], meaning: str, things: str = "texts") -> Measurement:
    rate = estimate_grouped_rate(hits, groups)
    return Measurement(rate.value, rate.interval, f"{meaning}; {describe_interval_method(rate, things)}")


def _build_finding(
    metric: str, role: ComparedModel, side: ComparedSide, n: int, found: Measurement | str
) -> ComparisonFinding:
    """Return a row with the number that was ``found``, or with the reason why there is none."""
    if isinstance(found, str):
        return ComparisonFinding(metric, role, side, None, None, None, n, "", found)
    return ComparisonFinding(
        metric, role, side, found.value, found.interval.low, found.interval.high, n, found.method, None
    )


def _select_names(names: Sequence[str], chosen: Bools) -> list[str]:
    return [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
