"""`corpus-audit audit` and `benchmarks --build`: their output, dry runs and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_results import LABELLED, answered, error_of, tables_of_findings, told
from click.testing import Result
from made_workspace import SOURCE, Workspace, count_loads, made_documents, made_text, temporal

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.sources.base import MissingPart

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")


def broken_models(folder: Path, tiny: Path) -> dict[str, Path]:
    cut = shutil.copytree(tiny, folder / "cut")
    [weights] = cut.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    (folder / "cut.gguf").write_bytes(b"GGUF" + bytes(40))
    without = shutil.copytree(tiny, folder / "without", ignore=shutil.ignore_patterns("*.safetensors"))
    return {"cut": cut, "cut.gguf": folder / "cut.gguf", "without": without}


CANNOT_BE_HAD = {
    "tinny": "did you mean tiny?",
    "no such model": "configured: tiny",
    "a|b": "contains '|'",
    "/nowhere/model": "there is no model at /nowhere/model, because the path does not exist",
    "nowhere.gguf": "the path does not exist",
    "cut": "copy it again",
    "cut.gguf": "copy it again",
    "without": "contains no weights",
}


def test_unusable_models_are_refused_before_anything_is_fetched(
    audited_copy: Workspace, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    broken, runs = broken_models(tmp_path, tiny_folder("llama")), len(audited_copy.runs())
    # That its weights are cut short shows where they are loaded, so that comes last.
    for model in sorted(CANNOT_BE_HAD, key="cut".__eq__):
        options = ("--benchmark", "made_8", *(() if model == "cut" else ("--refresh",)))
        result = audited_copy.run("audit", "--model", broken.get(model, model), *options)
        assert CANNOT_BE_HAD[model] in error_of(result)
        if model != "cut":
            assert "•" not in result.stderr, "nothing is fetched for a model that cannot be had"
            assert len(audited_copy.runs()) == runs
            with audited_copy.instance() as instance:
                assert list(instance.get_dynamic_partitions("model")) == ["tiny"]


def test_an_audit_prints_its_steps_findings_and_the_path_of_the_report(audited_root: tuple[Path, Result]) -> None:
    root, result = audited_root
    shown = told(result)
    for benchmark, table in tables_of_findings(shown).items():
        for detector in ("loss", "zlib", "min_k k=0.2", "min_k_plus_plus k=0.2"):
            assert any(line.startswith(f"{detector} ") for line in table)
        assert f"{benchmark}: screening only; split: undetermined" in shown
        assert f"{benchmark}|tiny: 0 texts from the cache, " in result.stderr
    assert f"Report: {root / 'data' / 'reports' / 'contamination_report.html'}" in shown
    steps = [line for line in result.stderr.splitlines() if line.startswith("• ")]
    assert steps == [
        f"• fetching documents: {SOURCE}",
        "• building benchmark: made_8",
        "• building benchmark: made_12",
        "• auditing tiny on made_8, made_12",
        "• rebuilding warehouse and report",
    ]
    assert "tokens" in result.stderr, "progress was shown"


def test_without_a_command_the_state_and_next_commands_are_printed(audited: Workspace) -> None:
    shown = told(audited.run())
    assert "1 model audited on 2 benchmarks, in " in shown
    assert str(audited.paths.report) in shown
    suggested = [line.split("corpus-audit ")[1] for line in shown.splitlines() if "corpus-audit " in line]
    assert suggested[0] == "report --open"
    assert 'sql "FROM not_audited"' in suggested
    # other_10 is configured and was not audited.
    assert len(json.loads(told(audited.run("sql", "FROM not_audited", "--json")))["rows"]) == 1


def test_refresh_cannot_be_combined_with_a_dry_run(workspace: Workspace) -> None:
    done = workspace.run("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run", "--refresh")
    assert done.exit_code == 2
    assert "--dry-run cannot be combined with --refresh" in done.stderr


def test_missing_parts_of_a_source_and_skipped_rows_are_reported(workspace: Workspace) -> None:
    workspace.hold(*made_documents(2, 40, ["alder"]), missing=[MissingPart("birch", "no route to host", "birch")])
    result = workspace.run("benchmarks", "--build", "made_8")
    told(result)
    assert f"• {SOURCE}: birch could not be fetched: no route to host" in result.stderr.splitlines()

    rows = [{"input": made_text(f"row {place}", 8), "label": place % 2} for place in range(4)]
    lines = [*map(json.dumps, rows), "{broken", json.dumps({"input": "too short", "label": 1})]
    (workspace.config / "Rows.jsonl").write_text("\n".join(lines))
    workspace.write_benchmarks(rows={**LABELLED, "path": "."})
    result = workspace.run("benchmarks", "--build", "rows")
    told(result)
    [line] = [line for line in result.stderr.splitlines() if "skipped" in line]
    assert line.startswith("• rows_8: 2 row(s) were skipped, the first is Rows.jsonl:5: broken JSON")


def test_a_dry_run_runs_nothing_and_prints_the_cost(audited: Workspace) -> None:
    parts, runs = audited.parts(), len(audited.runs())
    loads = count_loads(audited.monkeypatch)
    audited.monkeypatch.setattr("audit_pipeline.models.weights.load_weights", lambda *given: pytest.fail("loaded"))
    command = ("audit", "--model", "tiny", "--benchmark", "made", "--dry-run", "--kinds")
    shown = told(audited.run(*command, "base,topk")).splitlines()
    assert shown[0].split("  ")[0] == "benchmark"
    titles = ("texts", "cached", "to run", "passes", "tokens", "branch tokens", "bytes to write", "time")
    assert all(title in shown[0] for title in titles)
    rows = {line.split()[0]: line.split() for line in shown[1:] if line.startswith("made")}
    for name in ("made_8", "made_12"):
        texts = len(read_built(audited.paths, name).examples)
        # The base statistics are there, the top-k ones are not.
        assert rows[name][1:4] == [str(texts), "0", str(texts)]
        assert int(rows[name][4]) >= texts
        assert int(rows[name][5].replace(",", "")) > texts
        assert (rows[name][6], rows[name][8]) == ("0", "about"), "branches are cached"
        assert int(rows[name][7].replace(",", "")) > 0
    for line, words in ((-2, "The weights take"), (-2, "and fit: main memory has"), (-1, "Nothing was run.")):
        assert words in shown[line]
    assert (audited.parts(), audited.parts("topk"), len(audited.runs()), loads) == (parts, [], runs, [])
    assert audited.run(*command, "base", "--fail-on", "stale").exit_code == 0, "it is up to date"


def test_a_dry_run_of_an_unbuilt_benchmark_lists_the_first_steps(workspace: Workspace) -> None:
    command = ("audit", "--model", "tiny", "--benchmark", "made_8", "--dry-run")
    first = answered(workspace.run(*command, "--json"))
    assert (first["not_built"], first["plans"]) == (["made_8"], [])
    steps = [(step["step"], step["what"]) for step in first["first"]]
    assert steps == [("documents", "release_notes"), ("benchmark", "made_8")]
    assert first["first"][0]["because"] == "its documents have not been fetched"
    assert workspace.run(*command, "--fail-on", "stale").exit_code == 1
    shown = told(workspace.run(*command))
    assert "corpus-audit benchmarks --build made_8" in shown
    assert shown.splitlines()[-1] == "Nothing was fetched, built or run."
    assert not workspace.runs()
    shown = told(workspace.run("benchmarks", "--build", "made_8"))
    assert next(line for line in shown.splitlines() if line.startswith("made_8")).split()[1] == "yes"
    assert next(line for line in shown.splitlines() if line.startswith("made_12")).split()[1] == "no"
    loads = count_loads(workspace.monkeypatch)
    shown = told(workspace.run(*command))
    row = next(line.split() for line in shown.splitlines() if line.startswith("made_8"))
    texts, passes, tokens, branches = (int(row[place].replace(",", "")) for place in (1, 4, 5, 6))
    assert passes == texts, "the made texts are in lower case already"
    assert 0 < branches < tokens, "m is 1 for texts of 8 words"
    assert not loads


@pytest.mark.slow
def test_the_demo_ends_with_the_next_commands(workspace: Workspace) -> None:
    how = {"prefix": 12, "suffix": 8, "stride": "tiled", "near_verbatim": 2}
    recited = temporal([8], description="A test of the instrument, not news.", extraction=how)
    workspace.write_benchmarks(demo=temporal([8]), famous_texts=recited)
    result = workspace.run("demo", "--model", "tiny")
    shown = told(result)
    # The answer on texts that everybody expects to find comes last, behind what it is, with both values by text.
    assert shown.index("demo_8:") < shown.index("A test of the instrument, not news.") < shown.index("famous_texts_8:")
    runs = len(workspace.runs())
    again = workspace.run("demo", "--model", "tiny")
    assert "tiny on famous_texts_8: everything is up to date, so nothing is run" in again.stderr
    assert len(workspace.runs()) == runs
    for command in (
        "dev",
        "report --open",
        'sql "SELECT * FROM leaderboard"',
        "audit --model tiny",
        "score --model tiny",
    ):
        assert f"corpus-audit {command}" in shown
    assert str(workspace.paths.root) in shown


def test_unconfigured_local_files_are_an_error(workspace: Workspace) -> None:
    workspace.write_benchmarks(own=temporal([8], sources=["local_files"]))
    for command in (("audit", "--model", "tiny", "--benchmark", "own"), ("benchmarks", "--build", "own")):
        error = error_of(workspace.run(*command))
        assert "local_files.path" in error
        assert "config/sources.yaml" in error
    assert not workspace.runs()


def test_the_json_of_an_audit_has_the_values_of_its_table(
    audited_copy: Workspace, audited_root: tuple[Path, Result]
) -> None:
    arguments = ("audit", "--model", "tiny", "--benchmark", "made")
    tables = tables_of_findings(told(audited_root[1]))
    result = audited_copy.run(*arguments, "--json")
    document = answered(result)
    assert "everything is up to date" in result.stderr, "what happens meanwhile is told beside it"
    for row in document["findings"]:
        shown = next(
            line
            for line in tables[row["benchmark"]]
            if line.split()[0] == row["detector"]
            and all(f"{name}={value}" in line for name, value in row["parameters"].items())
        )
        expected = "not defined" if row["auroc"] is None else f"{row['auroc']:.3f}"
        assert expected in shown
    assert len(document["findings"]) == sum(map(len, tables.values()))
    assert [row["benchmark"] for row in document["answers"]] == ["made_8", "made_12"]
    assert {row["claim_level"] for row in document["answers"]} == {"screening only"}
    assert document["report"] == str(audited_copy.paths.report)
    plans = answered(audited_copy.run(*arguments, "--dry-run", "--json"))["plans"]
    assert [(row["benchmark"], row["to_run"], row["tokens"]) for row in plans] == [("made_8", 0, 0), ("made_12", 0, 0)]


@pytest.mark.usefixtures("few_detectors")
def test_rows_of_a_user_are_audited_with_their_columns(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        {"body": made_text(f"{year} {place}", 30), "day": f"{year}-05-01", "book": f"{year} {place // 2}"}
        for year in (2019, 2025)
        for place in range(6)
    ]
    undated = {"body": "undated", "day": "May", "book": "x"}
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, [*rows, undated])))
    columns = {"text_column": "body", "date_column": "day", "group_column": "book"}
    workspace.write_config("sources", {"local_files": {"path": str(tmp_path / "own.jsonl"), **columns}})
    workspace.write_benchmarks(own=temporal([8], sources=["local_files"]))
    result = workspace.run("audit", "--model", "tiny", "--benchmark", "own")
    assert "own.jsonl!1 of 13 dates: these dates cannot be read" in result.stderr
    assert "own_8: screening only" in told(result)
    groups = set(read_built(workspace.paths, "own_8").examples.column("group").to_pylist())
    assert groups == {row["book"] for row in rows}
