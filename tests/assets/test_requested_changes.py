"""Automatic requests of Dagster: observed inputs, conditions of assets, and runs of due cells only."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from automation import Automation
from grid import find_stale
from made_workspace import SOURCE, Workspace, copy_workspace, made_documents, quick_folder, reload_assets, temporal
from quick import empty_reports, few_detectors

from assets import token_statistics
from audit_pipeline.definitions import defs
from audit_pipeline.errors import ConfigError
from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.pipeline.dagster.conditions import ONLY_IF_DUE, find_due_products
from audit_pipeline.pipeline.dagster.instance import open_instance
from audit_pipeline.pipeline.dagster.locks import mark_audit_running
from audit_pipeline.pipeline.dagster.observed_inputs import observe_before_run
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.pipeline.stage import Product
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.ledger import read_ledger

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")
PAIR_STAGES = "evaluations+scores+token_statistics"
BENCHMARK_STAGES = "benchmark+split_quality"


def of_all_pairs(assets: str) -> dict[str, str]:
    """Return the runs over two benchmarks and two models, which Dagster divides by benchmark."""
    return {f"{benchmark}|one..{benchmark}|two": assets for benchmark in ("made_12", "made_8")}


@pytest.fixture
def automation(instance: dg.DagsterInstance) -> Automation:
    return Automation(instance)


@pytest.fixture(scope="module")
def audited_once(
    one_thread: None, quick_audits: None, built_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str | None]]:
    """Audit two benchmarks and two models in the UI, and evaluate the first tick. Yield the folder and the cursor."""
    with quick_folder(tmp_path_factory.mktemp("audited")) as folder:
        with pytest.MonkeyPatch.context() as patch, few_detectors(), empty_reports():
            made = copy_workspace(built_once, folder / "made", patch)
            made.hold(*made_documents(2, 40))
            with open_instance(made.paths) as instance:
                automation = Automation(instance)
                automation.observe()
                for name in ("made_8", "made_12"):
                    assert automation.run(BENCHMARK_STAGES.split("+"), name)
                assert automation.run(PAIR_STAGES.split("+"), "made_8|one..made_12|two")
                assert automation.tick() == {}
        yield made.root, automation.evaluation_cursor


@pytest.fixture
def audited(built: Workspace, audited_once: tuple[Path, str | None]) -> Iterator[Automation]:
    """Yield the sensors on a copy of the audited workspace. Restore the times of the shared models after the test."""
    root, cursor = audited_once
    shutil.rmtree(built.root)
    shutil.copytree(root, built.root)
    folders = [Path(model["path"]) for model in read_models(built).values()]
    times = {file: file.stat() for folder in folders for file in folder.glob("*.safetensors")}
    with open_instance(built.paths) as instance:
        yield Automation(instance, cursor)
    for file, stat in times.items():
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def read_models(workspace: Workspace) -> dict[str, dict[str, Any]]:
    text = (workspace.config / "models.yaml").read_text(encoding="utf-8")
    models: dict[str, dict[str, Any]] = yaml.safe_load(text)["models"]
    return models


def change_weights(workspace: Workspace, model: str) -> None:
    """Give a model's files a new modification time, as new weights have."""
    for file in Path(read_models(workspace)[model]["path"]).glob("*.safetensors"):
        os.utime(file)


def test_an_existing_workspace_is_not_audited_at_the_first_ticks(built: Workspace, automation: Automation) -> None:
    register_partitions(automation.instance, benchmarks=["made_8", "made_12"], models=["one", "two"])
    assert automation.evaluate() == []
    assert automation.tick() == {}
    assert automation.tick() == {}


def test_other_weights_request_one_run_over_the_models_column(built: Workspace, audited: Automation) -> None:
    change_weights(built, "two")
    assert audited.observe() == "1 inputs changed"
    assert find_stale(audited.instance, "token_statistics") == {
        "made_8|two": ["model_files"],
        "made_12|two": ["model_files"],
    }
    assert audited.tick() == {"made_8|two..made_12|two": PAIR_STAGES}
    assert find_stale(audited.instance, "token_statistics") == {}
    assert audited.count("evaluations")["made_8|two"] == 2
    assert audited.tick() == {}


