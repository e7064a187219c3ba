"""The files of the reports: a page per model, one across models, a JSON copy beside each, and the schema of the copies.

What belongs here: which files there are, writing them, and the JSON Schema of the copies, made of the types that the
sections' queries yield and of what columns mean. What does not: what pages say (page.py), how they look (html.py,
sections/), the queries and what they say of their columns (sections/), the comments of the warehouse's tables and views
(warehouse/sql/).

A page is written again only where what it says, or the code that lays it out, has changed: after an audit of one model
the others' pages stay as they are.

The schema's version goes up where a section or a column is renamed, removed or means something else. One that is added
leaves it as it is: readers of a copy ignore names that they do not know.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.duckdb_connections import open_in_memory
from audit_pipeline.catalogue.files import write_atomically
from audit_pipeline.catalogue.paths import MODEL_PAGE, model_page_path
from audit_pipeline.catalogue.working_copy import remove
from audit_pipeline.errors import DataError
from audit_pipeline.report.html import layout_digest, render
from audit_pipeline.report.page import (
    ReportPage,
    Rows,
    SectionFiles,
    Site,
    count_left_out_rows,
    create_page_tables,
    iterate_model_pages,
    plain,
    prepare_connection,
    read_page_across_models,
    read_site,
    sections,
)
from audit_pipeline.warehouse.query import error_to_one_line, open_read_only
from audit_pipeline.warehouse.schema import create_tables, create_views, list_tables

SCHEMA_VERSION = "3"
TITLE = "Corpus Audit report"

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "varchar": {"type": "string"},
    "json": {"type": "string"},
    "boolean": {"type": "boolean"},
    "double": {"type": "number"},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "timestamp with time zone": {"type": "string", "format": "date-time"},
    **{name: {"type": "integer"} for name in ("tinyint", "smallint", "integer", "bigint", "hugeint", "ubigint")},
}

_HEAD: Mapping[str, Mapping[str, Any]] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "kind": {"enum": ["model", "across"], "description": "of one model, or across models"},
    "title": {"type": "string"},
    "written_at": {"type": "string", "format": "date-time"},
    "written_with": {"type": "string", "description": "version of Corpus Audit that wrote the report"},
    "layout": {"type": "string", "description": "digest of the code that lays the report out"},
    "includes_text": {"type": "boolean", "description": "whether excerpts of audited texts are quoted"},
    "whole_sha256": {"type": "string", "description": "digest of the page before rows were left out for its size"},
}


@functools.cache
def format_report_schema() -> str:
    """The schema as it is written beside the reports; made once per process: its SQL and types do not change."""
    return json.dumps(build_report_schema(), indent=2, ensure_ascii=False) + "\n"


def build_report_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every JSON copy is valid by."""
    with open_in_memory() as connection:
        create_tables(connection, list_tables(include_text=True))
        create_views(connection)
        prepare_connection(connection)
        read_site(connection)
        create_page_tables(connection, [], model=None, sections_shown=0, include_text=True)
        comments = _read_column_comments(connection)
        found = {section.name: _build_section_schema(connection, section, comments) for section in sections()}
    properties: dict[str, Mapping[str, Any]] = {**_HEAD, **found, "left_out": _build_counts_schema(found)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "description": "A report of one model, or across models.",
        **_build_object_schema(properties),
    }


def _read_column_comments(connection: duckdb.DuckDBPyConnection) -> Mapping[str, Mapping[str, str]]:
    """What the columns of every table and view mean, by table and column."""
    found: dict[str, dict[str, str]] = {}
    for table, column, comment in connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL"
    ).fetchall():
        found.setdefault(table, {})[column] = comment
    return found


