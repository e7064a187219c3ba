"""A model's results on the items of a test set: reading them, their items, accuracies, and the list of clean items.

lm-evaluation-harness writes samples_TASK_TIME.jsonl with --log_samples: a line an item and filter, with ``doc_id``, the
item itself as ``doc``, and every metric under its own name; ``metrics`` and ``filter`` name them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from audit_pipeline.benchmarks.builders.templated import ItemTemplates
from audit_pipeline.benchmarks.labelled_rows import parse_name
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.item_verdicts import Record, TestItem, Verdict
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.text_rows import Skipped, SkippedRows, UnusableRowError, build_unusable_file_error
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval
from audit_pipeline.statistics.roc import Bools, Floats
from audit_pipeline.statistics.share_bounds import Rate, compute_difference_interval, estimate_grouped_rate
from audit_pipeline.statistics.ties import bound_mean_error
from audit_pipeline.tables import EXAMPLES

DIFFERENCE_CAVEAT = (
    "A difference does not show that contamination raised the score: items that stand in a corpus may be easier, or "
    "better known, than those that do not."
)
_METRICS = ("acc", "exact_match", "pass@1", "acc_norm")
"""Which of several metrics is taken: the first of these, else the first by its name."""
_NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
    *("bits_per_byte", "brier_score", "perplexity", "word_perplexity", "byte_perplexity", "ter", "wer"),
}
"""What else a line has, and metrics of which less is better."""
_FILTER = ", filter "
_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_TASK = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT")
_PERMUTATIONS = 1999
_BLOCK = 1 << 20


class ItemResult(NamedTuple):
    """How right one answer to an item is, from 0 to 1.

    ``name``: what a table calls the item. ``position``: its place in the documents of the harness' task, from 0, and
    ``columns`` the item itself.
    """

    name: str | None
    position: int | None
    columns: Mapping[str, object]
    correct: float


@dataclass(frozen=True)
class ResultsFile:
    """The answers of a file, and the rows of it that cannot be used.

    ``measure``: the metric that was taken; ``other_measures``: those that were not. ``task``: the harness' name for the
    test set, where the file's name says it.
    """

    kind: Literal["lm-evaluation-harness", "table"]
    measure: str
    other_measures: tuple[str, ...]
    task: str | None
    results: tuple[ItemResult, ...]
    skipped: SkippedRows


def read_results(path: Path) -> ResultsFile:
    """Return the results in ``path``: samples of lm-evaluation-harness, or rows with ``item`` and ``correct``.

    Raises DataError where there is no such file, it is of neither kind, or no row of it can be used.
    """
    file, skipped = read_rows(path), SkippedRows()
    for entry in file.skipped:
        skipped.add(entry)
    columns = file.rows[0].values.keys()
    is_harness = "doc_id" in columns
    if not (is_harness or {"item", "correct"} <= columns):
        raise DataError(
            f"{path}: these are no results that can be read: samples of lm-evaluation-harness have a column doc_id, a "
            f"table needs the columns item and correct; the columns are: {', '.join(columns) or 'none'}"
        )
    measures = [
        _list_harness_measures(row.values) if is_harness else {"correct": row.values.get("correct")}
        for row in file.rows
    ]
    measure, *others = _rank_measures(path, measures)
    results: list[ItemResult] = []
    positions: set[int] = set()
    for row, own in zip(file.rows, measures, strict=True):
        if own and measure not in own:
            # A line of another filter.
            continue
        value, problem = to_correctness(own.get(measure))
        position = row.values.get("doc_id")
        position = position if type(position) is int and position >= 0 else None
        name = None if is_harness else parse_name(row.values.get("item"))
        if problem is not None or (name is None and position is None):
            skipped.add(Skipped(row.location, row.index, f"{measure}: {problem}" if problem else "it names no item"))
            continue
        if position is not None:
            if position in positions:
                raise DataError(
                    f"{path}: {row.location} answers doc_id {position} again: several tasks or runs, or filters "
                    "without names, are in one file. Give the rows of one"
                )
            positions.add(position)
        document = row.values.get("doc")
        results.append(ItemResult(name, position, document if isinstance(document, dict) else {}, value))
    if not results:
        raise build_unusable_file_error(path, skipped)
    task = _TASK.match(path.name)
    return ResultsFile(
        "lm-evaluation-harness" if is_harness else "table",
        measure,
        tuple(others),
        None if task is None else task[1],
        tuple(results),
        skipped,
    )


def to_correctness(value: object) -> tuple[float, str | None]:
    """Return how right an answer is, from 0 to 1, and None; or 0 and why ``value`` does not say it."""
    if isinstance(value, str):
        spelling = value
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word], None
        try:
            value = float(word)
        except ValueError:
            return 0.0, f"{spelling[:40]!r} is no number"
    if not isinstance(value, int | float):
        return 0.0, "is null" if value is None else f"is not a number but {type(value).__name__}"
    return (float(value), None) if 0 <= value <= 1 else (0.0, f"{value:.6g} is not between 0 and 1")


def _list_harness_measures(values: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the metrics of a row of the harness, with the filter's name where it has one."""
    listed, chosen = values.get("metrics"), values.get("filter")
    names = [str(name) for name in (listed if isinstance(listed, list) else values)]
    suffix = "" if chosen in (None, "none") else f"{_FILTER}{chosen}"
    return {f"{name}{suffix}": values[name] for name in names if name in values and name not in _NOT_METRICS}


