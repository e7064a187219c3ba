"""`corpus-audit sql`: it reads, in several layouts, and does nothing else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_results import answered, error_of, told
from made_workspace import (
    Workspace,
)

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def test_sql_before_any_audit(workspace: Workspace) -> None:
    assert "audit a model first" in error_of(workspace.run("sql", "SELECT 1"))


def test_sql_builds_a_warehouse_that_is_not_there(audited_copy: Workspace) -> None:
    audited_copy.paths.warehouse.unlink()
    assert (
        told(audited_copy.run("sql", "SELECT count(*) > 0 AS found FROM scores", "--format", "csv")) == "found\ntrue\n"
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", "the SQL is wrong"),
        ("SELECT * FROM nothing", "the SQL cannot be run"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "one statement at a time"),
        ("INSERT INTO lineage SELECT * FROM lineage", "INSERT is refused"),
        ("DELETE FROM scores", "DELETE is refused"),
        ("COPY scores TO '{folder}/out.csv'", "COPY is refused"),
        ("ATTACH '{folder}/other.duckdb'", "ATTACH is refused"),
        ("SELECT * FROM read_csv('{folder}/secret.csv')", "refused"),
        ("SELECT * FROM '{folder}/secret.csv'", "refused"),
        ("SET enable_external_access = true", "SET is refused"),
    ],
)
def test_sql_reads_and_does_nothing_else(audited: Workspace, tmp_path: Path, statement: str, message: str) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    before = audited.paths.warehouse.read_bytes()
    result = audited.run("sql", statement.replace("{folder}", str(tmp_path)))
    assert message in error_of(result)
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert audited.paths.warehouse.read_bytes() == before


def test_sql_in_three_layouts(audited: Workspace) -> None:
    statement = (
        "SELECT 'a|b, \"c\"' AS words, 1.5 AS number, NULL AS nothing, "
        "[1, 2] AS list, {'x': true} AS struct, true AS yes"
    )
    shown = told(audited.run("sql", statement)).splitlines()
    assert shown[0].split() == ["words", "number", "nothing", "list", "struct", "yes"]
    assert shown[-1] == "1 row(s)"
    [header, row] = csv.reader(io.StringIO(told(audited.run("sql", statement, "--format", "csv"))))
    assert header == ["words", "number", "nothing", "list", "struct", "yes"]
    assert row == ['a|b, "c"', "1.5", "", "[1, 2]", '{"x": true}', "true"]
    assert json.loads(told(audited.run("sql", statement, "--format", "json"))) == {
        "words": 'a|b, "c"',
        "number": 1.5,
        "nothing": None,
        "list": [1, 2],
        "struct": {"x": True},
        "yes": True,
    }


def test_every_layout_says_infinity_and_whole_numbers_alike(audited: Workspace) -> None:
    statement = (
        "SELECT 'inf'::DOUBLE AS high, ['-inf'::DOUBLE, 'nan'] AS list, sum(9007199254740993)::HUGEINT AS whole, "
        "12345678901234567890.125::DECIMAL(38, 3) AS long, '\\xAA'::BLOB AS bytes, {'x': 'inf'::FLOAT} AS struct"
    )
    expected = {
        **{"high": "Infinity", "list": ["-Infinity", "NaN"], "whole": 2**53 + 1},
        **{"long": "12345678901234567890.125", "bytes": "aa", "struct": {"x": "Infinity"}},
    }
    assert json.loads(told(audited.run("sql", statement, "--format", "json"))) == expected
    assert json.loads(told(audited.run("sql", statement, "--json")))["rows"] == [expected]
    [_, row] = csv.reader(io.StringIO(told(audited.run("sql", statement, "--format", "csv"))))
    assert row == ["inf", '["-Infinity", "NaN"]', str(2**53 + 1), expected["long"], "aa", '{"x": "Infinity"}']


def test_sql_shows_text_as_it_is_and_obeys_none_of_it(audited: Workspace) -> None:
    shown = told(
        audited.run("sql", "SELECT '[bold]:smile: <script>' AS a, chr(27) || '[31m' AS b, 'é' || chr(10) || 'x' AS c")
    )
    assert "[bold]:smile: <script>" in shown
    assert "\\x1b[31m" in shown
    assert "\x1b" not in shown
    assert "é" in shown


def test_a_finding_joins_to_run_fingerprint_digest_and_code_version(audited: Workspace) -> None:
    statement = """
        SELECT findings.detector, findings.run_id, findings.code_version, models.name, benchmarks.benchmark
        FROM findings
        JOIN models ON models.fingerprint = findings.model_fingerprint
        JOIN benchmarks ON benchmarks.digest = findings.benchmark_digest
        WHERE is_default AND metric = 'auroc'
    """
    rows = [json.loads(line) for line in told(audited.run("sql", statement, "--format", "json")).splitlines()]
    assert {(row["name"], row["benchmark"]) for row in rows} == {("tiny", "made_8"), ("tiny", "made_12")}
    audited_with = [one for one in REGISTRY.values() if not one.on_request]
    assert len(rows) == 2 * (len(audited_with) + 1), "every detector and the blind control, once each"
    runs = {run.run_id for run in audited.runs()}
    assert {row["run_id"] for row in rows} <= runs
    assert {row["code_version"] for row in rows} == {EVALUATIONS_VERSION}
    assert "0 row(s)" in told(audited.run("sql", "SELECT * FROM lineage_gaps"))


def test_sql_as_one_document(audited: Workspace) -> None:
    statement = "SELECT 1 AS a, 2.5 AS a, NULL AS b, 'nan'::DOUBLE AS c, DATE '2024-05-31' AS d"
    row = {"a": 1, "a_1": 2.5, "b": None, "c": "NaN", "d": "2024-05-31"}
    for layout in ((), ("--format", "json")):
        assert answered(audited.run("sql", statement, "--json", *layout)) == {"rows": [row], "row_count": 1}
    refused = audited.run("sql", statement, "--json", "--format", "csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "give either --json or --format csv" in refused.stderr
