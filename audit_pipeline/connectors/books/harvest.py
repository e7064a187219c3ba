"""Books: a folder of the user's own, Project Gutenberg and Standard Ebooks, one document per book.

What belongs here: which of the three are read, and who asks. What does not: what may be set (settings.py), and how each
is read (files.py, gutenberg.py, standard_ebooks.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audit_pipeline.connectors.books.files import BookEntry, harvest_folder, read_metadata
from audit_pipeline.connectors.books.gutenberg import harvest_gutenberg
from audit_pipeline.connectors.books.settings import NAME, BooksSettings
from audit_pipeline.connectors.books.standard_ebooks import harvest_standard_ebooks
from audit_pipeline.connectors.polite_client import PoliteClient, Politeness, user_agent
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.sources.base import Harvest, LeftOut, MissingPart, merge_harvests


def harvest(settings: BooksSettings, downloads: Path) -> Harvest:
    """The books of the folder and of the libraries that are set; the libraries' answers are kept below ``downloads``.

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
    try:
        entries, left_out = _read_dated_entries(settings.dates)
    except DataError as error:
        collections = []
        if settings.gutenberg.mirror is not None:
            collections.append(settings.gutenberg.collection)
        if settings.standard_ebooks.asked_for:
            collections.append(settings.standard_ebooks.collection)
        return Harvest((), tuple(MissingPart(f"{name}: the dates", str(error), name) for name in collections))
    harvests = [Harvest((), (), tuple(left_out))]
    if settings.gutenberg.mirror is not None:
        with PoliteClient(cache, _politeness(settings, settings.gutenberg.seconds_between)) as client:
            harvests.append(harvest_gutenberg(settings.gutenberg, client, entries))
    if settings.standard_ebooks.asked_for:
        with PoliteClient(cache, _politeness(settings, settings.standard_ebooks.seconds_between)) as client:
            harvests.append(harvest_standard_ebooks(settings.standard_ebooks, client, entries))
    return merge_harvests(harvests)


def _read_dated_entries(path: Path | None) -> tuple[Mapping[str, BookEntry], list[LeftOut]]:
    if path is None:
        return {}, []
    entries, left_out = read_metadata(path, "id")
    return {entry.key: entry for entry in entries}, left_out


def _politeness(settings: BooksSettings, seconds_between: float) -> Politeness:
    return Politeness(user_agent(settings.contact or ""), seconds_between)
