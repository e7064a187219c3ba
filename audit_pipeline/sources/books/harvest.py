"""Books of the folder and of Project Gutenberg, one document per book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.sources.base import HarvestItem, LeftOut, MissingPart
from audit_pipeline.sources.books.book_folder import BookEntry, harvest_folder, read_metadata
from audit_pipeline.sources.books.gutenberg import harvest_gutenberg
from audit_pipeline.sources.books.source import NAME, BooksSettings
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness


def harvest(settings: BooksSettings, downloads: Path) -> Iterator[HarvestItem]:
    """Yield the books of the folder and of the library that are set; answers are kept below ``downloads``.

    ``published`` is the last day on which the work can have come out first, ``earliest`` the first one where only the
    year or the month is known. With a broken file of dates the library is not asked, and its earlier documents stay.
    """
    if settings.folder is not None:
        yield from harvest_folder(settings.folder, settings.collection, settings.language, settings.licence)
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
        yield from harvest_gutenberg(library, client, entries)
