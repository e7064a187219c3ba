"""Rows that compare members with non-members: blind controls, overlap of words, near-duplicates.

What belongs here: putting into rows what needs both sides at once. What does not: measuring it (blind_controls.py,
overlap.py, near_duplicates.py), and what is said of each side by itself (described_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np

from audit_pipeline.metrics.claims import SplitVerdict, split_verdict
from audit_pipeline.metrics.intervals import Interval
from audit_pipeline.separability.assessed import MEASURE, AssessedSplit
from audit_pipeline.separability.blind_controls import ControlAuroc, measure_controls, other_controls
from audit_pipeline.separability.near_duplicates import SHINGLE_WORDS, near_pairs_of
from audit_pipeline.separability.overlap import LIMITS, SIZES, overlap_of_words
from audit_pipeline.separability.quality_row import BETWEEN, BOTH, QualityRow
from audit_pipeline.separability.split_texts import MEMBERS, NONMEMBERS, SplitTexts


def measured_controls(texts: SplitTexts, language: str, seed: int, resamples: int) -> list[ControlAuroc]:
    """The AUROC of each control beside that of words, with its interval of ``resamples`` resamples of groups."""
    places = texts.labelled
    labels = np.asarray(texts.of("label", places), dtype=np.int8)
    groups = texts.strings("group", places)
    controls = other_controls(
        texts.strings("example_id", places),
        texts.strings("text", places),
        labels,
        groups,
        language=language,
        word_counts=texts.word_counts(places),
        seed=seed,
    )
    return measure_controls(controls, labels, groups, resamples=resamples, seed=seed)


def control_rows(
    controls: Iterable[ControlAuroc], strongest: ControlAuroc | None, assessed: AssessedSplit
) -> list[QualityRow]:
    """One row per control, each with the verdict by it alone, and one for the strongest where there is one."""

    def verdict_of(interval: Interval) -> SplitVerdict:
        return split_verdict(assessed.design, interval, matched=assessed.matched)

    rows = [
        QualityRow(
            MEASURE,
            control.name,
            BOTH,
            control.auroc,
            control.n,
            control.method,
            control.interval,
            verdict_of(control.interval) if control.auroc is not None else None,
        )
        for control in controls
    ]
    if strongest is not None:
        highest = "the highest of the controls, so above chance a little more often than any one of them"
        rows.append(
            QualityRow(
                "worst_blind_auroc",
                strongest.name,
                BOTH,
                strongest.auroc,
                strongest.n,
                f"{highest}; {strongest.method}",
                strongest.interval,
                verdict_of(strongest.interval),
            )
        )
    return rows


def overlap_rows(texts: SplitTexts) -> list[QualityRow]:
    """How much of each side's n-grams of words stands in the other side too."""
    rows = []
    for size, (side, other) in product(SIZES, ((NONMEMBERS, MEMBERS), (MEMBERS, NONMEMBERS))):
        here, there = ([texts.words[place] for place in texts.sides.get(one, [])] for one in (side, other))
        found = overlap_of_words(here, there, size)
        method = f"{size}-grams of words of each text that stand in any of the {other}, case ignored"
        if found.too_short:
            method += f"; {found.too_short} texts of fewer than {size} words left out"
        method = texts.missing or method
        values = {"mean": found.mean, "max": found.most}
        values |= {f"above_{round(100 * limit)}": found.above(limit) for limit in LIMITS}
        rows += [
            QualityRow(
                f"ngram_overlap_{name}",
                str(size),
                side,
                None if texts.missing else value,
                len(found.shares),
                method if texts.missing or len(found.shares) else f"not defined: no text has {size} words",
            )
            for name, value in values.items()
        ]
    return rows


def near_duplicate_rows(texts: SplitTexts, threshold: float) -> list[QualityRow]:
    """Pairs of texts that are nearly the same, between the sides and within each; ``threshold`` is in (0, 1]."""
    places = texts.labelled
    side_of = {place: side for side, of_side in texts.sides.items() for place in of_side}
    group = texts.columns["group"]
    within = {(side, part): 0 for side in (MEMBERS, NONMEMBERS) for part in ("one group", "different groups")}
    involved: dict[str, set[int]] = {MEMBERS: set(), NONMEMBERS: set()}
    similarities: list[float] = []
    for pair in near_pairs_of([texts.words[place] for place in places], threshold):
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
        QualityRow("near_duplicate_pairs", part, side, count, n[side], method) for (side, part), count in within.items()
    ]
    if texts.missing:
        nothing = (("pairs", BETWEEN), ("max", BETWEEN), ("texts", MEMBERS), ("texts", NONMEMBERS))
        return [
            *(QualityRow(f"near_duplicate_{name}", "all", side, None, 0, texts.missing) for name, side in nothing),
            *rows,
        ]
    most = max(similarities, default=None)
    return [
        QualityRow("near_duplicate_pairs", "all", BETWEEN, len(similarities), len(places), method),
        QualityRow(
            "near_duplicate_max", "all", BETWEEN, most, len(places), method if similarities else f"no pair; {method}"
        ),
        *(QualityRow("near_duplicate_texts", "all", side, len(involved[side]), n[side], method) for side in involved),
        *rows,
    ]
