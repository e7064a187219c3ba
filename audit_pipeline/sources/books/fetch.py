"""Fetching of books from the user's folder and from Project Gutenberg: one document per book.

For Project Gutenberg the steps are: read the catalogue, select books, and fetch plain texts from a mirror. The
catalogue contains the date of release by Project Gutenberg, but not the date of the work. The header of newer texts
names the original publication. For other texts the user must supply the year (``books.dates``). Texts without a year
are skipped.
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
from audit_pipeline.readers.dates import Dating, build_dating_from_years
from audit_pipeline.readers.whole_files.gutenberg_frame import find_gutenberg_head
from audit_pipeline.readers.whole_files.matter_pages import remove_front_and_back_matter
from audit_pipeline.sources.base import Document, FetchedItem, FetchError, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.books import book_folder
from audit_pipeline.sources.books.source import NAME, BooksSettings, GutenbergSettings
from audit_pipeline.sources.web.polite_client import FetchedPage, PoliteClient, Politeness
from audit_pipeline.tables import digest

LICENCE = "public domain in the USA (Project Gutenberg License)"
COPYRIGHTED = "in copyright, distributed by Project Gutenberg with permission"
# Project Gutenberg updates the catalogue once a day.
CATALOGUE_AGE = timedelta(days=1)

_ABSENT = frozenset((403, 404, 410))
_COLUMNS = ("Text#", "Type", "Title", "Language", "Authors", "Subjects", "Bookshelves")
_PAGE = "https://www.gutenberg.org/ebooks/{id}"
_ORIGINAL = re.compile(r"^Original publication:[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE | re.IGNORECASE)
_YEARS_AND_ROLE = re.compile(r",?\s*(?:\d{1,4}\??\s*(?:BCE?)?\s*-|-\s*\d{1,4}|active |approximately ).*\Z|\s*\[.*\Z")


@dataclass(frozen=True)
class CatalogueBook:
    """A row of Project Gutenberg's catalogue.

    Attributes:
        number: The number of the book.
        kind: The kind, such as Text, Sound or Dataset.
        title: The title.
        author: The first author, or None.
        languages: Its languages.
        subjects: Its subjects.
        bookshelves: Its bookshelves.
    """

    number: int
    kind: str
    title: str
    author: str | None
    languages: tuple[str, ...]
    subjects: tuple[str, ...]
    bookshelves: tuple[str, ...]


def fetch_gutenberg(
    settings: GutenbergSettings, client: PoliteClient, entries: Mapping[str, book_folder.BookEntry]
) -> Iterator[FetchedItem]:
    """Yield the selected books of Project Gutenberg as documents. The name of a document is the number of the book.

    Args:
        settings: The settings for Project Gutenberg.
        client: The client.
        entries: The entries of the user's file of dates, by number of the book. They override the date in a text.
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
    """Fetch a book's text from the first existing address of a mirror.

    The first address is in the mirror's cache. Two more addresses are in the folders of the old layout, in which the
    book 1342 is in 1/3/4/1342. The next address is tried only if the server reports that the file is missing.
    """
    folder = f"{mirror}/{'/'.join(str(number)[:-1]) or '0'}/{number}/{number}"
    for address in (f"{mirror}/cache/epub/{number}/pg{number}.txt", f"{folder}-0.txt"):
        try:
            return client.get(address)
        except FetchError as error:
            if error.status not in _ABSENT:
                raise
    return client.get(f"{folder}.txt")


def read_catalogue(text: str) -> Iterator[CatalogueBook | LeftOut]:
    """Yield the rows of pg_catalog.csv. Unreadable rows are skipped with the reason.

    Raises:
        SourceError: If the text is not the catalogue.
    """
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    missing_columns = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if missing_columns:
        listed = ", ".join(missing_columns)
        raise SourceError(
            f"the catalogue of Project Gutenberg lacks these columns: {listed}. Check books.gutenberg.catalogue in "
            "config/sources.yaml."
        )
    try:
        for row in reader:
            if None in row or None in row.values() or not re.fullmatch(r"[0-9]{1,9}", row["Text#"].strip()):
                fields = ", ".join(filter(None, row.values()))[:80]
                yield LeftOut(
                    f"pg_catalog.csv:{reader.line_num}",
                    f"the row has a wrong number of fields or no book number: {fields}",
                )
            else:
                yield _build_catalogue_book(row)
    except csv.Error as error:
        raise SourceError(f"the catalogue of Project Gutenberg cannot be read: {error}") from error


def _build_catalogue_book(row: Mapping[str, str]) -> CatalogueBook:
    return CatalogueBook(
        number=int(row["Text#"]),
        kind=row["Type"].strip(),
        title=" ".join(row["Title"].split()) or f"Project Gutenberg {row['Text#'].strip()}",
        # Years and role are removed from fields such as ``Austen, Jane, 1775-1817``.
        author=_YEARS_AND_ROLE.sub("", next(iter(_split_catalogue_field(row["Authors"])), "")).strip(" ,") or None,
        languages=_split_catalogue_field(row["Language"]),
        subjects=_split_catalogue_field(row["Subjects"]),
        bookshelves=_split_catalogue_field(row["Bookshelves"]),
    )


def _split_catalogue_field(field: str) -> tuple[str, ...]:
    parts = [" ".join(part.split()) for part in field.split(";")]
    return tuple(filter(None, parts))


