"""The commands evaluate, power, canaries, twins and test ordered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from made_workspace import Workspace, made_documents, temporal
from quick import empty_reports
from written import read_all

from audit_pipeline.cli import main
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_TESTS
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def scores_file(folder: Path, members: int = 40, nonmembers: int = 200, **changes: Any) -> Path:
    """Write scores of groups with known labels, and of 10 unknown groups, half of which score like members."""
    generator = np.random.default_rng(5)
    rows = []
    for label, groups, mean in ((1, members, 2.0), (0, nonmembers, 0.0), (None, 10, 1.0)):
        for group in range(groups):
            shift = mean if label is not None else (2.0 if group < 5 else 0.0)
            rows += [
                {
                    "example_id": f"{label} {group} {text}",
                    "score": float(shift + generator.normal()),
                    "label": label,
                    "group": f"{label} {group}",
                    **changes,
                }
                for text in range(4)
            ]
    file = folder / "mine.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def test_external_scores_become_findings_and_a_report(tmp_path: Path) -> None:
    file = scores_file(tmp_path)
    done = run("evaluate", "--scores", file, "--model", "somebody's", "--design", "exchangeable")
    assert done.exit_code == 0, done.output
    folder = DataPaths(tmp_path / "mine_findings")
    assert "AUROC" in done.stdout
    assert "mine: 5 of 10 documents score high: worth a closer look." in done.stdout
    assert "mine: Test of the whole set (dataset inference): This test could not be made." in done.stdout
    assert "This test could not have found anything: the audited texts have 10 groups" in done.stdout
    assert f"Report: {folder.report}" in done.stdout
    assert "no column 'text'" in done.stderr
    tests = query_warehouse(folder.warehouse, "FROM current_group_tests ORDER BY p_value").to_pylist()
    assert len(tests) == 10, "those of unknown label alone"
    assert {row["group"] for row in tests[:4]} < {f"None {number}" for number in range(5)}
    assert query_warehouse(folder.warehouse, "FROM lineage_gaps").num_rows == 0
    twin = json.loads((folder.reports / "contamination_report.json").read_text(encoding="utf-8"))
    assert "somebody's" in json.dumps(twin)

    with empty_reports():
        again = run("evaluate", "--scores", file, "--model", "somebody's", "--design", "exchangeable", "--json")
    assert again.exit_code == 0
    document = json.loads(again.stdout)
    [auroc] = [row for row in document["evaluations"] if row["metric"] == "auroc" and row["detector"] == "score"]
    assert f"{auroc['value']:.3f}" in done.stdout
    [answer] = document["answers"]
    assert (answer["documents"]["standing_out"], answer["documents"]["tested"]) == (5, 10)
    assert document["corpus_tests"][0]["refused"] is not None
    assert document["report"] == str(folder.report)
    assert query_warehouse(folder.warehouse, "SELECT DISTINCT run_id FROM evaluations").num_rows == 1, (
        "the same is one run"
    )


@pytest.mark.usefixtures("no_report")
def test_the_named_detector_is_compared_with_each_other_one(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    rows = [
        {"id": number, "detector": detector, "score": strength * (number % 2) + generator.normal(), "label": number % 2}
        for number in range(80)
        for detector, strength in (("alpha", 3.0), ("mine", 1.0), ("zeta", 0.0))
    ]
    file = tmp_path / "several.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    options = ("--scores", file, "--headline", "mine", "--calibration", "0", "--out", tmp_path / "out")
    done = run("evaluate", *options, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    auroc = {row["detector"]: row["value"] for row in document["evaluations"] if row["metric"] == "auroc"}
    found = {row["other"]: row for row in document["comparisons"]}
    assert set(found) == {"alpha", "zeta"}
    for other, row in found.items():
        assert row["detector"] == "mine"
        assert row["difference"] == pytest.approx(auroc["mine"] - auroc[other])
        assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    assert found["alpha"]["ci_high"] < 0 < found["zeta"]["ci_low"]
    row = found["alpha"]
    difference = f"\u2212{-row['difference']:.3f} [\u2212{-row['ci_low']:.3f}, \u2212{-row['ci_high']:.3f}]"
    assert difference in run("evaluate", *options).stdout


def test_an_impossible_evaluation_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    file = scores_file(tmp_path, 12, 12)
    other = tmp_path / "full"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    for arguments, problem in (
        (("--scores", tmp_path / "none.parquet"), "none.parquet"),
        (("--scores", tmp_path), "is a directory"),
        (("--scores", file, "--out", other), "has files that were not written by corpus-audit evaluate"),
        (("--scores", file, "--model", "a|b"), "contains '|'"),
        (("--scores", file, "--calibration", "1.5"), "share for calibration"),
    ):
        done = run("evaluate", *arguments)
        assert done.exit_code == 2, arguments
        assert problem in " ".join(done.stderr.split())
    assert (other / "letter.txt").read_text() == "mine"
    assert not (tmp_path / "mine_findings").exists()


@pytest.mark.usefixtures("few_detectors")
def test_power_of_an_auroc_and_of_scores_at_hand(workspace: Workspace) -> None:
    planned = workspace.run("power", "--auroc", "0.7")
    document = json.loads(workspace.run("power", "--auroc", "0.7", "--json").stdout)
    assert document["sentence"] in planned.stdout
    assert {row["resampled"] for row in document["power"]} == {None}
    assert all(0 <= row["mean_score"] <= 1 for row in document["power"])
    assert planned.exit_code == 0, planned.output
    assert "audited texts" in planned.stdout
    workspace.write_benchmarks(made=temporal([8]))
    workspace.fetch(*made_documents(6, 30))
    workspace.build("made")
    workspace.assess("made")
    workspace.audit("tiny", "made")
    build_warehouse(workspace.paths)
    done = workspace.run("power", "--model", "tiny", "--benchmark", "made_8")
    assert done.exit_code == 0, done.output
    assert "tiny on made_8, min_k_plus_plus, one value per group:" in done.stdout
    wrong = workspace.run("power", "--model", "tiny", "--benchmark", "made_8", "--detector", "nonsense")
    assert wrong.exit_code == 2
    assert "there are: " in wrong.stderr
    family = workspace.run("power", "--model", "tiny", "--benchmark", "made")
    assert family.stdout == done.stdout, "the only benchmark of a family may be asked for by the family's name"
    for model, benchmark, told in (
        ("tiny", "maed_8", "there are no scores of tiny on 'maed_8' with an AUROC; did you mean made_8?"),
        ("tniy", "made_8", "no scores of the model 'tniy' with an AUROC; did you mean tiny?"),
    ):
        wrong = workspace.run("power", "--model", model, "--benchmark", benchmark)
        assert wrong.exit_code == 2
        assert told in wrong.stderr
    assert workspace.run("power", "--model", "tiny").exit_code == 2
    assert workspace.run("power", "--auroc", "0.7", "--model", "tiny").exit_code == 2

    out = workspace.root / "leaderboard.csv"
    exported = workspace.run("export", "leaderboard", "--out", out)
    assert exported.exit_code == 0, exported.output
    assert out.read_text(encoding="utf-8").splitlines()[0].startswith('"model","benchmark","detector"')
    assert workspace.run("export", "leaderbord", "--out", out).exit_code == 2


@pytest.mark.usefixtures("no_report")
def test_canaries_are_made_once_and_asked_for(workspace: Workspace) -> None:
    file = workspace.root / "planted.jsonl"
    made = workspace.run("canaries", "--sets", "2", "--alternatives", "19", "--out", file)
    assert made.exit_code == 0, made.output
    assert "Publish these" in made.stdout
    assert len(json.loads(file.read_text(encoding="utf-8"))["items"]) == 2
    assert workspace.run("canaries", "--sets", "2", "--out", file).exit_code == 2, "never overwritten"
    asked = workspace.run("twins", "test", "--model", "tiny", "--secret", file)
    assert asked.exit_code == 0, asked.output
    assert "twins of tiny on planted: p = " in asked.stdout
    assert "sound test" in asked.stdout
    (row,) = read_all(workspace.paths.table("corpus_tests"), CORPUS_TESTS).to_pylist()
    assert (row["n"], row["n_held_out"], row["status"]) == (2, 38, "ok")
    rows = query_warehouse(workspace.paths.warehouse, "FROM current_corpus_tests").to_pylist()
    assert [one["p_value"] for one in rows] == [row["p_value"]]
    assert query_warehouse(workspace.paths.warehouse, "FROM lineage_gaps").num_rows == 0


def test_twins_are_drawn_published_and_tested(workspace: Workspace) -> None:
    root = workspace.root
    versions, published, secret = root / "v.jsonl", root / "published.jsonl", root / "quiz.json"
    rows = [
        {"id": f"q{number}", "versions": [f"item {number}, {word}" for word in ("net", "sail", "boat")][number % 2 :]}
        for number in range(12)
    ]
    versions.write_text(
        "".join(f"{json.dumps({**row, 'group': f'g{number % 3}'})}\n" for number, row in enumerate(rows))
    )
    drawn = workspace.run("twins", "draw", versions, "--out", published, "--secret", secret, "--json")
    assert drawn.exit_code == 0, drawn.output
    assert json.loads(drawn.stdout)["sha256"] == hashlib.sha256(secret.read_bytes()).hexdigest()
    assert len(published.read_text().splitlines()) == 12
    for out in (published, root / "other.jsonl"):
        again = workspace.run("twins", "draw", versions, "--out", out, "--secret", secret)
        assert again.exit_code == 2
        assert "exists already" in again.stderr
    command = ("twins", "test", "--model", "tiny", "--secret", secret, "--published")
    detectors = ("--detector", "loss", "--detector", "min_k")
    tested = workspace.run(*command, published, *detectors, "--json")
    assert tested.exit_code == 0, tested.output
    found = json.loads(tested.stdout)["twins"]
    assert [(row["detector"], row["group"]) for row in found[:4]] == [
        ("all", ""),
        *(("all", f"g{n}") for n in range(3)),
    ]
    assert len(found) == 3 * 4
    kept = query_warehouse(workspace.paths.warehouse, "FROM current_twins WHERE detector = 'all' AND \"group\" = ''")
    (row,) = query_warehouse(workspace.paths.warehouse, "FROM current_corpus_tests").to_pylist()
    assert (row["test"], row["n"], row["n_held_out"]) == ("twins", 12, 18)
    assert kept.to_pylist()[0]["p_value"] == row["p_value"] == found[0]["p_value"]
    assert query_warehouse(workspace.paths.warehouse, "FROM lineage_gaps").num_rows == 0
    assert "published versions against secret ones" in (workspace.paths.reports / "model=tiny.html").read_text()
    other = workspace.run(*command, versions, "--detector", "loss")
    assert other.exit_code == 2
    unknown = workspace.run("twins", "test", "--model", "tiny", "--secret", secret, "--detector", "reference")
    assert "The detector reference needs more than one pass" in unknown.stderr


@pytest.mark.usefixtures("no_report")
def test_an_ordered_test_set(workspace: Workspace) -> None:
    items = workspace.root / "items.jsonl"
    lines = [json.dumps({"text": f"item {number}"}) for number in range(60)]
    items.write_text("\n".join(lines), encoding="utf-8")
    asked = workspace.run(
        "test", "ordered", "--model", "tiny", "--items", items, "--shards", "20", "--permutations", "9"
    )
    assert asked.exit_code == 0, asked.output
    assert "sharded_permutation of tiny on items" in asked.stdout
    assert "screening only" in asked.stdout
    few = workspace.root / "few.jsonl"
    few.write_text("\n".join(lines[:3]), encoding="utf-8")
    refused = workspace.run("test", "ordered", "--model", "tiny", "--items", few)
    assert refused.exit_code == 0
    assert "few: No conclusion: this test could not be made." in refused.stdout
    assert "This test could not have found anything: the test requires at least 33 items" in refused.stdout
