"""What users have of a model's answers to a test set: files of lm-evaluation-harness and of Inspect, and tables.

What belongs here: from a file to how right the model was on each item that the file names. What does not: which item of
a benchmark that is (items.py), formats of rows (fetch/).

lm-evaluation-harness writes samples_TASK_TIME.jsonl with --log_samples: a line an item and filter, with ``doc_id``, the
item itself as ``doc``, what the model was given (``arguments``) and answered (``resps``), and every metric under its
own name. ``metrics`` and ``filter`` name them since November 2024 (its pull request 2517). Inspect's .eval is a zip
archive: ``summaries.json`` holds id, epoch and scores of every sample, and so does each samples/*.json. Its members are
packed by zstd since 2026, which Python's zipfile reads from 3.14 on.
"""

from __future__ import annotations

import itertools
import json
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.fetch.file_bytes import MEBIBYTE, UNPACKED_LIMIT, BoundedReader
from audit_pipeline.fetch.formats import read_rows
from audit_pipeline.fetch.rows import Row, Skipped, SkippedRows, build_unusable_file_error

Kind = Literal["lm-evaluation-harness", "Inspect", "table"]

MEMBER_LIMIT = 256 * MEBIBYTE
"""The most that is read of one member of a .eval file."""
_ZSTD = 93
_METRICS = ("acc", "exact_match", "pass@1", "acc_norm")
"""Which of several metrics is taken: the first of these, else the first by its name."""
_NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
    *("bits_per_byte", "brier_score", "perplexity", "word_perplexity", "byte_perplexity", "ter", "wer"),
}
"""What else a line has, and metrics of which less is better."""
_FILTER = ", filter "
_WORDS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
"""Inspect's letters (correct, incorrect, partial, no answer) and what tables say."""
_TASK = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT")
_FAULTS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, struct.error)


@dataclass(frozen=True)
class ItemResult:
    """How right the model was on one item, from 0 to 1: the mean of its ``answers``.

    ``name``: what the file calls the item; ``position``: its place in the task's documents, from 0; ``columns``: the
    item itself. Each is None or empty where the file does not say it.
    """

    name: str | None
    position: int | None
    columns: Mapping[str, object]
    correct: float
    answers: int


@dataclass(frozen=True)
class ResultsFile:
    """The items of a file, and the rows of it that cannot be used.

    ``measure``: the metric or scorer that was taken; ``other_measures``: those that were not. ``task``: the harness'
    name for the test set, where the file's name says it.
    """

    kind: Kind
    measure: str
    other_measures: tuple[str, ...]
    task: str | None
    results: tuple[ItemResult, ...]
    skipped: SkippedRows


@dataclass(frozen=True)
class _Answer:
    """One answer, before a measure is chosen: ``values`` by measure, as the file has them."""

    location: str
    index: int
    name: str | None
    position: int | None
    columns: Mapping[str, object]
    values: Mapping[str, object]

    @property
    def item(self) -> tuple[str | None, int | None]:
        return self.name, self.position


def read_results(path: Path) -> ResultsFile:
    """The results in ``path``: samples of lm-evaluation-harness, a .eval file, or rows with ``item`` and ``correct``.

    Raises DataError where there is no such file, its kind cannot be told, and where no row of it can be used.
    """
    read_answers = _read_inspect_answers if path.suffix.lower() == ".eval" else _read_row_answers
    kind, entries = read_answers(path)
    skipped, answers = SkippedRows(), list[_Answer]()
    for entry in entries:
        if isinstance(entry, Skipped):
            skipped.add(entry)
        else:
            answers.append(entry)
    if not answers:
        raise build_unusable_file_error(path, skipped) if skipped.count else DataError(f"{path}: holds no results")
    measure, *others = _rank_measures(path, answers)
    results = tuple(_average(answers, measure, skipped))
    task = _TASK.match(path.name)
    return ResultsFile(kind, measure, tuple(others), None if task is None else task[1], results, skipped)


def to_correctness(value: object) -> tuple[float, str | None]:
    """How right an answer is, from 0 to 1, and None; or 0 and why ``value`` does not say it."""
    if isinstance(value, str):
        spelling = value
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word], None
        try:
            value = float(word)
        except ValueError:
            return 0.0, f"{spelling[:40]!r} is neither a number nor C, I, P or N"
    if not isinstance(value, int | float):
        return 0.0, "is null" if value is None else f"is not a number but {type(value).__name__}"
    if not (math.isfinite(value) and 0 <= value <= 1):
        return 0.0, f"{value:.6g} is not between 0 and 1"
    return float(value), None


