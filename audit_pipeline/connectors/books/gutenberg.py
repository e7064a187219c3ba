"""Books of Project Gutenberg: its catalogue, a selection of it, and the plain texts from a mirror.

The catalogue's date is that of the release at Project Gutenberg; a work's own date it does not have. Newer texts name
the original publication in their heads; of the others the year must come from the user, or they are left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.connectors.books.files import (
    BookEntry,
    Dating,
    UnusableBookError,
    book_document,
    clean_book_text,
    dating_from_years,
    require_book_text,
    years_in,
)
from audit_pipeline.connectors.books.source import GutenbergSettings
from audit_pipeline.connectors.polite_client import FetchedPage, FetchError, PoliteClient
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart
from audit_pipeline.whole_files.book_matter import gutenberg_head, remove_book_matter
from audit_pipeline.whole_files.places import NO_LINES

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
    """A text in the catalogue; several languages, subjects and bookshelves are possible."""

    number: int
    title: str
    author: str | None
    languages: tuple[str, ...]
    subjects: tuple[str, ...]
    bookshelves: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """The texts by number, the rows that cannot be read, and what the numbers of other kinds are (Sound, Dataset)."""

    books: Mapping[int, CatalogueBook]
    left_out: tuple[LeftOut, ...]
    other_kinds: Mapping[int, str]


def harvest_gutenberg(
    settings: GutenbergSettings, client: PoliteClient, entries: Mapping[str, BookEntry] | None = None
) -> Harvest:
    """Return the chosen books as documents, named by their numbers.

    ``entries`` (by number, as a text) come from the user's file of dates and go before what a text says of itself.
    """
    entries = entries or {}
    collection = settings.collection
    try:
        catalogue = read_catalogue(client.get(settings.catalogue, max_age=CATALOGUE_AGE).text())
    except SourceError as error:
        return Harvest((), (MissingPart(f"{collection}: the catalogue", str(error), collection),))
    chosen, not_chosen = choose_books(catalogue, settings, frozenset(entries))
    documents: list[Document] = []
    missing: list[MissingPart] = []
    left_out = [*catalogue.left_out, *not_chosen]
    for book in chosen:
        name = str(book.number)
        part = f"{collection} {name} ({book.title})"
        try:
            page = _fetch_first_page(client, list_mirror_addresses(book.number, settings))
            documents.append(_document(book, page, entries.get(name), collection))
        except FetchError as error:
            missing.append(MissingPart(part, str(error), collection, name))
        except (UnusableBookError, SourceError) as unusable:
            left_out.append(LeftOut(part, str(unusable)))
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def _fetch_first_page(client: PoliteClient, addresses: Sequence[str]) -> FetchedPage:
    """The first page there is; other addresses are not tried where the library gives no answer."""
    *others, last = addresses
    for address in others:
        try:
            return client.get(address)
        except FetchError as error:
            if error.status not in _ABSENT:
                raise
    return client.get(last)


def read_catalogue(text: str) -> Catalogue:
    """What pg_catalog.csv holds; raises SourceError where it is not that file."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise SourceError(f"the catalogue of Project Gutenberg cannot be read: {error}") from error
    absent = [column for column in _COLUMNS if column not in header]
    if absent:
        raise SourceError(f"this is not the catalogue of Project Gutenberg: it has no column {', '.join(absent)}")
    books: dict[int, CatalogueBook] = {}
    left_out: list[LeftOut] = []
    other_kinds: dict[int, str] = {}
    while True:
        place = f"pg_catalog.csv:{reader.line_num + 1}"
        try:
            record = next(reader)
        except StopIteration:
            return Catalogue(books, tuple(left_out), other_kinds)
        except csv.Error as error:
            left_out.append(LeftOut(place, f"broken CSV: {error}"))
            continue
        if not record:
            continue
        row = dict(zip(header, record, strict=False))
        if len(record) != len(header) or not re.fullmatch(r"[0-9]{1,9}", row["Text#"].strip()):
            left_out.append(LeftOut(place, f"not a row of the catalogue: {', '.join(record)[:80]}"))
        elif row["Type"].strip() != "Text":
            other_kinds[int(row["Text#"])] = row["Type"].strip()
        else:
            book = _catalogue_book(row)
            books.setdefault(book.number, book)


