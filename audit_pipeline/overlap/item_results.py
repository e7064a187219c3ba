"""Users' results beside the items of a test set: whose they are, and the accuracy on contaminated and clean items.

What belongs here: matching results with items, places of items among the rows of a data set, comparing accuracies. What
does not: users' files (results_files.py), verdicts (items.py).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.benchmarks.builders.templated import RowTemplate
from audit_pipeline.benchmarks.rows import parse_name
from audit_pipeline.catalogue.contracts import EXAMPLES
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.intervals import NO_INTERVAL, Interval
from audit_pipeline.metrics.rates import Rate, difference_interval, grouped_rate
from audit_pipeline.overlap.items import Item, Record, Verdict
from audit_pipeline.overlap.results_files import ResultsFile

DIFFERENCE_CAVEAT = (
    "A difference does not show that contamination raised the score: items that stand in a corpus may be easier, or "
    "better known, than those that do not."
)
_PERMUTATIONS = 1999
_BLOCK = 1 << 20

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MatchedResults:
    """The results by item: ``correct`` and, where the file says them, ``positions`` in the task's documents, both by
    example_id. ``unmatched``: results that are of no item; ``matched_by``: how they were told."""

    correct: Mapping[str, float]
    positions: Mapping[str, int]
    unmatched: int
    matched_by: str


def match_results(file: ResultsFile, examples: pa.Table, manifest: Record) -> MatchedResults:
    """Match the results of a file with ``examples`` (schema EXAMPLES) of the benchmark with this ``manifest``.

    By the text that the benchmark's entry makes of an item's columns, or the item's name (example_id, document_id, or
    that without the family's name). Where that fits no result: by its place, if every row of the data set became an
    item, in order. Raises DataError where no result is of an item.
    """
    spec, family = manifest["spec"], f"{manifest['family']}:"
    ids, documents = (examples.column(name).to_pylist() for name in ("example_id", "document_id"))
    texts, names = (_index_unique(zip(keys, ids, strict=True)) for keys in (EXAMPLES.texts(examples), documents))
    names |= {name.removeprefix(family): found for name, found in names.items()} | {found: found for found in ids}
    places = dict(enumerate(ids)) if explain_unknown_positions(manifest) is None else {}
    template = None if spec.get("template") is None else RowTemplate(spec["template"])
    named = [
        texts.get(_fill_text(spec, template, result.columns))
        or names.get(result.name or parse_name(result.columns.get(spec.get("id_column")))[0])
        for result in file.results
    ]
    placed = [places.get(-1 if result.position is None else result.position) for result in file.results]
    for found, way in ((named, "text or name"), (placed, "place")):
        if any(found):
            return _collect_matches(file, found, way)
    first = file.results[0]
    raise DataError(
        f"none of the {len(file.results):,} results is of an item of {manifest['benchmark']}: the first is of item "
        f"{first.position if first.name is None else first.name}, and items are called as {documents[0]}. Are they of "
        "another test set, or of another split of it?"
    )


def _collect_matches(file: ResultsFile, found: Sequence[str | None], way: str) -> MatchedResults:
    answers: dict[str, list[tuple[float, int]]] = defaultdict(list)
    positions: dict[str, int] = {}
    for name, result in zip(found, file.results, strict=True):
        if name is not None:
            answers[name].append((result.correct * result.answers, result.answers))
            if file.kind == "lm-evaluation-harness" and result.position is not None:
                positions[name] = result.position
    correct = {
        name: math.fsum(total for total, _ in values) / sum(count for _, count in values)
        for name, values in answers.items()
    }
    return MatchedResults(correct, positions, found.count(None), way)


def _index_unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A mapping of the keys that only one item has."""
    pairs = list(pairs)
    counts = Counter(key for key, _ in pairs)
    return {key: name for key, name in pairs if counts[key] == 1}


def _fill_text(spec: Record, template: RowTemplate | None, columns: Mapping[str, object]) -> str:
    """The text that a benchmark's entry makes of a row's columns; empty where it makes none."""
    if template is not None:
        return template.fill(columns)[0] if columns else ""
    parts = [columns.get(spec[name]) for name in ("context_column", "text_column") if spec.get(name) is not None]
    return "".join(part for part in parts if isinstance(part, str))


def explain_unknown_positions(manifest: Record) -> str | None:
    """Why the order of a benchmark's items is not that of its data set's rows; None where it is."""
    if manifest["spec"]["builder"] not in ("templated", "labelled"):
        return f"{manifest['benchmark']} is not made of the rows of one data set"
    lost = sum(manifest["texts_left_out"].values())
    return f"{lost:,} rows of the data set are no items of {manifest['benchmark']}" if lost else None


def list_clean_positions(
    items: Sequence[Item], manifest: Record, matched: MatchedResults | None
) -> tuple[list[int], int]:
    """The places of clean items in the task's documents, ascending, and how many clean items have none.

    Those are the results' ``doc_id`` where lm-evaluation-harness wrote them, else the places of the data set's rows,
    which are the order of ``items``. Raises DataError where neither is known, and where no item is clean.
    """
    clean = [item.example_id for item in items if item.verdict == "clean"]
    if not clean:
        raise DataError("no item is clean: nothing was written, for lm-evaluation-harness takes an empty list for all")
    positions: Mapping[str, int] = {} if matched is None else matched.positions
    if not positions:
        if (problem := explain_unknown_positions(manifest)) is not None:
            raise DataError(
                f"{problem}, so the places of items in it are not known; give --results of lm-evaluation-harness "
                "(samples_*.jsonl), which say them"
            )
        positions = {item.example_id: place for place, item in enumerate(items)}
    known = sorted(positions[name] for name in clean if name in positions)
    if not known:
        raise DataError("no clean item is among the results, so the places of none are known")
    return known, len(clean) - len(known)


@dataclass(frozen=True)
class AccuracyComparison:
    """The accuracy on contaminated items less that on clean ones; ``method``: how interval and p-value were computed,
    or why there are none."""

    contaminated: Rate
    clean: Rate
    difference: float | None
    interval: Interval
    p_value: float | None
    method: str


def measure_accuracy(items: Sequence[Item], *verdicts: Verdict) -> Rate:
    """The accuracy on the items with these verdicts that have a result, with its 95% interval by group."""
    chosen = [(item.correct, item.group) for item in items if item.verdict in verdicts and item.correct is not None]
    return grouped_rate([correct for correct, _ in chosen], [group for _, group in chosen])


def compare_accuracy(items: Sequence[Item], *, seed: int = 0) -> AccuracyComparison:
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
    interval = difference_interval(contaminated, clean)
    p_value = permute_difference(values, flags, groups, seed)
    method = (
        "95% interval of the difference from those of both accuracies (Newcombe's method 10); two-sided p-value of "
        f"{_PERMUTATIONS} permutations by group (seed {seed})"
    )
    return AccuracyComparison(contaminated, clean, difference, interval, p_value, method)


def permute_difference(values: Floats, flags: Bools, groups: Sequence[str], seed: int = 0) -> float:
    """The two-sided p-value of a difference in the mean of ``values`` [n] between flagged items and the others.

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
    # Sums in another order differ in their last digits.
    reached = sum(int((np.abs(differences) >= observed - 1e-12).sum()) for differences in permuted())
    return (1 + reached) / (1 + _PERMUTATIONS)
