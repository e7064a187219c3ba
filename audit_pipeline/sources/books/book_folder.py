"""Books in a folder: .txt and .epub files, and metadata files (books.csv, books.jsonl) with their dates.

Each subfolder may have its own metadata file for the files in it and below it.

If only the year of a book is known, the book may have been published on any day of the year. ``published`` is then the
last day, so that members are published before the cutoff with certainty. ``earliest`` is the first day, so that
non-members are published after the cutoff with certainty.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import DATE_ADVICE, Dating, UnreadableDateError, parse_dating
from audit_pipeline.readers.file_bytes import describe_invalid_bytes, read_regular_file, require_regular_file
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.text_rows import UnusableRowError, explain_invalid_unicode, read_name
from audit_pipeline.readers.whole_files.book_matter import extract_book_text
from audit_pipeline.readers.whole_files.document import WholeDocument
from audit_pipeline.readers.whole_files.epub import EpubError, read_epub
from audit_pipeline.readers.whole_files.legibility import explain_illegible
from audit_pipeline.readers.whole_files.matter_pages import remove_front_and_back_matter
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.local_files import walk_files

METADATA_FILES = ("books.csv", "books.jsonl")
BOOK_FILES = (".txt", ".epub")
DATE_KIND = "first publication"
ENCODINGS = {"utf-8": "utf-8", "utf8": "utf-8", "latin-1": "latin-1", "latin1": "latin-1", "iso-8859-1": "latin-1"}
COLUMNS = ("title", "author", "published", "language", "licence", "url", "group", "encoding")

_OTHER_FILE = f"the file format is not one of {', '.join(BOOK_FILES)}"
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_YEAR_IN_PROSE = re.compile(r"(?<!\d)(?<!\d[.,])(?<![£$])(?:1[0-9]|20)\d\d(?![\d%]|,\d)")


@dataclass(frozen=True)
class BookEntry:
    """A row of a metadata file.

    Attributes:
        location: The location of the row, such as books.csv:3.
        key: The name of the book's file, or its number in the catalogue of Project Gutenberg.
        dating: The date of first publication.
        title: The title, or None if it is missing in the row. The fields below are None if missing, too.
        author: The author.
        language: The language (ISO 639).
        licence: The licence.
        url: The address.
        group: The name of a group of books that are not independent, such as the volumes of a work.
        encoding: The encoding of a .txt file.
    """

    location: str
    key: str
    dating: Dating
    title: str | None = None
    author: str | None = None
    language: str | None = None
    licence: str | None = None
    url: str | None = None
    group: str | None = None
    encoding: str | None = None


def find_years(prose: str) -> list[int]:
    """Return the years 1000 to 2099 in a text, in their order. A range such as 1851-53 yields both years."""
    years: list[int] = []
    for match in _YEAR_IN_PROSE.finditer(prose):
        years.append(int(match.group()))
        short = re.match(r"\s?[-–/](\d\d)(?!\d)", prose[match.end() :])
        if short:
            last_year = years[-1] // 100 * 100 + int(short[1])
            if last_year > years[-1]:
                years.append(last_year)
    return years


def read_metadata(path: Path, key_column: str) -> list[BookEntry | LeftOut]:
    """Return the entries of a metadata file (.csv or .jsonl), and each row that cannot be used, with the reason.

    Args:
        path: The file. It must have the column ``published``. Other columns in COLUMNS are optional.
        key_column: The column with the file name or the number of the book. If two rows have the same key, the first
            row is used.

    Raises:
        DataError: If the file cannot be read.
    """
    file = read_rows(path)
    entries: dict[str, BookEntry] = {}
    left_out = [LeftOut(skipped.location, skipped.reason) for skipped in file.skipped]
    for row in file.rows:
        try:
            entry = _parse_entry(row.location, row.values, key_column)
            earlier_entry = entries.setdefault(entry.key, entry)
            if earlier_entry is not entry:
                raise UnusableDocumentError(
                    f"this row is skipped, because an earlier row describes the same book: {earlier_entry.location}"
                )
        except (UnusableDocumentError, UnusableRowError) as unusable:
            key = row.values.get(key_column)
            part = row.location
            if isinstance(key, str | int) and str(key).strip():
                part += f" ({key})"
            left_out.append(LeftOut(part, str(unusable)))
    return [*entries.values(), *left_out]


def _parse_entry(location: str, values: Mapping[str, object], key_column: str) -> BookEntry:
    key = (read_name(values, key_column) or "").strip()
    if not key:
        raise UnusableDocumentError(f"the column '{key_column}' is empty")
    try:
        dating = parse_dating(values.get("published"))
    except UnreadableDateError as error:
        raise UnusableDocumentError(f"the column 'published' cannot be read: {error}. {DATE_ADVICE}") from error
    if dating is None:
        raise UnusableDocumentError("the column 'published' is empty. Enter the date of first publication.")
    fields: dict[str, str | None] = {}
    for column in COLUMNS:
        if column != "published":
            name = read_name(values, column)
            fields[column] = None if name is None else name.strip()
    language = fields["language"]
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise UnusableDocumentError(f"the column 'language' must contain an ISO 639 code such as en, not {language!r}")
    return BookEntry(location=location, key=key, dating=dating, **fields)


def fetch_folder(folder: Path, collection: str, language: str, licence: str) -> Iterator[FetchedItem]:
    """Yield the books in a folder as documents with the names of their files.

    A file without an entry in a metadata file is skipped, because its date is unknown. An entry without a file is a
    missing part. Hidden files and links out of the folder are not read.

    Args:
        folder: The folder.
        collection: The collection of the documents.
        language: The language of books whose entry has none.
        licence: The licence of books whose entry has none.
    """
    if not folder.is_dir():
        yield MissingPart(
            collection, f"{folder}: there is no such folder. Correct books.folder in config/sources.yaml.", collection
        )
        return
    files: dict[str, Path] = {}
    for name, path, refusal in walk_files(folder):
        if refusal is None:
            files[name] = path
        else:
            yield LeftOut(name, refusal)
    entries: dict[str, BookEntry] = {}
    for item in _iterate_entries(files, collection):
        if isinstance(item, tuple):
            entries |= [item]
        else:
            yield item
    for name, entry in sorted(entries.items()):
        if name in files:
            yield from _read_book(name, files[name], entry, collection, language, licence)
        else:
            yield MissingPart(
                name,
                f"{entry.location} describes this file, but the file is missing. Add the file, or remove the row.",
                collection,
                name,
            )
    for name in sorted(files.keys() - entries):
        if files[name].name not in METADATA_FILES:
            yield LeftOut(name, _explain_file_without_entry(files[name]))


def _explain_file_without_entry(path: Path) -> str:
    if path.suffix.lower() in BOOK_FILES:
        return (
            f"no row of {' or '.join(METADATA_FILES)} has the date of this book. Add a row with 'file' and 'published'."
        )
    return _OTHER_FILE


def _read_book(
    name: str, path: Path, entry: BookEntry, collection: str, language: str, licence: str
) -> Iterator[FetchedItem]:
    try:
        whole = _read_book_file(path, entry)
    except OSError as error:
        yield MissingPart(name, f"the file cannot be read ({error.strerror or error})", collection, name)
    except UnusableDocumentError as unusable:
        yield LeftOut(name, str(unusable))
    else:
        yield from (LeftOut(f"{name}!{part}", reason) for part, reason in whole.problems)
        document = Document(
            collection=collection,
            name=name,
            title=whole.title or PurePosixPath(name).stem,
            text=whole.text,
            places=whole.places,
            published=None,
            language=language,
            licence=licence,
            url=path.resolve().as_uri(),
        )
        yield apply_entry(entry, document)


def apply_entry(entry: BookEntry, document: Document, author: str | None = None) -> Document:
    """Return a copy of the document with dates, title, author and other fields from its metadata entry.

    Args:
        entry: The entry. Its fields override those of the document. Dates and group always come from the entry.
        document: The document.
        author: The author if the entry has none.
    """
    title = entry.title or document.title
    author = entry.author or author
    if author:
        title = f"{title}, by {author}"
    return replace(
        document,
        title=title,
        published=entry.dating.published,
        language=entry.language or document.language,
        licence=entry.licence or document.licence,
        url=entry.url or document.url,
        group=f"books:{entry.group}" if entry.group else None,
        date_kind=DATE_KIND,
        earliest=entry.dating.earliest,
    )


def require_book_text(text: str) -> str:
    """Return the text of a book unchanged.

    Raises:
        UnusableDocumentError: If the text is empty or unreadable.
    """
    if not text.strip():
        raise UnusableDocumentError("the book has no text apart from front and back matter")
    problem = explain_invalid_unicode(text) or explain_illegible(text)
    if problem is not None:
        raise UnusableDocumentError(problem)
    return text


def decode_book_text(content: bytes, encoding: str = "utf-8") -> str:
    """Decode a .txt file without its byte-order mark. Lines end in line feeds.

    Args:
        content: The bytes.
        encoding: utf-8 or latin-1.

    Raises:
        UnusableDocumentError: If the file has another encoding or is binary.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnusableDocumentError("the file is in UTF-16. Save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise UnusableDocumentError(
            f"the file contains {describe_invalid_bytes(error)}. Save it as UTF-8, or enter latin-1 in the column "
            "'encoding' of "
            "its row."
        ) from error
    return clean_book_text(text)