def _catalogue_book(row: Mapping[str, str]) -> CatalogueBook:
    return CatalogueBook(
        number=int(row["Text#"]),
        title=" ".join(row["Title"].split()) or f"Project Gutenberg {row['Text#'].strip()}",
        author=_remove_life_years(next(iter(_split_field(row["Authors"])), None)),
        languages=_split_field(row["Language"]),
        subjects=_split_field(row["Subjects"]),
        bookshelves=_split_field(row["Bookshelves"]),
    )


def _split_field(field: str) -> tuple[str, ...]:
    return tuple(part for part in (" ".join(piece.split()) for piece in field.split(";")) if part)


def _remove_life_years(name: str | None) -> str | None:
    """``Austen, Jane, 1775-1817`` without the years of life and the role."""
    return (_LIFE.sub("", name).strip(" ,") or None) if name else None


def choose_books(
    catalogue: Catalogue, settings: GutenbergSettings, dated_numbers: frozenset[str] = frozenset()
) -> tuple[list[CatalogueBook], list[LeftOut]]:
    """Return the books to fetch, at most ``settings.limit``, and the reasons for the other selected ones.

    With ``ids`` those, in their order. Else the books of one of the languages, one of the subjects and one of the
    bookshelves (parts of their names do, capitals do not count; none set means any): first those that ``dated_numbers``
    names, then the others in an order that depends on their numbers alone, so that a growing catalogue changes little.
    """
    left_out: list[LeftOut] = []
    if settings.ids:
        fitting = [catalogue.books[number] for number in dict.fromkeys(settings.ids) if number in catalogue.books]
        for number in dict.fromkeys(settings.ids):
            if number not in catalogue.books:
                kind = catalogue.other_kinds.get(number)
                reason = f"no text but: {kind}" if kind else "not in the catalogue"
                left_out.append(LeftOut(f"{settings.collection} {number}", reason))
    else:
        fitting = [
            book
            for book in catalogue.books.values()
            if (not settings.languages or set(book.languages) & set(settings.languages))
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


def list_mirror_addresses(number: int, settings: GutenbergSettings) -> list[str]:
    """Where a mirror may keep the text of a book, in the order of ``settings.files``."""
    digits = str(number)
    folders = "/".join(digits[:-1]) or "0"
    base = (settings.mirror or "").rstrip("/")
    return [
        f"{base}/{pattern.lstrip('/').replace('{folders}', folders).replace('{id}', digits)}"
        for pattern in settings.files
    ]


def dating_from_gutenberg_text(text: str) -> Dating | None:
    """When the work came out, as the head of a text says in its line ``Original publication:``; None without one.

    The line names place, publisher and year. Of several years (a reprint) the first and the last bound the dating.
    """
    line = _ORIGINAL.search(gutenberg_head(text))
    return dating_from_years(years_in(line[1])) if line else None


def _document(book: CatalogueBook, page: FetchedPage, entry: BookEntry | None, collection: str) -> Document:
    text = clean_book_text(page.text())
    dating = entry.dating if entry is not None else dating_from_gutenberg_text(text)
    if dating is None:
        raise UnusableBookError(
            "its text does not say when the work was first published; give the year in the file books.dates"
        )
    name = str(book.number)
    copyrighted = "copyrighted project gutenberg" in gutenberg_head(text).lower()
    return book_document(
        entry or BookEntry(location="", key=name, dating=dating),
        collection=collection,
        name=name,
        title=book.title,
        author=book.author,
        text=require_book_text(remove_book_matter(text)),
        places=NO_LINES,
        language=next(iter(book.languages), "und"),
        licence=COPYRIGHTED if copyrighted else LICENCE,
        url=_PAGE.format(id=book.number),
    )
