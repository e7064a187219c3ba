"""The quality of a split as one table: how far members and non-members differ in anything but membership."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from audit_pipeline.splits import evaluation_texts
from audit_pipeline.splits.assessment import MEASURE, WORST, AssessedSplit
from audit_pipeline.splits.blind_controls import (
    CHARACTERS,
    LENGTH_UNITS,
    ControlAuroc,
    compute_other_controls,
    find_strongest_control,
    find_years_and_months,
    measure_controls,
    measure_text_lengths,
)
from audit_pipeline.splits.evaluation_texts import MEMBERS, NONMEMBERS, EvaluationTexts
from audit_pipeline.splits.languages import MOST_CHARACTERS, detect_languages, is_same_language
from audit_pipeline.splits.shared_text import (
    LIMITS,
    SHINGLE_WORDS,
    SIZES,
    compute_word_overlap,
    find_near_duplicates_from_words,
)
from audit_pipeline.statistics.claims import SplitVerdict, decide_split_verdict
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import SPLIT_QUALITY

BETWEEN = "between"
BOTH = "both"


Row = dict[str, Any]
"""The columns of SPLIT_QUALITY that are a measure's own."""


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

    ``part`` is the part of the measure (a control, a size of n-grams, a unit of length), ``side`` the texts: members,
    non-members, both, or between them. ``value`` is None where it could not be measured; ``method`` says how it was, or
    why not. ``n`` is how many texts it rests on.
    """
    ends = {"ci_low": interval.low, "ci_high": interval.high}
    named = {"measure": measure, "part": part, "side": side, "value": value, "n": n, "method": method}
    return {**named, **ends, "verdict": verdict}


def build_balance_rows(texts: EvaluationTexts) -> list[Row]:
    """Return how many texts, groups and texts of each collection a side has, and how many collections are uneven."""
    rows = []
    counts = {}
    for side, places in texts.sides.items():
        n = len(places)
        rows.append(_build_row("texts", "all", side, n, n, "counted"))
        rows.append(_build_row("groups", "all", side, len(set(texts.strings("group", places))), n, "counted"))
        counts[side] = evaluation_texts.compute_shares(texts.strings("collection", places))
        rows += [
            _build_row("texts_of_collection", name, side, count, n, f"counted; {share:.1%} of the side")
            for name, (count, share) in counts[side].items()
        ]
    collections = {name for side in (MEMBERS, NONMEMBERS) for name in counts.get(side, {})}
    none = (0, 0.0)
    uneven = sum(
        counts.get(MEMBERS, {}).get(name, none)[0] != counts.get(NONMEMBERS, {}).get(name, none)[0]
        for name in collections
    )
    compared = None if texts.why_not_comparable else uneven
    method = texts.why_not_comparable or f"of {len(collections)} collections"
    return [*rows, _build_row("uneven_collections", "all", BOTH, compared, len(texts.labelled_places), method)]


def build_published_rows(texts: EvaluationTexts) -> list[Row]:
    """Return how many texts of each side are of documents of a month or year."""
    published = texts.columns["published"]
    unit, bins = evaluation_texts.bin_dates(published)
    return [
        _build_row(
            "texts_published",
            name,
            side,
            count,
            len(places),
            f"by {unit} of the document's date; {share:.1%} of the side",
        )
        for side, places in texts.sides.items()
        for name, (count, share) in evaluation_texts.compute_shares(bins[place] for place in places).items()
    ]


def build_mention_rows(texts: EvaluationTexts) -> list[Row]:
    """Return which years the texts of each side mention."""
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        mentioned = [find_years_and_months(text)[0] for text in texts.strings("text", places)]
        latest = [max(years) for years in mentioned if years]
        read = "numbers of four digits from 1500 to 2099 in the text"
        rows += [
            _build_row("texts_with_year", "all", side, len(latest) / n, n, read),
            _build_row("years_mentioned", "all", side, sum(map(len, mentioned)) / n, n, read),
            _build_row(
                "latest_year_mentioned",
                "all",
                side,
                sum(latest) / len(latest) if latest else None,
                len(latest),
                read if latest else "not defined: no text mentions a year",
            ),
        ]
    return rows


def build_length_rows(texts: EvaluationTexts) -> list[Row]:
    """Return how long the texts of each side are, in each unit of length."""
    rows = []
    for side, places in texts.sides.items():
        sizes = measure_text_lengths(texts.strings("text", places), texts.word_counts(places))
        for unit, column in zip(LENGTH_UNITS, sizes.T, strict=True):
            values = {"mean": column.mean(), "std": column.std(), "min": column.min(), "max": column.max()}
            rows += [
                _build_row(f"length_{name}", unit, side, float(value), len(places), f"in {unit.replace('_', ' ')}")
                for name, value in values.items()
            ]
    return rows


def build_language_rows(texts: EvaluationTexts) -> list[Row]:
    """The languages that are detected in the texts of each side, and the share that is not in the declared one."""
    method = (
        f"detected by py3langid in the first {MOST_CHARACTERS} characters, often wrong on short texts, lists and code"
    )
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        detected = detect_languages(texts.strings("text", places))
        declared = texts.strings("language", places)
        other = sum(not is_same_language(language, two) for language, two in zip(declared, detected, strict=True))
        rows.append(_build_row("language_mismatch", "all", side, other / n, n, method))
        rows += [
            _build_row("language_share", name, side, share, n, f"{count} texts; {method}")
            for name, (count, share) in evaluation_texts.compute_shares(detected).items()
        ]
    return rows


def build_control_rows(
    controls: Iterable[ControlAuroc], strongest: ControlAuroc | None, assessed_split: AssessedSplit
) -> list[Row]:
    """Return one row per control, each with the verdict by it alone, and one for the strongest if any."""

    def verdict_of(interval: Interval) -> SplitVerdict:
        return decide_split_verdict(assessed_split.design, interval, matched=assessed_split.matched)

    rows = [
        _build_row(
            MEASURE,
            control.name,
            BOTH,
            control.value,
            control.n,
            control.method,
            control.interval,
            verdict_of(control.interval) if control.value is not None else None,
        )
        for control in controls
    ]
    if strongest is not None:
        highest = "the highest of the controls, so above chance a little more often than any one of them"
        rows.append(
            _build_row(
                WORST,
                strongest.name,
                BOTH,
                strongest.value,
                strongest.n,
                f"{highest}; {strongest.method}",
                strongest.interval,
                verdict_of(strongest.interval),
            )
        )
    return rows


def build_overlap_rows(texts: EvaluationTexts) -> list[Row]:
    """Return how much of each side's n-grams of words is in the other side too."""
    rows = []
    for size, (side, other) in product(SIZES, ((NONMEMBERS, MEMBERS), (MEMBERS, NONMEMBERS))):
        words, other_words = (
            [texts.words[place] for place in texts.sides.get(name_of_side, [])] for name_of_side in (side, other)
        )
        shares, too_short = compute_word_overlap(words, other_words, size)
        method = f"{size}-grams of words of each text that stand in any of the {other}, case ignored"
        if too_short:
            method += f"; {too_short} texts of fewer than {size} words left out"
        method = texts.why_not_comparable or method
        names = ("mean", "max", *(f"above_{round(100 * limit)}" for limit in LIMITS))
        values = dict.fromkeys(names)
        if len(shares) and not texts.why_not_comparable:
            found = (shares.mean(), shares.max(), *(np.mean(shares > limit) for limit in LIMITS))
            values = dict(zip(names, map(float, found), strict=True))
        rows += [
            _build_row(
                f"ngram_overlap_{name}",
                str(size),
                side,
                value,
                len(shares),
                method if texts.why_not_comparable or len(shares) else f"not defined: no text has {size} words",
            )
            for name, value in values.items()
        ]
    return rows


