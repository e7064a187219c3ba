"""The quality of a split as one table: how far members and non-members differ in anything but membership.

What belongs here: putting what the other modules measure into rows, and a short summary. What does not: measuring any
of it, the verdict (assessed.py), and where the rows are written. No model's scores are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER, SPLIT_QUALITY, digest
from audit_pipeline.catalogue.tables import checked, table_from_rows
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS, SplitVerdict, split_verdict
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, Interval
from audit_pipeline.separability import histograms
from audit_pipeline.separability.assessed import MEASURE, AssessedSplit
from audit_pipeline.separability.blind_controls import (
    CHARACTERS,
    LENGTH_UNITS,
    ControlAuroc,
    measure_controls,
    other_controls,
    text_lengths,
    worst,
)
from audit_pipeline.separability.dates_in_text import dates_in
from audit_pipeline.separability.histograms import SIDES, by_side
from audit_pipeline.separability.languages import MOST_CHARACTERS, detected_languages, same_language
from audit_pipeline.separability.near_duplicates import SHINGLE_WORDS, near_pairs_of
from audit_pipeline.separability.overlap import LIMITS, SIZES, overlap_of_words

BETWEEN = "between"
BOTH = "both"
MEMBERS, NONMEMBERS = SIDES[MEMBER], SIDES[NON_MEMBER]

MOST_PER_SIDE = 1000
"""Texts of a side that are read, at most, by all but the blind control of words: 2,000 of 128 words take 15 s on one
core."""


@dataclass(frozen=True, eq=False)
class Quality:
    """What is known of a split without any model.

    ``table`` has the columns of SPLIT_QUALITY. ``verdict`` is that of the blind control of words; ``worst`` is the
    control with the highest AUROC, None where none was read. ``summary`` is a handful of values by name, for metadata.
    """

    table: pa.Table
    verdict: SplitVerdict
    worst: ControlAuroc | None
    summary: Mapping[str, str | int | float | None]


@dataclass(frozen=True, eq=False)
class _Texts:
    """The texts of the evaluation split by group and id: [n] each; ``sides`` are the positions of each side's."""

    benchmark: str
    columns: Mapping[str, list[object]]
    sides: Mapping[str, list[int]]
    split: Callable[[str], list[str]]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each text in lower case, taken apart once for all that needs them: jieba is slow."""
        return [self.split(str(text).lower()) for text in self.columns["text"]]

    def of(self, name: str, places: Sequence[int]) -> list[object]:
        column = self.columns[name]
        return [column[place] for place in places]

    def strings(self, name: str, places: Sequence[int]) -> list[str]:
        return [str(value) for value in self.of(name, places)]

    def word_counts(self, places: Sequence[int]) -> list[int]:
        return [len(self.words[place]) for place in places]

    @property
    def labelled(self) -> list[int]:
        return sorted([*self.sides.get(MEMBERS, []), *self.sides.get(NONMEMBERS, [])])

    @property
    def missing(self) -> str | None:
        """Why the sides cannot be compared."""
        lacking = [name for name in (MEMBERS, NONMEMBERS) if name not in self.sides]
        there_are_none = " and no ".join(lacking)
        return f"not defined: the evaluation split holds no {there_are_none}" if lacking else None

    def sample(self, most: int, seed: int) -> tuple[_Texts, str]:
        """At most ``most`` texts of each side, drawn by ``seed``, and in words which; "" where these are all."""
        ids = self.columns["example_id"]
        kept: list[int] = []
        drawn = []
        for side, places in self.sides.items():
            if len(places) > most:
                kept += sorted(places, key=lambda place: digest(seed, "sample", ids[place]))[:most]
                drawn.append(f"{most} of {len(places)} {side}")
            else:
                kept += places
        if not drawn:
            return self, ""
        kept.sort()
        columns = {name: [column[place] for place in kept] for name, column in self.columns.items()}
        sample = _Texts(self.benchmark, columns, _sides_of(columns), self.split)
        return sample, f"read on {' and '.join(drawn)}, drawn at random (seed {seed})"


@dataclass(frozen=True)
class _Row:
    measure: str
    part: str
    side: str
    value: float | None
    n: int
    method: str
    interval: Interval = NO_INTERVAL
    verdict: str | None = field(default=None)


def split_quality(
    examples: pa.Table,
    assessed: AssessedSplit,
    language: str,
    split: Callable[[str], list[str]] = str.split,
    seed: int = 0,
    resamples: int = RESAMPLES,
    near_duplicate_threshold: float = 0.5,
    *,
    run_id: str,
    most_per_side: int = MOST_PER_SIDE,
) -> Quality:
    """The quality of the evaluation split of one benchmark's ``examples`` (schema EXAMPLES).

    ``assessed`` is the blind control of words on these examples, ``language`` (ISO 639-1) theirs, ``split`` gives a
    text's words in the benchmark's unit. Members and non-members are compared where there are both; what cannot be
    measured is null, with the reason in ``method``. Of a side of more than ``most_per_side`` texts so many are read,
    drawn at random, and ``method`` says so; the control of words reads all, and texts, groups, collections and dates
    are counted of all. The result depends on the examples and on ``seed``, not on the order of rows.

    Raises DataError for examples of no benchmark or of several, a missing column, a label other than 0, 1 and null, and
    an example_id that stands twice; ValueError for a threshold outside (0, 1] or no text a side.
    """
    if most_per_side < 1:
        raise ValueError(f"at least one text of a side is read, not {most_per_side}")
    everything = _evaluation_texts(examples, split)
    texts, sampled = everything.sample(most_per_side, seed)
    others = [_read_on(one, sampled) for one in _other_controls(texts, language, seed, resamples)]
    # In a script without blanks between words the control of words reads characters.
    characters = [] if any(one.name == CHARACTERS for one in others) else [replace(assessed.auroc, name=CHARACTERS)]
    controls = [assessed.auroc, *characters, *others]
    strongest = worst(controls)
    read = [
        *_overlap_rows(texts),
        *_near_duplicate_rows(texts, near_duplicate_threshold),
        *_mention_rows(texts),
        *_length_rows(texts),
        *_language_rows(texts),
    ]
    rows = [
        *_control_rows(controls, strongest, assessed),
        *(_read_on(row, sampled) for row in read),
        *_balance_rows(everything),
        *_published_rows(everything),
    ]
    table = table_from_rows(
        (
            {
                "benchmark": texts.benchmark,
                "measure": row.measure,
                "part": row.part,
                "side": row.side,
                "value": row.value,
                "ci_low": row.interval.low,
                "ci_high": row.interval.high,
                "n": row.n,
                "method": row.method,
                "verdict": row.verdict,
                "split_verdict": assessed.verdict,
                "run_id": run_id,
            }
            for row in rows
        ),
        SPLIT_QUALITY,
    )
    return Quality(table, assessed.verdict, strongest, _summary(rows, assessed, strongest))


_Read = TypeVar("_Read", ControlAuroc, _Row)


def _read_on(found: _Read, sampled: str) -> _Read:
    """What was found on a sample, with ``sampled`` in its method; as it is where that is empty."""
    return replace(found, method=f"{found.method}; {sampled}") if sampled else found


def _evaluation_texts(examples: pa.Table, split: Callable[[str], list[str]]) -> _Texts:
    names = ["example_id", "benchmark", "text", "label", "split", "published", "language", "collection", "group"]
    table = checked(
        examples.select([name for name in names if name in examples.column_names]),
        pa.schema([EXAMPLES.field(name) for name in names]),
    )
    benchmarks = pc.unique(table["benchmark"]).to_pylist()
    if len(benchmarks) != 1:
        raise DataError(f"the quality of a split is that of one benchmark's examples, not of {len(benchmarks)}")
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark: build the benchmark again")
    table = table.filter(pc.equal(table["split"], "evaluation"))
    table = table.sort_by([("group", "ascending"), ("example_id", "ascending")])
    columns = {name: table[name].to_pylist() for name in names}
    if not set(columns["label"]) <= set(SIDES):
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null: build the benchmark again")
    return _Texts(benchmarks[0], columns, _sides_of(columns), split)


def _sides_of(columns: Mapping[str, list[object]]) -> dict[str, list[int]]:
    return by_side(columns["label"])  # type: ignore[arg-type]


def _other_controls(texts: _Texts, language: str, seed: int, resamples: int) -> list[ControlAuroc]:
    """The controls beside that of words."""
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


def _control_rows(
    controls: Iterable[ControlAuroc], strongest: ControlAuroc | None, assessed: AssessedSplit
) -> list[_Row]:
    def verdict_of(interval: Interval) -> SplitVerdict:
        return split_verdict(assessed.design, interval, matched=assessed.matched)

    rows = [
        _Row(
            MEASURE,
            one.name,
            BOTH,
            one.auroc,
            one.n,
            one.method,
            one.interval,
            verdict_of(one.interval) if one.auroc is not None else None,
        )
        for one in controls
    ]
    if strongest is not None:
        highest = "the highest of the controls, so above chance a little more often than any one of them"
        rows.append(
            _Row(
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


def _overlap_rows(texts: _Texts) -> list[_Row]:
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
            _Row(
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


def _near_duplicate_rows(texts: _Texts, threshold: float) -> list[_Row]:
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
    rows = [_Row("near_duplicate_pairs", part, side, count, n[side], method) for (side, part), count in within.items()]
    if texts.missing:
        nothing = (("pairs", BETWEEN), ("max", BETWEEN), ("texts", MEMBERS), ("texts", NONMEMBERS))
        return [
            *(_Row(f"near_duplicate_{name}", "all", side, None, 0, texts.missing) for name, side in nothing),
            *rows,
        ]
    most = max(similarities, default=None)
    return [
        _Row("near_duplicate_pairs", "all", BETWEEN, len(similarities), len(places), method),
        _Row("near_duplicate_max", "all", BETWEEN, most, len(places), method if similarities else f"no pair; {method}"),
        *(_Row("near_duplicate_texts", "all", side, len(involved[side]), n[side], method) for side in involved),
        *rows,
    ]


def _balance_rows(texts: _Texts) -> list[_Row]:
    rows = []
    counts = {}
    for side, places in texts.sides.items():
        n = len(places)
        rows.append(_Row("texts", "all", side, n, n, "counted"))
        rows.append(_Row("groups", "all", side, len(set(texts.strings("group", places))), n, "counted"))
        counts[side] = histograms.shares(texts.strings("collection", places))
        rows += [
            _Row("texts_of_collection", name, side, count, n, f"counted; {share:.1%} of the side")
            for name, (count, share) in counts[side].items()
        ]
    collections = {name for side in (MEMBERS, NONMEMBERS) for name in counts.get(side, {})}
    none = (0, 0.0)
    uneven = sum(
        counts.get(MEMBERS, {}).get(name, none)[0] != counts.get(NONMEMBERS, {}).get(name, none)[0]
        for name in collections
    )
    compared = None if texts.missing else uneven
    method = texts.missing or f"of {len(collections)} collections"
    return [*rows, _Row("uneven_collections", "all", BOTH, compared, len(texts.labelled), method)]


def _published_rows(texts: _Texts) -> list[_Row]:
    published = texts.columns["published"]
    unit = histograms.date_unit(published)  # type: ignore[arg-type]
    bins = histograms.date_bins(published, unit)  # type: ignore[arg-type]
    return [
        _Row(
            "texts_published",
            name,
            side,
            count,
            len(places),
            f"by {unit} of the document's date; {share:.1%} of the side",
        )
        for side, places in texts.sides.items()
        for name, (count, share) in histograms.shares(bins[place] for place in places).items()
    ]


def _mention_rows(texts: _Texts) -> list[_Row]:
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        mentioned = [dates_in(text).years for text in texts.strings("text", places)]
        latest = [max(years) for years in mentioned if years]
        read = "numbers of four digits from 1500 to 2099 in the text"
        rows += [
            _Row("texts_with_year", "all", side, len(latest) / n, n, read),
            _Row("years_mentioned", "all", side, sum(map(len, mentioned)) / n, n, read),
            _Row(
                "latest_year_mentioned",
                "all",
                side,
                sum(latest) / len(latest) if latest else None,
                len(latest),
                read if latest else "not defined: no text mentions a year",
            ),
        ]
    return rows


def _length_rows(texts: _Texts) -> list[_Row]:
    rows = []
    for side, places in texts.sides.items():
        sizes = text_lengths(texts.strings("text", places), texts.word_counts(places))
        for unit, column in zip(LENGTH_UNITS, sizes.T, strict=True):
            found = histograms.lengths(column.tolist())
            values = {"mean": found.mean, "std": found.std, "min": found.least, "max": found.most}
            rows += [
                _Row(f"length_{name}", unit, side, value, len(places), f"in {unit.replace('_', ' ')}")
                for name, value in values.items()
            ]
    return rows


def _language_rows(texts: _Texts) -> list[_Row]:
    method = (
        f"detected by py3langid in the first {MOST_CHARACTERS} characters, often wrong on short texts, lists and code"
    )
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        detected = detected_languages(texts.strings("text", places))
        declared = texts.strings("language", places)
        other = sum(not same_language(one, two) for one, two in zip(declared, detected, strict=True))
        rows.append(_Row("language_mismatch", "all", side, other / n, n, method))
        rows += [
            _Row("language_share", name, side, share, n, f"{count} texts; {method}")
            for name, (count, share) in histograms.shares(detected).items()
        ]
    return rows


def _summary(
    rows: Sequence[_Row], assessed: AssessedSplit, strongest: ControlAuroc | None
) -> dict[str, str | int | float | None]:
    values = {(row.measure, row.part, row.side): row.value for row in rows}

    def value(measure: str, part: str, side: str) -> float | None:
        return values.get((measure, part, side))

    return {
        "split_verdict": assessed.verdict,
        "in_words": VERDICT_IN_WORDS[assessed.verdict],
        "blind_auroc": assessed.auroc.auroc,
        "blind_ci_low": assessed.auroc.interval.low,
        "blind_ci_high": assessed.auroc.interval.high,
        "blind_method": assessed.auroc.method,
        "worst_control": strongest.name if strongest else None,
        "worst_auroc": strongest.auroc if strongest else None,
        "worst_ci_low": strongest.interval.low if strongest else None,
        "worst_ci_high": strongest.interval.high if strongest else None,
        "near_duplicate_pairs_between": value("near_duplicate_pairs", "all", BETWEEN),
        **{f"overlap_{size}_mean": value("ngram_overlap_mean", str(size), NONMEMBERS) for size in SIZES},
        **{f"overlap_{size}_above_20": value("ngram_overlap_above_20", str(size), NONMEMBERS) for size in SIZES},
        "uneven_collections": value("uneven_collections", "all", BOTH),
        **{
            f"language_mismatch_{side}": value("language_mismatch", "all", side)
            for side in SIDES.values()
            if ("language_mismatch", "all", side) in values
        },
    }
