"""The JSON Schema of the reports' JSON copies, made of the types that the sections' queries yield.

What belongs here: from types of DuckDB to JSON Schema, and what columns mean. What does not: the queries and what they
say of their columns (sections/), the comments of the warehouse's tables and views (warehouse/sql/).

The version goes up where a section or a column is renamed, removed or means something else. One that is added leaves it
as it is: who reads a copy passes over what it does not know.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

import duckdb

from audit_pipeline.report.page import create_page_tables, prepare, read_site
from audit_pipeline.report.section_files import SectionFiles, sections
from audit_pipeline.warehouse.define import create_tables, create_views
from audit_pipeline.warehouse.schema import tables

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
def schema_text() -> str:
    """The schema as it is written beside the reports; made once a process, of SQL and types that stay as they are."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def report_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every JSON copy is valid by."""
    with duckdb.connect() as connection:
        create_tables(connection, tables(include_text=True))
        create_views(connection)
        prepare(connection)
        read_site(connection)
        create_page_tables(connection, [], model=None, sections_shown=0, include_text=True)
        comments = _comments(connection)
        found = {section.name: _rows(connection, section, comments) for section in sections()}
    properties: dict[str, Mapping[str, Any]] = {**_HEAD, **found, "left_out": _counts(found)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        "description": "A report of one model, or across models.",
        **_object(properties),
    }


def _comments(connection: duckdb.DuckDBPyConnection) -> Mapping[str, Mapping[str, str]]:
    """What the columns of every table and view mean, by table and column."""
    found: dict[str, dict[str, str]] = {}
    for table, column, comment in connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL"
    ).fetchall():
        found.setdefault(table, {})[column] = comment
    return found


def _rows(
    connection: duckdb.DuckDBPyConnection, section: SectionFiles, comments: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    meanings = _meanings(section, comments)
    relation = connection.sql(section.sql)
    columns = {
        name: _type(kind, name, meanings)
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if name != "in_all" and not name.startswith("_")
    }
    parts = {part.name: _of_part(_rows(connection, part, comments)) for part in section.parts}
    more = {"left_out": _counts(parts)} if parts else {}
    return {"description": section.description, "type": "array", "items": _object({**columns, **parts, **more})}


def _counts(found: Mapping[str, object]) -> dict[str, Any]:
    counts = {name: {"type": "integer"} for name in found}
    return {"description": "how many rows of each section are not listed", **_object(counts)}


def _of_part(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of rows that belong to one pair: they do not name it again."""
    columns = {name: one for name, one in schema["items"]["properties"].items() if name not in ("model", "benchmark")}
    return {**schema, "items": _object(columns)}


def _meanings(section: SectionFiles, comments: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """What columns mean: as the query's head says, or else as in the first table or view that the query reads, or that
    its head names as the "view …" or "table …" behind what it reads."""
    meanings: dict[str, str] = {}
    code = re.sub(r"--.*", "", section.sql)
    for word in [*re.findall(r"\w+", code), *re.findall(r"(?:view|table) (\w+)", section.description)]:
        for column, comment in comments.get(word, {}).items():
            meanings.setdefault(column, comment)
    return {**meanings, **section.columns}


def _type(kind: Any, name: str, meanings: Mapping[str, str]) -> dict[str, Any]:
    """The schema of a column or field; every one may be null, for nothing is known of what there is not."""
    known: dict[str, Any]
    if kind.id == "list":
        known = {"type": ["array", "null"], "items": _type(kind.children[0][1], "", meanings)}
    elif kind.id == "struct":
        known = _object({field: _type(of, field, meanings) for field, of in kind.children})
        known["type"] = ["object", "null"]
    elif kind.id == "enum":
        known = {"enum": [*kind.children[0][1], None]}
    else:
        plain = _TYPES[str(kind.id)]
        known = {**plain, "type": [plain["type"], "null"]}
    return {"description": meanings[name], **known} if name in meanings else known


def _object(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