def _rank_measures(path: Path, measures: Iterable[Mapping[str, object]]) -> list[str]:
    """The measures that some row has a number of, the one to take first; raises DataError where there is none."""
    found = {(name, to_correctness(value)[1] is None) for own in measures for name, value in own.items()}
    usable = {name for name, is_usable in found if is_usable}
    if not usable:
        raise DataError(
            f"{path}: no metric says of an item whether it is correct, as a number between 0 and 1; it has: "
            f"{', '.join(sorted({name for name, _ in found})) or 'no metric'}"
        )
    ranks = {name: rank for rank, name in enumerate(_METRICS)}
    return sorted(usable, key=lambda name: (ranks.get(name.partition(_FILTER)[0], len(ranks)), name))


@dataclass(frozen=True)
class MatchedResults:
    """The results by item: ``correct`` and, where the file says them, ``positions`` in the task's documents, both by
    example_id. ``averaged``: items whose ``correct`` is the mean of several answers; ``unmatched``: results of no item.
    """

    correct: Mapping[str, float]
    positions: Mapping[str, int]
    averaged: int
    unmatched: int


def match_results(file: ResultsFile, examples: pa.Table, manifest: Record) -> MatchedResults:
    """Match the results of a file with ``examples`` (schema EXAMPLES) of the benchmark with this ``manifest``.

    By the text that the benchmark's entry makes of an item's columns, or the item's name (example_id, document_id, or
    that without the family's name). Raises DataError where no result is of an item.
    """
    spec, family = manifest["spec"], f"{manifest['family']}:"
    ids, documents = (examples.column(name).to_pylist() for name in ("example_id", "document_id"))
    texts, names = (_index_unique(zip(keys, ids, strict=True)) for keys in (EXAMPLES.texts(examples), documents))
    names |= {name.removeprefix(family): found for name, found in names.items()} | {found: found for found in ids}
    template = None if spec.get("template") is None else ItemTemplates(spec["template"], spec.get("answer"))
    answers: dict[str, list[float]] = defaultdict(list)
    positions: dict[str, int] = {}
    unmatched = 0
    for result in file.results:
        name = texts.get(_fill_text(spec, template, result.columns)) or names.get(
            result.name or parse_name(result.columns.get(spec.get("id_column"))) or ""
        )
        if name is None:
            unmatched += 1
            continue
        answers[name].append(result.correct)
        if result.position is not None:
            positions[name] = result.position
    if not answers:
        raise DataError(
            f"none of the {len(file.results):,} results is of an item of {manifest['benchmark']}, whose items are "
            f"called as {documents[0]}: are they of another test set, or of another split of it?"
        )
    # Exactly rounded: the order of rows changes no digit.
    correct = {name: math.fsum(values) / len(values) for name, values in answers.items()}
    return MatchedResults(correct, positions, sum(len(values) > 1 for values in answers.values()), unmatched)


