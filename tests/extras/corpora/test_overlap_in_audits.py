"""The search by the command and by Dagster: its stored results, and the searches that are up to date."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace, made_documents, temporal

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.pipeline.plan import Planner, Step
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.store import read
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS

NAME = "made_40"
CORPUS = "sotu"
"""The name of the shipped default corpus. Dagster's partitions come from the configuration at import."""


@pytest.fixture
def searched(workspace: Workspace) -> Workspace:
    """Build a benchmark, and write a corpus of two files. The first file contains a text of the benchmark."""
    workspace.write_benchmarks(made=temporal([40], corpora=[CORPUS]))
    workspace.fetch(*made_documents(2, 90))
    workspace.build("made")
    corpus = workspace.root / "corpus"
    corpus.mkdir()
    text = read_built(workspace.paths, NAME).examples.column("text")[0].as_py()
    (corpus / "a.jsonl").write_text(json.dumps({"id": "copy", "text": f"Before it. {text} After it."}) + "\n")
    (corpus / "b.jsonl").write_text(json.dumps({"id": "other", "text": "nothing of it"}) + "\n")
    entry = {"path": str(corpus), "language": "en", "licence": "CC0-1.0"}
    workspace.write_config("references", {"references": {CORPUS: entry}})
    return workspace


def test_an_audit_searches_only_changed_corpora(searched: Workspace, instance: dg.DagsterInstance) -> None:

    def list_steps(workspace: Workspace) -> list[Step]:
        planner = Planner(WorkspaceState(workspace.paths, load_benchmarks()), STAGES)
        return planner.plan(Scope((NAME,))).select_steps(["corpus_overlap"])

    assert [(step.partition, step.reason) for step in list_steps(searched)] == [
        (f"{NAME}|{CORPUS}", "its texts have not been looked for in this corpus")
    ]
    register_partitions(instance, benchmarks=[NAME])
    run_id = run_job(defs().resolve_job_def("search_corpora"), instance, partition_key=f"{NAME}|{CORPUS}")
    records = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    events = [record.event_log_entry.dagster_event for record in records]
    found = [event.asset_check_evaluation_data for event in events if event is not None]
    checks = {evaluation.check_name: evaluation.passed for evaluation in found}
    assert checks == {"whole_corpus_read": True, "no_text_contaminated": False, "every_pair_ran": True}
    rows = read(searched.paths, CORPUS_OVERLAP, f"{NAME}|{CORPUS}", label="it").to_pylist()
    assert [row["verdict"] for row in rows].count("found") >= 1
    assert rows[0]["longest"] == rows[0]["words"]
    spans = read(searched.paths, OVERLAP_SPANS, f"{NAME}|{CORPUS}", label="it")
    assert {tuple(found_in) for found_in in spans.column("found_in").to_pylist()} == {("copy",)}
    assert list_steps(searched) == []
    (searched.root / "corpus" / "c.jsonl").write_text(json.dumps({"text": "one more"}) + "\n")
    assert [step.reason for step in list_steps(searched)] == [f"the corpus {CORPUS} changed since it was searched"]


@pytest.mark.usefixtures("no_report")
def test_the_command_stores_and_publishes_its_results(searched: Workspace) -> None:
    result = searched.run("overlap", "--corpus", CORPUS, "--benchmark", NAME, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["is_complete"], said["shards_read"], said["documents_read"]) == (True, 2, 2)
    assert said["passages"][0]["found_in"] == ["copy"]
    answer = searched.run("sql", "--json", "SELECT found, is_complete, is_current FROM overlap_summary")
    assert [row["is_current"] for row in json.loads(answer.stdout)["rows"]] == [True]
    assert searched.run("doctor").exit_code == 0
    gone = searched.run("forget", "--benchmark", NAME)
    assert gone.exit_code == 0, gone.output
    assert not CORPUS_OVERLAP.file_of(searched.paths, f"{NAME}|{CORPUS}").exists()  # type: ignore[union-attr]


