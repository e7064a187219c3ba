"""The quality of a split as one table: differences of members and non-members other than membership.

The ``build_..._rows`` functions return rows of the table. The column ``method`` describes in words how a value was
measured, or why it could not be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from audit_pipeline.splits import blind_controls, evaluation_split, shared_text
from audit_pipeline.splits.blind_controls import ControlAuroc
from audit_pipeline.splits.evaluation_split import MEASURE, MEMBERS, NONMEMBERS, WORST, AssessedSplit, EvaluationTexts
from audit_pipeline.splits.text_traits import MAX_CHARACTERS, detect_languages, find_years_and_months, is_same_language
from audit_pipeline.statistics.claims import SplitVerdict, decide_split_verdict
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import SPLIT_QUALITY

BETWEEN = "between"
BOTH = "both"

Row = dict[str, Any]
"""A row of SPLIT_QUALITY without the columns that have the same value in all rows."""


def _build_row(
    measure: str,
    part: str,
    side: str,
    value: float | None,
    n: int,
    method: str,
    interval: Interval = NO_INTERVAL,
    verdict: SplitVerdict | None = None,
) -> Row:
    """Build the row of one value of one measure.

    Args:
        measure: The name of the measure.
        part: The case that the value belongs to, such as a control, a size of n-grams, a unit of length, or `all`.
        side: The texts that are measured: members, nonmembers, both or between.
        value: The value, or None if it could not be measured.
        n: The number of texts that the value is computed from.
        method: A description of the measurement, or the reason why the value could not be measured.
        interval: The 95% interval of the value.
        verdict: The verdict on the split by this value.
    """
    return {
        "measure": measure,
        "part": part,
        "side": side,
        "value": value,
        "n": n,
        "method": method,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "verdict": verdict,
    }


def build_side_count_rows(texts: EvaluationTexts) -> list[Row]:
    """Return the numbers of texts, groups and texts per collection of each side.

    The last row is the number of collections whose two sides differ in their number of texts.
    """
    rows = []
    counts: dict[str, dict[str, int]] = {MEMBERS: {}, NONMEMBERS: {}}
    for side, places in texts.sides.items():
        n = len(places)
        rows.append(_build_row("texts", "all", side, n, n, "counted"))
        rows.append(_build_row("groups", "all", side, len(set(texts.get_strings("group", places))), n, "counted"))
        counts[side] = {}
        for name, (count, share) in evaluation_split.compute_shares(texts.get_strings("collection", places)).items():
            counts[side][name] = count
            rows.append(_build_row("texts_of_collection", name, side, count, n, f"counted; {share:.1%} of the side"))
    collections = counts[MEMBERS].keys() | counts[NONMEMBERS].keys()
    value: int | None = None
    method = texts.reason_not_comparable
    if method is None:
        value = sum(counts[MEMBERS].get(name, 0) != counts[NONMEMBERS].get(name, 0) for name in collections)
        method = f"of {len(collections)} collections"
    return [*rows, _build_row("uneven_collections", "all", BOTH, value, len(texts.labelled_places), method)]


def build_published_rows(texts: EvaluationTexts) -> list[Row]:
    """Return the number of texts of each side by the month or year in which their documents were published."""
    unit, bins = evaluation_split.bin_dates(texts.get_values("published"))
    rows = []
    for side, places in texts.sides.items():
        for name, (count, share) in evaluation_split.compute_shares(bins[place] for place in places).items():
            method = f"by {unit} of the document's date; {share:.1%} of the side"
            rows.append(_build_row("texts_published", name, side, count, len(places), method))
    return rows


def build_mention_rows(texts: EvaluationTexts) -> list[Row]:
    """Return the statistics of the years that the texts of each side mention."""
    rows = []
    method = "numbers of four digits from 1500 to 2099 in the text"
    for side, places in texts.sides.items():
        n = len(places)
        n_mentioned = 0
        latest = []
        for text in texts.get_strings("text", places):
            years, _ = find_years_and_months(text)
            n_mentioned += len(years)
            if years:
                latest.append(max(years))
        rows.append(_build_row("texts_with_year", "all", side, len(latest) / n, n, method))
        rows.append(_build_row("years_mentioned", "all", side, n_mentioned / n, n, method))
        if latest:
            value = sum(latest) / len(latest)
            rows.append(_build_row("latest_year_mentioned", "all", side, value, len(latest), method))
        else:
            reason = "not defined: no text mentions a year"
            rows.append(_build_row("latest_year_mentioned", "all", side, None, 0, reason))
    return rows


def build_length_rows(texts: EvaluationTexts) -> list[Row]:
    """Return rows with the mean, standard deviation, minimum and maximum length of the texts, per side and unit."""
    rows = []
    for side, places in texts.sides.items():
        sizes = blind_controls.measure_text_lengths(texts.get_strings("text", places), texts.count_words(places))
        for unit, column in zip(blind_controls.LENGTH_UNITS, sizes.T, strict=True):
            values = {"mean": column.mean(), "std": column.std(), "min": column.min(), "max": column.max()}
            method = f"in {unit.replace('_', ' ')}"
            for name, value in values.items():
                rows.append(_build_row(f"length_{name}", unit, side, float(value), len(places), method))
    return rows


def build_language_rows(texts: EvaluationTexts) -> list[Row]:
    """Return the detected languages of each side, and the share of texts that are not in the declared language."""
    method = (
        f"detected by py3langid in the first {MAX_CHARACTERS} characters, often wrong on short texts, lists and code"
    )
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        detected = detect_languages(texts.get_strings("text", places))
        declared = texts.get_strings("language", places)
        n_same = sum(map(is_same_language, declared, detected))
        rows.append(_build_row("language_mismatch", "all", side, (n - n_same) / n, n, method))
        for name, (count, share) in evaluation_split.compute_shares(detected).items():
            rows.append(_build_row("language_share", name, side, share, n, f"{count} texts; {method}"))
    return rows


def build_control_rows(
    controls: Iterable[ControlAuroc], strongest: ControlAuroc | None, assessed_split: AssessedSplit
) -> list[Row]:
    """Return one row per control with its own verdict, and a row for the strongest control if there is one."""
    rows = [_build_control_row(MEASURE, control, control.method, assessed_split) for control in controls]
    if strongest is not None:
        highest = (
            "the highest AUROC of the controls, which exceeds chance a little more often than the AUROC of one control"
        )
        rows.append(_build_control_row(WORST, strongest, f"{highest}; {strongest.method}", assessed_split))
    return rows


def _build_control_row(measure: str, control: ControlAuroc, method: str, assessed_split: AssessedSplit) -> Row:
    verdict = None
    if control.value is not None:
        verdict = decide_split_verdict(assessed_split.design, control.interval, matched=assessed_split.matched)
    return _build_row(measure, control.name, BOTH, control.value, control.n, method, control.interval, verdict)


def build_overlap_rows(texts: EvaluationTexts) -> list[Row]:
    """Return the share of each side's word n-grams that also occur on the other side."""
    rows = []
    for size in shared_text.SIZES:
        for side, other in ((NONMEMBERS, MEMBERS), (MEMBERS, NONMEMBERS)):
            rows += _build_overlap_rows_of_side(texts, size, side, other)
    return rows


