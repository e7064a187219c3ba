"""The asset token_frequencies: one table per corpus and tokenizer, even if another corpus fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from made_workspace import partitions_of_controls, reload_assets

from audit_pipeline.definitions import defs
from audit_pipeline.errors import DataError
from audit_pipeline.store.paths import DataPaths

REFERENCES = """
references:
  here: {path: texts, language: en, licence: none}
  lost: {path: no_such_folder, language: en, licence: none}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Iterator[Path]:
    """Configure two models with one tokenizer, an existing corpus and a missing corpus."""
    config = tmp_path / "config"
    (config / "texts").mkdir(parents=True)
    (config / "texts" / "a.jsonl").write_text('{"text": "the nets"}\n{broken\n')
    (config / "references.yaml").write_text(REFERENCES)
    (config / "models.yaml").write_text(
        "models:\n" + "".join(f"  {name}: {{path: {tiny_folder('llama')}}}\n" for name in ("one", "two"))
    )
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(config))
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "data"))
    with partitions_of_controls():
        yield tmp_path


def run(first: str, last: str | None = None) -> dg.ExecuteInProcessResult:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last} if last else {}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("model", ["one", "two"])
        job = defs().resolve_job_def("count_tokens")
        return job.execute_in_process(instance=instance, partition_key=None if last else first, tags=tags)


@pytest.mark.usefixtures("folder")
def test_models_with_one_tokenizer_share_a_table_and_a_missing_corpus_stops_no_run() -> None:
    result = run("here|one", "lost|two")
    assert result.success
    seen = {
        event.partition: event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.partition
    }
    assert set(seen) == {"here|one", "here|two", "lost|one", "lost|two"}
    assert [seen[key]["up to date before"].value for key in ("here|one", "here|two")] == [False, True]
    assert seen["here|one"]["tokens"].value > 0
    assert seen["here|two"]["skipped rows"].value == 1
    assert "no such file or folder" in str(seen["lost|one"]["reason"].value)
    checks = {(one.check_name, one.partition): one.passed for one in result.get_asset_check_evaluations()}
    for model in ("one", "two"):
        assert checks["counts_belong_to_tokenizer", f"here|{model}"]
        assert not checks["every_row_counted", f"here|{model}"], "a row was skipped"
        assert not checks["every_pair_ran", f"lost|{model}"], "the corpus is missing"
    tables = [path.parent.name for path in DataPaths.from_environment().root.rglob("tokenizer=*.parquet")]
    assert tables == ["corpus=here"]


@pytest.mark.usefixtures("folder")
def test_the_run_of_a_single_missing_corpus_fails() -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        run("lost|one")


def test_the_module_loads_without_references_yaml(folder: Path) -> None:
    (folder / "config" / "references.yaml").unlink()
    reload_assets()
    asset = defs().get_assets_def("token_frequencies")
    assert isinstance(asset.partitions_def, dg.MultiPartitionsDefinition)
    assert list(asset.partitions_def.partitions_defs[0].partitions_def.get_partition_keys()) == ["sotu"]
