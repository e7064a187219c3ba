"""Every query of docs/sql.md runs and returns rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
from made_data_folder import Folder, write_config

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.tables import PAIR_STATES
from audit_pipeline.warehouse.query import open_read_only, query_warehouse
from audit_pipeline.warehouse.schema import MACROS

from .conftest import copy_folder
from .decided import NEW_MODEL, OLD_MODEL, write_all_decisions

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTION = re.compile(r"^### (\d+)\. (.+?)$(.+?)(?=^##)", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```sql\n(.+?)^```$", re.MULTILINE | re.DOTALL)
QUESTIONS = [(int(number), title, FENCED.findall(body)) for number, title, body in SECTION.findall(TEXT)]
QUERIES = [(f"{number}.{place}", sql) for number, _, found in QUESTIONS for place, sql in enumerate(found, start=1)]


@pytest.fixture(scope="module")
def warehouse(audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse in which there is something to every question: one model is older than all texts."""
    root = tmp_path_factory.mktemp("docs")
    released = {OLD_MODEL: {"release_date": date(2018, 1, 1)}, NEW_MODEL: {"release_date": date(2025, 1, 1)}}
    config = write_config(root / "config", fields=released)
    folder = copy_folder(audited_once, root / "data")
    write_all_decisions(folder)
    return build_warehouse(folder.paths, config=config).path


def test_there_are_twelve_questions_each_with_a_query() -> None:
    assert [number for number, _, _ in QUESTIONS] == list(range(1, 13))
    assert all(title.endswith("?") and found for _, title, found in QUESTIONS)
    assert TEXT.count("```sql") == len(QUERIES)


@pytest.mark.parametrize(("number", "sql"), QUERIES, ids=[number for number, _ in QUERIES])
def test_the_query_answers(warehouse: Path, number: str, sql: str) -> None:
    table = query_warehouse(warehouse, sql)
    assert len(table) > 0
    empty = [name for name in table.column_names if table[name].null_count == len(table)]
    # Of the made-up rates none is corrected, and the one configuration is as it should be.
    assert set(empty) <= {"corrected", "reason"}


def test_a_first_audit_is_a_change(warehouse: Path) -> None:
    [[first, _]] = [found for number, _, found in QUESTIONS if number == 8]
    found = {(row["model"], row["benchmark"]): row["change"] for row in query_warehouse(warehouse, first).to_pylist()}
    assert found.pop((OLD_MODEL, "notes_32")) == "changed"
    assert found == {
        (NEW_MODEL, "notes_32"): "first audit",
        **{(model, "speeches_64"): "first audit" for model in (OLD_MODEL, NEW_MODEL)},
    }


def test_the_page_lists_all_states_of_a_pair() -> None:
    [[states, _]] = [found for number, _, found in QUESTIONS if number == 10]
    assert re.findall(r"'(\w+)'", states) == [*PAIR_STATES]


def test_the_statements_that_list_tables_run(warehouse: Path) -> None:
    (block,) = re.findall(r"read them there:\n\n((?:    .+\n)+)", TEXT)
    statements: Sequence[str] = [line.strip() for line in block.splitlines()]
    assert len(statements) == 3
    for statement in statements:
        assert len(query_warehouse(warehouse, statement)) > 0


def test_names_of_the_page_exist(warehouse: Path) -> None:
    with open_read_only(warehouse) as connection:
        known = {row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
        known |= {row[0] for row in connection.execute("SELECT column_name FROM duckdb_columns()").fetchall()}
    known |= (
        {macro.name for macro in MACROS} | {*PAIR_STATES} | {"apostrophe", "group", "collection", "benchmark", "json"}
    )
    named = re.findall(r"`([a-z][a-z_]+)`", TEXT.split("## Twelve questions")[1])
    assert [name for name in named if name not in known] == []
