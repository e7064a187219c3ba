"""Books of the folder and of Project Gutenberg, one document per book.

Project Gutenberg: its catalogue, a selection of it, and the plain texts from a mirror. The catalogue's date is that of
the release at Project Gutenberg; a work's own date it does not have. Newer texts name the original publication in their
heads; of the others the year must come from the user, or they are left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.readers.dates import Dating, dating_from_years
from audit_pipeline.readers.whole_files.gutenberg_frame import find_gutenberg_head
from audit_pipeline.readers.whole_files.matter_pages import remove_front_and_back_matter
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.books.book_folder import (
    BookEntry,
    apply_entry,
    clean_book_text,
    fetch_folder,
    find_years,
    read_metadata,
    require_book_text,
)
from audit_pipeline.sources.books.source import NAME, BooksSettings, GutenbergSettings
from audit_pipeline.sources.web.polite_client import FetchedPage, FetchError, PoliteClient, Politeness
from audit_pipeline.tables import digest

LICENCE = "public domain in the USA (Project Gutenberg License)"
COPYRIGHTED = "in copyright, distributed by Project Gutenberg with permission"
# Project Gutenberg makes the catalogue once a day.
CATALOGUE_AGE = timedelta(days=1)

_ABSENT = frozenset((403, 404, 410))
_COLUMNS = ("Text#", "Type", "Title", "Language", "Authors", "Subjects", "Bookshelves")
_PAGE = "https://www.gutenberg.org/ebooks/{id}"
_ORIGINAL = re.compile(r"^Original publication:[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE | re.IGNORECASE)
_LIFE = re.compile(r",?\s*(?:\d{1,4}\??\s*(?:BCE?)?\s*-|-\s*\d{1,4}|active |approximately ).*\Z|\s*\[.*\Z")


@dataclass(frozen=True)
class CatalogueBook:
    """A row of the catalogue: a text, or of another ``kind`` (Sound, Dataset).

    Several languages, subjects and bookshelves are possible.
    """

    number: int
    kind: str
    title: str
    author: str | None
    languages: tuple[str, ...]
    subjects: tuple[str, ...]
    bookshelves: tuple[str, ...]


def fetch_gutenberg(
    settings: GutenbergSettings, client: PoliteClient, entries: Mapping[str, BookEntry]
) -> Iterator[FetchedItem]:
    """Yield the chosen books as documents, named by their numbers.

    ``entries`` (by number, as a text) come from the user's file of dates and go before what a text says of itself.
    """
    collection = settings.collection
    try:
        catalogue = list(read_catalogue(client.get(settings.catalogue, max_age=CATALOGUE_AGE).text()))
    except SourceError as error:
        yield MissingPart(f"{collection}: the catalogue", str(error), collection)
        return
    chosen, left_out = choose_books(catalogue, settings, entries.keys())
    yield from left_out
    for book in chosen:
        name = str(book.number)
        part = f"{collection} {name} ({book.title})"
        try:
            page = _fetch_text(client, book.number, (settings.mirror or "").rstrip("/"))
            yield from _build_items(book, page, entries.get(name), collection)
        except FetchError as error:
            yield MissingPart(part, str(error), collection, name)
        except (UnusableDocumentError, SourceError) as unusable:
            yield LeftOut(part, str(unusable))


def _fetch_text(client: PoliteClient, number: int, mirror: str) -> FetchedPage:
    """Return a book's text from where a mirror may keep it: the cache, then the folders of the old layout (1342 in
    1/3/4); other addresses are not tried where the library gives no answer."""
    folder = f"{mirror}/{'/'.join(str(number)[:-1]) or '0'}/{number}/{number}"
    for address in (f"{mirror}/cache/epub/{number}/pg{number}.txt", f"{folder}-0.txt"):
        try:
            return client.get(address)
        except FetchError as error:
            if error.status not in _ABSENT:
                raise
    return client.get(f"{folder}.txt")


def read_catalogue(text: str) -> Iterator[CatalogueBook | LeftOut]:
    """Yield the rows of pg_catalog.csv, also those that cannot be read; raises SourceError for another file."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    absent = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if absent:
        raise SourceError(f"this is not the catalogue of Project Gutenberg: it has no column {', '.join(absent)}")
    try:
        for row in reader:
            if None in row or None in row.values() or not re.fullmatch(r"[0-9]{1,9}", row["Text#"].strip()):
                fields = ", ".join(filter(None, row.values()))[:80]
                yield LeftOut(f"pg_catalog.csv:{reader.line_num}", f"not a row of the catalogue: {fields}")
            else:
                yield _catalogue_book(row)
    except csv.Error as error:
        raise SourceError(f"the catalogue of Project Gutenberg cannot be read: {error}") from error


def _catalogue_book(row: Mapping[str, str]) -> CatalogueBook:
    return CatalogueBook(
        number=int(row["Text#"]),
        kind=row["Type"].strip(),
        title=" ".join(row["Title"].split()) or f"Project Gutenberg {row['Text#'].strip()}",
        # ``Austen, Jane, 1775-1817`` without the years of life and the role.
        author=_LIFE.sub("", next(iter(_split_field(row["Authors"])), "")).strip(" ,") or None,
        languages=_split_field(row["Language"]),
        subjects=_split_field(row["Subjects"]),
        bookshelves=_split_field(row["Bookshelves"]),
    )


