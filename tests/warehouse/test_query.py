"""Queries of the warehouse: no writes, no access to other files, no interruption by rebuilds."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from made_data_folder import DAY, Folder

from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.warehouse.query import open_read_only, query_warehouse


def test_rows_come_with_their_column_names(warehouse: Path) -> None:
    table = query_warehouse(warehouse, "SELECT model, count(*) AS n FROM leaderboard GROUP BY model ORDER BY model;")
    assert table.to_pylist() == [{"model": "small <2b> $x$", "n": 8}, {"model": "tiny-125m", "n": 8}]


def test_a_finding_joins_to_its_run_model_benchmark_and_code(warehouse: Path) -> None:
    rows = query_warehouse(
        warehouse,
        "SELECT f.value, f.run_id, f.code_version, m.name, b.design FROM findings f"
        " JOIN models m ON m.fingerprint = f.model_fingerprint"
        " JOIN benchmarks b ON b.digest = f.benchmark_digest AND b.benchmark = f.benchmark"
        " JOIN lineage l ON l.\"table\" = 'evaluations' AND l.run_id = f.run_id"
        " AND l.\"partition\" = f.benchmark || '|' || f.model"
        " WHERE f.is_default AND f.metric = 'auroc' AND f.model = 'tiny-125m' AND f.detector = 'loss'"
        " ORDER BY f.benchmark",
    ).to_pylist()
    assert [(row["run_id"], row["code_version"], row["name"], row["design"]) for row in rows] == [
        ("again-notes", get_stage("evaluations").code_version, "tiny-125m", "temporal"),
        ("run-0-speeches_64", get_stage("evaluations").code_version, "tiny-125m", "temporal"),
    ]


@pytest.mark.parametrize(
    "sql", ["SHOW TABLES", "DESCRIBE scores", "SUMMARIZE lineage", "EXPLAIN FROM scores", "FROM models"]
)
def test_show_describe_and_summarize_are_allowed(warehouse: Path, sql: str) -> None:
    assert len(query_warehouse(warehouse, sql)) > 0


def test_times_are_in_utc(warehouse: Path) -> None:
    table = query_warehouse(warehouse, "SELECT min(finished_at)::VARCHAR AS t FROM lineage")
    assert table.to_pylist() == [{"t": "2026-03-01 09:00:00+00"}]


REFUSED = (
    "COPY scores TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT parquet)",
    "EXPLAIN ANALYZE COPY scores TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "COPY scores FROM '{csv}'",
    "SELECT * FROM read_csv('{csv}')",
    "SELECT * FROM '{csv}'",
    "SELECT * FROM '{parquet}'",
    "SELECT * FROM read_parquet('{parquet}')",
    "SELECT * FROM read_parquet('{folder}/*.parquet')",
    "SELECT * FROM parquet_metadata('{parquet}')",
    "SELECT * FROM read_json('{csv}')",
    "SELECT * FROM read_text('{csv}')",
    "SELECT * FROM read_blob('{csv}')",
    "SELECT * FROM sniff_csv('{csv}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM query('FROM read_text(''{csv}'')')",
    "ATTACH '{database}'",
    "ATTACH '{database}' (READ_ONLY)",
    "ATTACH ':memory:' AS scratch",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{csv}'",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "PRAGMA enable_external_access = true",
    "SET lock_configuration = false",
    "RESET lock_configuration",
    "SET python_enable_replacements = true",
    "CALL enable_logging(storage = 'file', storage_path = '{out}')",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{out}')",
    "INSERT INTO scores SELECT * FROM scores",
    "EXPLAIN ANALYZE DELETE FROM scores",
    "UPDATE scores SET score = 1",
    "DELETE FROM lineage",
    "DROP TABLE scores",
    "CREATE TABLE mine (n INTEGER)",
    "CREATE TABLE memory.mine (n INTEGER)",
    "CREATE TEMP TABLE mine (n INTEGER)",
    "CHECKPOINT",
    "DETACH warehouse",
    "USE memory",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY scores TO '{out}'",
    "FROM secret_rows",
)


@pytest.mark.parametrize("sql", REFUSED)
def test_statements_that_write_or_reach_outside_are_refused(warehouse: Path, tmp_path: Path, sql: str) -> None:
    secret_rows = pq.read_table(next((warehouse.parent / "scores").rglob("*.parquet")), partitioning=None)
    places = {
        "out": tmp_path / "out",
        "folder": tmp_path,
        "csv": tmp_path / "x.csv",
        "parquet": tmp_path / "x.parquet",
        "database": tmp_path / "x.duckdb",
    }
    places["csv"].write_text("a,b\n1,2\n", encoding="utf-8")
    pq.write_table(secret_rows, places["parquet"])
    duckdb.connect(str(places["database"])).close()
    before = warehouse.read_bytes()
    with pytest.raises(AuditError) as raised:
        query_warehouse(warehouse, sql.format(**places))
    assert "\n" not in str(raised.value)
    assert not places["out"].exists()
    assert warehouse.read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "COPY scores TO 'x.csv'",
            "COPY statements are refused.*open a copy of the warehouse or the Parquet files with DuckDB",
        ),
        ("FROM read_csv('/x.csv')", "refused .*disabled by configuration.*with DuckDB"),
        ("SELEC 1", "the SQL is invalid: Parser Error"),
        ("SELECT nosuch FROM scores", "the SQL failed: Binder Error.*nosuch"),
        ("FROM nosuch", "the SQL failed: Catalog Error.*nosuch"),
        ("", "the SQL has 0 statements. Run one statement at a time"),
        ("SELECT 1; SELECT 2", "the SQL has 2 statements. Run one statement at a time"),
    ],
)
def test_errors_say_what_is_wrong_in_one_line(warehouse: Path, sql: str, words: str) -> None:
    with pytest.raises(AuditError, match=words) as raised:
        query_warehouse(warehouse, sql)
    assert "\n" not in str(raised.value)


def test_a_missing_warehouse(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the warehouse .*audit\.duckdb does not exist yet.*corpus-audit audit"):
        query_warehouse(tmp_path / "audit.duckdb", "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_warehouse(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(DataError, match=r"cannot be read .*Build it again"):
        query_warehouse(path, "SELECT 1")


def test_a_foreign_wal_is_reported(audited: Folder) -> None:
    warehouse = build_warehouse(audited.paths).path
    crash = (
        f"import duckdb, os; c = duckdb.connect({str(warehouse)!r}); c.execute('CREATE TABLE t (n INT)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", crash], check=True)
    other = warehouse.with_name("other.duckdb")
    duckdb.connect(str(other)).close()
    other.replace(warehouse)
    with pytest.raises(DataError, match=r"another program opened it for writing \(.*audit\.duckdb\.wal\)"):
        query_warehouse(warehouse, "SELECT 1")


def test_an_open_reader_keeps_answering_while_the_warehouse_is_rebuilt(audited: Folder) -> None:
    warehouse = build_warehouse(audited.paths).path
    count = "SELECT count(DISTINCT run_id) AS n FROM scores"
    with open_read_only(warehouse) as reader:
        audited.write_audit("notes_32", "tiny-125m", "later", DAY + timedelta(days=2))
        build_warehouse(audited.paths)
        assert reader.sql(count).fetchall() == [(5,)]
        assert query_warehouse(warehouse, count).to_pylist() == [{"n": 6}]
