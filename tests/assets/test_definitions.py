"""The code location: the metadata of every asset, and the graph."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import assets
from audit_pipeline.benchmarks.checks import CHECKS
from audit_pipeline.benchmarks.config import exclude_on_request, load_benchmarks
from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.dagster.cell_events import build_column_schema
from audit_pipeline.pipeline.registry import OBSERVED
from audit_pipeline.sources.config import all_sources
from audit_pipeline.store.paths import config_dir
from audit_pipeline.tables import DOCUMENT_MEMORISATION, DOCUMENTS, EXAMPLES, SCORES

DOCUMENT_KEYS = [f"documents/{name}" for name in all_sources()]
ON_REQUEST = {f"documents/{name}" for name, source in all_sources().items() if source.on_request}
MADE = {
    **{key: "6_sources_on_request" if key in ON_REQUEST else "1_sources" for key in DOCUMENT_KEYS},
    "benchmark": "2_benchmarks",
    "split_quality": "2_benchmarks",
    "corpus_overlap": "2_benchmarks",
    "controlled_contamination": "7_controls_on_request",
    "control_study": "7_controls_on_request",
    "token_frequencies": "3_model_runs",
    "token_statistics": "3_model_runs",
    "extraction": "4_findings",
    "twins": "4_findings",
    "chat_answers": "4_findings",
    "scores": "4_findings",
    "evaluations": "4_findings",
    "warehouse": "5_reports",
    "contamination_report": "5_reports",
}
GROUPS = {
    **MADE,
    "source_settings": "1_sources",
    "benchmark_entries": "2_benchmarks",
    "model_files": "3_model_runs",
}
EDGES = {
    **{key: {"source_settings"} for key in DOCUMENT_KEYS},
    **{key: set() for key in OBSERVED},
    "benchmark": {*DOCUMENT_KEYS, "controlled_contamination", "benchmark_entries"},
    "split_quality": {"benchmark"},
    "corpus_overlap": {"benchmark"},
    "chat_answers": {"benchmark"},
    "controlled_contamination": {"documents/sotu"},
    "control_study": {"documents/sotu"},
    "token_frequencies": {"documents/sotu"},
    "token_statistics": {"benchmark", "model_files"},
    "extraction": {"benchmark", "evaluations"},
    "twins": {"benchmark", "evaluations"},
    "scores": {"benchmark", "token_statistics", "token_frequencies"},
    "evaluations": {"benchmark", "split_quality", "scores"},
    "warehouse": {
        "benchmark",
        "split_quality",
        "corpus_overlap",
        "control_study",
        "extraction",
        "twins",
        "chat_answers",
        "scores",
        "evaluations",
    },
    "contamination_report": {"warehouse"},
}
TABLES = {"documents/sotu": DOCUMENTS, "benchmark": EXAMPLES, "extraction": DOCUMENT_MEMORISATION, "scores": SCORES}


@pytest.fixture(scope="module")
def specs(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def asset(definitions: dg.Definitions, key: str) -> dg.AssetsDefinition:
    return definitions.resolve_assets_def(dg.AssetKey.from_user_string(key))


def test_every_source_and_every_stage_is_one_asset(specs: dict[str, dg.AssetSpec]) -> None:
    assert {key: spec.group_name for key, spec in specs.items()} == GROUPS


def test_the_graph_runs_from_documents_to_the_report(specs: dict[str, dg.AssetSpec]) -> None:
    edges = {key: {dep.asset_key.to_user_string() for dep in spec.deps} for key, spec in specs.items()}
    assert edges == EDGES


def test_every_asset_has_a_description_and_a_code_reference(specs: dict[str, dg.AssetSpec]) -> None:
    for key, spec in specs.items():
        is_observed = key in OBSERVED
        assert spec.description, key
        assert len(spec.description) > 40, key
        assert spec.kinds, key
        assert not spec.owners, key
        assert spec.code_version or is_observed, key
        [reference] = spec.metadata["dagster/code_references"].code_references
        assert Path(reference.file_path).parent == Path(assets.__file__).parent, key
        decorator = "observed_input(" if is_observed else "audit_asset("
        # The decorator is longer than one line.
        lines = Path(reference.file_path).read_text().splitlines()[reference.line_number - 1 :][:50]
        assert "\n".join(lines).removeprefix("@").removeprefix("stage.").startswith(decorator), key


def test_owners_are_those_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(config_dir(), tmp_path / "config")
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config" / "watch.yaml").write_text("owners: [team:audits, ana@example.org]")
    specs = defs().resolve_all_asset_specs()
    owners = {tuple(spec.owners) for spec in specs if spec.key.to_user_string() not in OBSERVED}
    assert owners == {("team:audits", "ana@example.org")}


def test_only_sources_of_standing_benchmarks_are_expected_every_week(specs: dict[str, dg.AssetSpec]) -> None:
    weekly = {key for key in DOCUMENT_KEYS if specs[key].freshness_policy is not None}
    assert weekly == {
        f"documents/{name}" for spec in exclude_on_request(load_benchmarks()).values() for name in spec.sources
    }


@pytest.mark.parametrize(("key", "schema"), TABLES.items(), ids=TABLES.keys())
def test_an_asset_that_writes_a_table_shows_its_columns(
    specs: dict[str, dg.AssetSpec], key: str, schema: pa.Schema
) -> None:
    shown = specs[key].metadata["dagster/column_schema"]
    assert getattr(shown, "value", shown) == build_column_schema(schema)


def test_columns_that_are_handed_on_and_tags_by_which_assets_are_found(specs: dict[str, dg.AssetSpec]) -> None:
    lineage = specs["scores"].metadata["dagster/column_lineage"]
    deps = getattr(lineage, "value", lineage).deps_by_column["example_id"]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in deps] == [("benchmark", "example_id")]
    assert {key for key, spec in specs.items() if spec.tags.get("corpus_audit/lock") == "gpu"} == {
        *("token_statistics", "extraction", "twins", "controlled_contamination", "control_study")
    }
    assert specs["twins"].tags["corpus_audit/on_request"] == "true"


def test_partitions_and_the_range_in_one_run(definitions: dg.Definitions) -> None:
    by_key = {key: asset(definitions, key) for key in MADE}
    for key in ("token_statistics", "scores", "evaluations"):
        partitions = by_key[key].partitions_def
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        assert [one.name for one in partitions.partitions_defs] == ["benchmark", "model"]
        assert by_key[key].backfill_policy == dg.BackfillPolicy.single_run()
    for key in ("benchmark", "split_quality"):
        assert isinstance(by_key[key].partitions_def, dg.DynamicPartitionsDefinition)
    for key in (*DOCUMENT_KEYS, "warehouse", "contamination_report"):
        assert by_key[key].partitions_def is None


def test_controls_and_chat_models_are_requested_by_people_alone(specs: dict[str, dg.AssetSpec]) -> None:
    by_hand = {key for key, spec in specs.items() if key not in OBSERVED and spec.automation_condition is None}
    assert by_hand == {"controlled_contamination", "control_study", "token_frequencies", "chat_answers"}
    target = {sensor.name for sensor in defs().get_repository_def().sensor_defs}
    assert "default_automation_condition_sensor" not in target, "one that a user could not switch off for a part"


def test_checks_and_which_of_them_block(definitions: dg.Definitions) -> None:
    checks = {
        (spec.asset_key.to_user_string(), spec.name): spec
        for key in MADE
        for spec in asset(definitions, key).check_specs
    }
    assert {(key, name) for key, name in checks if key.startswith("documents/")} == {
        (key, "complete") for key in DOCUMENT_KEYS
    }
    limited = {key for key, name in checks if name == "values_in_limits"}
    assert {"evaluations", "scores", "split_quality"} <= limited
    checks = {(key, name): spec for (key, name), spec in checks.items() if name != "values_in_limits"}
    assert {name for key, name in checks if key == "benchmark"} == set(CHECKS)
    assert {name for (key, name), spec in checks.items() if spec.blocking} == {
        *(name for name, check in CHECKS.items() if check.blocking),
        "metrics_in_range",
    }
    assert {key for key, name in checks if name == "every_pair_ran"} == {
        *("token_statistics", "scores", "evaluations", "chat_answers", "extraction", "twins"),
        *("token_frequencies", "corpus_overlap"),
    }
    assert all(spec.description for spec in checks.values())


def test_jobs_cover_every_asset_once_and_extraction_also_on_request(definitions: dg.Definitions) -> None:
    on_request = definitions.resolve_job_def("extract").asset_layer.selected_asset_keys
    assert {key.to_user_string() for key in on_request} == {"extraction"}
    names = (
        *("refresh_sources", "build_benchmarks", "search_corpora", "count_tokens", "train_controls", "run_studies"),
        *("audit_pairs", "ask", "publish"),
    )
    covered = [
        key.to_user_string()
        for name in names
        for key in definitions.resolve_job_def(name).asset_layer.selected_asset_keys
    ]
    assert sorted(covered) == sorted(MADE)
