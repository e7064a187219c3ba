"""What is shown of results as Dagster metadata: column schemas, row counts, tables, pictures."""

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
    """The declaration of a table, as the UI shows it."""
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
    """Return the metadata that shows where a function is declared."""
    code = function.__code__
    reference = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno, label=label)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _link_page(page: Path) -> dg.MetadataValue:
    """A link to a page of the report where `corpus-audit dev` serves it, else its path."""
    url = os.environ.get(REPORT_URL)
    return dg.MetadataValue.path(page) if url is None else dg.MetadataValue.url(urljoin(url, quote(page.name)))


def build_metadata(metadata: UiMetadata) -> dict[str, Any]:
    """Return what is shown, in Dagster's types; the UI shows it in this order."""
    return {
        **{name: dg.MetadataValue.md(picture) for name, picture in metadata.pictures.items()},
        **({} if metadata.rows is None else {"dagster/row_count": metadata.rows}),
        **metadata.values,
        **{name: build_markdown_table(header, body) for name, (header, body) in metadata.tables.items()},
        **{name: dg.MetadataValue.path(path) for name, path in metadata.paths.items()},
        **({} if metadata.page is None else {"page": _link_page(metadata.page)}),
    }


def build_markdown_table(header: tuple[str, ...], body: Sequence[tuple[object, ...]]) -> dg.MetadataValue:
    """A small table; cells are escaped, because names and reasons may hold untrusted text.

    A name may be broken after its :, /, _ and |: as one word it pushes what comes after it out of a narrow window.
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += [
        "| " + " | ".join(_escape_cell(_BREAKS.sub("\u200b", str(value))) for value in row) + " |" for row in body
    ]
    return dg.MetadataValue.md("\n".join(lines))


def _escape_cell(value: object) -> str:
    """The value on one line, every character that Markdown or HTML takes for markup as an entity: a backslash before
    one could be undone by a backslash in the text."""
    text = " ".join(str(value).splitlines())
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return "".join(f"&#{ord(letter)};" if letter in "|`[]()\\*_~!" else letter for letter in text)
