"""Writes the reports: a page a model, one across models, and a JSON twin beside each.

What belongs here: which files there are, and writing them. What does not: what they say (report_data.py), how they look
(report_html.py, templates/).

A page is written again only where what it says, or the code that lays it out, has changed: after an audit of one model
the others' pages stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from audit_pipeline.catalogue.paths import MODEL_PAGE, model_page
from audit_pipeline.catalogue.tables import write_atomically
from audit_pipeline.errors import DataError
from audit_pipeline.report.data import Site, model_reports, read_site, report_across
from audit_pipeline.report.document import Report, Section
from audit_pipeline.report.html import layout_digest, render
from audit_pipeline.warehouse.query import one_line, open_read_only

ACROSS = "contamination_report.html"
MAX_BYTES = 3_000_000


@dataclass(frozen=True)
class ReportSummary:
    """What the written reports are of, shown or left out; ``findings``: one a model, benchmark and detector.

    ``path`` is the report across models and ``pages`` are those of the models; ``written`` counts the pages that had
    to be written again, ``bytes`` are those of the report across models.
    """

    path: Path
    pages: Mapping[str, Path]
    models: int
    benchmarks: int
    pairs: int
    findings: int
    lineage_entries: int
    lineage_gaps: int
    written: int
    bytes: int


def twin(page: Path) -> Path:
    """The JSON twin of a page."""
    return page.with_suffix(".json") if page.suffix == ".html" else page.with_name(f"{page.name}.json")


def build_reports(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
    """Write every report of a warehouse into ``folder``; ``include_text=False`` quotes none of the audited texts.

    Pages of models that the warehouse holds no more are removed. Raises DataError where the warehouse is missing or
    unreadable, or where a page cannot be written.
    """
    now, layout = datetime.now(UTC), layout_digest()
    with _reading(warehouse) as connection:
        site = read_site(connection)
        pages = {model: model_page(folder, model) for model in site.models}
        names = {model: page.name for model, page in pages.items()}
        written = 0
        for model, report in model_reports(connection, site, include_text=include_text, written_at=now, layout=layout):
            written += _write(pages[model], report, names)
        across = report_across(connection, site, include_text=include_text, written_at=now, layout=layout)
    path = folder / ACROSS
    written += _write(path, across, names)
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


def _summary(path: Path, pages: Mapping[str, Path], site: Site, across: Report, written: int) -> ReportSummary:
    return ReportSummary(
        path=path,
        pages=pages,
        models=len(site.models),
        benchmarks=len({benchmark for _, benchmark in site.answers}),
        pairs=len(site.answers),
        findings=site.findings,
        lineage_entries=len(across.lineage) + across.left_out.lineage,
        lineage_gaps=len(site.gaps),
        written=written,
        bytes=path.stat().st_size,
    )


def _write(page: Path, report: Report, pages: Mapping[str, str]) -> int:
    """Write page and twin unless both are there and say the same; how many pages were written."""
    if page.exists() and _said(twin(page)) == _comparable(report):
        return 0
    report, html = _fitting(report, pages)
    data = report.model_dump_json()
    try:
        write_atomically(page, lambda temporary: temporary.write_bytes(html))
        # Last: a page without its twin is written again.
        write_atomically(twin(page), lambda temporary: temporary.write_text(data, encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the report {page} cannot be written ({error}): is the disk full or read-only?") from error
    return 1


def _fitting(report: Report, pages: Mapping[str, str]) -> tuple[Report, bytes]:
    """The page, with fewer sections, and then fewer lineage entries, where it would be too large to open anywhere."""
    html = render(report, pages=pages).encode()
    while len(html) > MAX_BYTES and (report.sections or len(report.lineage) > 1):
        report = _smaller(report)
        html = render(report, pages=pages).encode()
    return report, html


def _smaller(report: Report) -> Report:
    left = report.left_out
    if report.sections:
        kept: list[Section] = report.sections[: len(report.sections) // 2]
        numbers = {section.number for section in kept}
        changes: dict[str, Any] = {
            "sections": kept,
            "answers": [
                answer if answer.section in numbers else answer.model_copy(update={"section": None})
                for answer in report.answers
            ],
            "left_out": left.model_copy(update={"sections": left.sections + len(report.sections) - len(kept)}),
        }
    else:
        entries = report.lineage[: len(report.lineage) // 2]
        numbers = {entry.number for entry in entries}
        changes = {
            "lineage": entries,
            "answers": [
                answer if answer.lineage in numbers else answer.model_copy(update={"lineage": None})
                for answer in report.answers
            ],
            "splits": [
                split if split.lineage in numbers else split.model_copy(update={"lineage": None})
                for split in report.splits
            ],
            "left_out": left.model_copy(update={"lineage": left.lineage + len(report.lineage) - len(entries)}),
        }
    return report.model_copy(update=changes)


def _said(path: Path) -> object:
    """What a twin says but for the time; None where it is not there or cannot be read."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {**known, "written_at": None} if isinstance(known, dict) else None


def _comparable(report: Report) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(report.model_dump_json())
    return {**known, "written_at": None}


def _remove_others(folder: Path, pages: set[Path]) -> None:
    """Remove the pages of models that are gone: somebody may have asked for them to be forgotten."""
    kept = pages | {twin(page) for page in pages}
    for file in folder.glob(f"{MODEL_PAGE}*"):
        if file.suffix in {".html", ".json"} and file not in kept:
            file.unlink(missing_ok=True)
