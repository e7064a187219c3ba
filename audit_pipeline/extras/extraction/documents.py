"""Whole documents from users' files, and the few words of them that are quoted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.models.converted_files import TextTokenizer
from audit_pipeline.readers.formats import has_row_format, open_texts
from audit_pipeline.readers.text_rows import Skipped, SkippedRows
from audit_pipeline.readers.whole_files.document import Places, is_single_document
from audit_pipeline.sources.base import Document
from audit_pipeline.sources.local_files import LocalFilesSettings, fetch_local_files
from audit_pipeline.store import store as catalogue
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXCERPT_CHARACTERS, EXCERPT_WORDS, Side

_NAMES = ("document_id", "id", "title")


@dataclass(frozen=True)
class SearchedDocument:
    """A text by the name that a finding calls it.

    Of a benchmark's document: its title, group, collection and side; of a control's text how many times the model's
    training held it. ``places``: where the pages or chapters of its file begin. ``edition``: the date that its file
    gives of this edition.
    """

    name: str
    text: str
    title: str | None = None
    group: str = ""
    collection: str = ""
    side: Side = "audited"
    occurrences: int | None = None
    places: Places = ()
    edition: str | None = None


def read_documents(path: Path, text_column: str | None) -> tuple[list[SearchedDocument], SkippedRows]:
    """The documents of ``path``, and files, parts and rows that are none.

    A file that is one document, and whatever a folder holds, is read and named as `check` does
    (:func:`fetch_local_files`); of a file of rows each row is one, by its column document_id, id or title, else by
    its number. Raises DataError where there is no document, and where two have one name.
    """
    if is_single_document(path) or (path.is_dir() and not has_row_format(path)):
        documents, skipped = _fetch_documents(path, text_column)
    else:
        texts = open_texts(path, text_column, _NAMES)
        documents = []
        for row in texts:
            given = (str(row.values[name]) for name in _NAMES if row.values.get(name) not in (None, ""))
            documents.append(SearchedDocument(next(given, f"row {row.index}"), row.text))
        skipped = texts.skipped
    twice = [name for name, times in Counter(document.name for document in documents).items() if times > 1]
    if twice:
        raise DataError(f"{path}: {len(twice)} name(s) belong to several documents: {', '.join(twice[:5])}")
    return documents, skipped


def _fetch_documents(path: Path, text_column: str | None) -> tuple[list[SearchedDocument], SkippedRows]:
    fetched = fetch_local_files(LocalFilesSettings(path=path, text_column=text_column))
    skipped = SkippedRows()
    for number, (part, reason) in enumerate(fetched.unused):
        skipped.add(Skipped(part, number, reason))
    documents = [
        SearchedDocument(found.name, found.text, places=found.places, edition=_format_edition(found))
        for found in fetched.documents
    ]
    if not documents:
        first = "".join(f"; the first, {part.location}: {part.reason}" for part in skipped.first[:1])
        raise DataError(f"{path}: no document can be read of {skipped.count:,} file(s) and row(s){first}")
    return documents, skipped


def _format_edition(document: Document) -> str | None:
    return None if document.edition is None else str(document.edition)


def read_document_of_source(name: str, paths: DataPaths) -> SearchedDocument:
    """The document of a source by its document_id (``source:collection:name``).

    Raises DataError where the source has not been fetched, or has no document of that name.
    """
    source = name.partition(":")[0]
    if source == name:
        raise DataError(f"{name}: a document's id is its source, collection and name, with a colon between them")
    rows = catalogue.read_documents(paths, source)
    found = rows.filter(pc.equal(rows["document_id"], name)).to_pylist()
    if not found:
        raise DataError(f"the source {source} has no document '{name}'; the table documents lists them")
    [row] = found
    places = parse_places(row["places"])
    return SearchedDocument(name, row["text"], row["title"], row["group"], row["collection"], places=places)


def parse_places(written: str | None) -> Places:
    """The places of a document as the column ``places`` of DOCUMENTS has them."""
    return tuple((offset, label) for offset, label in json.loads(written or "[]"))


def cut_excerpt(text: str, *, last: bool = False) -> str:
    """The first words of a passage, or its last, on one line: half as many as may be quoted, since prefix and suffix
    are shown side by side.
    """
    words, characters = EXCERPT_WORDS // 2, EXCERPT_CHARACTERS // 2
    chosen = text.split()[-words:] if last else text.split()[:words]
    line = " ".join(chosen)
    return line[-characters:] if last else line[:characters]


@dataclass(frozen=True)
class Quotation:
    """A window in words, half as many of prefix and suffix as may be quoted.

    ``pieces`` are the suffix in the model's tokens, ``first_choices`` the model's first choice in place of each, after
    the document's own words.
    """

    prefix: str
    pieces: tuple[str, ...]
    first_choices: tuple[str, ...]


def quote_window(text: str, row: Mapping[str, Any], tokenizer: TextTokenizer) -> Quotation:
    """The window of a cached ``row`` (EXTRACTION) of the document ``text``, in words."""
    begin = row["char_start"][0]
    # As much of the suffix as may be quoted of one side of a window.
    words = re.finditer(r"\S+", text[begin : row["char_end"][-1]])
    room = min(max((word.end() for word in islice(words, EXCERPT_WORDS // 2)), default=0), EXCERPT_CHARACTERS // 2)
    pieces: list[str] = []
    place = begin
    for end in row["char_end"]:
        if max(end, place) - begin > room:
            break
        pieces.append(text[place : max(end, place)])
        place = max(end, place)
    choices = [tokenizer.decode([token]) for token in row["argmax_id"][: len(pieces)]]
    return Quotation(cut_excerpt(text[row["start"] : begin], last=True), tuple(pieces), tuple(choices))