def test_an_edited_entry_requests_its_benchmark_and_then_its_pairs(built: Workspace, audited: Automation) -> None:
    built.write_benchmarks(made=temporal([8, 12], member_before=date(2021, 6, 1)))
    audited.observe()
    assert audited.tick() == {"made_8": BENCHMARK_STAGES, "made_12": BENCHMARK_STAGES}
    assert set(find_stale(audited.instance, "token_statistics")) == set(audited.count("scores"))
    assert audited.tick() == of_all_pairs(PAIR_STAGES)
    assert audited.tick() == {}
    built.write_benchmarks(made=temporal([8, 12], member_before=date(2021, 6, 1), description="in other words"))
    assert audited.tick() == {}


def test_documents_that_changed_request_the_benchmarks_that_take_them(built: Workspace, audited: Automation) -> None:
    built.fetch(*made_documents(3, 40))
    assert audited.request() == {"made_8": BENCHMARK_STAGES, "made_12": BENCHMARK_STAGES}


def test_pairs_of_a_benchmark_that_failed_a_check_are_not_requested(built: Workspace, audited: Automation) -> None:
    built.write_benchmarks(made=temporal([8, 12]), other=temporal([16]))
    assert audited.tick() == {"other_16": BENCHMARK_STAGES}
    manifest = built.paths.benchmark_manifest("other_16")
    content = read_json(manifest)
    content["checks"][0] |= {"blocking": True, "passed": False}
    write_json(manifest, content)
    assert audited.tick() == {}


def test_a_product_without_declared_inputs_is_always_due(built: Workspace, automation: Automation) -> None:
    stage = get_stage("chat_answers")
    product = Product(stage.name, "made_8|one")
    assert find_due_products([stage], [product.partition], built.paths) == {product}, "it declares no inputs"


def test_commands_observe_the_inputs_of_their_runs(built: Workspace, automation: Automation) -> None:
    stages = [get_stage("benchmark"), get_stage("documents")]
    observe_before_run(automation.instance, built.paths, stages[:1], ["made_8"])
    observe_before_run(automation.instance, built.paths, [get_stage("token_statistics")], ["made_8|one"])
    observed = [
        (name, record.partition_key)
        for name in ("benchmark_entries", "model_files")
        for record in automation.instance.fetch_observations(dg.AssetRecordsFilter(dg.AssetKey(name)), limit=9).records
    ]
    assert observed == [("benchmark_entries", "made_8"), ("model_files", "one")]
    built.write_config("controls", "controls: [")
    observe_before_run(automation.instance, built.paths, stages[1:], [SOURCE])


