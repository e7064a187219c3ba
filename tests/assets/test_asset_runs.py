"""Runs of the assets: the tables they write, the metadata in the UI, and the results of their checks."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from cli_results import LABELLED
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from ledger_lines import lineage_rows, read_fields, rewrite_lines
from made_workspace import COLLECTIONS, SOURCE, Workspace, count_loads, made_documents, made_text, temporal
from quick import empty_reports
from written import read_all

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.checks import CHECKS
from audit_pipeline.errors import DataError, FailedCheckError, PairsFailedError, SourceError
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.runs import run_job
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.stage import AUDIT_PAIRS
from audit_pipeline.scoring import session
from audit_pipeline.sources.base import MissingPart
from audit_pipeline.splits.blind_controls import NAME as BLIND
from audit_pipeline.store.paths import model_page_path
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import EVALUATIONS, SCORES

pytestmark = pytest.mark.usefixtures("one_thread", "few_detectors")
PAIRS = ["made_8|one", "made_8|two", "made_12|one", "made_12|two"]
PLOT_BYTES = 100_000
PASSED = AssetCheckExecutionRecordStatus.SUCCEEDED


class Runner:
    """Runs jobs, and reads the events of their runs."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions = definitions
        self.instance = instance

    def __call__(self, job: str, **options: Any) -> str:
        return run_job(self.definitions.resolve_job_def(job), self.instance, **options)

    def materialisations(self, run_id: str) -> dict[tuple[str, str | None], Mapping[str, Any]]:
        """Return metadata values by asset and partition, merged over the events of a partition."""
        found: dict[tuple[str, str | None], dict[str, Any]] = {}
        for entry in self.instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
            one = entry.asset_materialization
            assert one is not None
            values = {name: value.value for name, value in one.metadata.items()}
            values["data version tag"] = (one.tags or {}).get("dagster/data_version")
            found.setdefault((one.asset_key.to_user_string(), one.partition), {}).update(values)
        return found

    def checks(self, run_id: str) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
        logs = self.instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = [entry.dagster_event.event_specific_data for entry in logs if entry.dagster_event]
        every = {(one.asset_key.to_user_string(), one.check_name): one for one in found}  # type: ignore[union-attr]
        limits = {key: every.pop(key) for key in list(every) if key[1] == "values_in_limits"}
        assert all(check.passed for check in limits.values())
        return every


@pytest.fixture
def run(definitions: dg.Definitions, instance: dg.DagsterInstance, workspace: Workspace) -> Runner:
    register_partitions(instance, benchmarks=["made_8", "made_12"], models=["one", "two"])
    return Runner(definitions, instance)


def lineage(workspace: Workspace, table: str) -> list[dict[str, Any]]:
    return [row for row in lineage_rows(workspace.paths) if row["table"] == table]


def refresh(run: Runner) -> str:
    return run("refresh_sources", selection=[dg.AssetKey(["documents", SOURCE])])


def test_a_fetched_source_has_its_documents_lineage_and_check(workspace: Workspace, run: Runner) -> None:
    workspace.hold(*made_documents(1, 20))
    run_id = refresh(run)
    [(asset, metadata)] = run.materialisations(run_id).items()
    assert asset == (f"documents/{SOURCE}", None)
    documents = read_documents(workspace.paths, SOURCE)
    assert metadata["dagster/row_count"] == len(documents) == 2 * len(COLLECTIONS)
    assert set(documents.column("run_id").to_pylist()) == {run_id}
    for collection in COLLECTIONS:
        assert f"| {collection} | 2 | 0 |" in metadata["documents"]
    [check] = run.checks(run_id).values()
    assert check.passed
    [entry] = lineage(workspace, "documents")
    assert entry["run_id"] == run_id
    assert entry["data_version"] == metadata["data version tag"]


def test_a_partly_fetched_source_keeps_earlier_documents_and_warns(workspace: Workspace, run: Runner) -> None:
    workspace.hold(*made_documents(1, 20))
    refresh(run)
    workspace.hold(
        *made_documents(1, 30, ["alder", "birch"]), missing=[MissingPart("cedar", "no route to <host>", "cedar")]
    )
    run_id = refresh(run)
    [metadata] = run.materialisations(run_id).values()
    assert metadata["missing parts"] == 1
    assert "| cedar | 2 | 2 |" in metadata["documents"]
    [check] = run.checks(run_id).values()
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert "&lt;host&gt;" in str(check.metadata["missing"].value)
    words = {row["collection"]: len(row["text"].split()) for row in read_documents(workspace.paths, SOURCE).to_pylist()}
    assert words == {"alder": 30, "birch": 30, "cedar": 20}