def _build_section_schema(
    connection: duckdb.DuckDBPyConnection, section: SectionFiles, comments: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    meanings = _collect_column_meanings(section, comments)
    relation = connection.sql(section.sql)
    columns = {
        name: _build_column_schema(kind, name, meanings)
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if name != "in_all" and not name.startswith("_")
    }
    parts = {part.name: _drop_pair_columns(_build_section_schema(connection, part, comments)) for part in section.parts}
    more = {"left_out": _build_counts_schema(parts)} if parts else {}
    return {
        "description": section.description,
        "type": "array",
        "items": _build_object_schema({**columns, **parts, **more}),
    }


def _build_counts_schema(schemas: Mapping[str, object]) -> dict[str, Any]:
    counts = {name: {"type": "integer"} for name in schemas}
    return {"description": "how many rows of each section are not listed", **_build_object_schema(counts)}


def _drop_pair_columns(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of rows that belong to one pair: they do not name it again."""
    columns = {name: of for name, of in schema["items"]["properties"].items() if name not in ("model", "benchmark")}
    return {**schema, "items": _build_object_schema(columns)}


def _collect_column_meanings(section: SectionFiles, comments: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """What columns mean: as the query's head says, or else as in the first table or view that the query reads, or that
    its head names as the "view …" or "table …" that its source is made from."""
    meanings: dict[str, str] = {}
    code = re.sub(r"--.*", "", section.sql)
    for word in [*re.findall(r"\w+", code), *re.findall(r"(?:view|table) (\w+)", section.description)]:
        for column, comment in comments.get(word, {}).items():
            meanings.setdefault(column, comment)
    return {**meanings, **section.columns}


def _build_column_schema(kind: Any, name: str, meanings: Mapping[str, str]) -> dict[str, Any]:
    """The schema of a column or field; each may be null, because any value can be unknown."""
    known: dict[str, Any]
    if kind.id == "list":
        known = {"type": ["array", "null"], "items": _build_column_schema(kind.children[0][1], "", meanings)}
    elif kind.id == "struct":
        known = _build_object_schema({field: _build_column_schema(of, field, meanings) for field, of in kind.children})
        known["type"] = ["object", "null"]
    elif kind.id == "enum":
        known = {"enum": [*kind.children[0][1], None]}
    else:
        plain = _TYPES[str(kind.id)]
        known = {**plain, "type": [plain["type"], "null"]}
    return {"description": meanings[name], **known} if name in meanings else known


def _build_object_schema(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


ACROSS = "contamination_report.html"
SCHEMA = "report.schema.json"
MAX_BYTES = 3_000_000
_SHORTENED = (
    ("evidence", "section", 0),
    ("extraction", "extraction", 0),
    ("asked", "asked", 0),
    ("lineage", "lineage", 1),
)
"""The sections that a page has less of where it would be too large, first to last: the column of other sections that
names their rows, and how many of them stay."""


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
    return page.with_suffix(".json") if page.suffix == ".html" else page.with_name(f"{page.name}.json")


def build_reports(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
    """Write every report of a warehouse into ``folder``; ``include_text=False`` quotes none of the audited texts.

    Pages of models that the warehouse holds no more are removed. Raises DataError where the warehouse is missing or
    unreadable, or where a page cannot be written.
    """
    now = datetime.now(UTC)
    with _open_warehouse(warehouse) as connection:
        prepare_connection(connection)
        site = read_site(connection)
        pages = {model: model_page_path(folder, model) for model in site.models}
        names = {model: page.name for model, page in pages.items()}
        written = 0
        for model, page in iterate_model_pages(connection, site, include_text=include_text):
            written += _write_page(pages[model], page, names, now)
        across = read_page_across_models(connection, site, include_text=include_text)
    path = folder / ACROSS
    written += _write_page(path, across, names, now)
    # Another layout writes every page again; making the schema takes as long as reading one.
    if written or not (folder / SCHEMA).exists():
        _write_file(folder / SCHEMA, format_report_schema().encode())
    _remove_other_pages(folder, {*pages.values()})
    return _summarise_reports(path, pages, site, across, written)


@contextmanager
def _open_warehouse(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_read_only(warehouse) as connection:
        try:
            yield connection
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise DataError(
                f"the warehouse {warehouse} lacks what the report shows ({error_to_one_line(error)}): it was "
                "built by another"
                " version; build it again: corpus-audit report"
            ) from error


def _summarise_reports(
    path: Path, pages: Mapping[str, Path], site: Site, across: ReportPage, written: int
) -> ReportSummary:
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
    return plain({**head, **page.sections, "left_out": count_left_out_rows(page.sections)})


def _write_page(path: Path, page: ReportPage, names: Mapping[str, str], now: datetime) -> int:
    """Write page and JSON copy unless both are there and say the same; how many pages were written."""
    content = page_as_json(page)
    # Of the page as it is before it is shortened.
    whole = digest(content)
    if path.exists() and _is_copy_of(_read_json_copy(json_copy_path(path)), content, whole):
        return 0
    fitting, html = _shorten_to_fit(
        page, lambda shown: render(shown, written_at=now, pages=names, data_version=whole).encode()
    )
    _write_file(path, html)
    copy = plain({"written_at": now, "whole_sha256": whole, **(content if fitting is page else page_as_json(fitting))})
    # Last: a page without its copy is written again.
    _write_file(json_copy_path(path), json.dumps(copy, ensure_ascii=False).encode())
    return 1


def _write_file(path: Path, content: bytes) -> None:
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DataError(f"the report {path} cannot be written ({error}): is the disk full or read-only?") from error


def _shorten_to_fit(page: ReportPage, render_page: Callable[[ReportPage], bytes]) -> tuple[ReportPage, bytes]:
    """The page, with less evidence, then less of extraction, of what was asked and of lineage, where it would be too
    large to open."""
    html = render_page(page)
    for section, column, least in _SHORTENED:
        while len(html) > MAX_BYTES and len(page.sections[section]) > least:
            page = _halve_section(page, section, column)
            html = render_page(page)
    return page, html


def _halve_section(page: ReportPage, section: str, column: str) -> ReportPage:
    """A page with half the rows of a section; a number in ``column`` of another that leads to none is taken out."""
    rows = page.sections[section]
    kept = Rows(rows[: len(rows) // 2], rows.in_all)
    numbers = {row["number"] for row in kept}
    others = {
        name: Rows(
            [{**row, column: None} if row.get(column) not in (None, *numbers) else row for row in found], found.in_all
        )
        for name, found in page.sections.items()
    }
    return replace(page, sections={**others, section: kept})


def _read_json_copy(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_copy_of(copy: object, content: Mapping[str, Any], whole_digest: str) -> bool:
    """Whether a JSON copy says this, at whatever time.

    A shortened page lacks rows to compare: there ``whole_digest``, the digest of the whole page, tells.
    """
    if not isinstance(copy, dict):
        return False
    if copy.get("left_out") != content["left_out"]:
        return bool(copy.get("whole_sha256") == whole_digest)
    return {key: value for key, value in copy.items() if key not in ("written_at", "whole_sha256")} == content


def _remove_other_pages(folder: Path, pages: set[Path]) -> None:
    """Remove the pages of models that are gone: somebody may have asked for them to be forgotten."""
    kept = pages | {json_copy_path(page) for page in pages}
    for file in folder.glob(f"{MODEL_PAGE}*"):
        if file.suffix in {".html", ".json"} and file not in kept:
            remove(file)
