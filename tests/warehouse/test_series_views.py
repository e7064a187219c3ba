"""Documents over a series of checkpoints: the first and the last checkpoint at which they are found."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from made_rows import make_row

from audit_pipeline.report.sentences import render_phrase
from audit_pipeline.tables import CONFIGURED_MODELS, DOCUMENT_MEMORISATION, GROUP_TESTS, PAIR_ANSWERS, TABLES, Table
from audit_pipeline.warehouse.schema import create_schema, list_tables

MODELS = ("s@a", "s@b", "s@c", "s@d")


def insert(connection: duckdb.DuckDBPyConnection, table: Table, /, **values: object) -> None:
    row = {**make_row(table), **values}
    named = [name for name in row if name in {column.name for column in table.columns}]
    columns = ", ".join(f'"{name}"' for name in named)
    marks = ", ".join("?" * len(named))
    connection.execute(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", [row[name] for name in named])


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        create_schema(made, list_tables(include_text=True))
        for position, model in enumerate(MODELS, 1):
            # The last checkpoint has no step.
            step = 10 * position if position < 4 else None
            insert(made, CONFIGURED_MODELS, name=model, origin="x", series="s", position=position, step=step)
            for table in ("document_memorisation", "group_tests", "pair_answers"):
                of_run = {"table": table, "model": model, "benchmark": "b", "run_id": "r", "is_current": True}
                insert(made, TABLES["runs"], **of_run)
        insert(made, CONFIGURED_MODELS, name="other", origin="x")
        yield made


def hold_documents(connection: duckdb.DuckDBPyConnection, **found_at: str) -> None:
    """Documents that are given word for word at these checkpoints (of their last letters), searched at all of them."""
    for document, letters in found_at.items():
        for model in MODELS:
            claim = "reproduced" if model[-1] in letters else "not reproduced"
            of = {"model": model, "benchmark": "b", "run_id": "r", "document_id": document, "side": "audited"}
            insert(connection, DOCUMENT_MEMORISATION, **of, windows=1, claim=claim)


def test_checkpoints_at_which_a_document_is_found(connection: duckdb.DuckDBPyConnection) -> None:

    def read_words(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
        rows = connection.execute(
            "SELECT document, since_first, found_at, coalesce('step ' || first_step, first_model),"
            " coalesce('step ' || lost_step, lost_model) FROM series_documents"
        ).fetchall()
        names = ("checkpoints", "found_at", "first", "lost")
        return {
            document: render_phrase("along_series", dict(zip(names, facts, strict=True))) for document, *facts in rows
        }

    hold_documents(connection, always="abcd", late="bcd", last="d", lost="ab", lost_last="abc", back="acd", never="")
    assert read_words(connection) == {
        "always": "found from step 10 on",
        "late": "found from step 20 on",
        "last": "found from s@d on",
        "lost": "found from step 10 on, no longer found since step 30",
        "lost_last": "found from step 10 on, no longer found since s@d",
        "back": "found at 3 of 4 checkpoints, first at step 10",
    }


def test_the_headline_detector_decides_which_documents_stand_out(connection: duckdb.DuckDBPyConnection) -> None:
    named = {"benchmark": "b", "run_id": "r", "parameters": "{}"}
    for model in MODELS[:2]:
        insert(connection, PAIR_ANSWERS, **named, model=model, detector="loss", standing_out=1, tested=3)
        for group, detector, label, q in (
            ("found", "loss", 1, 0.05),
            ("unknown", "loss", None, 0.01 if model == "s@b" else 0.2),
            ("other detector", "zlib", 1, 0.01),
            ("held out", "loss", 0, 0.01),
        ):
            insert(connection, GROUP_TESTS, **named, model=model, group=group, detector=detector, label=label, q_bh=q)
    found = connection.execute("SELECT document, found_by, checkpoints, first_step FROM series_documents").fetchall()
    assert found == [("found", "scores", 2, 10), ("unknown", "scores", 2, 20)]
    hold_documents(connection, found="c")
    rows = connection.execute("SELECT position, standing_out, tested, reproduced, documents FROM series_findings")
    assert rows.fetchall() == [(1, 1, 3, 0, 1), (2, 1, 3, 0, 1), (3, None, None, 1, 1), (4, None, None, 0, 1)]
