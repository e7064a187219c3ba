"""Answers that others have asked for: what a handed-over file says, checked row by row.

A document is named by its name, its title (case and spaces aside) or the name of its file. A passage is found by its
words, so what matching.py levels may differ from the document's: quotation marks, dashes, case, line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, cast

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from audit_pipeline.errors import to_one_line
from audit_pipeline.extras.chat.matching import hash_normalised_words
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.readers.formats import open_rows
from audit_pipeline.readers.text_rows import Skipped, SkippedRows, build_unusable_file_error
from audit_pipeline.tables.common import canonical_json

_NAMED_DOCUMENTS = 5
_MAX_PASSAGES = 2**31

# 24 bytes a word: not of all documents.
_level_document = lru_cache(64)(hash_normalised_words)

Span = tuple[int, int]
"""First character in the document, and one past the last."""


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

    def find_document(self, label: str) -> str:
        """Return the name of the document that ``label`` names; raise ValueError where it names none or several."""
        if label in self._documents:
            return label
        named = self._by_label.get(_fold(label)) or self._by_label.get(_fold(Path(label).stem), set())
        if len(named) > 1:
            raise ValueError(f"{len(named)} documents have the title or file {label[:80]!r}; give a name")
        if not named:
            names = ", ".join(sorted(self._documents)[:_NAMED_DOCUMENTS])
            raise ValueError(f"there is no document {label[:80]!r}; the first are {names}")
        return next(iter(named))

    def find_passage(self, name: str, passage: str) -> Span | None:
        """Return the first place in the document ``name`` where the words of ``passage`` follow each other, if any."""
        words, document = hash_normalised_words(passage).hashes, _level_document(self._documents[name].text)
        if not len(words):
            return None
        for first in np.flatnonzero(document.hashes == words[0]):
            last = first + len(words)
            if np.array_equal(document.hashes[first:last], words):
                return int(document.starts[first]), int(document.ends[last - 1])
        return None


def _find_document(label: object, info: ValidationInfo) -> object:
    lookup = cast(DocumentLookup, info.context)
    return lookup.find_document(str(label)) if isinstance(label, str | int) else label


def _find_passage(value: object, info: ValidationInfo) -> object:
    """Return the number of a passage, or where the text that is given is in the document; None: nowhere."""
    # Files of text have no numbers, and columns of numbers with gaps have floats.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value) if len(value) <= len(str(_MAX_PASSAGES)) else _MAX_PASSAGES
    if isinstance(value, str):
        lookup = cast(DocumentLookup, info.context)
        # Without a document the row is not used.
        return lookup.find_passage(info.data["document"], value) if "document" in info.data else None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_settings(value: object) -> str:
    """Return settings as canonical JSON; a string that is JSON is read as such, since a .csv has nothing else."""
    try:
        written = canonical_json(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value)
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {to_one_line(str(error))}") from None
    return written


def _to_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _require_unicode(words: str) -> str:
    words.encode()
    return words


_Words = Annotated[str, AfterValidator(_require_unicode)]


class HandedOutput(BaseModel):
    """One answer that others asked for; its fields are the columns of a row, and an empty cell is None.

    ``document`` is the name of the document. ``passage`` is its number, or where the passage that the row quotes is in
    the document. ``settings`` is canonical JSON.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    document: Annotated[str, BeforeValidator(_find_document)]
    output: _Words
    passage: Annotated[Annotated[int, Field(ge=0, lt=_MAX_PASSAGES)] | Span | None, BeforeValidator(_find_passage)] = (
        None
    )
    prompt: _Words | None = None
    model: _Words | None = None
    settings: Annotated[str, BeforeValidator(_read_settings)] = "{}"
    finish_reason: _Words | None = None
    asked_at: Annotated[datetime, Field(strict=False), AfterValidator(_to_utc)] | None = None
    request_id: _Words | None = None


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
        given = {name: value for name, value in row.values.items() if value is not None}
        given = {name: value for name, value in given.items() if name == "output" or value != ""}
        try:
            outputs.append(HandedOutput.model_validate(given, context=lookup))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            skipped.add(Skipped(row.location, row.index, f"column '{first['loc'][0]}': {first['msg']}"))
    if not outputs:
        raise build_unusable_file_error(path, skipped)
    return Outputs(tuple(outputs), skipped)


def _fold(title: str) -> str:
    return " ".join(title.casefold().split())
