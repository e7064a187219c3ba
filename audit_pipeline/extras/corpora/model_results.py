"""A model's results on the items of a test set: reading their files, and matching each result with an item.

The module also lists the clean items in the format of lm-evaluation-harness.

lm-evaluation-harness writes samples_TASK_TIME.jsonl with --log_samples. The file has one line per item and filter. A
line contains ``doc_id``, the item as ``doc``, and each metric by its name. ``metrics`` and ``filter`` contain the names
of the metrics and of the filter.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from audit_pipeline.benchmarks.builders.templated import ItemTemplates
from audit_pipeline.benchmarks.conversation_rows import read_conversation_fields
from audit_pipeline.benchmarks.labelled_rows import parse_name
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.item_verdicts import BenchmarkItem, Record
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.text_rows import Row, Skipped, SkippedRows, UnusableRowError, build_unusable_file_error
from audit_pipeline.tables import EXAMPLES

_Kind = Literal["lm-evaluation-harness", "table"]

_METRICS = ("acc", "exact_match", "pass@1", "acc_norm")
"""Preferred metrics in order. If a file has none of them, its alphabetically first metric is used."""
_NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
    *("bits_per_byte", "brier_score", "perplexity", "word_perplexity", "byte_perplexity", "ter", "wer"),
}
"""Fields of a line that are no metrics, and metrics for which a lower value is better."""
_FILTER = ", filter "
_VALUES_OF_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_TASK = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT")


class ItemResult(NamedTuple):
    """The result of an answer to an item.

    Attributes:
        name: Name of the item in a table, or None in a file of lm-evaluation-harness.
        position: Position of the item in the documents of the harness' task, from 0, or None if it is unknown.
        columns: Columns of the item in a file of the harness. Empty if the row has none.
        correct: Correctness of the answer from 0 to 1.
    """

    name: str | None
    position: int | None
    columns: Mapping[str, object]
    correct: float


@dataclass(frozen=True)
class ResultsFile:
    """A model's results on a test set, as a file contains them.

    Attributes:
        measure: The metric that is used as the correctness of answers.
        other_measures: The usable metrics of the file that are not used.
        task: The harness' name of the test set, if the file name contains it.
        skipped: The unusable rows.
    """

    kind: _Kind
    measure: str
    other_measures: tuple[str, ...]
    task: str | None
    results: tuple[ItemResult, ...]
    skipped: SkippedRows


def read_results(path: Path) -> ResultsFile:
    """Read the samples of lm-evaluation-harness, or a table with the columns ``item`` and ``correct``.

    Raises:
        DataError: If the file is missing or of another kind, or contains no usable row.
    """
    file = read_rows(path)
    skipped = SkippedRows()
    for entry in file.skipped:
        skipped.add(entry)
    columns = file.rows[0].values.keys()
    if "doc_id" in columns:
        kind: _Kind = "lm-evaluation-harness"
        measures_of_rows = [_list_harness_measures(row.values) for row in file.rows]
    elif {"item", "correct"} <= columns:
        kind = "table"
        measures_of_rows = [{"correct": row.values.get("correct")} for row in file.rows]
    else:
        raise DataError(
            f"{path} contains no readable results. Samples of lm-evaluation-harness have a column doc_id. A table has "
            f"the columns item and correct. The columns of this file are: {', '.join(columns) or 'none'}"
        )
    measure, *other_measures = _rank_measures(path, measures_of_rows)
    results: list[ItemResult] = []
    positions: set[int] = set()
    for row, measures in zip(file.rows, measures_of_rows, strict=True):
        if measures and measure not in measures:
            # The line belongs to another filter.
            continue
        result, problem = _read_result(row.values, kind, measure, measures.get(measure))
        if result is None:
            skipped.add(Skipped(row.location, row.index, problem))
            continue
        if result.position in positions:
            raise DataError(
                f"{path}: {row.location} is another result for doc_id {result.position}, so the file mixes tasks, "
                "runs or unnamed filters. Use a file with the rows of one task, run and filter."
            )
        if result.position is not None:
            positions.add(result.position)
        results.append(result)
    if not results:
        raise build_unusable_file_error(path, skipped)
    match = _TASK.match(path.name)
    task = None
    if match is not None:
        task = match[1]
    return ResultsFile(kind, measure, tuple(other_measures), task, tuple(results), skipped)


def _read_result(
    values: Mapping[str, Any], kind: _Kind, measure: str, value: object
) -> tuple[ItemResult, str] | tuple[None, str]:
    """Read the result of a row.

    Returns:
        The result, or None and the problem of the row.
    """
    correct, problem = parse_correctness(value)
    if problem is not None:
        return None, f"{measure}: {problem}"
    name = None
    if kind == "table":
        name = parse_name(values.get("item"))
    position = _read_position(values)
    if name is None and position is None:
        return None, "the row has neither the name of an item nor a doc_id"
    document = values.get("doc")
    if not isinstance(document, dict):
        document = {}
    return ItemResult(name, position, document, correct), ""


def _read_position(values: Mapping[str, Any]) -> int | None:
    position = values.get("doc_id")
    # In Python, a bool is an int, too, but it is no position.
    if type(position) is int and position >= 0:
        return position
    return None


def parse_correctness(value: object) -> tuple[float, str | None]:
    """Convert a value to the correctness of an answer.

    Returns:
        The correctness from 0 to 1 and None, or 0 and the problem if the value is no correctness.
    """
    if isinstance(value, str):
        spelling = value
        word = value.strip().lower()
        if word in _VALUES_OF_WORDS:
            return _VALUES_OF_WORDS[word], None
        try:
            value = float(word)
        except ValueError:
            return 0.0, f"{spelling[:40]!r} is no number"
    if value is None:
        return 0.0, "the value is null"
    if not isinstance(value, int | float):
        return 0.0, f"the value is not a number but {type(value).__name__}"
    if 0 <= value <= 1:
        return float(value), None
    return 0.0, f"{value:.6g} is not between 0 and 1"


def _list_harness_measures(values: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the values of the metrics in a row of lm-evaluation-harness, by name.

    If the row has a filter, the filter's name is appended to the names of the metrics.
    """
    names = values.get("metrics")
    if not isinstance(names, list):
        names = list(values)
    suffix = ""
    if values.get("filter") not in (None, "none"):
        suffix = f"{_FILTER}{values['filter']}"
    measures: dict[str, object] = {}
    for name in map(str, names):
        if name in values and name not in _NOT_METRICS:
            measures[f"{name}{suffix}"] = values[name]
    return measures


