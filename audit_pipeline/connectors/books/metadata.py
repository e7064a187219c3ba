"""What is known of a book beside its text: the files books.csv and books.jsonl, and dates as coarse as a year.

What belongs here: reading a metadata file into entries, and what a year or a month means as a date. What does not: the
books' files (files.py) and what a catalogue says (gutenberg.py, standard_ebooks.py).

A book whose year alone is known may have come out on any day of it. ``published`` is then the last day, so that it is a
member only where the whole year lies before the cutoff, and ``earliest`` the first, so that it is a non-member only
where the whole year lies behind it.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from audit_pipeline.fetch.read import read_rows
from audit_pipeline.fetch.rows import text_problem
from audit_pipeline.sources.base import LeftOut

METADATA_FILES = ("books.csv", "books.jsonl")
COLUMNS = ("title", "author", "published", "language", "licence", "url", "group", "encoding")

_YEAR = re.compile(r"\d{4}")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_YEAR_IN_PROSE = re.compile(r"(?<!\d)(?<!\d[.,])(?<![£$])(?:1[0-9]|20)\d\d(?![\d%]|,\d)")


@dataclass(frozen=True)
class Dating:
    """When a text was first published: the last day it can have been, and the first where that is another."""

    published: date
    earliest: date | None = None


@dataclass(frozen=True)
class BookEntry:
    """One row of a metadata file; ``key`` is the file's name as written there, or the catalogue's number."""

    location: str
    key: str
    dating: Dating
    title: str | None = None
    author: str | None = None
    language: str | None = None
    licence: str | None = None
    url: str | None = None
    group: str | None = None
    encoding: str | None = None


def dating_of(value: object) -> Dating | None:
    """The dating that an ISO date, a year and month (1851-10) or a year (1851) stands for; None for anything else."""
    if isinstance(value, date):
        return Dating(value.date() if isinstance(value, datetime) else value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    written = str(value).strip()
    try:
        if _YEAR.fullmatch(written):
            return between_years([int(written)])
        if month := _MONTH.fullmatch(written):
            first = date(int(month[1]), int(month[2]), 1)
            return Dating(first.replace(day=monthrange(first.year, first.month)[1]), first)
        return Dating(date.fromisoformat(written))
    except ValueError:
        return None


def between_years(years: Collection[int]) -> Dating | None:
    """From the first day of the first year to the last day of the last; None without years or outside 1 to 9999."""
    if not years or min(years) < 1 or max(years) > 9999:
        return None
    return Dating(date(max(years), 12, 31), date(min(years), 1, 1))


def years_in(prose: str) -> list[int]:
    """The years 1000 to 2099 that stand in ``prose``, in its order; a range such as 1851-53 gives its last year too."""
    years: list[int] = []
    for match in _YEAR_IN_PROSE.finditer(prose):
        years.append(int(match.group()))
        short = re.match(r"\s?[-–/](\d\d)(?!\d)", prose[match.end() :])
        if short:
            last = years[-1] // 100 * 100 + int(short[1])
            years += [last] if last > years[-1] else []
    return years


def read_metadata(path: Path, key_column: str) -> tuple[list[BookEntry], list[LeftOut]]:
    """The entries of a metadata file (.csv or .jsonl), and the rows that cannot be used, with the reason.

    ``key_column`` holds what a row is about (``file``, or ``id`` of a catalogue); the others are in COLUMNS, and only
    ``published`` must be filled in. Columns of other names are not looked at. Of two rows with one key the first holds.
    Raises DataError where the file cannot be read at all.
    """
    file = read_rows(path)
    entries: dict[str, BookEntry] = {}
    left_out = [LeftOut(skipped.location, skipped.reason) for skipped in file.skipped]
    for row in file.rows:
        try:
            entry = _entry(row.location, row.values, key_column)
        except _UnusableEntryError as unusable:
            key = row.values.get(key_column)
            part = f"{row.location} ({key})" if isinstance(key, str | int) and str(key).strip() else row.location
            left_out.append(LeftOut(part, str(unusable)))
            continue
        if entry.key in entries:
            first = entries[entry.key].location
            left_out.append(LeftOut(f"{row.location} ({entry.key})", f"described before, at {first}, which holds"))
        else:
            entries[entry.key] = entry
    return list(entries.values()), left_out


class _UnusableEntryError(Exception):
    """Why a row describes no book."""


def _entry(location: str, values: Mapping[str, object], key_column: str) -> BookEntry:
    key = _label(values, key_column)
    if key is None:
        raise _UnusableEntryError(f"column '{key_column}' is empty")
    published = values.get("published")
    if published is None or (isinstance(published, str) and not published.strip()):
        raise _UnusableEntryError("no date of first publication; fill in 'published'")
    dating = dating_of(published)
    if dating is None:
        raise _UnusableEntryError(f"'published' is not a date, a year and month, or a year: {published!r}")
    labels = {column: _label(values, column) for column in COLUMNS if column != "published"}
    language = labels["language"]
    if language is not None and not _LANGUAGE.fullmatch(language):
        raise _UnusableEntryError(f"'language' is not an ISO 639 code such as en: {language!r}")
    return BookEntry(location=location, key=key, dating=dating, **labels)


def _label(values: Mapping[str, object], column: str) -> str | None:
    value = values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    problem = text_problem(value)
    if problem is not None or not isinstance(value, str):
        raise _UnusableEntryError(f"column '{column}' {problem}")
    return value.strip()
