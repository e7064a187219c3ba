"""Whole documents from users' files and from sources, and short quotations of their windows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.models.converted_files import TextTokenizer
from audit_pipeline.readers.formats import has_row_format, open_texts
from audit_pipeline.readers.text_rows import Skipped, SkippedRows
from audit_pipeline.readers.whole_files.document import Places, is_single_document
from audit_pipeline.sources.local_files import LocalFilesSettings, fetch_local_files
from audit_pipeline.store import store as catalogue
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXCERPT_CHARACTERS, EXCERPT_WORDS, Side

_NAME_COLUMNS = ("document_id", "id", "title")


@dataclass(frozen=True)
class SearchedAnswer:
    """The position of a scored answer in its conversation.

    Attributes:
        conversation_id: The example_id of the conversation.
        number: The number of the answer among the scored answers of its conversation, from 1.
        start: The first character of the answer in the document's text.
        conversation: The text of the whole conversation, as the model reads it.
        problem: The reason why the answer cannot be searched by any settings. None if it can be searched.
    """

    conversation_id: str
    number: int
    start: int
    conversation: str
    problem: str | None = None


@dataclass(frozen=True)
class SearchedDocument:
    """A document whose windows are searched for passages that a model reproduces.

    Attributes:
        name: The name in results.
        text: The whole text.
        title: The title, if the document belongs to a source.
        group: The group of the document in its benchmark.
        collection: The collection of the document in its benchmark.
        side: Whether the document is audited or held out.
        occurrences: How often the training texts of a control contain the text. None if the benchmark has no control.
        places: The first characters of the file's pages or chapters, with their labels.
        edition: The date of this edition according to the file.
        answer: The answer at the end of the text, if the document is a conversation up to one of its answers. Only the
            beginning of the answer is then searched.
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
    answer: SearchedAnswer | None = None

    @property
    def independent_name(self) -> str:
        """Return the name of the independent unit: the conversation of an answer, otherwise the document."""
        if self.answer is None:
            return self.name
        return self.answer.conversation_id

    @property
    def whole_text(self) -> str:
        """Return the whole conversation of an answer, otherwise the text of the document."""
        if self.answer is None:
            return self.text
        return self.answer.conversation

    def limit_characters(self, characters: int | None) -> SearchedDocument:
        """Return the document with its first ``characters`` characters. An answer is never cut."""
        if characters is None or self.answer is not None:
            return self
        return replace(self, text=self.text[:characters])


def read_documents(path: Path, text_column: str | None) -> tuple[list[SearchedDocument], SkippedRows]:
    """Read the documents of a file or folder.

    A single document and a folder are read and named as the command `check` does (:func:`fetch_local_files`). A file of
    rows has one document per row, with the name in its column document_id, id or title, or else with the row's number.

    Returns:
        The documents, and the files, parts and rows that were skipped.

    Raises:
        DataError: If there is no document, or if two documents have the same name.
    """
    if is_single_document(path) or (path.is_dir() and not has_row_format(path)):
        documents, skipped = _fetch_documents(path, text_column)
    else:
        texts = open_texts(path, text_column, _NAME_COLUMNS)
        documents = [SearchedDocument(_choose_row_name(row.values, row.index), row.text) for row in texts]
        skipped = texts.skipped
    name_counts = Counter(document.name for document in documents)
    duplicates = [name for name, count in name_counts.items() if count > 1]
    if duplicates:
        raise DataError(
            f"{path}: Several documents have the same name, but results are listed by name. {len(duplicates)} name(s) "
            f"occur more than once: {', '.join(duplicates[:5])}. Rename the documents."
        )
    return documents, skipped


def _choose_row_name(values: Mapping[str, Any], index: int) -> str:
    for column in _NAME_COLUMNS:
        if values.get(column) not in (None, ""):
            return str(values[column])
    return f"row {index}"


