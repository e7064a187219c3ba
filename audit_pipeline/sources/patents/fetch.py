"""Patents of every input as documents.

A document's text is the abstract, the description and the claims, in this order, or those of them that are set. Its
date is the day of publication; the priority date, before which the text cannot have existed, is kept as the earliest.
Publications of one family, or of one application, form one group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import ROW_SUFFIXES, find_suffix, read_rows
from audit_pipeline.readers.regular_files import find_irregular_kind, read_regular_file
from audit_pipeline.readers.text_rows import Row, column_names, explain_invalid_unicode
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.folder_files import walk_files
from audit_pipeline.sources.patents.cleaning import NestedMarkupError, clean, find_broken_rule
from audit_pipeline.sources.patents.page import parse_page
from audit_pipeline.sources.patents.record import (
    PARTS,
    Part,
    Patent,
    build_application_key,
    build_family_key,
    build_page_address,
    group_patents,
    parse_day,
    parse_publication_number,
    require_consistent_dates,
)
from audit_pipeline.sources.patents.source import LICENCE, NAME, PatentsSettings

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
        if (kind := find_irregular_kind(path)) is not None:
            yield LeftOut(path.name, kind)
        elif find_suffix(path) not in ROW_SUFFIXES:
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


SUFFIXES = (".html", ".htm")


def read_saved_pages(root: Path) -> Iterator[tuple[str, bytes] | LeftOut | MissingPart]:
    """Yield name and content of every page in the file or folder ``root``, and every file that holds none, with the
    reason.

    Missing, without a collection, are files that cannot be read: the caller knows whose documents they may hold.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: no such file or folder")
        return
    for name, path, refusal in [(root.name, root, None)] if root.is_file() else walk_files(root):
        if refusal is not None or path.suffix.lower() not in SUFFIXES:
            yield LeftOut(name, refusal or f"not one of {', '.join(SUFFIXES)}")
            continue
        try:
            yield name, read_regular_file(path)
        except OSError as error:
            yield MissingPart(name, f"{path}: cannot be read ({error.strerror or error})")


DATE_KIND = "publication of the patent (its priority date is kept as the earliest)"


def fetch_documents(settings: PatentsSettings, downloads: Path, today: date | None = None) -> Iterator[FetchedItem]:
    """Yield the patents of every input that is set; ``downloads`` is not used, since nothing is fetched.

    Pages and rows that make no document are left out, each with its reason as 'reason: detail'. No date can lie after
    ``today``.
    """
    patents: list[tuple[Patent, str]] = []
    for found in _read_inputs(settings, today or datetime.now(UTC).date()):
        if isinstance(found, Patent):
            try:
                patents.append((found, clean_patent_text(found, settings)))
            except UnusableDocumentError as problem:
                yield LeftOut(found.number, str(problem))
        elif isinstance(found, MissingPart) and found.collection is None:
            # It may have held any document: earlier ones of all collections are kept.
            yield from (replace(found, collection=country) for country in settings.countries)
        else:
            yield found
    groups = group_patents([patent for patent, _ in patents])
    yield from (_build_document(patent, text, group) for (patent, text), group in zip(patents, groups, strict=True))


def clean_patent_text(patent: Patent, settings: PatentsSettings) -> str:
    """Return the patent's parts, cleaned and joined; raises UnusableDocumentError where they make no document.

    The description is the body whose repetitions count; without it, the whole text is.
    """
    if patent.country not in settings.countries:
        raise UnusableDocumentError(f"not of {', '.join(settings.countries)}: {patent.country}")
    rules = settings.cleaning
    try:
        body = clean(patent.parts.get("description", ""), rules) if "description" in settings.parts else ""
        text = clean("\n".join(patent.parts.get(part, "") for part in settings.parts), rules)
    except NestedMarkupError as error:
        raise UnusableDocumentError(str(error)) from error
    problem = find_broken_rule(text, rules, body or None) if text else "no Chinese text"
    if problem is not None:
        raise UnusableDocumentError(problem)
    return text


def _read_inputs(settings: PatentsSettings, today: date) -> Iterator[Found]:
    for page in () if settings.pages is None else read_saved_pages(settings.pages):
        if not isinstance(page, tuple):
            yield page
            continue
        name, content = page
        try:
            yield parse_page(content, today)
        except UnusableDocumentError as problem:
            yield LeftOut(name, str(problem))
    if settings.export is not None:
        yield from read_exported_patents(settings.export, settings.countries, settings.parts, today)


def _build_document(patent: Patent, text: str, group: str) -> Document:
    return Document(
        collection=patent.country,
        name=patent.number,
        title=patent.title or patent.number,
        text=text,
        published=patent.published,
        language="zh",
        licence=LICENCE,
        url=patent.url,
        group=f"{NAME}:{group}",
        date_kind=DATE_KIND,
        earliest=patent.priority,
    )