def _rank_measures(path: Path, answers: Sequence[_Answer]) -> list[str]:
    """The measures that some answer has a number of, the one to take first; raises DataError where there is none."""
    usable = {name for answer in answers for name, value in answer.values.items() if to_correctness(value)[1] is None}
    if not usable:
        seen = sorted({name for answer in answers for name in answer.values})
        raise DataError(
            f"{path}: no metric says of an item whether it is correct, as a number between 0 and 1 (C and I in "
            f"Inspect); it has: {', '.join(seen) or 'no metric'}"
        )
    ranks = {name: rank for rank, name in enumerate(_METRICS)}
    return sorted(usable, key=lambda name: (ranks.get(name.partition(_FILTER)[0], len(ranks)), name))


def _average(answers: Sequence[_Answer], measure: str, skipped: SkippedRows) -> Iterator[ItemResult]:
    """Each item with the mean over its answers; an answer that has the measure, and no number of it, is skipped."""
    correct: dict[tuple[str | None, int | None], list[float]] = {}
    columns: dict[tuple[str | None, int | None], Mapping[str, object]] = {}
    for answer in answers:
        if measure not in answer.values:
            # A line of another filter of the harness, or a sample that this scorer did not see.
            if not answer.values:
                skipped.add(Skipped(answer.location, answer.index, "it has no score"))
            continue
        value, problem = to_correctness(answer.values[measure])
        if problem is not None:
            skipped.add(Skipped(answer.location, answer.index, f"{measure}: {problem}"))
            continue
        correct.setdefault(answer.item, []).append(value)
        columns.setdefault(answer.item, answer.columns)
    for (name, position), values in correct.items():
        # Exactly rounded: the order of rows changes no digit.
        mean = math.fsum(values) / len(values)
        yield ItemResult(name, position, columns[name, position], mean, len(values))


def _read_row_answers(path: Path) -> tuple[Kind, Iterator[_Answer | Skipped]]:
    file = read_rows(path)
    columns = file.rows[0].values.keys()
    if "doc_id" in columns:
        filters = _number_unnamed_filters(path, file.rows)
        answers = (_build_harness_answer(row, filters.get(row.index, row.values.get("filter"))) for row in file.rows)
        return "lm-evaluation-harness", itertools.chain(file.skipped, answers)
    if {"item", "correct"} <= columns:
        return "table", itertools.chain(file.skipped, map(_build_table_answer, file.rows))
    raise DataError(
        f"{path}: these are no results that can be read: samples of lm-evaluation-harness have a column doc_id, a "
        f"table needs the columns item and correct; the columns are: {', '.join(columns) or 'none'}"
    )


def _number_unnamed_filters(path: Path, rows: Sequence[Row]) -> dict[int, str]:
    """By the index of a row of the harness: which of several filters it is of that the rows do not name.

    The harness writes the rows of an item in the order of the task's filters. Raises DataError where the rows of an
    item differ in document, prompt or responses, or one filter has two: they are of several tasks or runs.
    """
    firsts: dict[int, Row] = {}
    answers: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        position = _parse_position(row)
        if position is not None:
            repeated = answers[position, str(row.values.get("filter") or "none")]
            first = firsts.setdefault(position, row)
            if not _have_equal(first, row, "doc") or (repeated and not _are_filters_of_one_pass(repeated[0], row)):
                earlier = (repeated or [first])[0].location
                raise DataError(
                    f"{path}: {earlier} and {row.location} both answer doc_id {position}, and not as two filters of "
                    "one run: several tasks or runs are in one file. Give the file of one"
                )
            repeated.append(row)
    unnamed = {position: repeated for (position, _), repeated in answers.items() if _has_no_filter(repeated[0])}
    counts = {len(repeated): position for position, repeated in unnamed.items()}
    if len(counts) > 1:
        least, most = min(counts), max(counts)
        raise DataError(
            f"{path}: doc_id {counts[most]} has {most} rows and doc_id {counts[least]} has {least}, and no row names "
            "its filter: give a whole file, or the rows of one filter"
        )
    return {
        row.index: f"{number} of {len(repeated)} (the file names none)"
        for repeated in unnamed.values()
        for number, row in enumerate(repeated, 1)
        if len(repeated) > 1
    }


def _are_filters_of_one_pass(first: Row, row: Row) -> bool:
    """Whether two rows of an item, of which neither names a filter, have the same prompt and responses."""
    is_known = "resps" in first.values and _has_no_filter(first) and _has_no_filter(row)
    return is_known and _have_equal(first, row, "arguments", "resps")


def _has_no_filter(row: Row) -> bool:
    return row.values.get("filter") is None


def _have_equal(first: Row, row: Row, *names: str) -> bool:
    if first is row:
        return True
    one, other = (
        json.dumps([values.get(name) for name in names], sort_keys=True, default=str)
        for values in (first.values, row.values)
    )
    return one == other


def _parse_position(row: Row) -> int | None:
    position = row.values.get("doc_id")
    return position if isinstance(position, int) and not isinstance(position, bool) and position >= 0 else None


