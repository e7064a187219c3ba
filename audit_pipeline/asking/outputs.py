"""Answers that others have asked for, and rows that name a document: what a handed-over file says, checked row by row.

What belongs here: reading such files, and finding the document and the passage that a row names. What does not: how
much of the document an answer holds (matching.py), asking (engine.py).

A document is named by its name, its title (case and spaces aside) or the name of its file. A passage is found by its
words, so what levelling.py levels may differ from the document's: quotation marks, dashes, case,
line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from audit_pipeline.asking.levelling import level
from audit_pipeline.catalogue.contracts.common import canonical_json
from audit_pipeline.errors import to_one_line
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.fetch.formats import open_rows
from audit_pipeline.fetch.rows import Skipped, SkippedRows, build_unusable_file_error, unicode_problem

_NAMED_DOCUMENTS = 5
_MAX_PASSAGES = 2**31
_WORD_BYTES = 8
_SPLIT_DOCUMENTS = 64

Span = tuple[int, int]
"""First character in the document, and one past the last."""


class UnusableRowError(ValueError):
    """Why a row cannot be used; the reader of the file counts and names the row."""


class DocumentLookup:
    """The documents that rows name, and the passages in them."""

    def __init__(self, documents: Sequence[SearchedDocument]) -> None:
        self._documents = {document.name: document for document in documents}
        self._by_label: dict[str, set[str]] = {}
        for document in documents:
            # The name of a document of files ends with its file's, after a colon.
            file = document.name.rpartition(":")[2]
            for label in {_fold(label) for label in (document.title or "", file, Path(file).stem)} - {""}:
                self._by_label.setdefault(label, set()).add(document.name)
        self.find_passage = cache(self._find_passage)
        # 24 bytes a word: not of all documents.
        self._split_document = lru_cache(_SPLIT_DOCUMENTS)(lambda name: _split(self._documents[name].text))

    def find_document(self, label: object) -> str:
        """The name of the document that ``label`` names.

        Raises UnusableRowError where it names none or several.
        """
        if label is None or (isinstance(label, str) and not label.strip()):
            raise UnusableRowError("names no document")
        if not isinstance(label, str | int) or isinstance(label, bool):
            raise UnusableRowError(f"column 'document' is not a string but {type(label).__name__}")
        written = str(label)
        if written in self._documents:
            return written
        named = self._by_label.get(_fold(written)) or self._by_label.get(_fold(Path(written).stem), set())
        if len(named) > 1:
            raise UnusableRowError(f"{len(named)} documents have the title or file {written[:80]!r}; give a name")
        if not named:
            names = sorted(self._documents)
            more = f" and {len(names) - _NAMED_DOCUMENTS} more" if len(names) > _NAMED_DOCUMENTS else ""
            raise UnusableRowError(
                f"there is no document {written[:80]!r}; there are {', '.join(names[:_NAMED_DOCUMENTS])}{more}"
            )
        return next(iter(named))

    def _find_passage(self, name: str, passage: str) -> Span | None:
        """The first place in the document ``name`` where the words of ``passage`` follow each other; None without one.

        What is found, or not, is kept.
        """
        words, _, _ = _split(passage)
        document, starts, ends = self._split_document(name)
        place = document.find(words) if words else -1
        # A hash takes eight bytes, so a place between two words is none.
        while place % _WORD_BYTES and place >= 0:
            place = document.find(words, place + 1)
        if place < 0:
            return None
        first = place // _WORD_BYTES
        return int(starts[first]), int(ends[first + len(words) // _WORD_BYTES - 1])


@dataclass(frozen=True)
class HandedOutput:
    """One answer that others asked for.

    ``passage_number`` is the row's own; ``passage_span`` where the passage it quotes is in the document. ``model`` and
    ``prompt`` are None where the row does not say them, ``settings`` is canonical JSON.
    """

    document: str
    passage_number: int | None
    passage_span: Span | None
    prompt: str | None
    output: str
    model: str | None
    settings: str
    finish_reason: str | None
    asked_at: datetime | None
    request_id: str | None


@dataclass(frozen=True)
class Outputs:
    """The answers of a file in its order, and the rows that cannot be used."""

    outputs: tuple[HandedOutput, ...]
    skipped: SkippedRows


def read_outputs(path: Path, documents: Sequence[SearchedDocument]) -> Outputs:
    """The answers in a file of rows (.jsonl, .csv, .parquet and what else fetch/formats.py reads).

    Columns: document and output, which every row needs (an output may be empty: that is an answer, too); passage (its
    number, or its text), prompt, model, settings (JSON), finish_reason, asked_at (ISO 8601, UTC where it names no zone,
    or seconds since 1970) and request_id, each of which may be missing. Raises DataError where the file cannot be
    read or no row of it can be used.
    """
    lookup = DocumentLookup(documents)
    outputs, skipped = list[HandedOutput](), SkippedRows()
    for row in open_rows(path).entries():
        if isinstance(row, Skipped):
            skipped.add(row)
            continue
        try:
            outputs.append(_build_output(row.values, lookup))
        except UnusableRowError as error:
            skipped.add(Skipped(row.location, row.index, str(error)))
    if not outputs:
        raise build_unusable_file_error(path, skipped)
    return Outputs(tuple(outputs), skipped)


def read_string(values: Mapping[str, object], column: str) -> str | None:
    """The string in ``column``; None where it is missing or null. Raises UnusableRowError for anything else."""
    value = values.get(column)
    if value is None:
        return None
    if not isinstance(value, str):
        raise UnusableRowError(f"column '{column}' is not a string but {type(value).__name__}")
    if (problem := unicode_problem(value)) is not None:
        raise UnusableRowError(f"column '{column}' {problem}")
    return value


def _build_output(values: Mapping[str, object], lookup: DocumentLookup) -> HandedOutput:
    document = lookup.find_document(values.get("document"))
    output = read_string(values, "output")
    if output is None:
        raise UnusableRowError("has no output")
    number, span = _read_passage(values.get("passage"), document, lookup)
    prompt, model, finish_reason, request_id = (
        read_string(values, column) or None for column in ("prompt", "model", "finish_reason", "request_id")
    )
    settings, asked_at = _read_settings(values.get("settings")), _read_time(values.get("asked_at"))
    return HandedOutput(document, number, span, prompt, output, model, settings, finish_reason, asked_at, request_id)


def _read_passage(value: object, document: str, lookup: DocumentLookup) -> tuple[int | None, Span | None]:
    """The number of a passage, or where it is."""
    if value in (None, ""):
        return None, None
    # Files of text have no numbers, and columns of numbers with gaps have floats.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        number: object = int(value) if len(value) <= len(str(_MAX_PASSAGES)) else _MAX_PASSAGES
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        number = value
    if isinstance(number, int) and not isinstance(number, bool):
        if not 0 <= number < _MAX_PASSAGES:
            raise UnusableRowError(f"column 'passage': {value!s:.20} is no number of a passage; they count from 0")
        return number, None
    if not isinstance(number, str):
        raise UnusableRowError(f"column 'passage' is neither a number nor a string but {type(value).__name__}")
    return None, lookup.find_passage(document, number)


def _read_settings(value: object) -> str:
    """Settings as canonical JSON; a string that is JSON is read as such, since a .csv has nothing else."""
    if value in (None, ""):
        return "{}"
    try:
        written = canonical_json(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableRowError(f"column 'settings' is no JSON: {to_one_line(str(error))}") from None
    if (problem := unicode_problem(written)) is not None:
        raise UnusableRowError(f"column 'settings' {problem}")
    return written


def _read_time(value: object) -> datetime | None:
    if value in (None, ""):
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        found: Any = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(found, datetime):
            return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise UnusableRowError(f"column 'asked_at': {str(value)[:40]!r} is no time; write it as 2026-01-31T12:00:00Z")


def _fold(title: str) -> str:
    return " ".join(title.casefold().split())


def _split(text: str) -> tuple[bytes, Any, Any]:
    """The hashes of the words of ``text`` one after the other, and their first characters and ends."""
    words = level(text)
    return words.hashes.tobytes(), words.starts, words.ends
