"""Reading of patents: one document per publication, from saved pages of Google Patents or exported tables.

The text of a document consists of abstract, description and claims, or of the parts in the settings. Its date is the
day of publication. The text cannot be older than the priority date, which is stored as ``earliest``. Publications of
one family or of one application form a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.readers.file_bytes import find_irregular_kind, read_regular_file
from audit_pipeline.readers.formats import ROW_SUFFIXES, find_suffix, read_rows
from audit_pipeline.readers.text_rows import Row, explain_invalid_unicode, list_columns
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, UnusableDocumentError
from audit_pipeline.sources.local_files import walk_files
from audit_pipeline.sources.patents import record
from audit_pipeline.sources.patents.cleaning import NestedMarkupError, clean, find_broken_rule
from audit_pipeline.sources.patents.page import parse_page
from audit_pipeline.sources.patents.source import LICENCE, NAME, PatentsSettings

_REQUIRED_COLUMNS = ("publication_number", "publication_date", "priority_date")
_DAY_COLUMNS = ("publication_date", "filing_date", "priority_date")

PatentItem = record.Patent | LeftOut | MissingPart


def read_exported_patents(
    root: Path, countries: Sequence[str], parts: Sequence[record.Part], today: date
) -> Iterator[PatentItem]:
    """Yield the patents in an exported file or in the files of a folder, and the skipped rows and files.

    Rows of other countries are skipped and counted. An unreadable file is a missing part without a collection.

    Args:
        root: The file or folder.
        countries: The country codes of the patents.
        parts: The parts of a patent that its text consists of.
        today: The current day.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: there is no such file or folder")
        return
    paths = [root]
    if not root.is_file():
        paths = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    for path in paths:
        kind = find_irregular_kind(path)
        if kind is not None:
            yield LeftOut(path.name, kind)
        elif find_suffix(path) not in ROW_SUFFIXES:
            yield LeftOut(path.name, f"the file format is not one of {', '.join(ROW_SUFFIXES)}")
        else:
            try:
                yield from _read_patents(path, countries, parts, today)
            except DataError as error:
                yield MissingPart(path.name, str(error))


def _read_patents(
    path: Path, countries: Sequence[str], parts: Sequence[record.Part], today: date
) -> Iterator[PatentItem]:
    file = read_rows(path)
    columns = list_columns(file.rows)
    missing_columns = [name for name in (*_REQUIRED_COLUMNS, *parts) if name not in columns]
    if missing_columns:
        listed = ", ".join(missing_columns)
        raise DataError(
            f"{path}: these columns are missing: {listed}. Export them, too. The query is in "
            "docs/benchmarks/patentmia.md."
        )
    for skipped in file.skipped:
        yield LeftOut(skipped.location, f"the row cannot be read: {skipped.reason}")
    elsewhere: Counter[str] = Counter()
    for row in file.rows:
        number = record.parse_publication_number(str(row.values.get("publication_number") or ""))
        if number is not None and number[:2] not in countries:
            elsewhere[number[:2]] += 1
            continue
        try:
            yield build_patent(row, parts, today)
        except UnusableDocumentError as problem:
            location = row.location
            if number:
                location = f"{number} in {location}"
            yield LeftOut(location, str(problem))
    if elsewhere:
        counts = ", ".join(f"{count} of {country}" for country, count in elsewhere.most_common(5))
        yield LeftOut(path.name, f"rows of countries that are not in patents.countries: {elsewhere.total()} ({counts})")


def build_patent(row: Row, parts: Sequence[record.Part], today: date) -> record.Patent:
    """Build the patent of a row.

    Raises:
        UnusableDocumentError: If a field cannot be read, or the dates are not consistent.
    """
    values = row.values
    number = record.parse_publication_number(str(values.get("publication_number") or ""))
    if number is None:
        raise UnusableDocumentError(
            f"publication_number is not a publication number: {str(values.get('publication_number'))[:40]!r}"
        )
    publication, filing, stated_priority = (_parse_days(values, column) for column in _DAY_COLUMNS)
    published, priority = record.require_consistent_dates(publication, filing, stated_priority, today)
    keys = (
        record.build_family_key(_convert_to_text(values.get("family_id"))),
        record.build_application_key(_convert_to_text(values.get("application_number"))),
    )
    texts: dict[record.Part, str] = {part: _read_text(values, part) for part in record.PARTS if part in parts}
    return record.Patent(
        number=number,
        title=" ".join(_read_text(values, "title").split()),
        parts=texts,
        published=published,
        priority=priority,
        keys=tuple(key for key in keys if key is not None),
        url=record.build_page_address(number),
    )


