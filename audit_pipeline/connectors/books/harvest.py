"""Books of the folder, of Project Gutenberg and of Standard Ebooks, one document per book."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audit_pipeline.connectors.books.files import BookEntry, harvest_folder, read_metadata
from audit_pipeline.connectors.books.gutenberg import harvest_gutenberg
from audit_pipeline.connectors.books.source import NAME, BooksSettings
from audit_pipeline.connectors.books.standard_ebooks import harvest_standard_ebooks
from audit_pipeline.connectors.polite_client import PoliteClient, Politeness
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.sources.base import Harvest, LeftOut, MissingPart, merge_harvests


def harvest(settings: BooksSettings, downloads: Path) -> Harvest:
    """Return the books of the folder and of the libraries that are set; answers are kept below ``downloads``.

    ``published`` is the last day on which the work can have come out first, ``earliest`` the first one where only the
    year or the month is known. Raises SourceError where nothing is set.
    """
    if settings.to_be_set is not None:
        raise SourceError(f"{NAME}: {settings.to_be_set}")
    harvests: list[Harvest] = []
    if settings.folder is not None:
        harvests.append(harvest_folder(settings.folder, settings.collection, settings.language, settings.licence))
    if settings.fetches:
        harvests.append(_harvest_libraries(settings, downloads / NAME))
    return merge_harvests(harvests)


def _harvest_libraries(settings: BooksSettings, cache: Path) -> Harvest:
    """What the libraries have; with a broken file of dates nothing is fetched, and earlier documents stay."""
    gutenberg, standard = settings.gutenberg, settings.standard_ebooks
    wanted = [library for library in (gutenberg, standard) if library.is_wanted]
    try:
        entries, left_out = _read_dated_entries(settings.dates)
    except DataError as error:
        names = (library.collection for library in wanted)
        return Harvest((), tuple(MissingPart(f"{name}: the dates", str(error), name) for name in names))
    harvests = [Harvest((), (), tuple(left_out))]
    for library in wanted:
        with PoliteClient(cache, Politeness(settings.contact or "", library.seconds_between)) as client:
            if library is gutenberg:
                harvests.append(harvest_gutenberg(gutenberg, client, entries))
            else:
                harvests.append(harvest_standard_ebooks(standard, client, entries))
    return merge_harvests(harvests)


def _read_dated_entries(path: Path | None) -> tuple[Mapping[str, BookEntry], list[LeftOut]]:
    if path is None:
        return {}, []
    entries, left_out = read_metadata(path, "id")
    return {entry.key: entry for entry in entries}, left_out