def build_near_duplicate_rows(texts: EvaluationTexts, threshold: float) -> list[Row]:
    """Pairs of texts that are nearly the same, between the sides and within each; ``threshold`` is in (0, 1]."""
    places = texts.labelled_places
    side_of = {place: side for side, of_side in texts.sides.items() for place in of_side}
    group = texts.columns["group"]
    within = {(side, part): 0 for side in (MEMBERS, NONMEMBERS) for part in ("one group", "different groups")}
    involved: dict[str, set[int]] = {MEMBERS: set(), NONMEMBERS: set()}
    similarities: list[float] = []
    for pair in find_near_duplicates_from_words([texts.words[place] for place in places], threshold):
        first, second = places[pair.first], places[pair.second]
        if side_of[first] == side_of[second]:
            within[side_of[first], "one group" if group[first] == group[second] else "different groups"] += 1
        else:
            similarities.append(pair.similarity)
            for place in (first, second):
                involved[side_of[place]].add(place)
    method = (
        f"Jaccard similarity of {SHINGLE_WORDS}-word sequences of at least {threshold:g}, case ignored; candidates by "
        "MinHash, each compared exactly"
    )
    n = {side: len(texts.sides.get(side, [])) for side in (MEMBERS, NONMEMBERS)}
    rows = [
        _build_row("near_duplicate_pairs", part, side, count, n[side], method) for (side, part), count in within.items()
    ]
    if texts.why_not_comparable:
        nothing = (("pairs", BETWEEN), ("max", BETWEEN), ("texts", MEMBERS), ("texts", NONMEMBERS))
        return [
            *(
                _build_row(f"near_duplicate_{name}", "all", side, None, 0, texts.why_not_comparable)
                for name, side in nothing
            ),
            *rows,
        ]
    most = max(similarities, default=None)
    return [
        _build_row("near_duplicate_pairs", "all", BETWEEN, len(similarities), len(places), method),
        _build_row(
            "near_duplicate_max", "all", BETWEEN, most, len(places), method if similarities else f"no pair; {method}"
        ),
        *(_build_row("near_duplicate_texts", "all", side, len(involved[side]), n[side], method) for side in involved),
        *rows,
    ]


