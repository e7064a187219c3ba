"""What is shown of results as Dagster metadata: column schemas, row counts, tables, pictures.

What belongs here: conversions. What does not: choosing what is shown (operate/stages/).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import Table, description_of
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.report.inline_picture import IN_PLACE

REPORT_URL = "CORPUS_AUDIT_REPORT_URL"
"""In processes of `corpus-audit dev`: where it serves the report."""
_BREAKS = re.compile(r"(?<=[:/_|])(?=\w)")
_LONG = 250
"""Characters from which on a value is shown only when it is asked for."""


def column_schema(table: Table) -> dg.TableSchema:
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


def schema_metadata(table: Table) -> dict[str, dg.TableSchema]:
    """Definition metadata of an asset that writes ``table``."""
    return {"dagster/column_schema": column_schema(table)}


def link_report() -> dict[str, dg.MetadataValue]:
    """Definition metadata of the report's asset: a link that opens it, where `corpus-audit dev` serves it."""
    url = os.environ.get(REPORT_URL)
    return {} if url is None else {"report": dg.MetadataValue.url(url)}


def metadata_of(shown: Shown) -> dict[str, Any]:
    """What is shown, in Dagster's types."""
    values = {
        name: _fold_markdown(_escape_cell(value)) if isinstance(value, str) and len(value) > _LONG else value
        for name, value in shown.values.items()
    }
    return {
        **{name: dg.MetadataValue.md(words) for name, words in shown.leads.items()},
        **{name: _fold_markdown(words) for name, words in shown.folded.items()},
        **({} if shown.rows is None else row_count_metadata(shown.rows)),
        **values,
        **{name: markdown_table(header, body) for name, (header, body) in shown.tables.items()},
        **{name: dg.MetadataValue.md(picture) for name, picture in shown.pictures.items()},
        **{name: dg.MetadataValue.path(path) for name, path in shown.paths.items()},
    }


def _fold_markdown(markdown: str) -> dg.MetadataValue:
    """Words that the UI shows when they are asked for: it opens Markdown in place below a thousand characters."""
    return dg.MetadataValue.md(markdown.ljust(IN_PLACE))


def row_count_metadata(count: int) -> dict[str, int]:
    """Metadata of how many rows were written."""
    return {"dagster/row_count": count}


def markdown_table(header: tuple[str, ...], body: Sequence[tuple[object, ...]]) -> dg.MetadataValue:
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
    return "".join(f"&#{ord(one)};" if one in "|`[]()\\*_~!" else one for one in text)