def _fetch_documents(path: Path, text_column: str | None) -> tuple[list[SearchedDocument], SkippedRows]:
    fetched = fetch_local_files(LocalFilesSettings(path=path, text_column=text_column))
    skipped = SkippedRows()
    for number, (part, reason) in enumerate(fetched.unused):
        skipped.add(Skipped(part, number, reason))
    documents = []
    for document in fetched.documents:
        edition = None
        if document.edition is not None:
            edition = str(document.edition)
        documents.append(SearchedDocument(document.name, document.text, places=document.places, edition=edition))
    if not documents:
        problem = ""
        if skipped.first:
            problem = f" The first problem: {skipped.first[0].location}: {skipped.first[0].reason}"
        raise DataError(
            f"{path} contains no readable document. {skipped.count:,} file(s) or row(s) were skipped.{problem}"
        )
    return documents, skipped


def read_document_of_source(name: str, paths: DataPaths) -> SearchedDocument:
    """Return the document of a source by its document_id (``source:collection:name``).

    Raises:
        DataError: If the source has not been fetched or does not contain the document.
    """
    source = name.partition(":")[0]
    if source == name:
        raise DataError(
            f"'{name}' is not a document id. Give an id of the form SOURCE:COLLECTION:NAME, such as the column "
            "document_id of the table documents contains."
        )
    documents = catalogue.read_documents(paths, source)
    rows = documents.filter(pc.equal(documents["document_id"], name)).to_pylist()
    if not rows:
        raise DataError(
            f"The source {source} has no document '{name}'. The column document_id of the table documents lists the "
            "documents of each source."
        )
    [row] = rows
    places = parse_places(row["places"])
    return SearchedDocument(name, row["text"], row["title"], row["group"], row["collection"], places=places)


def parse_places(places_json: str | None) -> Places:
    """Parse a value of the column ``places`` of DOCUMENTS: the pages or chapters of a document, as JSON."""
    return tuple((offset, label) for offset, label in json.loads(places_json or "[]"))


def cut_excerpt(text: str, *, last: bool = False) -> str:
    """Return the beginning of a passage on one line, or its end if ``last`` is true.

    The excerpts of a prefix and its suffix appear side by side. Therefore each has at most half of the words and
    characters that may be quoted.
    """
    n_words = EXCERPT_WORDS // 2
    n_characters = EXCERPT_CHARACTERS // 2
    words = text.split()
    if last:
        return " ".join(words[-n_words:])[-n_characters:]
    return " ".join(words[:n_words])[:n_characters]


@dataclass(frozen=True)
class Quotation:
    """The quotation of a window, with half of the words that may be quoted for the prefix and half for the suffix.

    Attributes:
        prefix: The end of the prefix.
        pieces: The beginning of the suffix, as one text per token.
        first_choices: The model's most likely token at the position of each piece, after the true text before it.
    """

    prefix: str
    pieces: tuple[str, ...]
    first_choices: tuple[str, ...]


def quote_window(text: str, row: Mapping[str, Any], tokenizer: TextTokenizer) -> Quotation:
    """Quote the window of a cached row (schema EXTRACTION) of the document ``text``."""
    begin = row["char_start"][0]
    words = re.finditer(r"\S+", text[begin : row["char_end"][-1]])
    words_end = max((word.end() for word in islice(words, EXCERPT_WORDS // 2)), default=0)
    max_characters = min(words_end, EXCERPT_CHARACTERS // 2)
    pieces: list[str] = []
    piece_begin = begin
    for token_end in row["char_end"]:
        piece_end = max(token_end, piece_begin)
        if piece_end - begin > max_characters:
            break
        pieces.append(text[piece_begin:piece_end])
        piece_begin = piece_end
    choices = [tokenizer.decode([token]) for token in row["argmax_id"][: len(pieces)]]
    return Quotation(cut_excerpt(text[row["start"] : begin], last=True), tuple(pieces), tuple(choices))
