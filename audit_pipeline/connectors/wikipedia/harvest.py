"""Event pages of a Wikipedia with the day on which each was created: what the dynamic WikiMIA is built from.

What belongs here: the harvest, put together from its three inputs. What does not: what may be set (settings.py),
reading them (dump.py, parquet.py, api.py), and building a benchmark of them (benchmarks/).

Shi et al. 2024, section 2.2: event pages by the day of their creation, without pages titled "Timeline of" or "List of".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from audit_pipeline.connectors.wikipedia.api import harvest_api
from audit_pipeline.connectors.wikipedia.dump import SUFFIXES, dates_from_history, harvest_dump
from audit_pipeline.connectors.wikipedia.pages import CreationDates, format_page_count, read_dates
from audit_pipeline.connectors.wikipedia.parquet import harvest_parquet
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart, merge_harvests


def harvest(settings: WikipediaSettings, downloads: Path) -> Harvest:
    """The event pages of every input that is set: dump, parquet form, API, in this order.

    A page that two inputs hold is taken from the first; the others are counted. Answers of the API are kept in
    ``downloads``/wikipedia. Raises SourceError where something has to be set first.
    """
    if settings.to_be_set is not None:
        raise SourceError(settings.to_be_set)
    dates, missing, left_out = _read_creation_dates(settings)
    harvests = [
        Harvest((), missing, left_out),
        harvest_dump(settings, dates),
        harvest_parquet(settings, dates),
        harvest_api(settings, downloads),
    ]
    found = merge_harvests(harvests)
    documents, repeated = _remove_duplicate_documents(found.documents)
    return replace(found, documents=documents, left_out=(*found.left_out, *repeated))


def _read_creation_dates(
    settings: WikipediaSettings,
) -> tuple[CreationDates, tuple[MissingPart, ...], tuple[LeftOut, ...]]:
    if settings.dates is None:
        return CreationDates(), (), ()
    try:
        if settings.dates.name.endswith(SUFFIXES):
            return dates_from_history(settings.dates), (), ()
        dates, refused = read_dates(settings.dates)
    except DataError as error:
        return CreationDates(), (MissingPart(settings.dates.name, str(error), settings.collection),), ()
    return dates, (), refused


def _remove_duplicate_documents(documents: Iterable[Document]) -> tuple[tuple[Document, ...], tuple[LeftOut, ...]]:
    first: dict[str, Document] = {}
    repeated = 0
    for document in documents:
        repeated += document.name in first
        first.setdefault(document.name, document)
    counted = (LeftOut(format_page_count(repeated), "met twice, by page id; the first is taken"),) if repeated else ()
    return tuple(first.values()), counted