def test_a_source_without_documents_fails_with_a_reason(workspace: Workspace, run: Runner) -> None:
    workspace.hold(missing=[MissingPart("alder", "no route to host", "alder")])
    with pytest.raises(SourceError, match="has no usable document: alder: no route to host"):
        refresh(run)


def test_an_unconfigured_source_does_not_fail_the_run(workspace: Workspace, run: Runner) -> None:
    run_id = run("refresh_sources", selection=[dg.AssetKey(["documents", "local_files"])])
    [metadata] = run.materialisations(run_id).values()
    [check] = run.checks(run_id).values()
    assert metadata["status"] == "not_applicable"
    assert "local_files.path" in str(check.description)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert not workspace.paths.documents("local_files").exists()
    assert not lineage(workspace, "documents")


def test_a_benchmark_has_its_digest_as_data_version_and_every_check(workspace: Workspace, run: Runner) -> None:
    workspace.fetch(*made_documents(2, 40))
    run_id = run("build_benchmarks", partition_key="made_8")
    found = run.materialisations(run_id)
    assert list(found) == [("benchmark", "made_8"), ("split_quality", "made_8")]
    metadata = found["benchmark", "made_8"]
    manifest = read_built(workspace.paths, "made_8").manifest
    examples = read_built(workspace.paths, "made_8").examples
    assert metadata["data version tag"] == metadata["digest"] == manifest["digest"]
    assert metadata["dagster/row_count"] == len(examples) == metadata["members"] + metadata["non-members"]
    assert metadata["members"] == metadata["non-members"] == examples.column("label").to_pylist().count(1)
    assert metadata["groups"] == len(set(examples.column("group").to_pylist()))
    checks = run.checks(run_id)
    assert set(checks) == {*(("benchmark", name) for name in CHECKS), ("split_quality", "sides_alike")}
    assert all(check.passed for check in checks.values())
    [entry] = lineage(workspace, "examples")
    assert (entry["run_id"], entry["benchmark_digest"]) == (run_id, manifest["digest"])


def test_the_split_of_every_build_is_assessed(workspace: Workspace, run: Runner) -> None:
    workspace.fetch(*made_documents(1, 40))
    shelf = {"builder": "shelf", "description": "made up", "sources": [SOURCE], "words": [8], "seed": 5}
    workspace.write_benchmarks(made=temporal([8], match={"per_side": 2}), own={**shelf, "windows_per_document": 2})
    register_partitions(run.instance, benchmarks=["own_8"])
    for name in ("made_8", "own_8"):
        run_id = run("build_benchmarks", partition_key=name)
        metadata = run.materialisations(run_id)["split_quality", name]
        written = pq.read_table(workspace.paths.split_quality(name), partitioning=None)
        assert set(written.column("run_id").to_pylist()) == {run_id}
        assert metadata["dagster/row_count"] == len(written)
        assert (metadata["verdict"], metadata["worst control"]) == ("undetermined", "none was computed")
        entry = lineage(workspace, "split_quality")[-1]
        assert (entry["partition"], entry["data_version"]) == (name, metadata["data version tag"])
        check = run.checks(run_id)["split_quality", "sides_alike"]
        assert (check.passed, check.blocking) == (True, False)
        assert str(check.description).startswith("the blind control was not computed: ")


