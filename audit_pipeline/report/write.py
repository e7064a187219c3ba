"""Writes the reports: a page per model, one across models, a JSON copy beside each, and the schema of the copies.

What belongs here: which files there are, and writing them. What does not: what they say (page.py), how they look
(html.py, sections/), what the schema says (schema.py).

A page is written again only where what it says, or the code that lays it out, has changed: after an audit of one model
the others' pages stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.paths import MODEL_PAGE, model_page
from audit_pipeline.catalogue.tables import write_atomically
from audit_pipeline.catalogue.working_copy import remove
from audit_pipeline.errors import DataError
from audit_pipeline.report.html import layout_digest, render
from audit_pipeline.report.page import (
    ReportPage,
    Rows,
    Site,
    left_out,
    model_pages,
    page_across,
    plain,
    prepare,
    read_site,
)
from audit_pipeline.report.schema import SCHEMA_VERSION, schema_text
from audit_pipeline.warehouse.query import one_line, open_read_only

ACROSS = "contamination_report.html"
SCHEMA = "report.schema.json"
MAX_BYTES = 3_000_000
_SHORTENED = (("evidence", "section", 0), ("extraction", "extraction", 0), ("lineage", "lineage", 1))
"""The sections that a page has less of where it would be too large, first to last: the column of other sections that
names their rows, and how many of them stay."""


@dataclass(frozen=True)
class ReportSummary:
    """What the written reports are of, shown or left out; ``findings``: one per model, benchmark and detector.

    ``path`` is the report across models and ``pages`` are those of the models; ``written`` counts the pages that had
    to be written again, ``bytes`` are those of the report across models.
    """

    path: Path
    pages: Mapping[str, Path]
    models: int
    benchmarks: int
    pairs: int
    findings: int
    lineage_gaps: int
    written: int
    bytes: int


def json_copy(page: Path) -> Path:
    """The JSON copy of a page."""
    return page.with_suffix(".json") if page.suffix == ".html" else page.with_name(f"{page.name}.json")


def build_reports(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
    """Write every report of a warehouse into ``folder``; ``include_text=False`` quotes none of the audited texts.

    Pages of models that the warehouse holds no more are removed. Raises DataError where the warehouse is missing or
    unreadable, or where a page cannot be written.
    """
    now = datetime.now(UTC)
    with _reading(warehouse) as connection:
        prepare(connection)
        site = read_site(connection)
        pages = {model: model_page(folder, model) for model in site.models}
        names = {model: page.name for model, page in pages.items()}
        written = 0
        for model, page in model_pages(connection, site, include_text=include_text):
            written += _write(pages[model], page, names, now)
        across = page_across(connection, site, include_text=include_text)
    path = folder / ACROSS
    written += _write(path, across, names, now)
    # Another layout writes every page again; making the schema takes as long as reading one.
    if written or not (folder / SCHEMA).exists():
        _put(folder / SCHEMA, schema_text().encode())
    _remove_others(folder, {*pages.values()})
    return _summary(path, pages, site, across, written)


@contextmanager
def _reading(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_read_only(warehouse) as connection:
        try:
            yield connection
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise DataError(
                f"the warehouse {warehouse} lacks what the report shows ({one_line(error)}): it was built by another"
                " version; build it again: corpus-audit report"
            ) from error


def _summary(path: Path, pages: Mapping[str, Path], site: Site, across: ReportPage, written: int) -> ReportSummary:
    return ReportSummary(
        path=path,
        pages=pages,
        models=len(site.models),
        benchmarks=len({answer["benchmark"] for answer in site.answers}),
        pairs=len(site.answers),
        findings=site.findings,
        lineage_gaps=site.gaps,
        written=written,
        bytes=path.stat().st_size,
    )


def page_as_json(page: ReportPage) -> dict[str, Any]:
    """What a page says, as JSON: the rows of every section under its name, and how many of each are not listed."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "kind": page.kind,
        "title": page.title,
        "written_with": version("corpus-audit"),
        "layout": layout_digest(),
        "includes_text": page.includes_text,
    }
    return plain({**head, **page.sections, "left_out": left_out(page.sections)})


def _write(path: Path, page: ReportPage, names: Mapping[str, str], now: datetime) -> int:
    """Write page and JSON copy unless both are there and say the same; how many pages were written."""
    content = page_as_json(page)
    # Of the page as it is before it is shortened.
    whole = digest(content)
    if path.exists() and _is_copy_of(_read(json_copy(path)), content, whole):
        return 0
    fitting, html = _fitting(page, lambda one: render(one, written_at=now, pages=names, data_version=whole).encode())
    _put(path, html)
    copy = plain({"written_at": now, "whole_sha256": whole, **(content if fitting is page else page_as_json(fitting))})
    # Last: a page without its copy is written again.
    _put(json_copy(path), json.dumps(copy, ensure_ascii=False).encode())
    return 1


def _put(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, lambda temporary: temporary.write_bytes(content))
    except OSError as error:
        raise DataError(f"the report {path} cannot be written ({error}): is the disk full or read-only?") from error


def _fitting(page: ReportPage, made: Callable[[ReportPage], bytes]) -> tuple[ReportPage, bytes]:
    """The page, with less evidence, then less of extraction and of lineage, where it would be too large to open."""
    html = made(page)
    for section, column, least in _SHORTENED:
        while len(html) > MAX_BYTES and len(page.sections[section]) > least:
            page = _halved(page, section, column)
            html = made(page)
    return page, html


def _halved(page: ReportPage, section: str, column: str) -> ReportPage:
    """A page with half the rows of a section; a number in ``column`` of another that leads to none is taken out."""
    rows = page.sections[section]
    kept = Rows(rows[: len(rows) // 2], rows.in_all)
    numbers = {row["number"] for row in kept}
    others = {
        name: Rows(
            [{**row, column: None} if row.get(column) not in (None, *numbers) else row for row in some], some.in_all
        )
        for name, some in page.sections.items()
    }
    return replace(page, sections={**others, section: kept})


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_copy_of(copy: object, content: Mapping[str, Any], whole: str) -> bool:
    """Whether a JSON copy says this, at whatever time. Of a page that was shortened the rows are not there to be
    compared: the digest of the ``whole`` page tells."""
    if not isinstance(copy, dict):
        return False
    if copy.get("left_out") != content["left_out"]:
        return bool(copy.get("whole_sha256") == whole)
    return {key: one for key, one in copy.items() if key not in ("written_at", "whole_sha256")} == content


def _remove_others(folder: Path, pages: set[Path]) -> None:
    """Remove the pages of models that are gone: somebody may have asked for them to be forgotten."""
    kept = pages | {json_copy(page) for page in pages}
    for file in folder.glob(f"{MODEL_PAGE}*"):
        if file.suffix in {".html", ".json"} and file not in kept:
            remove(file)
