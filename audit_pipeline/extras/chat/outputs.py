"""Answers that others have asked for: what a handed-over file says, checked row by row.

A document is named by its name, its title (case and spaces aside) or the name of its file. A passage is found by its
words, so what levelling.py levels may differ from the document's: quotation marks, dashes, case, line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from audit_pipeline.errors import to_one_line
from audit_pipeline.extras.chat.levelling import level
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.readers.formats import open_rows
from audit_pipeline.readers.rows import Skipped, SkippedRows, build_unusable_file_error
from audit_pipeline.tables.common import canonical_json

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

    def find_document(self, label: str | int) -> str:
        """Return the name of the document that ``label`` names.

        Raises UnusableRowError where it names none or several.
        """
        written = str(label)
        if written in self._documents:
            return written
        named = self._by_label.get(_fold(written)) or self._by_label.get(_fold(Path(written).stem), set())
        if len(named) > 1:
            raise UnusableRowError(f"{len(named)} documents have the title or file {written[:80]!r}; give a name")
        if not named:
            names = ", ".join(sorted(self._documents)[:_NAMED_DOCUMENTS])
            raise UnusableRowError(f"there is no document {written[:80]!r}; the first are {names}")
        return next(iter(named))

    def _find_passage(self, name: str, passage: str) -> Span | None:
        """Return the first place in the document ``name`` where the words of ``passage`` follow each other; None
        where they do not.

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
    """Return the answers in a file of rows (.jsonl, .csv, .parquet and what else readers/formats.py reads).

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


def _read_passage_value(value: object) -> object:
    # Files of text have no numbers, and columns of numbers with gaps have floats.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value) if len(value) <= len(str(_MAX_PASSAGES)) else _MAX_PASSAGES
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_settings(value: object) -> str:
    """Settings as canonical JSON; a string that is JSON is read as such, since a .csv has nothing else."""
    if value is None:
        return "{}"
    try:
        written = canonical_json(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value)
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {to_one_line(str(error))}") from None
    return written


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _require_unicode(words: str) -> str:
    words.encode()
    return words


_Words = Annotated[str, AfterValidator(_require_unicode)]


class _Row(BaseModel):
    """A row as it was handed over; an empty cell is none."""

    model_config = ConfigDict(strict=True)

    document: str | int
    output: _Words
    passage: Annotated[
        Annotated[int, Field(ge=0, lt=_MAX_PASSAGES)] | str | None, BeforeValidator(_read_passage_value)
    ] = None
    prompt: _Words | None = None
    model: _Words | None = None
    settings: Annotated[str, BeforeValidator(_read_settings)] = "{}"
    finish_reason: _Words | None = None
    asked_at: Annotated[datetime, Field(strict=False), AfterValidator(_in_utc)] | None = None
    request_id: _Words | None = None


def _build_output(values: Mapping[str, object], lookup: DocumentLookup) -> HandedOutput:
    given = {name: value for name, value in values.items() if name == "output" or value not in (None, "")}
    if given.get("document") is None:
        raise UnusableRowError("names no document")
    if given.get("output") is None:
        raise UnusableRowError("has no output")
    try:
        row = _Row.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnusableRowError(f"column '{first['loc'][0]}': {first['msg']}") from None
    document = lookup.find_document(row.document)
    return HandedOutput(
        document=document,
        passage_number=row.passage if isinstance(row.passage, int) else None,
        passage_span=lookup.find_passage(document, row.passage) if isinstance(row.passage, str) else None,
        **row.model_dump(exclude={"document", "passage"}),
    )


def _fold(title: str) -> str:
    return " ".join(title.casefold().split())


def _split(text: str) -> tuple[bytes, Any, Any]:
    """Return the hashes of the words of ``text`` in order, and their first characters and ends."""
    words = level(text)
    return words.hashes.tobytes(), words.starts, words.ends