MOST_PER_SIDE = 1000
"""Texts of a side that are read, at most, by all but the blind control of words: 2,000 of 128 words take 15 s on one
core."""


def measure_split_quality(
    texts: EvaluationTexts,
    assessed_split: AssessedSplit,
    language: str,
    near_duplicate_threshold: float = 0.5,
    *,
    run_id: str,
    most_per_side: int = MOST_PER_SIDE,
) -> pa.Table:
    """Return the quality of the evaluation split of one benchmark, of which ``texts`` are all (schema SPLIT_QUALITY).

    ``assessed_split`` is the blind control of words on these texts, ``language`` (ISO 639-1) is theirs. Members and
    non-members are compared where there are both; what cannot be measured is null, with the reason in ``method``. Of a
    side of more than ``most_per_side`` texts a random sample of that size is read, and ``method`` says so; the control
    of words reads all, and texts, groups, collections and dates are counted over all.

    Raises ValueError for a threshold outside (0, 1].
    """
    sample, sampled = texts.sample(most_per_side)
    noted = f"; {sampled}" if sampled else ""
    places = sample.labelled_places
    labels = np.asarray([sample.columns["label"][place] for place in places], dtype=np.int8)
    groups = sample.strings("group", places)
    measured = compute_other_controls(
        sample.strings("example_id", places),
        sample.strings("text", places),
        labels,
        groups,
        language=language,
        word_counts=sample.word_counts(places),
    )
    others = [
        replace(control, method=f"{control.method}{noted}") for control in measure_controls(measured, labels, groups)
    ]
    # In a script without blanks between words the control of words reads characters.
    characters = (
        [] if any(other.name == CHARACTERS for other in others) else [replace(assessed_split.auroc, name=CHARACTERS)]
    )
    controls = [assessed_split.auroc, *characters, *others]
    strongest = find_strongest_control(controls)
    read = [
        *build_overlap_rows(sample),
        *build_near_duplicate_rows(sample, near_duplicate_threshold),
        *build_mention_rows(sample),
        *build_length_rows(sample),
        *build_language_rows(sample),
    ]
    rows = [
        *build_control_rows(controls, strongest, assessed_split),
        *({**row, "method": f"{row['method']}{noted}"} for row in read),
        *build_balance_rows(texts),
        *build_published_rows(texts),
    ]
    same = {"benchmark": texts.benchmark, "split_verdict": assessed_split.verdict, "run_id": run_id}
    return table_from_rows([{**same, **row} for row in rows], SPLIT_QUALITY)
