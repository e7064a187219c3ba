"""Dagster metadata of results: column schemas, row counts, tables, pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import dagster as dg

from audit_pipeline.pipeline.stage import UiMetadata
from audit_pipeline.tables import Table, description_of

REPORT_URL = "CORPUS_AUDIT_REPORT_URL"
"""Environment variable with the address at which `corpus-audit dev` serves the report."""
_BREAKS = re.compile(r"(?<=[:/_|])(?=\w)")


def build_column_schema(table: Table) -> dg.TableSchema:
    """Return the column schema of a table, which the UI shows."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                type=str(field.type),
                description=description_of(field),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in table.schema
        ]
    )


def build_code_references(function: Callable[..., object], label: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the metadata that links to the declaration of a function."""
    code = function.__code__
    reference = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno, label=label)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _link_page(page: Path) -> dg.MetadataValue:
    """Return a link to a page of the report if `corpus-audit dev` serves the report, else the page's path."""
    url = os.environ.get(REPORT_URL)
    if url is None:
        return dg.MetadataValue.path(page)
    return dg.MetadataValue.url(urljoin(url, quote(page.name)))


def build_metadata(metadata: UiMetadata) -> dict[str, Any]:
    """Return metadata in Dagster's types, in the order in which the UI shows it."""
    shown: dict[str, Any] = {}
    for name, picture in metadata.pictures.items():
        shown[name] = dg.MetadataValue.md(picture)
    if metadata.rows is not None:
        shown["dagster/row_count"] = metadata.rows
    shown |= metadata.values
    for name, (header, body) in metadata.tables.items():
        shown[name] = build_markdown_table(header, body)
    for name, path in metadata.paths.items():
        shown[name] = dg.MetadataValue.path(path)
    if metadata.page is not None:
        shown["page"] = _link_page(metadata.page)
    return shown


def build_markdown_table(header: tuple[str, ...], body: Sequence[tuple[object, ...]]) -> dg.MetadataValue:
    """Return a small table. Cells are escaped, because names and reasons can have untrusted text.

    Zero-width spaces allow line breaks after :, /, _ and |. Otherwise a long name hides the next columns in a narrow
    window.
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in body:
        cells = [_escape_cell(_BREAKS.sub("\u200b", str(value))) for value in row]
        lines.append("| " + " | ".join(cells) + " |")
    return dg.MetadataValue.md("\n".join(lines))


_MARKUP = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {character: f"&#{ord(character)};" for character in "|`[]()\\*_~!"}
)
"""The characters of Markdown and HTML markup as entities. A backslash before a character would not be a safe escape,
because the text can have a backslash in front of it."""


def _escape_cell(value: object) -> str:
    """Return a value on one line, without markup."""
    return " ".join(str(value).splitlines()).translate(_MARKUP)
