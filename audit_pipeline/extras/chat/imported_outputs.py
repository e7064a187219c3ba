"""The reader of files with answers that somebody else requested, and the validation of their rows.

A row identifies its document by name, by title (without regard to case and spaces) or by file name. It identifies its
passage by number or by text. The text may differ from the document in quotation marks, dashes, case and line breaks,
because matching.py normalises them.
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

_MAX_QUOTED_NAMES = 5
_MAX_PASSAGES = 2**31

# The words of a document take 24 bytes each. The cache is limited, because the words of all documents may not fit into
# memory.
_hash_document = lru_cache(64)(hash_normalised_words)

Span = tuple[int, int]
"""Start and end in the document, in characters."""


class DocumentLookup:
    """An index of documents by name, title and file name."""

    def __init__(self, documents: Sequence[SearchedDocument]) -> None:
        self._documents = {document.name: document for document in documents}
        self._by_label: dict[str, set[str]] = {}
        for document in documents:
            # If a document comes from a file, its name ends with a colon and the file name.
            file = document.name.rpartition(":")[2]
            for label in (document.title or "", file, Path(file).stem):
                if _fold(label):
                    self._by_label.setdefault(_fold(label), set()).add(document.name)

    def find_document(self, label: str) -> str:
        """Return the name of the document whose name, title or file name is the label.

        Raises:
            ValueError: If no document or more than one document has the label.
        """
        if label in self._documents:
            return label
        names = self._by_label.get(_fold(label)) or self._by_label.get(_fold(Path(label).stem), set())
        if len(names) > 1:
            raise ValueError(
                f"{len(names)} documents have the title or file name {label[:80]!r}. Use one of their names: "
                f"{', '.join(sorted(names)[:_MAX_QUOTED_NAMES])}."
            )
        if not names:
            examples = ", ".join(sorted(self._documents)[:_MAX_QUOTED_NAMES])
            raise ValueError(
                f"Unknown document {label[:80]!r}. Use the name, title or file name of a document. The first documents "
                f"are: {examples}."
            )
        return next(iter(names))

    def find_passage(self, name: str, passage: str) -> Span | None:
        """Return the span of the first occurrence of a passage's words in a document, or None without an occurrence."""
        words = hash_normalised_words(passage).hashes
        document = _hash_document(self._documents[name].text)
        if not len(words):
            return None
        for start in np.flatnonzero(document.hashes == words[0]):
            end = start + len(words)
            if np.array_equal(document.hashes[start:end], words):
                return int(document.starts[start]), int(document.ends[end - 1])
        return None


def _find_document(label: object, info: ValidationInfo) -> object:
    # A value of another type is returned unchanged, and pydantic reports its type.
    if not isinstance(label, str | int):
        return label
    return cast(DocumentLookup, info.context).find_document(str(label))


def _find_passage(value: object, info: ValidationInfo) -> object:
    """Return the number of a passage, or the span of its text in the document. None if the text does not occur."""
    # CSV files contain numbers as strings.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        is_short = len(value) <= len(str(_MAX_PASSAGES))
        return int(value) if is_short else _MAX_PASSAGES
    if isinstance(value, str):
        # A row without a valid document is skipped, so its passage does not matter.
        if "document" not in info.data:
            return None
        return cast(DocumentLookup, info.context).find_passage(info.data["document"], value)
    # A column of integers with empty cells has floats.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _read_settings(value: object) -> str:
    """Return settings as canonical JSON. A string that contains a JSON object is parsed, because CSV has only strings.

    Raises:
        ValueError: If the value cannot be written as JSON.
    """
    try:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = json.loads(value)
        settings = canonical_json(value)
        # Lone surrogates cannot be stored.
        settings.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The settings are no valid JSON: {to_one_line(str(error))}.") from None
    return settings


def _to_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def _require_unicode(text: str) -> str:
    text.encode()
    return text


_UnicodeText = Annotated[str, AfterValidator(_require_unicode)]


class ImportedOutput(BaseModel):
    """An answer that somebody else requested, as a row of an imported file. An empty cell is None.

    Attributes:
        document: The name of the document.
        output: The answer. An empty answer counts as an answer.
        passage: The number of the passage, or the span of its text in the document.
        prompt: The prompt.
        model: The name of the model.
        settings: The settings of the request, as canonical JSON.
        finish_reason: The reason for the end of the answer, as the server reported it.
        asked_at: The time of the request in UTC.
        request_id: The server's identifier of the request.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    document: Annotated[str, BeforeValidator(_find_document)]
    output: _UnicodeText
    passage: Annotated[Annotated[int, Field(ge=0, lt=_MAX_PASSAGES)] | Span | None, BeforeValidator(_find_passage)] = (
        None
    )
    prompt: _UnicodeText | None = None
    model: _UnicodeText | None = None
    settings: Annotated[str, BeforeValidator(_read_settings)] = "{}"
    finish_reason: _UnicodeText | None = None
    asked_at: Annotated[datetime, Field(strict=False), AfterValidator(_to_utc)] | None = None
    request_id: _UnicodeText | None = None


@dataclass(frozen=True)
class ImportedOutputs:
    """The answers of a file in their order, and the skipped rows."""

    outputs: tuple[ImportedOutput, ...]
    skipped: SkippedRows


def read_outputs(path: Path, documents: Sequence[SearchedDocument]) -> ImportedOutputs:
    """Return the answers in a file of rows.

    Every row needs the columns document and output. All other columns are optional. The column asked_at contains
    ISO 8601 times or seconds since 1970. A time without a time zone is in UTC.

    Args:
        path: A .jsonl, .csv or .parquet file, or any other format of readers/formats.py.
        documents: The documents that the rows may name.

    Raises:
        DataError: If the file cannot be read, or no row is usable.
    """
    lookup = DocumentLookup(documents)
    outputs: list[ImportedOutput] = []
    skipped = SkippedRows()
    for row in open_rows(path).entries():
        if isinstance(row, Skipped):
            skipped.add(row)
            continue
        cells = {name: value for name, value in row.values.items() if value is not None}
        filled = {name: value for name, value in cells.items() if name == "output" or value != ""}
        try:
            outputs.append(ImportedOutput.model_validate(filled, context=lookup))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            skipped.add(Skipped(row.location, row.index, f"column '{problem['loc'][0]}': {problem['msg']}"))
    if not outputs:
        raise build_unusable_file_error(path, skipped)
    return ImportedOutputs(tuple(outputs), skipped)


def _fold(title: str) -> str:
    return " ".join(title.casefold().split())
