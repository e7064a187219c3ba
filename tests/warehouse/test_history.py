"""The state at a moment or at the end of a run, and the changes since then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from ledger_lines import explain_files, rewrite_lines
from made_data_folder import DAY, MODELS, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.sql import quote_literal
from audit_pipeline.warehouse.query import query_warehouse
from audit_pipeline.warehouse.schema import RUN_TABLES

from .decided import NEW_MODEL, OF_PAIR, OLD_MODEL, write_chain

FIRST, SECOND = "run-0-notes_32", "again-notes"


def changes(
    paths: DataPaths, where: str = OF_PAIR, view: str = "changes_since_last_audit"
) -> dict[str, dict[str, Any]]:
    return {row["detector"]: row for row in query_warehouse(paths.warehouse, f"FROM {view} {where}").to_pylist()}


@pytest.mark.parametrize(
    "table", [table.name for table in RUN_TABLES if table.current and table.name != "pair_answers"]
)
def test_as_of_macros_return_the_rows_of_that_moment(built: Folder, table: str) -> None:
    """The pair's first run ended on 1 March 2026 at nine, its second a day later (scores four minutes before)."""

    def runs(moment: str) -> list[tuple[Any, ...]]:
        return built.query(f"SELECT DISTINCT run_id FROM {table}_as_of({moment}) {OF_PAIR}")

    assert runs("'2026-03-01 08:55:00Z'") == []
    assert runs("'2026-03-01 09:00:00Z'") == [(FIRST,)]
    assert runs("DATE '2026-03-02'") == [(FIRST,)], "a date is its first moment"
    assert runs("TIMESTAMPTZ '2026-03-02 09:00:00Z'") == [(SECOND,)]
    assert runs(f"end_of_run('{FIRST}')") == [(FIRST,)]
    assert runs(f"end_of_run('{SECOND}')") == [(SECOND,)]
    now = built.query(f"SELECT count(*), count(DISTINCT run_id) FROM {table}_as_of(now())")
    assert now == built.query(f"SELECT count(*), count(DISTINCT run_id) FROM current_{table}")


def test_leaderboard_as_of_a_moment(built: Folder) -> None:
    columns = "model, benchmark, detector, parameters, auroc, blind_auroc, margin, run_id"
    assert built.query(f"SELECT {columns} FROM leaderboard_as_of(now()) ORDER BY ALL") == built.query(
        f"SELECT {columns} FROM leaderboard ORDER BY ALL"
    )
    was = built.query(f"SELECT detector, auroc FROM leaderboard_as_of('2026-03-01 12:00') {OF_PAIR} ORDER BY 1")
    assert len(was) == 4
    assert was == built.query(
        f"SELECT detector, value FROM evaluations WHERE run_id = '{FIRST}'"
        " AND metric = 'auroc' AND is_default AND detector <> 'blind_control' ORDER BY 1",
    )


def test_a_run_without_lineage_is_not_in_as_of_rows(decided: Folder) -> None:
    rewrite_lines(decided.paths, lambda fields: None if fields["run_id"] == SECOND else fields)
    build_warehouse(decided.paths)
    assert decided.query(f"SELECT DISTINCT run_id FROM evaluations_as_of(now()) {OF_PAIR}") == [(FIRST,)]


def test_changes_since_the_previous_run(built: Folder) -> None:
    found = changes(built.paths)
    assert set(found) == {"loss", "zlib", "min_k", "min_k_plus_plus"}
    now, was = (
        dict(built.query(f"SELECT detector, auroc FROM leaderboard_history WHERE run_id = '{run}'"))
        for run in (SECOND, FIRST)
    )
    for detector, row in found.items():
        assert (row["run_id"], row["previous_run_id"]) == (SECOND, FIRST)
        assert (row["auroc"], row["previous_auroc"]) == (now[detector], was[detector])
        assert row["difference"] == pytest.approx(now[detector] - was[detector])
        assert row["left_interval"] == (not was[detector] - 0.08 <= now[detector] <= min(1, was[detector] + 0.07))
        assert row["change"] == ("unchanged" if now[detector] == was[detector] else "changed")
        assert (row["benchmark_changed"], row["model_changed"], row["code_changed"]) == (False, False, True)
        assert row["inputs_changed"] == [f"scores/notes_32|{OLD_MODEL}"]
        assert row["packages_changed"] == []