def _build_overlap_rows_of_side(texts: EvaluationTexts, size: int, side: str, other: str) -> list[Row]:
    words = texts.list_words(texts.sides.get(side, []))
    other_words = texts.list_words(texts.sides.get(other, []))
    shares, n_too_short = shared_text.compute_word_overlap(words, other_words, size)
    values: dict[str, float | None] = {"mean": None, "max": None}
    for limit in shared_text.LIMITS:
        values[f"above_{round(100 * limit)}"] = None
    method = f"{size}-grams of words of each text that occur in any of the {other}, case ignored"
    if n_too_short:
        method += f"; {n_too_short} texts of fewer than {size} words are skipped"
    if texts.reason_not_comparable:
        method = texts.reason_not_comparable
    elif not len(shares):
        method = f"not defined: no text has {size} words"
    else:
        values["mean"] = float(shares.mean())
        values["max"] = float(shares.max())
        for limit in shared_text.LIMITS:
            values[f"above_{round(100 * limit)}"] = float(np.mean(shares > limit))
    rows = []
    for name, value in values.items():
        rows.append(_build_row(f"ngram_overlap_{name}", str(size), side, value, len(shares), method))
    return rows


ONE_GROUP = "one group"
DIFFERENT_GROUPS = "different groups"


@dataclass(frozen=True)
class _NearDuplicateCounts:
    """The near-duplicates of a split.

    Attributes:
        within: The number of pairs within a side, by side and by ONE_GROUP or DIFFERENT_GROUPS.
        similarities: The similarity of each pair between the sides (one text on each side).
        involved: The positions of the texts in the pairs between the sides, by side.
    """

    within: Mapping[tuple[str, str], int]
    similarities: Sequence[float]
    involved: Mapping[str, set[int]]


def _count_near_duplicates(texts: EvaluationTexts, threshold: float) -> _NearDuplicateCounts:
    places = texts.labelled_places
    groups = texts.get_values("group")
    members = set(texts.sides.get(MEMBERS, []))
    within: dict[tuple[str, str], int] = {}
    involved: dict[str, set[int]] = {}
    for side in (MEMBERS, NONMEMBERS):
        within[side, ONE_GROUP] = 0
        within[side, DIFFERENT_GROUPS] = 0
        involved[side] = set()
    similarities: list[float] = []
    for pair in shared_text.find_near_duplicates_from_words(texts.list_words(places), threshold):
        place = places[pair.first]
        other_place = places[pair.second]
        side = MEMBERS if place in members else NONMEMBERS
        other_side = MEMBERS if other_place in members else NONMEMBERS
        if side == other_side:
            part = ONE_GROUP if groups[place] == groups[other_place] else DIFFERENT_GROUPS
            within[side, part] += 1
        else:
            similarities.append(pair.similarity)
            involved[side].add(place)
            involved[other_side].add(other_place)
    return _NearDuplicateCounts(within, similarities, involved)


