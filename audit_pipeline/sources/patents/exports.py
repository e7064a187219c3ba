"""Exports of the BigQuery table patents-public-data.patents.publications: rows to patents.

Columns are flat, as the query in docs/benchmarks/patentmia.md makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import ROW_SUFFIXES, find_suffix, read_rows
from audit_pipeline.readers.rows import Row, column_names, explain_invalid_unicode
from audit_pipeline.sources.base import LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.patents.record import (
    PARTS,
    Part,
    Patent,
    build_application_key,
    build_family_key,
    build_page_address,
    parse_day,
    parse_publication_number,
    require_consistent_dates,
)

_NEEDED = ("publication_number", "publication_date", "priority_date")
_DAY_COLUMNS = ("publication_date", "filing_date", "priority_date")

Found = Patent | LeftOut | MissingPart


def read_exported_patents(root: Path, countries: Sequence[str], parts: Sequence[Part], today: date) -> Iterator[Found]:
    """Yield every patent of ``countries`` in the file or folder ``root``; rows and files that yield none, with the
    reason.

    Rows of other countries are counted, not named. Missing, without a collection, are files that cannot be read.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: no such file or folder")
        return
    paths = [root] if root.is_file() else sorted(path for path in root.iterdir() if not path.name.startswith("."))
    for path in paths:
        if find_suffix(path) not in ROW_SUFFIXES or not path.is_file():
            yield LeftOut(path.name, f"not one of {', '.join(ROW_SUFFIXES)}")
        else:
            try:
                yield from _read_patents(path, countries, parts, today)
            except DataError as error:
                yield MissingPart(path.name, str(error))


def _read_patents(path: Path, countries: Sequence[str], parts: Sequence[Part], today: date) -> Iterator[Found]:
    file = read_rows(path)
    columns = column_names(file.rows)
    if absent := [name for name in (*_NEEDED, *parts) if name not in columns]:
        raise DataError(
            f"{path}: no column {', '.join(absent)}; export them too (docs/benchmarks/patentmia.md has the query)"
        )
    for skipped in file.skipped:
        yield LeftOut(skipped.location, f"unreadable row: {skipped.reason}")
    elsewhere: Counter[str] = Counter()
    for row in file.rows:
        number = parse_publication_number(str(row.values.get("publication_number") or ""))
        if number is not None and number[:2] not in countries:
            elsewhere[number[:2]] += 1
            continue
        try:
            yield build_patent(row, parts, today)
        except UnusableDocumentError as problem:
            yield LeftOut(f"{number} in {row.location}" if number else row.location, str(problem))
    if elsewhere:
        named = ", ".join(f"{count} of {country}" for country, count in elsewhere.most_common(5))
        yield LeftOut(path.name, f"rows of other countries than {', '.join(countries)}: {elsewhere.total()} ({named})")


def build_patent(row: Row, parts: Sequence[Part], today: date) -> Patent:
    """Return the patent in one row; raises UnusableDocumentError where a field cannot be read, or dates do not hold."""
    values = row.values
    number = parse_publication_number(str(values.get("publication_number") or ""))
    if number is None:
        raise UnusableDocumentError(f"no publication number: {str(values.get('publication_number'))[:40]!r}")
    publication, filing, stated_priority = (_parse_days(values, column) for column in _DAY_COLUMNS)
    published, priority = require_consistent_dates(publication, filing, stated_priority, today)
    keys = (
        build_family_key(_to_text(values.get("family_id"))),
        build_application_key(_to_text(values.get("application_number"))),
    )
    return Patent(
        number=number,
        title=" ".join(_read_text(values, "title").split()),
        parts={part: _read_text(values, part) for part in PARTS if part in parts},
        published=published,
        priority=priority,
        keys=tuple(key for key in keys if key is not None),
        url=build_page_address(number),
    )


def _parse_days(values: Mapping[str, object], column: str) -> tuple[date, ...]:
    """Return the date in a column, as whole number or text yyyymmdd, or as a date; none where it is empty or 0."""
    value = values.get(column)
    if isinstance(value, datetime):
        return (value.date(),)
    if isinstance(value, date):
        return (value,)
    text = _to_text(value)
    return (parse_day(text, column),) if text not in ("", "0") else ()


def _read_text(values: Mapping[str, object], name: str) -> str:
    """Return the text in the column ``name``; raises UnusableDocumentError where it is none."""
    text = values.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UnusableDocumentError(f"unreadable field: {name} is not text but {type(text).__name__}")
    problem = explain_invalid_unicode(text)
    if problem is not None:
        raise UnusableDocumentError(f"unreadable field: {name} {problem}")
    return text


def _to_text(value: object) -> str:
    # A column of whole numbers with gaps comes as 20210209.0 out of some tools.
    return "" if value is None else str(value).strip().removesuffix(".0")