def choose_books(
    catalogue: Iterable[CatalogueBook | LeftOut], settings: GutenbergSettings, dated_numbers: Container[str] = ()
) -> tuple[list[CatalogueBook], list[LeftOut]]:
    """Select the books to fetch.

    If ``settings.ids`` is set, the result contains these books in their order. Otherwise it contains the books with at
    least one of the languages, one of the subjects and one of the bookshelves. Books in the file of dates come first.
    Apart from that, the order depends only on the numbers of the books, so that a growing catalogue changes little.

    Args:
        catalogue: The catalogue.
        settings: The settings for Project Gutenberg.
        dated_numbers: The numbers of the books in the user's file of dates.

    Returns:
        At most ``settings.limit`` books, and the skipped rows and books with reasons.
    """
    left_out: list[LeftOut] = []
    books: dict[int, CatalogueBook] = {}
    for row in catalogue:
        if isinstance(row, LeftOut):
            left_out.append(row)
        else:
            books.setdefault(row.number, row)
    selected: list[CatalogueBook] = []
    if settings.ids:
        for number in dict.fromkeys(settings.ids):
            book = books.get(number)
            if book is not None and book.kind == "Text":
                selected.append(book)
            else:
                reason = "the catalogue contains no book with this number"
                if book is not None:
                    reason = f"the kind of this book is {book.kind}, but only the kind Text can be read"
                left_out.append(LeftOut(f"{settings.collection} {number}", reason))
    else:
        selected = [book for book in books.values() if _is_selected(book, settings)]
        selected.sort(key=lambda book: (str(book.number) not in dated_numbers, digest("gutenberg", book.number)))
    if len(selected) > settings.limit:
        reason = f"{len(selected) - settings.limit} more books match, but books.gutenberg.limit is {settings.limit}"
        left_out.append(LeftOut(f"{settings.collection}: the catalogue", reason))
    return selected[: settings.limit], left_out


def _is_selected(book: CatalogueBook, settings: GutenbergSettings) -> bool:
    if book.kind != "Text":
        return False
    if settings.languages and not set(book.languages) & set(settings.languages):
        return False
    has_subject = _contains_any_selected(book.subjects, settings.subjects)
    return has_subject and _contains_any_selected(book.bookshelves, settings.bookshelves)


def _contains_any_selected(names: Iterable[str], selected: Sequence[str]) -> bool:
    """Return True if a name contains one of the selected texts, ignoring case, or if no text is selected."""
    return not selected or any(part.lower() in name.lower() for name in names for part in selected)


def parse_gutenberg_dating(text: str) -> Dating | None:
    """Parse the date of the work in the line ``Original publication:`` of a text's header.

    The line names place, publisher and year. If it contains several years, the interval covers all of them.

    Returns:
        The interval of days, or None if there is no such line or no year in it.
    """
    line = _ORIGINAL.search(find_gutenberg_head(text))
    if line is None:
        return None
    return build_dating_from_years(book_folder.find_years(line[1]))


def _build_items(
    book: CatalogueBook, page: FetchedPage, entry: book_folder.BookEntry | None, collection: str
) -> Iterator[FetchedItem]:
    """Yield the book, and the skipped parts of its text."""
    text = book_folder.clean_book_text(page.text())
    dating = entry.dating if entry is not None else parse_gutenberg_dating(text)
    if dating is None:
        raise UnusableDocumentError(
            "the header of the text has no year of first publication. Add the year to the file that books.dates names."
        )
    name = str(book.number)
    is_copyrighted = "copyrighted project gutenberg" in find_gutenberg_head(text).lower()
    whole = remove_front_and_back_matter(text)
    document = Document(
        collection=collection,
        name=name,
        title=book.title,
        text=book_folder.require_book_text(whole.text),
        places=whole.places,
        published=None,
        language=next(iter(book.languages), "und"),
        licence=COPYRIGHTED if is_copyrighted else LICENCE,
        url=_PAGE.format(id=book.number),
    )
    yield book_folder.apply_entry(
        entry or book_folder.BookEntry(location="", key=name, dating=dating), document, book.author
    )
    yield from (LeftOut(f"{collection} {name}!{part}", reason) for part, reason in whole.problems)


def fetch_documents(settings: BooksSettings, downloads: Path) -> Iterator[FetchedItem]:
    """Yield the books of the user's folder and of Project Gutenberg.

    ``published`` is the last possible day of the first publication. ``earliest`` is the first possible day if only the
    year or the month is known. If the file of dates is broken, no book of Project Gutenberg is fetched, and the stored
    documents stay.

    Args:
        settings: The settings of the source.
        downloads: The folder of stored responses.
    """
    if settings.folder is not None:
        yield from book_folder.fetch_folder(settings.folder, settings.collection, settings.language, settings.licence)
    library = settings.gutenberg
    if library.mirror is None:
        return
    try:
        dated = []
        if settings.dates is not None:
            dated = book_folder.read_metadata(settings.dates, "id")
    except DataError as error:
        yield MissingPart(f"{library.collection}: the file of dates", str(error), library.collection)
        return
    yield from (row for row in dated if isinstance(row, LeftOut))
    entries = {row.key: row for row in dated if isinstance(row, book_folder.BookEntry)}
    with PoliteClient(downloads / NAME, Politeness(settings.contact or "", library.seconds_between)) as client:
        yield from fetch_gutenberg(library, client, entries)
