"""The files of the reports: a page per model, one across models, a JSON copy next to each, and the glossary.

What belongs here: which files there are, and writing them. What does not: what pages say (page.py), how they look
(html.py, sections/), the queries (sections/).

A page is written again only where what it says, or the code that lays it out, has changed: after an audit of one model
the others' pages stay as they are.

The version of the copies goes up where a section or a column is renamed, removed or means something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.report.html import compute_layout_digest, render_glossary, render_page
from audit_pipeline.report.page import (
    ReportPage,
    count_left_out_rows,
    iterate_model_pages,
    prepare_connection,
    read_page_across_models,
    read_site,
    to_json_row,
)
from audit_pipeline.store.files import write_atomically
from audit_pipeline.store.paths import MODEL_PAGE, model_page_path
from audit_pipeline.tables import digest
from audit_pipeline.warehouse.query import open_read_only

SCHEMA_VERSION = "3"
ACROSS = "contamination_report.html"
GLOSSARY = "glossary.html"


@dataclass(frozen=True)
class ReportSummary:
    """What the report across models is of, shown or left out; ``findings``: one per model, benchmark and detector.

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


def json_copy_path(page: Path) -> Path:
    """The JSON copy of a page."""
    return page.with_suffix(".json")


def build_reports(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
    """Write every report of a warehouse into ``folder``; ``include_text=False`` quotes none of the audited texts.

    Pages of models that the warehouse holds no more are removed. Raises DataError where the warehouse is missing or
    unreadable, or where a page cannot be written.
    """
    now = datetime.now(UTC)
    with _open_warehouse(warehouse) as connection:
        prepare_connection(connection)
        site = read_site(connection)
        pages = {model: model_page_path(folder, model) for model in site.results.models}
        names = {model: page.name for model, page in pages.items()}
        written = 0
        for model, page in iterate_model_pages(connection, site, include_text=include_text):
            written += _write_page(pages[model], page, names, now)
        across = read_page_across_models(connection, site, include_text=include_text)
    path = folder / ACROSS
    written += _write_page(path, across, names, now)
    _write_file(folder / GLOSSARY, render_glossary().encode())
    _remove_other_pages(folder, {*pages.values()})
    [first] = across.sections["first_screen"]
    return ReportSummary(
        path=path,
        pages=pages,
        models=first["models"],
        benchmarks=first["benchmarks"],
        pairs=first["pairs"],
        findings=site.findings,
        lineage_gaps=site.gaps,
        written=written,
        bytes=path.stat().st_size,
    )


@contextmanager
def _open_warehouse(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_read_only(warehouse) as connection:
        try:
            yield connection
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise DataError(
                f"the warehouse {warehouse} lacks what the report shows ({to_one_line(error)}): it was "
                "built by another"
                " version; build it again: corpus-audit report"
            ) from error


def page_as_json(page: ReportPage) -> dict[str, Any]:
    """What a page says, as JSON: the rows of every section under its name, and how many of each are not listed."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "kind": page.kind,
        "title": page.title,
        "written_with": version("corpus-audit"),
        "layout": compute_layout_digest(),
        "includes_text": page.includes_text,
    }
    return to_json_row({**head, **page.sections, "left_out": count_left_out_rows(page.sections)})


def _write_page(path: Path, page: ReportPage, names: Mapping[str, str], now: datetime) -> int:
    """Write page and JSON copy unless both are there and say the same; how many pages were written."""
    content = page_as_json(page)
    data_version = digest(content)
    if path.exists() and _read_data_version(json_copy_path(path)) == data_version:
        return 0
    _write_file(path, render_page(page, written_at=now, pages=names, data_version=data_version).encode())
    copy = to_json_row({"written_at": now, "whole_sha256": data_version, **content})
    # Last: a page without its copy is written again.
    _write_file(json_copy_path(path), json.dumps(copy, ensure_ascii=False).encode())
    return 1


def _write_file(path: Path, content: bytes) -> None:
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DataError(f"the report {path} cannot be written ({error}): is the disk full or read-only?") from error


def _read_data_version(copy: Path) -> object:
    try:
        return json.loads(copy.read_text(encoding="utf-8"))["whole_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove_other_pages(folder: Path, pages: set[Path]) -> None:
    """Remove the pages of models that are gone: somebody may have asked for them to be forgotten."""
    kept = pages | {json_copy_path(page) for page in pages}
    for file in folder.glob(f"{MODEL_PAGE}*"):
        if file.suffix in {".html", ".json"} and file not in kept:
            file.unlink(missing_ok=True)
