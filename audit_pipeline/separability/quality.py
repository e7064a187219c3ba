"""The quality of a split as one table: how far the two sides of a benchmark differ in anything but membership.

What belongs here: putting what the other modules measure into rows, the verdict and a short summary. What does not:
measuring any of it, and where the rows are written. No model's scores are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER, SPLIT_QUALITY, digest
from audit_pipeline.catalogue.tables import checked, table_from_rows
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS, SplitVerdict, split_verdict
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, Interval
from audit_pipeline.separability import histograms
from audit_pipeline.separability.blind_controls import (
    LENGTH_UNITS,
    WORDS,
    ControlAuroc,
    blind_controls,
    measure_controls,
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
"""Texts of a side that are read, at most: 2,000 of 128 words take 15 s on one core."""

MEASURES: Mapping[str, str] = {
    "blind_auroc": "AUROC of a classifier that sees no model",
    "worst_blind_auroc": "the highest of the blind AUROCs",
    "ngram_overlap_mean": "mean over a side's texts of the share of their n-grams that the other side has",
    "ngram_overlap_max": "the largest of those shares",
    "ngram_overlap_above_20": "share of texts of which more than 20% is found on the other side",
    "ngram_overlap_above_80": "share of texts of which more than 80% is found on the other side",
    "near_duplicate_pairs": "pairs of texts that nearly are each other",
    "near_duplicate_texts": "texts of a side that nearly are one of the other side",
    "near_duplicate_max": "the largest similarity of such a pair between the sides",
    "texts": "texts of a side",
    "groups": "groups that a side's texts are of",
    "texts_of_collection": "texts of a side that are of a collection",
    "uneven_collections": "collections of which the sides have unequally many texts",
    "texts_published": "texts of a side that are dated in a year or month",
    "texts_with_year": "share of a side's texts that mention a year",
    "years_mentioned": "years that a side's texts mention, mean",
    "latest_year_mentioned": "the latest year that a text mentions, mean over the side's texts that mention one",
    "length_mean": "mean length",
    "length_std": "standard deviation of lengths",
    "length_min": "the shortest length",
    "length_max": "the greatest length",
    "language_share": "share of a side's texts in a language, as detected",
    "language_mismatch": "share of a side's texts whose detected language is not the declared one",
}


@dataclass(frozen=True, eq=False)
class Quality:
    """What is known of a split without any model.

    ``table`` has the columns of SPLIT_QUALITY. ``verdict`` binds, by the word control; ``worst`` is the control with
    the highest AUROC, None where none was read. ``summary`` is a handful of values by name, for metadata.
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
    design: str,
    language: str,
    split: Callable[[str], list[str]] = str.split,
    seed: int = 0,
    resamples: int = RESAMPLES,
    near_duplicate_threshold: float = 0.5,
    *,
    run_id: str,
    matched: bool = False,
    most_per_side: int = MOST_PER_SIDE,
) -> Quality:
    """The quality of the evaluation split of one benchmark's ``examples`` (schema EXAMPLES).

    ``design`` and ``language`` (ISO 639-1) are the benchmark's, ``split`` gives a text's words in its unit; ``matched``
    says that its sides were chosen to be hard to tell apart. Two sides are compared where both are there; what cannot
    be measured is null, with the reason in ``method``. Of a side of more than ``most_per_side`` texts so many are
    read, drawn at random, and ``method`` says so; texts, groups, collections and dates are counted of all. The result
    depends on the examples and on ``seed``, not on the order of rows.

    Raises DataError for examples of no benchmark or of several, a missing column, a label other than 0, 1 and null, and
    an example_id that stands twice; ConfigError for an unknown design; ValueError for a threshold outside (0, 1] or no
    text a side.
    """
    if most_per_side < 1:
        raise ValueError(f"at least one text of a side is read, not {most_per_side}")
    everything = _evaluation_texts(examples, split)
    texts, sampled = everything.sample(most_per_side, seed)
    controls = _controls(texts, language, seed, resamples)
    binding = next(one for one in controls if one.name == WORDS)
    verdict = split_verdict(design, binding.interval, matched=matched)
    strongest = worst(controls)
    read = [
        *_control_rows(controls, strongest, lambda interval: split_verdict(design, interval, matched=matched)),
        *_overlap_rows(texts),
        *_near_duplicate_rows(texts, near_duplicate_threshold),
        *_mention_rows(texts),
        *_length_rows(texts),
        *_language_rows(texts),
    ]
    if sampled:
        read = [replace(row, method=f"{row.method}; {sampled}") for row in read]
    rows = [*read, *_balance_rows(everything), *_published_rows(everything)]
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
                "split_verdict": verdict,
                "run_id": run_id,
            }
            for row in rows
        ),
        SPLIT_QUALITY,
    )
    return Quality(table, verdict, strongest, _summary(rows, verdict, binding, strongest))


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


def _controls(texts: _Texts, language: str, seed: int, resamples: int) -> list[ControlAuroc]:
    places = texts.labelled
    labels = np.asarray(texts.of("label", places), dtype=np.int8)
    groups = texts.strings("group", places)
    controls = blind_controls(
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
    controls: Iterable[ControlAuroc], strongest: ControlAuroc | None, verdict_of: Callable[[Interval], SplitVerdict]
) -> list[_Row]:
    rows = [
        _Row(
            "blind_auroc",
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
    rows: Sequence[_Row], verdict: SplitVerdict, binding: ControlAuroc, strongest: ControlAuroc | None
) -> dict[str, str | int | float | None]:
    values = {(row.measure, row.part, row.side): row.value for row in rows}

    def value(measure: str, part: str, side: str) -> float | None:
        return values.get((measure, part, side))

    return {
        "split_verdict": verdict,
        "in_words": VERDICT_IN_WORDS[verdict],
        "blind_auroc": binding.auroc,
        "blind_ci_low": binding.interval.low,
        "blind_ci_high": binding.interval.high,
        "blind_method": binding.method,
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