def _build_harness_answer(row: Row, chosen: object) -> _Answer | Skipped:
    values, doc, position = row.values, row.values.get("doc"), _parse_position(row)
    if position is None:
        return Skipped(row.location, row.index, f"doc_id is no place of a document: {str(values.get('doc_id'))[:40]!r}")
    listed = values.get("metrics")
    names = [str(name) for name in (listed if isinstance(listed, list) else values)]
    suffix = "" if chosen in (None, "none") else f"{_FILTER}{chosen}"
    metrics = {f"{name}{suffix}": values[name] for name in names if name in values and name not in _NOT_METRICS}
    return _Answer(row.location, row.index, None, position, doc if isinstance(doc, dict) else {}, metrics)


def _build_table_answer(row: Row) -> _Answer | Skipped:
    name, position = _parse_item_name(row.values.get("item"), first=0)
    if name is None:
        return Skipped(row.location, row.index, "item names nothing")
    return _Answer(row.location, row.index, name, position, {}, {"correct": row.values.get("correct")})


def _build_inspect_answer(sample: object, location: str, index: int) -> _Answer | Skipped:
    if not isinstance(sample, dict):
        return Skipped(location, index, f"not a JSON object but {type(sample).__name__}")
    name, position = _parse_item_name(sample.get("id"), first=1)
    if name is None:
        return Skipped(location, index, "it has no id")
    scores = sample.get("scores")
    if not isinstance(scores, dict) or not scores:
        why = "it ended with an error" if sample.get("error") else "it has no score"
        return Skipped(f"{location}, sample {name}", index, why)
    values = {scorer: score.get("value") if isinstance(score, dict) else score for scorer, score in scores.items()}
    return _Answer(f"{location}, sample {name}", index, name, position, {}, values)


def _parse_item_name(value: object, *, first: int) -> tuple[str | None, int | None]:
    """An item's name; where that is a whole number, its place as well: ``first`` is what the first item is called."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    position = int(name) - first if name.isascii() and name.isdigit() and len(name) < 10 else -1
    return name or None, position if position >= 0 else None


def _read_inspect_answers(path: Path) -> tuple[Kind, Iterator[_Answer | Skipped]]:
    return "Inspect", _iterate_samples(path)


def _iterate_samples(path: Path) -> Iterator[_Answer | Skipped]:
    """Each sample of a .eval file; a member that is damaged or too large is skipped.

    Raises DataError for what is no zip archive, has no samples, or unpacks to more than is read.
    """
    if not path.is_file():
        raise DataError(f"{path}: {'is not a file' if path.exists() else 'no such file'}")
    try:
        archive = zipfile.ZipFile(path)
    except _FAULTS as error:
        raise DataError(
            f"{path}: is no .eval file of Inspect that can be read ({to_one_line(error)}); is it cut off?"
        ) from error
    with archive:
        members = archive.infolist()
        chosen = [member for member in members if member.filename in ("summaries.json", "summary.json")][-1:]
        if not chosen:
            chosen = [member for member in members if re.fullmatch(r"samples/.+\.json", member.filename)]
        if not chosen:
            raise DataError(f"{path}: holds no samples: is this a log of Inspect, and did its run begin?")
        total = index = 0
        for member in chosen:
            location = f"{path.name}: {member.filename}"
            try:
                content = _read_member(path, archive, member)
                document = json.loads(content)
            except (*_FAULTS, ValueError, RecursionError) as error:
                yield Skipped(location, index, f"cannot be read: {to_one_line(error)}")
                index += 1
                continue
            total += len(content)
            if total > UNPACKED_LIMIT:
                raise DataError(f"{path}: unpacks to more than is read ({UNPACKED_LIMIT // MEBIBYTE} MiB)")
            for sample in document if isinstance(document, list) else [document]:
                yield _build_inspect_answer(sample, location, index)
                index += 1


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member; raises one of _FAULTS, for what unpacks to more than the limit too."""
    too_large = zipfile.BadZipFile(f"it unpacks to more than {MEMBER_LIMIT // MEBIBYTE} MiB")
    if member.file_size > MEMBER_LIMIT or member.compress_size > MEMBER_LIMIT:
        raise too_large
    with ExitStack() as stack:
        packed = _open_zstd(path, member, stack) if member.compress_type == _ZSTD else archive.open(member)
        unpacked = stack.enter_context(cast(AbstractContextManager[IO[bytes]], packed))
        content = BoundedReader(unpacked, MEMBER_LIMIT, too_large).readall() or b""
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile("its checksum is wrong")
    return content


def _open_zstd(path: Path, member: zipfile.ZipInfo, stack: ExitStack) -> Any:
    file = stack.enter_context(path.open("rb"))
    file.seek(member.header_offset)
    # Of the header before the member: the lengths of its name and of what follows that.
    name, extra = struct.unpack("<26xHH", file.read(30))
    file.seek(name + extra, 1)
    return pa.CompressedInputStream(pa.BufferReader(file.read(member.compress_size)), "zstd")
