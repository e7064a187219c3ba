"""Books of Standard Ebooks: a feed (Atom or OPDS) or a list of ids, and the EPUBs they lead to.

The dates in feeds and in a book's metadata are those of the ebook. When the work came out is in the colophon, in
prose: "was published in 1817 by".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urljoin, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.whole_files.book_matter import epub_text
from audit_pipeline.readers.whole_files.document import WholeDocument
from audit_pipeline.readers.whole_files.epub import Epub, EpubError, read_epub
from audit_pipeline.readers.whole_files.prose import prose
from audit_pipeline.sources.base import Document, HarvestItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.books.book_folder import (
    BookEntry,
    Dating,
    book_document,
    dating_from_years,
    require_book_text,
    years_in,
)
from audit_pipeline.sources.books.source import StandardEbooksSettings
from audit_pipeline.sources.web.polite_client import FetchError, PoliteClient

LICENCE = "public domain text in the USA; edition CC0-1.0"
FEED_AGE = timedelta(days=1)

_EPUB_TYPE = "application/epub+zip"
_BOOK_PATH = "/ebooks/"
_CLOSED = (
    "; the feeds of all books are open to members of its Patrons Circle: use the open feed of new releases, "
    "books.standard_ebooks.ids, or unpack a bulk download into books.folder"
)
_STATEMENT = re.compile(r"\b(?:published|completed|written|compiled|translated|composed|serialized|performed)\b", re.I)
_STATEMENT_END = re.compile(r"\bthis (?:ebook|edition)\b|\bthe cover page\b", re.I)


@dataclass(frozen=True)
class FeedBook:
    """A book in a feed: its id (jane-austen/persuasion), title, first author, and where its EPUB lies."""

    identity: str
    title: str | None
    author: str | None
    epub: str


@dataclass(frozen=True)
class Feed:
    """One page of a feed: its books, entries that cannot be used, and the address of the next page."""

    books: tuple[FeedBook, ...]
    left_out: tuple[LeftOut, ...]
    following: str | None


def harvest_standard_ebooks(
    settings: StandardEbooksSettings, client: PoliteClient, entries: Mapping[str, BookEntry]
) -> Iterator[HarvestItem]:
    """Yield the listed books and those of the feed, at most ``settings.limit``, as documents named by their ids.

    ``entries`` (by id) come from the user's file of dates and go before what a colophon says.
    """
    collection = settings.collection
    found = {identity: FeedBook(identity, None, None, epub_address(identity, settings)) for identity in settings.ids}
    for item in _iterate_feed(settings, client):
        if isinstance(item, FeedBook):
            found.setdefault(item.identity, item)
        else:
            yield item
    if len(found) > settings.limit:
        over = f"{len(found) - settings.limit} more books are listed; books.standard_ebooks.limit is {settings.limit}"
        yield LeftOut(collection, over)
    for book in list(found.values())[: settings.limit]:
        part = f"{collection} {book.identity}"
        try:
            epub = read_epub(client.get(book.epub).content)
            whole = epub_text(epub)
            yield _document(book, epub, whole, entries.get(book.identity), settings)
        except FetchError as error:
            yield MissingPart(part, str(error), collection, book.identity)
        except (EpubError, UnusableDocumentError) as error:
            yield LeftOut(part, str(error))
        else:
            yield from (LeftOut(f"{part}!{path}", reason) for path, reason in whole.problems)


def _iterate_feed(settings: StandardEbooksSettings, client: PoliteClient) -> Iterator[FeedBook | MissingPart | LeftOut]:
    """Yield the books of the feed, page by page until there are enough, and what of it cannot be used."""
    address, seen, n_books = settings.feed, set[str](), 0
    while address is not None and address not in seen and n_books < settings.limit:
        seen.add(address)
        try:
            page = client.get(address, max_age=FEED_AGE)
            feed = read_feed(page.content, page.url, settings)
        except SourceError as error:
            advice = _CLOSED if isinstance(error, FetchError) and error.status in {401, 403} else ""
            yield MissingPart(f"{settings.collection}: the feed", f"{error}{advice}", settings.collection)
            return
        yield from feed.books
        yield from feed.left_out
        n_books += len(feed.books)
        address = feed.following


def read_feed(content: bytes, address: str, settings: StandardEbooksSettings) -> Feed:
    """Return the books of one page of an Atom or OPDS feed that was fetched from ``address``.

    Of a book's EPUBs the compatible one is taken, not the advanced. Raises SourceError where it is not such a feed.
    """
    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except DefusedXmlException as error:
        raise SourceError(f"{address}: a feed that defines entities is not read") from error
    except (ParseError, ValueError, LookupError) as error:
        raise SourceError(f"{address}: not a feed that can be read ({error})") from error
    if _local_name(root) != "feed":
        raise SourceError(f"{address}: not an Atom or OPDS feed but <{_local_name(root)}>")
    hosts = {urlsplit(place).netloc for place in (settings.site, address)}
    books: list[FeedBook] = []
    left_out: list[LeftOut] = []
    for entry in (child for child in root if _local_name(child) == "entry"):
        identity = _identity_from_address(_find_child_text(entry, "id") or "")
        name = identity or _find_child_text(entry, "title") or "an entry"
        links = [link for link in entry if _local_name(link) == "link" and link.get("type", "").startswith(_EPUB_TYPE)]
        places = [urljoin(address, link.get("href", "")) for link in links]
        places = [place for place in places if urlsplit(place).netloc in hosts]
        if identity is None:
            left_out.append(LeftOut(f"{settings.collection} {name}", f"its id is not that of a book: {name}"))
        elif not places:
            left_out.append(LeftOut(f"{settings.collection} {name}", "no EPUB of this library in its entry"))
        else:
            epub = next((place for place in places if "advanced" not in place), places[0])
            author = next((_find_child_text(child, "name") for child in entry if _local_name(child) == "author"), None)
            books.append(FeedBook(identity, _find_child_text(entry, "title"), author, _to_download_address(epub)))
    following = next(
        (
            urljoin(address, link.get("href", ""))
            for link in root
            if _local_name(link) == "link" and link.get("rel") == "next"
        ),
        None,
    )
    if following is not None and urlsplit(following).netloc not in hosts:
        following = None
    return Feed(tuple(books), tuple(left_out), following)


def epub_address(identity: str, settings: StandardEbooksSettings) -> str:
    """Return where the compatible EPUB of a book lies."""
    base = settings.site.rstrip("/")
    return _to_download_address(f"{base}{_BOOK_PATH}{identity}/downloads/{identity.replace('/', '_')}.epub")


def dating_from_colophon(book: Epub) -> Dating | None:
    """Return when the work came out, as the colophon says before it turns to the ebook; None where it names no year.

    Of several years (a serial, a collection, a translation) the first and the last bound the dating.
    """
    for chapter in book.chapters:
        page = prose(chapter.markup)
        if "colophon" not in page.types and not chapter.path.endswith("colophon.xhtml"):
            continue
        statement = _STATEMENT.search(page.text)
        end = _STATEMENT_END.search(page.text)
        if statement and (end is None or statement.start() < end.start()):
            return dating_from_years(years_in(page.text[statement.start() : end.start() if end else len(page.text)]))
    return None


def _document(
    book: FeedBook, epub: Epub, whole: WholeDocument, entry: BookEntry | None, settings: StandardEbooksSettings
) -> Document:
    dating = entry.dating if entry is not None else dating_from_colophon(epub)
    if dating is None:
        raise UnusableDocumentError(
            "its colophon does not say when the work was first published; give the year in the file books.dates"
        )
    language = (epub.language or "").split("-")[0].lower()
    return book_document(
        entry or BookEntry(location="", key=book.identity, dating=dating),
        collection=settings.collection,
        name=book.identity,
        title=book.title or epub.title or book.identity,
        author=book.author or next(iter(epub.authors), None),
        text=require_book_text(whole.text),
        places=whole.places,
        language=language if re.fullmatch(r"[a-z]{2,3}", language) else "und",
        licence=LICENCE,
        url=f"{settings.site.rstrip('/')}{_BOOK_PATH}{book.identity}",
    )


def _identity_from_address(address: str) -> str | None:
    """jane-austen/persuasion out of https://standardebooks.org/ebooks/jane-austen/persuasion."""
    identity = urlsplit(address).path.partition(_BOOK_PATH)[2].strip("/")
    return identity if re.fullmatch(r"[a-z0-9-]+(?:[_/][a-z0-9-]+)+", identity) else None


def _to_download_address(address: str) -> str:
    # Without it the site answers with a page of thanks that loads the book.
    return address if urlsplit(address).query else f"{address}?source=feed"


def _find_child_text(element: Element, name: str) -> str | None:
    text = next(("".join(child.itertext()) for child in element if _local_name(child) == name), "")
    return " ".join(text.split()) or None


def _local_name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