def _split_field(field: str) -> tuple[str, ...]:
    return tuple(part for part in (" ".join(piece.split()) for piece in field.split(";")) if part)


def choose_books(
    catalogue: Iterable[CatalogueBook | LeftOut], settings: GutenbergSettings, dated_numbers: Container[str] = ()
) -> tuple[list[CatalogueBook], list[LeftOut]]:
    """Return the books to fetch, at most ``settings.limit``, and what of catalogue and list is left out, with reasons.

    With ``ids`` those, in their order. Else the books of one of the languages, one of the subjects and one of the
    bookshelves (parts of their names do, capitals do not count; none set means any): first those that ``dated_numbers``
    names, then the others in an order that depends on their numbers alone, so that a growing catalogue changes little.
    """
    left_out: list[LeftOut] = []
    books: dict[int, CatalogueBook] = {}
    for row in catalogue:
        if isinstance(row, LeftOut):
            left_out.append(row)
        else:
            books.setdefault(row.number, row)
    fitting: list[CatalogueBook] = []
    if settings.ids:
        for number in dict.fromkeys(settings.ids):
            book = books.get(number)
            if book is not None and book.kind == "Text":
                fitting.append(book)
            else:
                reason = f"no text but: {book.kind}" if book else "not in the catalogue"
                left_out.append(LeftOut(f"{settings.collection} {number}", reason))
    else:
        fitting = [
            book
            for book in books.values()
            if book.kind == "Text"
            and (not settings.languages or set(book.languages) & set(settings.languages))
            and _has_selected_name(book.subjects, settings.subjects)
            and _has_selected_name(book.bookshelves, settings.bookshelves)
        ]
        fitting.sort(key=lambda book: (str(book.number) not in dated_numbers, digest("gutenberg", book.number)))
    if len(fitting) > settings.limit:
        reason = f"{len(fitting) - settings.limit} more books fit; books.gutenberg.limit is {settings.limit}"
        left_out.append(LeftOut(f"{settings.collection}: the catalogue", reason))
    return fitting[: settings.limit], left_out


def _has_selected_name(names: Iterable[str], selected: Sequence[str]) -> bool:
    return not selected or any(part.lower() in name.lower() for name in names for part in selected)


def dating_from_gutenberg_text(text: str) -> Dating | None:
    """Return when the work came out, as the head of a text says in its line ``Original publication:``; None without
    one.

    The line names place, publisher and year. Of several years (a reprint) the first and the last bound the dating.
    """
    line = _ORIGINAL.search(find_gutenberg_head(text))
    return dating_from_years(find_years(line[1])) if line else None


def _build_items(
    book: CatalogueBook, page: FetchedPage, entry: BookEntry | None, collection: str
) -> Iterator[FetchedItem]:
    """Yield the book, and what of its text is left out."""
    text = clean_book_text(page.text())
    dating = entry.dating if entry is not None else dating_from_gutenberg_text(text)
    if dating is None:
        raise UnusableDocumentError(
            "its text does not say when the work was first published; give the year in the file books.dates"
        )
    name = str(book.number)
    copyrighted = "copyrighted project gutenberg" in find_gutenberg_head(text).lower()
    whole = remove_front_and_back_matter(text)
    document = Document(
        collection=collection,
        name=name,
        title=book.title,
        text=require_book_text(whole.text),
        places=whole.places,
        published=None,
        language=next(iter(book.languages), "und"),
        licence=COPYRIGHTED if copyrighted else LICENCE,
        url=_PAGE.format(id=book.number),
    )
    yield apply_entry(entry or BookEntry(location="", key=name, dating=dating), document, book.author)
    yield from (LeftOut(f"{collection} {name}!{part}", reason) for part, reason in whole.problems)


def fetch_documents(settings: BooksSettings, downloads: Path) -> Iterator[FetchedItem]:
    """Yield the books of the folder and of the library that are set; answers are kept below ``downloads``.

    ``published`` is the last day on which the work can have come out first, ``earliest`` the first one where only the
    year or the month is known. With a broken file of dates the library is not asked, and its earlier documents stay.
    """
    if settings.folder is not None:
        yield from fetch_folder(settings.folder, settings.collection, settings.language, settings.licence)
    library = settings.gutenberg
    if library.mirror is None:
        return
    try:
        dated = [] if settings.dates is None else read_metadata(settings.dates, "id")
    except DataError as error:
        yield MissingPart(f"{library.collection}: the dates", str(error), library.collection)
        return
    yield from (row for row in dated if isinstance(row, LeftOut))
    entries = {row.key: row for row in dated if isinstance(row, BookEntry)}
    with PoliteClient(downloads / NAME, Politeness(settings.contact or "", library.seconds_between)) as client:
        yield from fetch_gutenberg(library, client, entries)
