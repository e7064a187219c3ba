"""Books in a folder: .txt and .epub files, and the books.csv or books.jsonl next to them that says when they came out.

A folder may hold folders; each may have its own metadata file, whose entries name files from there on down.

A book whose year alone is known may have come out on any day of it. ``published`` is then the last day, so that it is a
member only where the whole year lies before the cutoff, and ``earliest`` the first, so that it is a non-member only
where the whole year lies after it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from audit_pipeline.errors import DataError
from audit_pipeline.readers.dates import DATE_ADVICE, Dating, UnreadableDateError, parse_dating
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.regular_files import read_regular_file, require_regular_file
from audit_pipeline.readers.text_rows import UnusableRowError, explain_invalid_unicode, read_name
from audit_pipeline.readers.whole_files.book_matter import extract_book_text
from audit_pipeline.readers.whole_files.document import WholeDocument
from audit_pipeline.readers.whole_files.epub import EpubError, read_epub
from audit_pipeline.readers.whole_files.legible import explain_illegible
from audit_pipeline.readers.whole_files.matter_pages import remove_front_and_back_matter
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.folder_files import walk_files

METADATA_FILES = ("books.csv", "books.jsonl")
BOOK_FILES = (".txt", ".epub")
DATE_KIND = "first publication"
ENCODINGS = {"utf-8": "utf-8", "utf8": "utf-8", "latin-1": "latin-1", "latin1": "latin-1", "iso-8859-1": "latin-1"}
COLUMNS = ("title", "author", "published", "language", "licence", "url", "group", "encoding")

_OTHER_FILE = f"not one of {', '.join(BOOK_FILES)}"
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_YEAR_IN_PROSE = re.compile(r"(?<!\d)(?<!\d[.,])(?<![£$])(?:1[0-9]|20)\d\d(?![\d%]|,\d)")


@dataclass(frozen=True)
class BookEntry:
    """One row of a metadata file; ``key`` is the file's name as written there, or the catalogue's number."""

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
    """Return the years 1000 to 2099 in ``prose``, in its order; a range such as 1851-53 gives its last year too."""
    years: list[int] = []
    for match in _YEAR_IN_PROSE.finditer(prose):
        years.append(int(match.group()))
        short = re.match(r"\s?[-–/](\d\d)(?!\d)", prose[match.end() :])
        if short:
            last = years[-1] // 100 * 100 + int(short[1])
            years += [last] if last > years[-1] else []
    return years


def read_metadata(path: Path, key_column: str) -> list[BookEntry | LeftOut]:
    """Return the entries of a metadata file (.csv or .jsonl), and the rows that cannot be used, with the reason.

    ``key_column`` holds what a row is about (``file``, or ``id`` of a catalogue); the others are in COLUMNS, and only
    ``published`` must be filled in. Other columns are ignored. Of two rows with the same key the first holds.
    Raises DataError if the file cannot be read at all.
    """
    file = read_rows(path)
    entries: dict[str, BookEntry] = {}
    left_out = [LeftOut(skipped.location, skipped.reason) for skipped in file.skipped]
    for row in file.rows:
        try:
            entry = _parse_entry(row.location, row.values, key_column)
            first = entries.setdefault(entry.key, entry)
            if first is not entry:
                raise UnusableDocumentError(f"described before, at {first.location}, which holds")
        except (UnusableDocumentError, UnusableRowError) as unusable:
            key = row.values.get(key_column)
            part = f"{row.location} ({key})" if isinstance(key, str | int) and str(key).strip() else row.location
            left_out.append(LeftOut(part, str(unusable)))
    return [*entries.values(), *left_out]


def _parse_entry(location: str, values: Mapping[str, object], key_column: str) -> BookEntry:
    key = (read_name(values, key_column) or "").strip()
    if not key:
        raise UnusableDocumentError(f"column '{key_column}' is empty")
    try:
        dating = parse_dating(values.get("published"))
    except UnreadableDateError as error:
        raise UnusableDocumentError(f"'published': {error}. {DATE_ADVICE}") from error
    if dating is None:
        raise UnusableDocumentError("no date of first publication; fill in 'published'")
    found = {column: read_name(values, column) for column in COLUMNS if column != "published"}
    labels = {column: name.strip() if name is not None else None for column, name in found.items()}
    language = labels["language"]
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise UnusableDocumentError(f"'language' is not an ISO 639 code such as en: {language!r}")
    return BookEntry(location=location, key=key, dating=dating, **labels)


def fetch_folder(folder: Path, collection: str, language: str, licence: str) -> Iterator[FetchedItem]:
    """Yield the books below ``folder`` as documents of ``collection``, named by their paths.

    ``language`` and ``licence`` hold where an entry has none. A file without an entry is left out, since nothing says
    when it was published; an entry without a file is missing. Hidden files and links out of the folder are not read.
    """
    if not folder.is_dir():
        yield MissingPart(collection, f"{folder}: no such folder", collection)
        return
    found = list(walk_files(folder))
    files = {name: path for name, path, problem in found if problem is None}
    yield from (LeftOut(name, problem) for name, _, problem in found if problem is not None)
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
            yield MissingPart(name, f"{entry.location} describes it, but there is no such file", collection, name)
    for name in sorted(files.keys() - entries):
        if files[name].suffix.lower() in BOOK_FILES:
            yield LeftOut(name, f"no entry in {' or '.join(METADATA_FILES)} says when it was published")
        elif files[name].name not in METADATA_FILES:
            yield LeftOut(name, _OTHER_FILE)


def _read_book(
    name: str, path: Path, entry: BookEntry, collection: str, language: str, licence: str
) -> Iterator[FetchedItem]:
    try:
        whole = _read_book_file(path, entry)
    except OSError as error:
        yield MissingPart(name, f"cannot be read ({error.strerror or error})", collection, name)
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
    """Return the book with what its ``entry`` says, which goes before what ``document`` and ``author`` say.

    Dates and group are the entry's; without a group it is one of its own.
    """
    title, author = entry.title or document.title, entry.author or author
    return replace(
        document,
        title=f"{title}, by {author}" if author else title,
        published=entry.dating.published,
        language=entry.language or document.language,
        licence=entry.licence or document.licence,
        url=entry.url or document.url,
        group=f"books:{entry.group}" if entry.group else None,
        date_kind=DATE_KIND,
        earliest=entry.dating.earliest,
    )


def require_book_text(text: str) -> str:
    """``text``; raises UnusableDocumentError where nothing is left of a book, or what is left is no text."""
    if not text.strip():
        raise UnusableDocumentError("no text is left once front and back matter are gone")
    problem = explain_invalid_unicode(text) or explain_illegible(text)
    if problem is not None:
        raise UnusableDocumentError(problem)
    return text


def decode_book_text(content: bytes, encoding: str = "utf-8") -> str:
    """The text of a book's .txt; a byte-order mark goes, lines end in \\n.

    ``encoding`` is utf-8 or latin-1; raises UnusableDocumentError, naming the byte, for a file that is in another.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnusableDocumentError("in UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise UnusableDocumentError(
            f"invalid UTF-8 at byte {error.start}; save it as UTF-8, or say latin-1 in the column 'encoding'"
        ) from error
    return clean_book_text(text)


def clean_book_text(text: str) -> str:
    """``text`` with lines that end in \\n; raises UnusableDocumentError where a zero byte shows that it is none."""
    if "\x00" in text:
        raise UnusableDocumentError(f"a zero byte at character {text.index(chr(0))}: not a text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _iterate_entries(
    files: Mapping[str, Path], collection: str
) -> Iterator[tuple[str, BookEntry] | MissingPart | LeftOut]:
    """Yield what the metadata files say, with the name of the file that it is about."""
    locations: dict[str, str] = {}
    for name in sorted(name for name, path in files.items() if path.name in METADATA_FILES):
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
                problem = "'file' does not name a file in the folder of the metadata file or below it"
            elif item.encoding is not None and item.encoding.lower() not in ENCODINGS:
                problem = f"'encoding' must be utf-8 or latin-1, not {item.encoding!r}"
            elif locations.setdefault(described, item.location) != item.location:
                problem = f"described before, at {locations[described]}"
            yield LeftOut(f"{item.location} ({item.key})", problem) if problem else (described, item)


def _read_book_file(path: Path, entry: BookEntry) -> WholeDocument:
    """Return the book without front and back matter."""
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