def _index_unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a mapping of the keys that only one item has."""
    pairs = list(pairs)
    counts = Counter(key for key, _ in pairs)
    return {key: name for key, name in pairs if counts[key] == 1}


def _fill_text(spec: Record, template: ItemTemplates | None, columns: Mapping[str, object]) -> str:
    """The text that a benchmark's entry makes of a row's columns; empty where it makes none."""
    if template is not None:
        if not columns:
            return ""
        try:
            context, text = template.fill(columns)
        except UnusableRowError:
            return ""
        return f"{context or ''}{text}"
    parts = [columns.get(spec[name]) for name in ("context_column", "text_column") if spec.get(name) is not None]
    return "".join(part for part in parts if isinstance(part, str))


def list_clean_positions(
    items: Sequence[TestItem], manifest: Record, matched: MatchedResults | None
) -> tuple[list[int], int]:
    """Return the places of clean items in the task's documents, ascending, and how many clean items have none.

    Those are the results' ``doc_id`` where lm-evaluation-harness wrote them, else the places of the data set's rows,
    which are the order of ``items`` where every row became one. Raises DataError where neither is known, and where no
    item is clean.
    """
    clean = [item.example_id for item in items if item.verdict == "clean"]
    if not clean:
        raise DataError("no item is clean: nothing was written, for lm-evaluation-harness takes an empty list for all")
    positions: Mapping[str, int] = {} if matched is None else matched.positions
    if not positions:
        if manifest["spec"]["builder"] not in ("templated", "labelled") or sum(manifest["texts_left_out"].values()):
            raise DataError(
                f"not every row of one data set is an item of {manifest['benchmark']}, so the places of items in it "
                "are not known; give --results of lm-evaluation-harness (samples_*.jsonl), which say them"
            )
        positions = {item.example_id: place for place, item in enumerate(items)}
    known = sorted(positions[name] for name in clean if name in positions)
    if not known:
        raise DataError("no clean item is among the results, so the places of none are known")
    return known, len(clean) - len(known)


@dataclass(frozen=True)
class AccuracyComparison:
    """The accuracy on contaminated items minus that on clean ones; ``method``: how interval and p-value were computed,
    or why there are none.
    """

    contaminated: Rate
    clean: Rate
    difference: float | None
    interval: Interval
    p_value: float | None
    method: str


def measure_accuracy(items: Sequence[TestItem], *verdicts: Verdict) -> Rate:
    """Return the accuracy on the items with these verdicts that have a result, with its 95% interval by group."""
    chosen = [(item.correct, item.group) for item in items if item.verdict in verdicts and item.correct is not None]
    return estimate_grouped_rate([correct for correct, _ in chosen], [group for _, group in chosen])


def compare_accuracy(items: Sequence[TestItem], *, seed: int = 0) -> AccuracyComparison:
    """Compare the accuracy on contaminated and on clean items, of those that have a result.

    The interval is made of those of the two accuracies, taken as independent: where groups have items of both sides it
    is rather too wide. Neither interval nor p-value where a side has fewer than two groups.
    """
    contaminated, clean = measure_accuracy(items, "contaminated"), measure_accuracy(items, "clean")
    difference = None
    if contaminated.value is not None and clean.value is not None:
        difference = contaminated.value - clean.value
    for rate, side in ((contaminated, "contaminated"), (clean, "clean")):
        if rate.n_groups < 2:
            why = f"no comparison: {rate.n} {side} item(s) with a result, of {rate.n_groups} group(s); two are needed"
            return AccuracyComparison(contaminated, clean, difference, NO_INTERVAL, None, why)
    chosen = [item for item in items if item.verdict in ("contaminated", "clean") and item.correct is not None]
    chosen.sort(key=lambda item: item.example_id)
    values = np.array([item.correct for item in chosen], dtype=np.float64)
    flags = np.array([item.verdict == "contaminated" for item in chosen])
    groups = [item.group for item in chosen]
    interval = compute_difference_interval(contaminated, clean)
    p_value = compute_permutation_p_value(values, flags, groups, seed)
    method = (
        "95% interval of the difference from those of both accuracies (Newcombe's method 10); two-sided p-value of "
        f"{_PERMUTATIONS} permutations by group (seed {seed})"
    )
    return AccuracyComparison(contaminated, clean, difference, interval, p_value, method)


def compute_permutation_p_value(values: Floats, flags: Bools, groups: Sequence[str], seed: int = 0) -> float:
    """Yield the two-sided p-value of a difference in the mean of ``values`` [n] between flagged items and the others.

    Flags change places between groups that are all flagged or not at all, and within groups of both: (1 + permutations
    with a difference as large) / (1 + permutations). Both sides have items.
    """
    _, places = np.unique(np.array(groups, dtype=object), return_inverse=True)
    order = np.argsort(places, kind="stable")
    values, flags, places = values[order], flags[order], places[order]
    sizes = np.bincount(places)
    share = np.bincount(places, weights=flags) / sizes
    whole = (share == 0) | (share == 1)
    within = ~whole[places]
    sums, total, n = np.bincount(places, weights=values)[whole], values.sum(), len(values)
    generator = np.random.default_rng(seed)

    def subtract_means(flagged: Any, count: Any) -> Floats:
        return np.asarray(flagged / count - (total - flagged) / (n - count))

    def permuted() -> Iterator[Floats]:
        rows = max(1, _BLOCK // n)
        for start in range(0, _PERMUTATIONS, rows):
            count = min(rows, _PERMUTATIONS - start)
            chosen = generator.permuted(np.tile(share[whole], (count, 1)), axis=1)
            # Items of a group stay side by side, in an order of chance.
            turns = np.argsort(places[within] + generator.random((count, int(within.sum()))), axis=1)
            flagged = chosen @ sums + values[within][turns] @ flags[within]
            yield subtract_means(flagged, chosen @ sizes[whole] + flags[within].sum())

    observed = abs(subtract_means(values @ flags, flags.sum()))
    # Sums in another order differ in their last digits: each of two means, observed and permuted.
    rounding = 4 * float(bound_mean_error(np.abs(values).max(), n))
    reached = sum(int((np.abs(differences) >= observed - rounding).sum()) for differences in permuted())
    return (1 + reached) / (1 + _PERMUTATIONS)
