"""Dagster metadata: column schemas of tables, and Markdown tables with escaped text."""

from __future__ import annotations

import html
import re
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.pipeline.dagster.cell_events import (
    REPORT_URL,
    build_column_schema,
    build_markdown_table,
    build_metadata,
)
from audit_pipeline.pipeline.stage import UiMetadata
from audit_pipeline.tables import TABLES, Table, description_of


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_column_schema_says_what_the_contract_says(table: Table) -> None:
    columns = build_column_schema(table).columns
    assert [(one.name, one.type, one.description, one.constraints.nullable) for one in columns] == [
        (field.name, str(field.type), description_of(field), field.nullable) for field in table.schema
    ]
    assert all(one.description for one in columns)


def cells(markdown: str) -> list[list[str]]:
    """Return the cells of a Markdown table as shown, without the zero-width spaces."""
    shown = markdown.replace("\u200b", "")
    return [[html.unescape(cell.strip()) for cell in line.strip("|").split("|")] for line in shown.splitlines()]


def test_the_markdown_of_a_table() -> None:
    value = build_markdown_table(("part", "reason"), [("a", 1), ("b", None)]).value
    assert value == "| part | reason |\n|---|---|\n| a | 1 |\n| b | None |"


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a | b",
        "`code`",
        "[here](https://example.invalid)",
        "\\[here](https://example.invalid)",
        "![](https://example.invalid/pixel.png)",
        "**bold** _and_ ~~struck~~",
        "&lt;b&gt;",
    ],
)
def test_untrusted_text_stays_text(text: str) -> None:
    [_, _, row] = build_markdown_table(("one", "two"), [(text, "x")]).value.splitlines()  # type: ignore[union-attr]
    assert cells(row) == [[text, "x"]]
    assert not re.search(r"[<>`\[\]()\\*_!]", row)


@given(st.text(), st.text())
def test_no_text_changes_the_rows_of_a_table(first: str, second: str) -> None:
    value = str(build_markdown_table(("one", "two"), [(first, second), ("last", "row")]).value)
    found = cells(value)
    assert len(found) == 4
    assert all(len(row) == 2 for row in found)
    assert found[3] == ["last", "row"]


def test_the_page_is_a_link_if_the_report_is_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = UiMetadata(values={"status": "ok"}, page=tmp_path / "model=a%2Fb.html")
    found = build_metadata(shown)
    assert (found["status"], found["page"]) == ("ok", dg.MetadataValue.path(tmp_path / "model=a%2Fb.html"))
    monkeypatch.setenv(REPORT_URL, "http://127.0.0.1:5000/contamination_report.html")
    assert build_metadata(shown)["page"].value == "http://127.0.0.1:5000/model%3Da%252Fb.html"
