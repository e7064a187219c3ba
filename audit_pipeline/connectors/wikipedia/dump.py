"""MediaWiki XML exports: pages one after another, whatever the size of the file, with the revision that is wanted.

What belongs here: reading .xml, .xml.bz2 and .xml.gz in bounded memory, and what a page's revisions say of its first
day. What does not: which pages are event pages (pages.py), and turning wikitext into prose (wikitext.py).

A page's day of creation is that of its earliest revision in the file, provided that the revision without a parent is
there too: a dump of current pages holds no other revision, and its date would be that of the latest edit.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import BinaryIO
from xml.sax import SAXException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import create_parser

from audit_pipeline.connectors.wikipedia.pages import (
    CreationDates,
    LeftOutPages,
    PageText,
    build_page_document,
    choice_of,
    harvest_files,
)
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.connectors.wikipedia.wikitext import MOST_CHARACTERS
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.file_bytes import MEBIBYTE
from audit_pipeline.sources.base import Document, Harvest

SUFFIXES = (".xml", ".xml.bz2", ".xml.gz")
_CHUNK = 1 << 16
_MOST_SMALL = 4096  # characters of a title, an id, a timestamp
# Revisions name their parents since format 0.7 (2012).
_OLDEST_FORMAT = (0, 7)
_DEEPEST = 20
_MOST_IN_VAIN = MEBIBYTE
_PAGE = ("mediawiki", "page")
_REVISION = (*_PAGE, "revision")
_TEXT = (*_REVISION, "text")
_KEPT = frozenset(
    (
        *((*_PAGE, field) for field in ("title", "ns", "id")),
        *((*_REVISION, field) for field in ("id", "parentid", "timestamp", "text")),
    )
)


@dataclass(frozen=True)
class Revision:
    """One revision; ``problem`` says why its text is not here (deleted, longer than a page may be)."""

    revision_id: int | None
    written: datetime
    text: str
    problem: str | None = None


@dataclass(frozen=True)
class DumpPage:
    """One page: ``created`` None where its first revision is not in the file.

    ``wanted`` is its newest revision on or before the day asked for, else its newest; None where it has none that can
    be read.
    """

    page_id: int | None
    title: str
    namespace: str
    created: date | None
    wanted: Revision | None


def harvest_dump(settings: WikipediaSettings, dates: CreationDates) -> Harvest:
    """The event pages of the export at ``settings.dump``, a file or a folder of them; nothing where it is not set.

    A file that breaks off is missing from there on: what came before is taken.
    """
    path = settings.dump
    if path is None:
        return Harvest(())
    return harvest_files(
        path,
        path.glob("*"),
        SUFFIXES,
        settings.collection,
        lambda file, left_out: _read_documents(file, settings, dates, left_out),
    )


def dates_from_history(path: Path) -> CreationDates:
    """The days on which the articles of a dump of histories were created: what ``dates`` in the settings may name.

    ``path`` is a stub-meta-history (it has no texts, and is small) or a pages-meta-history. Pages of other
    namespaces, and those whose first revision is not there, have no day. Raises DataError where the file cannot be
    read to its end.
    """
    page_ids, ordinals = array("q"), array("i")
    for page in read_dump(path):
        if page.namespace == "0" and page.page_id is not None and page.created is not None:
            page_ids.append(page.page_id)
            ordinals.append(page.created.toordinal())
    return CreationDates(page_ids, map(date.fromordinal, ordinals))


def read_dump(path: Path, as_of: date | None = None) -> Iterator[DumpPage]:
    """The pages of an export, each with its newest revision on or before ``as_of`` (UTC), else its newest.

    Memory holds one page at a time, and of its texts two. Raises DataError, after the pages that could be read, where
    the file is cut short, damaged, not an export, too old a format, or declares a document type or entities.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    handler = _Handler(as_of)
    parser = create_parser(forbid_dtd=True)
    parser.setContentHandler(handler)
    pages = 0
    try:
        with _open_dump(path) as stream:
            while chunk := stream.read(_CHUNK):
                parser.feed(chunk)
                handler.note_fed(len(chunk))
                taken = handler.take()
                pages += len(taken)
                yield from taken
        parser.close()
    except DefusedXmlException as error:
        raise DataError(f"{path}: declares a document type or entities, which no MediaWiki export does") from error
    except (SAXException, EOFError, OSError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: breaks off after {pages} pages ({reason}); fetch it again") from error
    except _WrongExport as error:
        raise DataError(f"{path}: {error}") from error
    if not handler.is_export:
        raise DataError(f"{path}: is no MediaWiki export")


def _read_documents(
    path: Path, settings: WikipediaSettings, dates: CreationDates, left_out: LeftOutPages
) -> Iterator[Document]:
    choice = choice_of(settings)
    for page in read_dump(path, settings.as_of):
        if page.namespace != "0":
            left_out.count("not an article (another namespace)", page.title)
        elif page.page_id is None or page.wanted is None:
            left_out.name(page.title, "no page id" if page.page_id is None else "no revision that can be read")
        elif page.wanted.problem is not None:
            left_out.name(page.title, page.wanted.problem)
        else:
            created = page.created or dates.get(page.page_id)
            revision = page.wanted
            text = PageText(
                page.page_id, page.title, revision.revision_id, revision.text, created, revision.written.date()
            )
            document = build_page_document(text, settings, choice, left_out)
            if document is not None:
                yield document


def _open_dump(path: Path) -> BinaryIO | bz2.BZ2File | gzip.GzipFile:
    if path.name.endswith(".bz2"):
        return bz2.open(path, "rb")
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


class _WrongExport(Exception):  # noqa: N818 - never leaves this module
    """The file is XML, but not an export that can be used."""


class _Page:
    """A page while its revisions come by."""

    def __init__(self, as_of: date | None) -> None:
        self.title = ""
        self.namespace = ""
        self.page_id: int | None = None
        self._as_of = as_of
        self._earliest: datetime | None = None
        self._has_first = False
        self._newest: Revision | None = None
        self._newest_by_then: Revision | None = None

    def add(self, revision: Revision, parent: int | None) -> None:
        self._has_first = self._has_first or not parent
        if self._earliest is None or revision.written < self._earliest:
            self._earliest = revision.written
        self._newest = _choose_later_revision(self._newest, revision)
        if self._as_of is not None and revision.written.date() <= self._as_of:
            self._newest_by_then = _choose_later_revision(self._newest_by_then, revision)

    def done(self) -> DumpPage:
        created = self._earliest.date() if self._earliest is not None and self._has_first else None
        return DumpPage(self.page_id, self.title, self.namespace, created, self._newest_by_then or self._newest)


def _choose_later_revision(first: Revision | None, second: Revision) -> Revision:
    """The later of two; of one second, the one that comes later in the file."""
    return second if first is None or second.written >= first.written else first


class _Handler(ContentHandler):
    """Collects pages from the parser's events; everything that is not named in _KEPT goes by."""

    def __init__(self, as_of: date | None) -> None:
        super().__init__()
        self.is_export = False
        self._as_of = as_of
        self._pages: list[DumpPage] = []
        self._path: tuple[str, ...] = ()
        self._page = _Page(as_of)
        self._fields: dict[str, str] = {}
        self._parts: list[str] | None = None
        self._length = 0
        self._text_problem: str | None = None
        self._fed_in_vain = 0

    def take(self) -> list[DumpPage]:
        """The pages that have ended since the last call."""
        pages, self._pages = self._pages, []
        return pages

    def note_fed(self, byte_count: int) -> None:
        """Refuse a tag or comment that never ends: the parser would keep all of it."""
        self._fed_in_vain += byte_count
        if self._fed_in_vain > _MOST_IN_VAIN:
            raise _WrongExport(f"holds {_MOST_IN_VAIN} bytes without any element or text; it is no MediaWiki export")

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - xml.sax calls it so
        self._fed_in_vain = 0
        self._path = (*self._path, name)
        if len(self._path) > _DEEPEST:
            raise _WrongExport(f"nests more than {_DEEPEST} elements; it is no MediaWiki export")
        if len(self._path) == 1:
            self._check_export(name, attrs)
        elif self._path == _PAGE:
            self._page = _Page(self._as_of)
        elif self._path == _REVISION:
            self._fields, self._text_problem = {}, None
        elif self._path in _KEPT:
            self._parts, self._length = [], 0
            if self._path == _TEXT and "deleted" in attrs.getNames():
                self._text_problem = "its text is deleted"

    def characters(self, content: str) -> None:
        self._fed_in_vain = 0
        if self._parts is None:
            return
        self._length += len(content)
        if self._length <= (MOST_CHARACTERS if self._path == _TEXT else _MOST_SMALL):
            self._parts.append(content)
        else:
            self._parts.clear()

    def endElement(self, name: str) -> None:  # noqa: N802 - xml.sax calls it so
        self._fed_in_vain = 0
        if self._path == _PAGE:
            self._pages.append(self._page.done())
        elif self._path == _REVISION:
            self._end_revision()
        elif self._parts is not None and self._path in _KEPT:
            self._end_field("".join(self._parts))
            self._parts = None
        self._path = self._path[:-1]

    def _check_export(self, name: str, attrs: AttributesImpl) -> None:
        if name != "mediawiki":
            raise _WrongExport(f"begins with <{name[:40]}>; it is no MediaWiki export")
        version = attrs.get("version", "")
        numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
        if numbers < _OLDEST_FORMAT:
            raise _WrongExport(
                f"is of export format {version[:10] or 'unknown'}, which does not say which revision is a page's "
                "first; use a dump of 2013 or later"
            )
        self.is_export = True

    def _end_field(self, value: str) -> None:
        field = self._path[-1]
        if len(self._path) == len(_REVISION) + 1:
            if field == "text" and self._length > MOST_CHARACTERS:
                self._text_problem = f"its text is longer than the {MOST_CHARACTERS} characters that a page may have"
            self._fields[field] = value
        elif field == "title":
            self._page.title = value
        elif field == "ns":
            self._page.namespace = value.strip()
        else:
            self._page.page_id = _parse_number(value)

    def _end_revision(self) -> None:
        written = _parse_moment(self._fields.get("timestamp", ""))
        if written is None:
            return  # A page without any other revision is named as one that cannot be read.
        revision = Revision(
            _parse_number(self._fields.get("id", "")), written, self._fields.get("text", ""), self._text_problem
        )
        self._page.add(revision, _parse_number(self._fields.get("parentid", "")))


def _parse_number(value: str) -> int | None:
    return int(value) if value.strip().isdecimal() and len(value) < 20 else None


def _parse_moment(value: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
