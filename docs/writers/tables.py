"""docs/reference/tables.md: every table, view and macro of the warehouse, from their declarations.

What belongs here: columns with their types and comments as Markdown. What does not: comments (tables/ and
warehouse/sql/), questions and their queries (docs/sql.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from audit_pipeline.tables.sql import sql_type
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse.schema import MACROS, VIEWS, create_schema, list_tables
from docs.writers.markdown import escape_markdown, format_markdown_table

_HEAD = """\
# Tables, views and macros

Read this page if you write queries. It lists the content of the warehouse (`corpus-audit sql`). The warehouse has the
same comments:
`corpus-audit sql "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'scores'"`.
[Queries in SQL](../sql.md) answers frequent questions. Begin with the view `leaderboard`.
"""
_KEPT = {
    "runs": "Every run adds rows; nothing is overwritten.",
    "rewritten": "Every run rewrites its partition.",
}


def tables_page() -> str:
    """Return the page. It is read from an empty warehouse that is created for this purpose."""
    declared = list_tables(include_text=True)
    with duckdb.connect() as connection:
        create_schema(connection, declared)
        comments = dict(
            connection.execute(
                "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
                " UNION ALL SELECT function_name, comment FROM duckdb_functions() WHERE NOT internal"
            ).fetchall()
        )
        views = [(one.name, comments.get(one.name), _columns(connection, one.name)) for one in VIEWS]
    names = ", ".join(f"[`{one.name}`](#{one.name})" for one in declared)
    others = ", ".join(f"[`{one.name}`](#{one.name})" for one in VIEWS)
    return (
        "\n\n".join(
            [
                _HEAD.rstrip(),
                f"**Tables.** {names}",
                f"**Views.** {others}",
                f"**[Macros](#macros).** {', '.join(f'`{one.name}`' for one in MACROS)}",
                "## Tables",
                *map(_table, declared),
                "## Views",
                *(_view(*view) for view in views),
                "## Macros",
                "A macro is a view with an argument: `FROM leaderboard_as_of(DATE '2026-06-01')`.",
                format_markdown_table(
                    ["macro", "content"],
                    ([f"`{one.name}`", escape_markdown(comments.get(one.name) or "")] for one in MACROS),
                ),
            ]
        )
        + "\n"
    )


def _columns(connection: duckdb.DuckDBPyConnection, name: str) -> Sequence[tuple[str, str, str | None]]:
    return connection.execute(
        "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
        [name],
    ).fetchall()


def _table(declared: Table) -> str:
    kept = _KEPT.get(declared.storage, "")
    made = f" Computed from {', '.join(f'`{one}`' for one in declared.made_from)}." if declared.made_from else ""
    key = f"Key: {', '.join(f'`{one}`' for one in declared.key)}."
    rows = (
        [
            f"`{one.warehouse_name}`",
            sql_type(one),
            escape_markdown(one.description),
            "yes" if one.null else "",
        ]
        for one in declared.stored
    )
    return "\n\n".join(
        [
            f"### {declared.name}",
            f"{escape_markdown(_sentence(declared.comment))} {key} {kept}{made}".rstrip().replace("  ", " "),
            format_markdown_table(["column", "type", "meaning", "may be null"], rows),
        ]
    )


def _view(name: str, comment: str | None, columns: Sequence[tuple[str, str, str | None]]) -> str:
    rows = ([f"`{column}`", type_, escape_markdown(meaning or "")] for column, type_, meaning in columns)
    return "\n\n".join(
        [
            f"### {name}",
            escape_markdown(_sentence(comment or "")),
            format_markdown_table(["column", "type", "meaning"], rows),
        ]
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""