def _rank_measures(path: Path, measures_of_rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the names of the measures that are usable in at least one row, in order of preference.

    Raises:
        DataError: If no measure is usable.
    """
    names: set[str] = set()
    usable: set[str] = set()
    for measures in measures_of_rows:
        for name, value in measures.items():
            names.add(name)
            _, problem = parse_correctness(value)
            if problem is None:
                usable.add(name)
    if not usable:
        raise DataError(
            f"{path}: no metric is a number between 0 and 1 that rates the answer to an item. The metrics are: "
            f"{', '.join(sorted(names)) or 'none'}"
        )
    ranks = {name: rank for rank, name in enumerate(_METRICS)}
    return sorted(usable, key=lambda name: (ranks.get(name.partition(_FILTER)[0], len(ranks)), name))


@dataclass(frozen=True)
class MatchedResults:
    """The results that belong to items of a benchmark.

    Attributes:
        correct: Correctness by example_id. If an item has several answers, it is their mean.
        positions: Positions in the task's documents by example_id, if the file contains them.
        averaged: Number of items with several answers.
        unmatched: Number of results without an item.
    """

    correct: Mapping[str, float]
    positions: Mapping[str, int]
    averaged: int
    unmatched: int


def match_results(file: ResultsFile, examples: pa.Table, manifest: Record) -> MatchedResults:
    """Match the results of a file with the items of a benchmark.

    A result belongs to the item whose text equals the text that the benchmark would build from the result's columns.
    If there is no such item, the names are compared. A name is the example_id, or the document_id with or without the
    family's name.

    Args:
        file: The results.
        examples: The items (schema EXAMPLES).
        manifest: The manifest of the benchmark.

    Raises:
        DataError: If no result matches an item.
    """
    spec = manifest["spec"]
    ids: list[str] = examples.column("example_id").to_pylist()
    documents: list[str] = examples.column("document_id").to_pylist()
    id_of_text = _index_unique(EXAMPLES.texts(examples), ids)
    id_of_document = _index_unique(documents, ids)
    id_of_name = dict(id_of_document)
    for document, example_id in id_of_document.items():
        id_of_name[document.removeprefix(f"{manifest['family']}:")] = example_id
    id_of_name |= dict(zip(ids, ids, strict=True))
    template = None
    if spec.get("template") is not None:
        template = ItemTemplates(spec["template"], spec.get("answer"))
    answers: dict[str, list[float]] = defaultdict(list)
    positions: dict[str, int] = {}
    unmatched = 0
    for result in file.results:
        name = result.name or parse_name(result.columns.get(spec.get("id_column"))) or ""
        matched_id = id_of_text.get(_build_item_text(spec, template, result.columns)) or id_of_name.get(name)
        if matched_id is None:
            unmatched += 1
            continue
        answers[matched_id].append(result.correct)
        if result.position is not None:
            positions[matched_id] = result.position
    if not answers:
        raise DataError(
            f"none of the {len(file.results):,} results matches an item of {manifest['benchmark']}. The first item of "
            f"the benchmark has the name {documents[0]}. Check that the results are of this test set and of the same "
            "split."
        )
    # fsum rounds only the final sum, so the order of the rows does not change the result.
    correct = {example_id: math.fsum(values) / len(values) for example_id, values in answers.items()}
    averaged = sum(len(values) > 1 for values in answers.values())
    return MatchedResults(correct, positions, averaged, unmatched)


def _index_unique(keys: Sequence[str], ids: Sequence[str]) -> dict[str, str]:
    """Map the keys that belong to only one item to the ids of their items."""
    counts = Counter(keys)
    return {key: example_id for key, example_id in zip(keys, ids, strict=True) if counts[key] == 1}


def _build_item_text(spec: Record, template: ItemTemplates | None, columns: Mapping[str, object]) -> str:
    """Build the text of an item from the columns of a row. It is empty if the row is unusable."""
    if template is not None:
        if not columns:
            return ""
        try:
            context, text = template.fill(columns)
        except UnusableRowError:
            return ""
        return f"{context or ''}{text}"
    if spec.get("scored_part") is not None:
        try:
            fields = read_conversation_fields(Row("", 0, columns), spec["scored_part"])
        except UnusableRowError:
            return ""
        return f"{fields['context'] or ''}{fields['text']}"
    text = ""
    for name in ("context_column", "text_column"):
        if spec.get(name) is not None:
            part = columns.get(spec[name])
            if isinstance(part, str):
                text += part
    return text


def list_clean_positions(
    items: Sequence[BenchmarkItem], manifest: Record, matched: MatchedResults | None
) -> tuple[list[int], int]:
    """Return the sorted positions of clean items in the task's documents, and how many clean items have no position.

    A position is the ``doc_id`` in results of lm-evaluation-harness. Without such results it is the row number in the
    data set, which is the index in ``items`` if every row is an item.

    Raises:
        DataError: If no position is known or no item is clean.
    """
    clean = [item.example_id for item in items if item.verdict == "clean"]
    if not clean:
        raise DataError(
            "no item is clean, so --clean wrote no file: lm-evaluation-harness would read an empty list as all items"
        )
    positions: Mapping[str, int] = {}
    if matched is not None:
        positions = matched.positions
    if not positions:
        has_item_per_row = manifest["spec"]["builder"] in ("templated", "labelled")
        if not has_item_per_row or sum(manifest["texts_left_out"].values()):
            raise DataError(
                f"not every row of the data set is an item of {manifest['benchmark']}, so the positions of its items "
                "are unknown. Pass samples of lm-evaluation-harness (samples_*.jsonl) with --results."
            )
        positions = {item.example_id: position for position, item in enumerate(items)}
    clean_positions = sorted(positions[name] for name in clean if name in positions)
    if not clean_positions:
        raise DataError(
            "the results contain no clean item, so the positions of clean items are unknown. "
            "Use results of the whole test set."
        )
    return clean_positions, len(clean) - len(clean_positions)