def test_a_pair_audited_once_has_no_previous_run(built: Folder) -> None:
    rows = changes(built.paths, f"WHERE benchmark = 'notes_32' AND model = {quote_literal(NEW_MODEL)}")
    for row in rows.values():
        assert row["change"] == "first audit"
        nothing = ("previous_auroc", "difference", "left_interval", "previous_run_id", "benchmark_changed")
        assert [row[name] for name in (*nothing, "model_changed", "code_changed", "inputs_changed")] == [None] * 8


def test_every_kind_of_change_is_named(decided: Folder) -> None:
    write_chain(
        decided,
        "notes_32",
        OLD_MODEL,
        SECOND,
        DAY + timedelta(days=1),
        benchmark_digest="another build",
        model_fingerprint="9" * 40,
        packages={"torch": "2.14.0", "transformers": "5.23.0", "new": "1"},
        upstream={"examples/notes_32": "e2", "token_frequencies/sotu/t": "1"},
    )
    build_warehouse(decided.paths)
    row = changes(decided.paths)["loss"]
    assert (row["benchmark_changed"], row["model_changed"]) == (True, True)
    assert row["packages_changed"] == ["corpus-audit", "new", "torch"]
    assert row["inputs_changed"] == [
        "examples/notes_32",
        "reference_model/tiny",
        f"scores/notes_32|{OLD_MODEL}",
        "token_frequencies/sotu/t",
        f"token_statistics/notes_32|{OLD_MODEL}",
    ]


def test_added_and_removed_detectors_are_changes(decided: Folder) -> None:
    """A detector without a row in one of the two runs."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for run, without in ((FIRST, "zlib"), (SECOND, "loss")):
        file = decided.paths.run_file("evaluations", f"notes_32|{OLD_MODEL}", run)
        table = pq.read_table(file, partitioning=None)
        pq.write_table(table.filter(pc.not_equal(table["detector"], without)), file)
    explain_files(decided.paths)
    build_warehouse(decided.paths)
    found = changes(decided.paths)
    assert found["zlib"]["change"] == "new detector"
    assert (found["zlib"]["previous_auroc"], found["zlib"]["run_id"]) == (None, SECOND)
    assert found["loss"]["change"] == "no longer there"
    assert (found["loss"]["auroc"], found["loss"]["run_id"], found["loss"]["previous_run_id"]) == (None, SECOND, FIRST)
    assert found["loss"]["previous_auroc"] is not None


def test_changes_since_a_moment_are_of_pairs_audited_after_it(decided: Folder) -> None:
    decided.write_audit("notes_32", OLD_MODEL, "third", DAY + timedelta(days=2))
    write_chain(decided, "notes_32", OLD_MODEL, "third", DAY + timedelta(days=2))
    build_warehouse(decided.paths)

    def since(moment: str) -> set[tuple[Any, ...]]:
        sql = f"SELECT DISTINCT model, benchmark, run_id, previous_run_id FROM changes_since({moment})"
        return set(decided.query(sql))

    assert since("DATE '2026-03-02'") == {(OLD_MODEL, "notes_32", "third", FIRST)}
    assert since("'2026-03-02 09:00Z'") == {(OLD_MODEL, "notes_32", "third", SECOND)}
    assert since("DATE '2026-03-04'") == set()
    assert len(since("DATE '2020-01-01'")) == 2 * len(MODELS), "all are first audits"
    assert {row[3] for row in since("DATE '2020-01-01'")} == {None}