def test_the_texts_of_a_file_are_searched(searched: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = read_built(searched.paths, NAME).examples.column("text")[0].as_py()
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"text": text}) + "\n" + json.dumps({"text": "short"}) + "\n")
    corpus = searched.root / "corpus"
    arguments = ("overlap", "--corpus", corpus, "--texts", file, "--out", tmp_path / "out", "--no-text")
    result = searched.run(*arguments)
    assert result.exit_code == 0, result.output
    monkeypatch.setenv("CORPUS_AUDIT_OVERLAP_FAIL_ON", "contaminated")
    assert searched.run(*arguments).exit_code == 1
    assert "1 of 2 texts are in corpus" in result.stdout
    assert text[:30] not in result.stdout
    rows = pq.read_table(tmp_path / "out" / "corpus_overlap.parquet").to_pylist()
    assert [row["verdict"] for row in rows] == ["found", "too short to tell"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "corpus_overlap.parquet",
        "overlap_spans.parquet",
    ]


@pytest.mark.usefixtures("no_report")
def test_several_benchmarks_are_searched_in_one_pass(searched: Workspace) -> None:
    searched.write_benchmarks(made=temporal([40, 60]))
    searched.build("made")
    several = searched.run("overlap", "--corpus", CORPUS, "--benchmark", "made_40, made_60", "--json")
    assert several.exit_code == 0, several.output
    said = json.loads(several.stdout)
    counts = {row["benchmark"]: (row["texts"], row["contaminated"]) for row in said["benchmarks"]}
    assert said["texts"] == sum(texts for texts, _ in counts.values())
    assert said["documents_read"] == 2
    for name in ("made_40", "made_60"):
        rows = read(searched.paths, CORPUS_OVERLAP, f"{name}|{CORPUS}", label="it").to_pylist()
        assert {row["benchmark"] for row in rows} == {name}
        assert counts[name] == (len(rows), sum(bool(row["contaminated"]) for row in rows))
    assert counts["made_40"][1] >= 1
    everything = searched.run("overlap", "--corpus", CORPUS, "--benchmark", "all", "--json")
    assert json.loads(everything.stdout)["benchmarks"] == said["benchmarks"]


@pytest.mark.parametrize("column", ["answer", "solution"])
def test_the_answer_of_a_text_is_in_a_column(searched: Workspace, tmp_path: Path, column: str) -> None:
    text = read_built(searched.paths, NAME).examples.column("text")[0].as_py()
    rows = [{"text": text, column: "After it."}, {"text": text, column: "Nowhere near."}]
    file, out = tmp_path / "mine.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ("overlap", "--corpus", searched.root / "corpus", "--texts", file, "--out", out)
    named = () if column == "answer" else ("--answer-column", column)
    assert searched.run(*arguments, *named).exit_code == 0
    found = pq.read_table(out / "corpus_overlap.parquet").to_pylist()
    # Both items have the same question and answers of two words.
    assert [row["words"] for row in found] == [len(text.split()) + 2] * 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--corpus", "corpus.txt"), "Give either --benchmark NAME or --texts FILE."),
        (("--benchmark", NAME), "Missing option '--corpus'"),
        (("--benchmark", NAME, "--corpus", "corpus.txt", "--out", "x"), "--out requires --texts"),
        (("--benchmark", NAME, "--corpus", "nowhere"), "neither a file nor a folder nor a corpus"),
        (("--benchmark", "no_such", "--corpus", "corpus.txt"), "no_such"),
    ],
)
def test_wrong_options_are_refused(workspace: Workspace, arguments: tuple[str, ...], why: str) -> None:
    workspace.write_benchmarks(made=temporal([40]))
    (workspace.root / "corpus.txt").write_text("a document")
    workspace.monkeypatch.chdir(workspace.root)
    result = workspace.run("overlap", *arguments)
    assert result.exit_code == 2
    assert why in result.output
