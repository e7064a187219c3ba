"""Books of the folder, of Project Gutenberg and of Standard Ebooks, one document per book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.sources.base import HarvestItem, LeftOut, MissingPart
from audit_pipeline.sources.books.book_folder import BookEntry, harvest_folder, read_metadata
from audit_pipeline.sources.books.gutenberg import harvest_gutenberg
from audit_pipeline.sources.books.source import NAME, BooksSettings
from audit_pipeline.sources.books.standard_ebooks import harvest_standard_ebooks
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness


def harvest(settings: BooksSettings, downloads: Path) -> Iterator[HarvestItem]:
    """Yield the books of the folder and of the libraries that are set; answers are kept below ``downloads``.

    ``published`` is the last day on which the work can have come out first, ``earliest`` the first one where only the
    year or the month is known. With a broken file of dates no library is asked, and its earlier documents stay.
    """
    if settings.folder is not None:
        yield from harvest_folder(settings.folder, settings.collection, settings.language, settings.licence)
    libraries = [library for library in (settings.gutenberg, settings.standard_ebooks) if library.is_wanted]
    try:
        dated = [] if settings.dates is None or not libraries else read_metadata(settings.dates, "id")
    except DataError as error:
        for library in libraries:
            yield MissingPart(f"{library.collection}: the dates", str(error), library.collection)
        return
    yield from (row for row in dated if isinstance(row, LeftOut))
    entries = {row.key: row for row in dated if isinstance(row, BookEntry)}
    for library in libraries:
        with PoliteClient(downloads / NAME, Politeness(settings.contact or "", library.seconds_between)) as client:
            if library is settings.gutenberg:
                yield from harvest_gutenberg(settings.gutenberg, client, entries)
            else:
                yield from harvest_standard_ebooks(settings.standard_ebooks, client, entries)