def _parse_days(values: Mapping[str, object], column: str) -> tuple[date, ...]:
    """Return a tuple with the date in a column (a date, or yyyymmdd as number or text), or () if it is empty or 0."""
    value = values.get(column)
    if isinstance(value, datetime):
        return (value.date(),)
    if isinstance(value, date):
        return (value,)
    text = _convert_to_text(value)
    if text in ("", "0"):
        return ()
    return (record.parse_day(text, column),)


def _read_text(values: Mapping[str, object], name: str) -> str:
    """Return the text in a column, or "" if it is null.

    Raises:
        UnusableDocumentError: If the value is not a valid text.
    """
    text = values.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UnusableDocumentError(
            f"the column {name} contains a value of type {type(text).__name__} instead of a text"
        )
    problem = explain_invalid_unicode(text)
    if problem is not None:
        raise UnusableDocumentError(f"the text in the column {name} {problem}")
    return text


def _convert_to_text(value: object) -> str:
    if value is None:
        return ""
    # Some tools write integers as 20210209.0 if the column has empty cells.
    return str(value).strip().removesuffix(".0")


SUFFIXES = (".html", ".htm")


def read_saved_pages(root: Path) -> Iterator[tuple[str, bytes] | LeftOut | MissingPart]:
    """Yield name and content of every page in a file or folder, and the skipped files with the reason.

    An unreadable file is a missing part without a collection, because its country is unknown.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: there is no such file or folder")
        return
    files: Iterable[tuple[str, Path, str | None]] = [(root.name, root, None)]
    if not root.is_file():
        files = walk_files(root)
    for name, path, refusal in files:
        if refusal is not None or path.suffix.lower() not in SUFFIXES:
            yield LeftOut(name, refusal or f"the file format is not one of {', '.join(SUFFIXES)}")
            continue
        try:
            yield name, read_regular_file(path)
        except OSError as error:
            yield MissingPart(name, f"{path}: the file cannot be read ({error.strerror or error})")


DATE_KIND = "publication of the patent (its priority date is kept as the earliest)"


def fetch_documents(settings: PatentsSettings, downloads: Path, today: date | None = None) -> Iterator[FetchedItem]:
    """Yield the patents of all inputs.

    Unusable pages and rows are skipped with a reason.

    Args:
        settings: The settings.
        downloads: Not used, because nothing is downloaded.
        today: The current day. Patents with a later date of publication are skipped.
    """
    patents: list[tuple[record.Patent, str]] = []
    for item in _read_inputs(settings, today or datetime.now(UTC).date()):
        if isinstance(item, record.Patent):
            try:
                patents.append((item, clean_patent_text(item, settings)))
            except UnusableDocumentError as problem:
                yield LeftOut(item.number, str(problem))
        elif isinstance(item, MissingPart) and item.collection is None:
            # The part may have contained any document. So the earlier documents of all collections stay.
            for country in settings.countries:
                yield replace(item, collection=country)
        else:
            yield item
    groups = record.group_patents([patent for patent, _ in patents])
    for (patent, text), group in zip(patents, groups, strict=True):
        yield _build_document(patent, text, group)


def clean_patent_text(patent: record.Patent, settings: PatentsSettings) -> str:
    """Return the configured parts of a patent as one cleaned text.

    The rule ``repeated_share`` applies to the description. Without a description it applies to the whole text.

    Raises:
        UnusableDocumentError: If the patent is from a country that is not configured, has no text in the parts, or
            has too many layers of markup, or if the text breaks a cleaning rule.
    """
    if patent.country not in settings.countries:
        raise UnusableDocumentError(
            f"the patent is from {patent.country}, which is not in patents.countries ({', '.join(settings.countries)})"
        )
    rules = settings.cleaning
    try:
        body = ""
        if "description" in settings.parts:
            body = clean(patent.parts.get("description", ""), rules)
        text = clean("\n".join(patent.parts.get(part, "") for part in settings.parts), rules)
    except NestedMarkupError as error:
        raise UnusableDocumentError(str(error)) from error
    if not text:
        raise UnusableDocumentError(f"the patent has no text in these parts: {', '.join(settings.parts)}")
    problem = find_broken_rule(text, rules, body or None)
    if problem is not None:
        raise UnusableDocumentError(problem)
    return text


def _read_inputs(settings: PatentsSettings, today: date) -> Iterator[PatentItem]:
    pages: Iterable[tuple[str, bytes] | LeftOut | MissingPart] = ()
    if settings.pages is not None:
        pages = read_saved_pages(settings.pages)
    for page in pages:
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


def _build_document(patent: record.Patent, text: str, group: str) -> Document:
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
