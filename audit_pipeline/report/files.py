"""Files of the report: a page per model, a page across models, a JSON copy of each, and the glossary.

A page is written again only if its content or the code of its layout changed. An audit of one model leaves the pages of
the other models unchanged.
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
from audit_pipeline.report.page_data import (
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
"""Version of the JSON copies. It changes if a section or a column is renamed, is removed or changes its meaning."""
ACROSS = "contamination_report.html"
GLOSSARY = "glossary.html"


@dataclass(frozen=True)
class ReportSummary:
    """Contents of the report.

    Attributes:
        path: The page across models.
        pages: The pages of the models, by model.
        models: Number of models.
        benchmarks: Number of benchmarks.
        pairs: Number of pairs of a model and a benchmark.
        findings: Number of findings, one per model, benchmark and detector.
        lineage_gaps: Number of rows without a ledger entry.
        written: Number of pages that were written, because their content or layout changed.
        bytes: Size of the page across models.
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
    """Return the path of a page's JSON copy."""
    return page.with_suffix(".json")


def build_reports(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
    """Write all pages of a warehouse, and remove the pages of models that the warehouse no longer contains.

    Args:
        warehouse: The DuckDB file.
        folder: Folder of the pages.
        include_text: False if the pages must not quote audited texts.

    Raises:
        DataError: If the warehouse is missing or unreadable, or if a page cannot be written.
    """
    now = datetime.now(UTC)
    with _open_warehouse(warehouse) as connection:
        prepare_connection(connection)
        site = read_site(connection)
        pages: dict[str, Path] = {}
        names: dict[str, str] = {}
        for model in site.results.models:
            pages[model] = model_page_path(folder, model)
            names[model] = pages[model].name
        written = 0
        for model, page in iterate_model_pages(connection, site, include_text=include_text):
            written += _write_page(pages[model], page, names, now)
        across = read_page_across_models(connection, site, include_text=include_text)
    path = folder / ACROSS
    written += _write_page(path, across, names, now)
    _write_file(folder / GLOSSARY, render_glossary().encode())
    _remove_other_pages(folder, set(pages.values()))
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
                f"the warehouse {warehouse} was built by another version of Corpus Audit and lacks tables that the "
                f"report reads ({to_one_line(error)}). Build the warehouse again: corpus-audit report"
            ) from error


def page_as_json(page: ReportPage) -> dict[str, Any]:
    """Return a page as JSON: the rows of every section, and the number of rows that are not listed."""
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
    """Write a page and its JSON copy if their content changed. Return the number of pages written, 0 or 1."""
    content = page_as_json(page)
    data_version = digest(content)
    if path.exists() and _read_data_version(json_copy_path(path)) == data_version:
        return 0
    _write_file(path, render_page(page, written_at=now, pages=names, data_version=data_version).encode())
    copy = to_json_row({"written_at": now, "whole_sha256": data_version, **content})
    # The copy is written last. If the write is interrupted, the copy is missing and the page is written again.
    _write_file(json_copy_path(path), json.dumps(copy, ensure_ascii=False).encode())
    return 1


def _write_file(path: Path, content: bytes) -> None:
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DataError(
            f"the report {path} cannot be written: {error}. Check that the disk is writable and not full."
        ) from error


def _read_data_version(copy: Path) -> object:
    try:
        return json.loads(copy.read_text(encoding="utf-8"))["whole_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove_other_pages(folder: Path, pages: set[Path]) -> None:
    """Remove the pages of models that the warehouse no longer contains, because users can delete a model's results."""
    current_files = pages.union(map(json_copy_path, pages))
    for file in folder.glob(f"{MODEL_PAGE}*"):
        if file.suffix in {".html", ".json"} and file not in current_files:
            file.unlink(missing_ok=True)