def clean_book_text(text: str) -> str:
    """Return the text with line feeds as line ends.

    Raises:
        UnusableDocumentError: If the text contains a zero byte, so that the file is binary.
    """
    if "\x00" in text:
        raise UnusableDocumentError(
            f"the file contains a zero byte (after {text.index(chr(0))} characters), so it is not a text file"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _iterate_entries(
    files: Mapping[str, Path], collection: str
) -> Iterator[tuple[str, BookEntry] | MissingPart | LeftOut]:
    """Yield the entries of the metadata files, each with the name of its book's file."""
    locations: dict[str, str] = {}
    for name in sorted(files):
        if files[name].name not in METADATA_FILES:
            continue
        try:
            items = read_metadata(files[name], "file")
        except DataError as error:
            yield MissingPart(name, str(error), collection)
            continue
        for item in items:
            if isinstance(item, LeftOut):
                yield item
                continue
            path = PurePosixPath(item.key.replace("\\", "/"))
            described = (PurePosixPath(name).parent / path).as_posix()
            problem = None
            if path.is_absolute() or ".." in path.parts or not path.parts:
                problem = "the column 'file' must contain the path of a file below the folder of the metadata file"
            elif item.encoding is not None and item.encoding.lower() not in ENCODINGS:
                problem = f"the column 'encoding' must contain utf-8 or latin-1, not {item.encoding!r}"
            elif locations.setdefault(described, item.location) != item.location:
                problem = f"this row is skipped, because an earlier row describes the same file: {locations[described]}"
            if problem:
                yield LeftOut(f"{item.location} ({item.key})", problem)
            else:
                yield described, item


def _read_book_file(path: Path, entry: BookEntry) -> WholeDocument:
    """Read a book file, and return its text without front and back matter."""
    require_regular_file(path)
    if path.suffix.lower() == ".epub":
        try:
            whole = extract_book_text(read_epub(path))
        except EpubError as error:
            raise UnusableDocumentError(str(error)) from error
        require_book_text(whole.text)
        return whole
    if path.suffix.lower() != ".txt":
        raise UnusableDocumentError(_OTHER_FILE)
    text = decode_book_text(read_regular_file(path), ENCODINGS[(entry.encoding or "utf-8").lower()])
    whole = remove_front_and_back_matter(text)
    require_book_text(whole.text)
    return whole