def build_near_duplicate_rows(texts: EvaluationTexts, threshold: float) -> list[Row]:
    """Return the numbers of pairs of near-duplicates, between the sides and within each side.

    Args:
        texts: The texts to compare.
        threshold: Minimum similarity of a pair, in (0, 1].
    """
    counts = _count_near_duplicates(texts, threshold)
    method = (
        f"Jaccard similarity of {shared_text.SHINGLE_WORDS}-word sequences of at least {threshold:g}, case ignored; "
        "candidates by MinHash, each compared exactly"
    )
    n = len(texts.labelled_places)
    n_of_side = {}
    for side in (MEMBERS, NONMEMBERS):
        n_of_side[side] = len(texts.sides.get(side, []))
    rows = []
    if texts.reason_not_comparable:
        for name, side in (("pairs", BETWEEN), ("max", BETWEEN), ("texts", MEMBERS), ("texts", NONMEMBERS)):
            rows.append(_build_row(f"near_duplicate_{name}", "all", side, None, 0, texts.reason_not_comparable))
    else:
        most_similar = max(counts.similarities, default=None)
        method_of_max = method if counts.similarities else f"no pair; {method}"
        rows.append(_build_row("near_duplicate_pairs", "all", BETWEEN, len(counts.similarities), n, method))
        rows.append(_build_row("near_duplicate_max", "all", BETWEEN, most_similar, n, method_of_max))
        for side, involved in counts.involved.items():
            rows.append(_build_row("near_duplicate_texts", "all", side, len(involved), n_of_side[side], method))
    for (side, part), count in counts.within.items():
        rows.append(_build_row("near_duplicate_pairs", part, side, count, n_of_side[side], method))
    return rows


MAX_PER_SIDE = 1000
"""Maximum number of texts per side for all measures except the control of words.

2,000 texts of 128 words take 15 s on one core.
"""


def measure_split_quality(
    texts: EvaluationTexts,
    assessed_split: AssessedSplit,
    language: str,
    near_duplicate_threshold: float = 0.5,
    *,
    run_id: str,
    most_per_side: int = MAX_PER_SIDE,
) -> pa.Table:
    """Measure the quality of the evaluation split of one benchmark (schema SPLIT_QUALITY).

    Members and non-members are compared if both sides have texts. A value that cannot be measured is null, and
    ``method`` holds the reason. Texts, groups, collections and dates are counted over all texts.

    Args:
        texts: All texts of the evaluation split.
        assessed_split: The blind control of words on these texts.
        language: The language of the texts (ISO 639-1).
        near_duplicate_threshold: Minimum similarity of near-duplicates, in (0, 1].
        run_id: The id of the run, for the table.
        most_per_side: Maximum number of texts per side for the other measures. A larger side is sampled at random, and
            ``method`` reports the sample.

    Raises:
        ValueError: If the threshold is outside (0, 1].
    """
    sample, full_counts = texts.sample(most_per_side)
    note = _describe_sample(full_counts, most_per_side)
    controls = [assessed_split.auroc]
    other_controls = list(_measure_other_controls(sample, language, note))
    # In a script without blanks between words, the word-based blind control already works on characters.
    if all(control.name != blind_controls.CHARACTERS for control in other_controls):
        controls.append(replace(assessed_split.auroc, name=blind_controls.CHARACTERS))
    controls += other_controls
    rows = build_control_rows(controls, blind_controls.find_strongest_control(controls), assessed_split)
    for row in [
        *build_overlap_rows(sample),
        *build_near_duplicate_rows(sample, near_duplicate_threshold),
        *build_mention_rows(sample),
        *build_length_rows(sample),
        *build_language_rows(sample),
    ]:
        rows.append({**row, "method": f"{row['method']}{note}"})
    rows += build_side_count_rows(texts)
    rows += build_published_rows(texts)
    shared = {"benchmark": texts.benchmark, "split_verdict": assessed_split.verdict, "run_id": run_id}
    return table_from_rows([{**shared, **row} for row in rows], SPLIT_QUALITY)


def _describe_sample(full_counts: Mapping[str, int], max_per_side: int) -> str:
    """Describe the sampled sides for the ``method`` column. The result is empty if no side was sampled."""
    if not full_counts:
        return ""
    sides = " and ".join(f"{max_per_side} of {count} {side}" for side, count in full_counts.items())
    return f"; measured on {sides}, drawn at random (seed 0)"


def _measure_other_controls(sample: EvaluationTexts, language: str, note: str) -> Iterator[ControlAuroc]:
    places = sample.labelled_places
    values = sample.get_values("label")
    labels = np.asarray([values[place] for place in places], dtype=np.int8)
    groups = sample.get_strings("group", places)
    controls = blind_controls.compute_other_controls(
        sample.get_strings("example_id", places),
        sample.get_strings("text", places),
        labels,
        groups,
        language=language,
        word_counts=sample.count_words(places),
    )
    for control in blind_controls.measure_controls(controls, labels, groups):
        yield replace(control, method=f"{control.method}{note}")
