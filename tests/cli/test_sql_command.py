"""`corpus-audit sql`: read-only statements, and the formats of rows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_results import answered, error_of, told
from made_workspace import Workspace

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def test_sql_before_any_audit(workspace: Workspace) -> None:
    assert "Audit a model first" in error_of(workspace.run("sql", "SELECT 1"))


def test_sql_builds_a_warehouse_that_is_not_there(audited_copy: Workspace) -> None:
    audited_copy.paths.warehouse.unlink()
    assert (
        told(audited_copy.run("sql", "SELECT count(*) > 0 AS found FROM scores", "--format", "csv")) == "found\ntrue\n"
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", "the SQL is invalid"),
        ("INSERT INTO lineage SELECT * FROM lineage", "INSERT statements are refused"),
        ("SELECT * FROM read_csv('{folder}/secret.csv')", "refused"),
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


STATEMENT = (
    "SELECT 'a|b, \"c\"' AS words, 1.5 AS number, NULL AS nothing, [1, 2] AS list, {'x': true} AS struct, true AS yes, "
    "'inf'::DOUBLE AS high, ['-inf'::DOUBLE, 'nan'] AS both, sum(9007199254740993)::HUGEINT AS whole, "
    "12345678901234567890.125::DECIMAL(38, 3) AS long, '\\xAA'::BLOB AS bytes, DATE '2024-05-31' AS day, 7 AS day"
)
ROW = {
    **{"words": 'a|b, "c"', "number": 1.5, "nothing": None, "list": [1, 2], "struct": {"x": True}, "yes": True},
    **{"high": "Infinity", "both": ["-Infinity", "NaN"], "whole": 2**53 + 1, "long": "12345678901234567890.125"},
    **{"bytes": "aa", "day": "2024-05-31", "day_1": 7},
}
CELLS = ['a|b, "c"', "1.5", "", "[1, 2]", '{"x": true}', "true", "inf", '["-Infinity", "NaN"]', str(2**53 + 1)]
CELLS += ["12345678901234567890.125", "aa", "2024-05-31", "7"]


def test_every_layout_holds_the_same_values(audited: Workspace) -> None:
    heads = [*list(ROW)[:-1], "day"]
    shown = told(audited.run("sql", STATEMENT)).splitlines()
    assert (shown[0].split(), shown[-1]) == (heads, "1 row(s)")
    assert json.loads(told(audited.run("sql", STATEMENT, "--format", "json"))) == ROW
    for layout in ((), ("--format", "json")):
        assert answered(audited.run("sql", STATEMENT, "--json", *layout)) == {"rows": [ROW], "row_count": 1}
    written = told(audited.run("sql", STATEMENT, "--format", "csv"))
    assert list(csv.reader(io.StringIO(written))) == [heads, CELLS]
    refused = audited.run("sql", STATEMENT, "--json", "--format", "csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Give either --json or --format csv" in refused.stderr


def test_sql_prints_markup_and_control_characters_as_text(audited: Workspace) -> None:
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