def test_sides_that_are_separable_by_words_get_a_warning(workspace: Workspace, run: Runner) -> None:
    workspace.fetch(*made_documents(18, 40))
    config = {"split_quality": {"most_per_side": 104}}
    run_id = run("build_benchmarks", partition_key="made_12", ops=config)
    metadata = run.materialisations(run_id)["split_quality", "made_12"]
    assert metadata["verdict"] == "separable without a model"
    assert metadata["worst control"] in ("words", "characters")
    assert metadata["blind AUROC, words"] > 0.7
    assert metadata["near-duplicate pairs between the sides"] >= 0, "a number is plotted"
    check = run.checks(run_id)["split_quality", "sides_alike"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert str(check.description).startswith("The two sides can be separated without any model")


def test_a_failed_blocking_check_stops_audits(workspace: Workspace, run: Runner) -> None:
    rows = [{"input": made_text(f"row {place}", 8), "label": place % 2} for place in range(3)]
    (workspace.config / "Rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # Nearly all is kept for calibration: one side only is left to evaluate.
    workspace.write_benchmarks(few={**LABELLED, "path": ".", "calibration_fraction": 0.9})
    register_partitions(run.instance, benchmarks=["few_8"])
    with pytest.raises(FailedCheckError, match="both_classes"):
        run("build_benchmarks", partition_key="few_8")
    [failed] = run.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    check = run.checks(failed.run_id)["benchmark", "both_classes"]
    assert (check.passed, check.severity, check.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
    loads = count_loads(workspace.monkeypatch)
    with pytest.raises(DataError, match=r"few_8 failed a check .members and non-members"):
        run("audit_pairs", partition_key="few_8|one")
    assert not loads
    assert not workspace.parts()


def test_a_range_of_pairs_in_one_run(built: Workspace, run: Runner) -> None:
    loads = count_loads(built.monkeypatch)
    # So the daemon tags the runs of a backfill from the page of a job: the range counts all the same.
    tags = dict(run.definitions.resolve_job_def("audit_pairs").get_tags_for_partition_key("made_8|one", None))
    assert tags.pop("dagster/partition") == "made_8|one"
    run_id = run("audit_pairs", partition_range=("made_8|one", "made_12|two"), tags=tags)
    assert loads == ["one", "two"], "each model is loaded once, for all its benchmarks"
    found = run.materialisations(run_id)
    assert {partition for asset, partition in found if asset == "token_statistics"} == set(PAIRS)
    settings = sum(len(one) for _, one in session.build_audit_selection({}))
    findings = read_all(built.paths.table("evaluations"), EVALUATIONS).to_pylist()
    for pair in PAIRS:
        benchmark, model = pair.split("|")
        texts = len(read_built(built.paths, benchmark).examples)
        statistics, scores, evaluations = (found[name, pair] for name in ("token_statistics", "scores", "evaluations"))
        assert (statistics["texts"], statistics["dagster/row_count"]) == (texts, texts)
        assert (statistics["texts_computed"], statistics["texts_from_cache"]) == (texts, 0)
        assert statistics["tokens_computed"] > texts
        assert statistics["model_fingerprint"] == built.model(model).identity.model_fingerprint
        assert scores["dagster/row_count"] == texts * settings
        assert scores["scores ok"] == texts * settings
        assert evaluations["dagster/row_count"] == 5 * (settings + 1)
        assert {one["status"] for one in (statistics, scores, evaluations)} == {"done"}
        assert evaluations["claim level"] == "screening only"
        head, _, first, *others = evaluations["AUROC"].splitlines()
        assert head == "| detector | AUROC | 95% interval |  |"
        assert len(others) + 1 == sum(
            row["metric"] == "auroc" and row["value"] is not None and (row["is_default"] or row["detector"] == BLIND)
            for row in findings
            if f"{row['benchmark']}|{row['model']}" == pair
        )
        if "AUROC of the headline" in evaluations:
            assert "the headline" in first
            assert f"{evaluations['AUROC of the headline']:.3f}" in first
        [encoded] = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", evaluations["ROC curves"])
        assert base64.b64decode(encoded).startswith(b"\x89PNG")
        assert len(encoded) <= PLOT_BYTES
        assert len(evaluations["picture"]) < 1000, "the UI shows longer Markdown behind a link"
        assert list(evaluations).index("picture") < list(evaluations).index("answer")
        assert evaluations["page"] == str(model_page_path(built.paths.reports, model))
    checks = run.checks(run_id)
    assert {key: check.passed for key, check in checks.items()} == {
        ("token_statistics", "cache_intact"): True,
        ("scores", "no_score_failed"): True,
        ("evaluations", "metrics_in_range"): True,
        **{(stage.name, "every_pair_ran"): True for stage in STAGES if stage.job == AUDIT_PAIRS},
    }
    for asset, name in {*checks} - {("token_statistics", "cache_intact")}:
        key = dg.AssetCheckKey(dg.AssetKey(asset), name)
        shown = run.instance.event_log_storage.get_asset_check_partition_info([key])
        current = {str(one.partition_key): one.latest_execution_status for one in shown if one.is_current}
        assert current == dict.fromkeys(PAIRS, PASSED), "every check of pairs is shown by partition"
    assert checks["scores", "no_score_failed"].metadata["scores failed"].value == 0, "a number is plotted"
    assert not any(asset == "extraction" for asset, _ in found), "nobody asked for it: its cells stay grey"
    for table, schema in (("scores", SCORES), ("evaluations", EVALUATIONS)):
        written = read_all(built.paths.table(table), schema).to_pylist()
        assert {f"{row['benchmark']}|{row['model']}" for row in written} == set(PAIRS)
        assert {row["run_id"] for row in written} == {run_id}
    for table in ("token_statistics", "scores", "evaluations"):
        assert sorted(row["partition"] for row in lineage(built, table)) == sorted(PAIRS)


@pytest.mark.usefixtures("quick_audits")
def test_optional_kinds_and_their_budget(built: Workspace, run: Runner) -> None:
    passes = [dg.AssetKey("token_statistics")]
    kinds = {"token_statistics": {"topk": True, "logits": True}}
    run("audit_pairs", partition_key="made_8|one", ops=kinds, selection=passes)
    for kind in ("base", "topk", "logits"):
        assert built.parts(kind), kind
    small = {"token_statistics": {"logits": True, "logits_budget_gb": 1e-6}}
    before = built.parts("logits")
    with pytest.raises(Exception, match="full logits of these texts take") as raised:
        run("audit_pairs", partition_key="made_12|one", ops=small, selection=passes)
    assert type(raised.value).__name__ == "BudgetError"
    assert built.parts("logits") == before


@pytest.mark.usefixtures("quick_audits")
def test_a_pair_without_a_built_benchmark_is_never_materialised(
    built: Workspace, run: Runner, instance: dg.DagsterInstance
) -> None:
    built.paths.examples("made_12").unlink()
    for asset in map(dg.AssetKey, ("token_statistics", "extraction")):
        with pytest.raises(DataError, match=r"the benchmark made_12 has not been built yet. Build it first"):
            run("audit_pairs", partition_key="made_12|one", selection=[asset])
        assert not instance.get_materialized_partitions(asset)
    with pytest.raises(PairsFailedError, match=r"1 of 2 pairs failed.*made_12 has not been built yet"):
        run("audit_pairs", partition_range=("made_8|one", "made_12|one"))
    assert instance.get_materialized_partitions(dg.AssetKey("evaluations")) == {"made_8|one"}


@pytest.mark.usefixtures("quick_audits")
def test_warehouse_and_report_and_the_results_of_their_checks(built: Workspace, run: Runner) -> None:
    built.audit("one", "made_8")
    run("audit_pairs", partition_key="made_8|one")
    run_id = run("publish")
    found = run.materialisations(run_id)
    report = found["contamination_report", None]
    assert (report["models"], report["benchmarks"], report["pairs"]) == (1, 1, 1)
    assert report["findings"] == len(session.build_audit_selection({}))
    assert report["bytes"] == built.paths.report.stat().st_size
    assert "| evaluations |" in found["warehouse", None]["tables"]
    assert {name: check.passed for (_, name), check in run.checks(run_id).items()} == {
        "every_number_has_one_lineage_row": True,
        "every_file_readable": True,
        "every_key_once": True,
    }

    paths = built.paths.table("scores").rglob("*.parquet")
    whole, damaged = sorted(paths, key=lambda path: "audited" not in path.name)
    damaged.write_bytes(damaged.read_bytes()[:100])
    lines = [fields for fields in read_fields(built.paths) if fields["table"] == "evaluations"]
    rewrite_lines(built.paths, lambda fields: None if fields == lines[0] else fields)
    with empty_reports():
        run_id = run("publish")
    checks = {name: check for (_, name), check in run.checks(run_id).items()}
    unreadable, gaps = checks["every_file_readable"], checks["every_number_has_one_lineage_row"]
    assert (unreadable.passed, unreadable.severity) == (False, dg.AssetCheckSeverity.WARN)
    shown = str(unreadable.metadata["skipped files"].value)
    assert damaged.stem.removeprefix("run_id=") in shown.replace("\u200b", "")
    assert len([row for row in shown.splitlines() if "/scores/" in row.replace("\u200b", "")]) == 1
    assert not gaps.passed
    assert pq.read_table(whole, partitioning=None).num_rows > 0