def test_the_latest_result_of_a_check_stays_if_a_cell_is_left(built: Workspace, audited: Automation) -> None:
    """A later run does not make the cell again, because it is current in the ledger."""
    parts = built.parts()
    for part in parts:
        os.truncate(part, part.stat().st_size // 2)
    cell = ["token_statistics"], "made_8|one"
    assert audited.run(*cell)
    before = read_check(audited.instance, "token_statistics", "cache_intact")
    assert (before.passed, before.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert audited.run(*cell, {ONLY_IF_DUE: "true"})
    after = read_check(audited.instance, "token_statistics", "cache_intact")
    assert (after.passed, after.severity, after.metadata) == (False, before.severity, before.metadata)
    assert audited.count("token_statistics")["made_8|one"] == 3


def read_check(instance: dg.DagsterInstance, asset: str, check: str) -> Any:
    """Return the latest evaluation of a check of made_8|one, in any run."""
    for run in instance.get_runs():
        for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
            assert entry.dagster_event is not None
            found = entry.dagster_event.asset_check_evaluation_data
            if (found.asset_key, found.check_name, found.partition) == (dg.AssetKey(asset), check, "made_8|one"):
                return found
    raise AssertionError(f"{check} was never evaluated")


def test_a_new_benchmark_is_built_and_its_pairs_are_audited(built: Workspace, audited: Automation) -> None:
    built.write_benchmarks(made=temporal([8, 12]), other=temporal([16]))
    assert audited.tick() == {"other_16": BENCHMARK_STAGES}
    assert audited.tick() == {"other_16|one..other_16|two": PAIR_STAGES}
    assert audited.tick() == {}


def test_sources_that_were_never_fetched_come_before_their_benchmark(
    workspace: Workspace, automation: Automation
) -> None:
    workspace.hold(*made_documents(2, 40))
    waiting = temporal([16], sources=["sotu"])
    workspace.write_benchmarks(waiting=waiting)
    assert automation.tick() == {}, "what was missing before is audited by hand once"
    workspace.write_benchmarks(waiting=waiting, made=temporal([8]))
    assert automation.tick() == {"": f"documents/{SOURCE}"}
    assert automation.tick() == {"made_8": BENCHMARK_STAGES}
    assert automation.tick() == {"made_8|one..made_8|two": PAIR_STAGES}
    assert automation.tick() == {}


def test_other_settings_of_a_source_request_its_documents(built: Workspace, audited: Automation) -> None:
    built.write_config("sources", {SOURCE: {"projects": ["django"]}})
    assert audited.request() == {"": f"documents/{SOURCE}"}


def test_a_new_model_is_audited_in_one_run(built: Workspace, audited: Automation) -> None:
    models = read_models(built)
    built.write_models(**models, three=models["one"])
    assert audited.request() == {"made_8|three..made_12|three": PAIR_STAGES}


def test_a_later_version_of_code_requests_its_cells_and_those_downstream(built: Workspace, audited: Automation) -> None:
    with built.monkeypatch.context() as patch:
        patch.setattr(get_stage("scores"), "code_version", "later")
        reload_assets()
        requested = audited.request()
    reload_assets()
    assert requested == of_all_pairs("evaluations+scores")


def test_a_failed_pair_is_requested_again_when_an_input_changes(
    built: Workspace, audited: Automation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_passes = token_statistics.run_passes

    def fail_once(pair: Any, *arguments: Any, **options: Any) -> Any:
        if pair.partition == "made_8|three":
            raise RuntimeError("the device fell off the bus")
        return run_passes(pair, *arguments, **options)

    models = read_models(built)
    built.write_models(**models, three=models["one"])
    with monkeypatch.context() as patch:
        patch.setattr(token_statistics, "run_passes", fail_once)
        assert audited.tick() == {"made_8|three..made_12|three": PAIR_STAGES}
    assert "made_8|three" not in audited.count("token_statistics")
    assert audited.tick() == {}
    assert audited.tick() == {}
    built.write_models(**models, three={**models["one"], "start_token_policy": "tokenizer"})
    assert audited.tick() == {"made_8|three..made_12|three": PAIR_STAGES}
    assert audited.count("evaluations")["made_8|three"] == 1


def test_cells_that_are_current_in_the_ledger_are_not_made_again(
    built: Workspace, audited: Automation, tiny_folder: Callable[[str], Path]
) -> None:
    built.write_models(**read_models(built), three={"path": tiny_folder("phi3")})
    built.audit("three", "made_8")
    write_card(built.model("three"), built.paths)
    assert audited.tick() == {"made_8|three..made_12|three": PAIR_STAGES}
    lines = Counter(entry.partition for entry in read_ledger(built.paths).entries if entry.table == "evaluations")
    assert (lines["made_8|three"], lines["made_12|three"]) == (1, 1), "the pair that was audited was not made again"
    wanted = dg.AssetRecordsFilter(dg.AssetKey("evaluations"), asset_partitions=["made_8|three"])
    [record] = audited.instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    assert "kept" in record.asset_materialization.metadata
    assert find_stale(audited.instance, "evaluations") == {}


def test_a_change_during_a_run_is_requested_after_it(
    built: Workspace, audited: Automation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_passes = token_statistics.run_passes

    def change_meanwhile(*arguments: Any, **options: Any) -> Any:
        result = run_passes(*arguments, **options)
        change_weights(built, "two")
        audited.observe()
        return result

    change_weights(built, "two")
    with monkeypatch.context() as patch:
        patch.setattr(token_statistics, "run_passes", change_meanwhile)
        assert audited.tick() == {"made_8|two..made_12|two": PAIR_STAGES}
    assert set(find_stale(audited.instance, "token_statistics")) == {"made_8|two", "made_12|two"}
    assert audited.tick() == {"made_8|two..made_12|two": PAIR_STAGES}
    assert find_stale(audited.instance, "token_statistics") == {}
    assert audited.tick() == {}


def test_other_weights_of_a_reference_model_request_its_pairs_and_those_it_is_compared_in(
    built: Workspace, audited: Automation
) -> None:
    models = read_models(built)
    built.write_models(one=models["one"], two={**models["two"], "reference_model": "one"})
    assert audited.tick() == {"made_8|two..made_12|two": PAIR_STAGES}
    assert audited.tick() == {}
    change_weights(built, "one")
    assert audited.request() == of_all_pairs(PAIR_STAGES)


def test_nothing_is_requested_while_another_audit_runs(built: Workspace, audited: Automation) -> None:
    change_weights(built, "two")
    with mark_audit_running(built.paths):
        assert audited.tick() == {}
    assert audited.request() == {"made_8|two..made_12|two": PAIR_STAGES}


def test_a_partition_that_nobody_asks_for_is_not_requested(built: Workspace, audited: Automation) -> None:
    register_partitions(audited.instance, benchmarks=["gone_8"], models=["gone"])
    change_weights(built, "two")
    assert audited.request() == {"made_8|two..made_12|two": PAIR_STAGES}


def test_an_unreadable_file_ends_the_tick_and_changes_nothing(built: Workspace, audited: Automation) -> None:
    whole = (built.config / "models.yaml").read_text(encoding="utf-8")
    for broken in ("models: [", "", "- one\n"):
        built.write_config("models", broken)
        with pytest.raises(ConfigError, match=r"models\.yaml"):
            audited.observe()
        with pytest.raises(Exception, match="Error while evaluating conditions") as raised:
            audited.evaluate()
        assert "models.yaml" in str(raised.value.__cause__), "the tick shows the cause"
    built.write_config("models", whole)
    assert audited.tick() == {}


def test_a_broken_entry_is_named_and_stops_no_other(built: Workspace, audited: Automation) -> None:
    models = read_models(built)
    built.write_models(one=models["one"], two={**models["two"], "window": 1}, three=models["one"])
    built.write_benchmarks(made=temporal([8, 12]), gone={**temporal([8]), "member_befor": "x"})
    said = audited.observe()
    assert "model two: " in said
    assert "family gone: unknown key 'member_befor'; did you mean member_before?" in said
    assert audited.tick() == {"made_8|three..made_12|three": PAIR_STAGES}
    built.write_models(**models, three=models["one"])
    assert audited.request() == {}, "the corrected entry is the same model"


def test_words_about_a_model_change_nothing(built: Workspace, audited: Automation) -> None:
    models = read_models(built)
    built.write_models(one=models["one"], two={**models["two"], "notes": "in words"})
    assert audited.tick() == {}


def test_a_tick_marks_dead_runs_as_failed(built: Workspace, audited: Automation) -> None:
    instance = audited.instance
    run_id = "0d6a1d0e-8a5c-4f0c-9d9b-2f5f7a3f6a11"
    job = defs().resolve_job_def("build_benchmarks")
    instance.create_run_for_job(job, run_id=run_id, status=dg.DagsterRunStatus.STARTED)
    built.paths.claims.mkdir(parents=True, exist_ok=True)
    (built.paths.claims / f"{run_id}.alive").touch()
    audited.observe()
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE
