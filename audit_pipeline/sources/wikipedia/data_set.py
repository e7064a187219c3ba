"""Event pages of a data set laid out as wikimedia/wikipedia: id, url, title and plain text of each page.

It has no categories, so titles choose the event pages, and no dates: a table of page ids and days has them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import httpx2
from datasets import load_dataset
from datasets.exceptions import DatasetsError

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.readers.hub_faults import fault_of
from audit_pipeline.readers.rows import text_problem
from audit_pipeline.sources.base import HarvestItem, MissingPart
from audit_pipeline.sources.wikipedia.pages import (
    LEFT_OUT_TITLE,
    LeftOutPage,
    build_page_document,
    remove_tail_sections,
)
from audit_pipeline.sources.wikipedia.source import WikipediaSettings
from audit_pipeline.store.duckdb_connections import open_in_memory

_COLUMNS = ("id", "url", "title", "text")
_READERS = {".csv": "read_csv(?, all_varchar=true)", ".parquet": "read_parquet(?)"}


def iterate_data_set(settings: WikipediaSettings) -> Iterator[HarvestItem | LeftOutPage]:
    """Yield the event pages of the data set that is set; nothing where there is none.

    A data set that cannot be read to its end, or whose dates cannot be read, is missing, and no page is taken.
    """
    name = str(settings.path or settings.hub)
    if name == "None" or settings.dates is None:
        return
    part = f"{name}, {settings.subset}"
    pages: dict[int, tuple[str, str, str]] = {}
    try:
        for row in _iterate_rows(settings):
            reason, text = _explain_left_out(row["title"], settings), ""
            if reason is None:
                text = remove_tail_sections(row["text"], settings.part)
                reason = f"its text {problem}" if (problem := text_problem(text)) else None
            if reason is not None:
                yield LeftOutPage(part, reason, row["title"])
            else:
                pages[int(row["id"])] = row["title"], text, row["url"]
        days = read_dates(settings.dates, pages)
    except DataError as error:
        yield MissingPart(name, str(error), settings.collection)
        return
    for page_id, (title, text, url) in pages.items():
        if page_id in days:
            yield build_page_document(settings, page_id, title, text, days[page_id], url)
        else:
            yield LeftOutPage(part, f"{settings.dates.name} has no date of creation", title)


def _explain_left_out(title: str, settings: WikipediaSettings) -> str | None:
    """Say why a page is left out by its title; None where it is not."""
    if settings.left_out_title and re.search(settings.left_out_title, title, re.IGNORECASE):
        return LEFT_OUT_TITLE
    if settings.event_title and not re.search(settings.event_title, title, re.IGNORECASE):
        return "not an event page by its title"
    return None


def read_dates(path: Path, page_ids: Collection[int]) -> dict[int, date]:
    """Return the earliest day of each of the pages in a .csv or .parquet with the columns page_id and created.

    ``created`` is a date, a timestamp (its day in UTC) or text that begins with an ISO date; rows with anything else
    are ignored. Raises DataError where the file cannot be read or lacks a column.
    """
    if path.suffix.lower() not in _READERS:
        raise DataError(f"{path}: dates are read from .csv and .parquet files")
    query = f"""
        SELECT TRY_CAST(page_id AS BIGINT) AS page, min(TRY_CAST(left(CAST(created AS VARCHAR), 10) AS DATE)) AS day
        FROM {_READERS[path.suffix.lower()]}
        WHERE page IN (SELECT unnest(?))
        GROUP BY page
        HAVING day IS NOT NULL
    """  # noqa: S608 - the reader is one of two constants
    with open_in_memory() as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            return dict(connection.execute(query, [str(path), list(page_ids)]).fetchall())
        except duckdb.Error as error:
            raise DataError(f"{path}: the dates cannot be read ({to_one_line(error)})") from error


def _iterate_rows(settings: WikipediaSettings) -> Iterator[Mapping[str, Any]]:
    """Yield the rows one by one, whatever the size of the data set; raises DataError."""
    name = str(settings.path or settings.hub)
    try:
        rows = load_dataset(name, data_dir=settings.subset, split="train", streaming=True)
        for row in rows:
            absent = [column for column in _COLUMNS if column not in row]
            if absent:
                raise DataError(f"{name} has no column {', '.join(absent)}: it is not laid out as wikimedia/wikipedia")
            yield row
    except (httpx2.HTTPError, DatasetsError, OSError, ValueError, RuntimeError) as error:
        fault = fault_of(error)
        raise DataError(f"{name} {fault.why if fault else f'cannot be read ({to_one_line(error)})'}") from error
