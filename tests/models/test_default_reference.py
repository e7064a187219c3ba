"""The default reference model: the base of an adapter or of a fine-tuned model, or a series' first checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest
from tiny_models import save_adapter, save_model

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.extraction.pair_extraction import load_search_reference
from audit_pipeline.models.config import ModelEntry, Models, load_models, resolve_model
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.models.tokenized_model import (
    apply_overrides,
    build_reference_upstream,
    load_reference_model,
    load_tokenized,
)
from audit_pipeline.models.usage_budget import find_endpoint_models
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.store.paths import DataPaths

SERVER = (
    "backend: openai, endpoint: {url: 'http://localhost:1/v1', model: m, dialect: vllm}, start_token_policy: tokenizer"
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Models]:
    """Return a function that writes models.yaml of a workspace and loads it."""
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(folder))

    def write(entries: str) -> Models:
        (folder / "models.yaml").write_text("models:\n" + indent(entries, "  "))
        return load_models()

    return write


def list_references(models: Models) -> dict[str, str | None]:
    return {name: entry.detector_reference for name, entry in models.items()}


def write_adapter_config(folder: Path, **fields: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(fields))


def test_an_adapter_has_the_entry_with_the_same_files_and_settings(config: Callable[[str], Models]) -> None:
    models = config(
        "small: {hub: a/s}\n"
        "base: {hub: a/b, start_token: <s>, title: Base, release_date: 2024-01-01, reference_model: small}\n"
        "tuned: {hub: a/b, start_token: <s>, title: Tuned, notes: ours, adapter: {hub: a/d}}\n"
        "other_token: {hub: a/b, adapter: {hub: a/d}}\n"
        "other_dtype: {hub: a/b, start_token: <s>, dtype: bfloat16, adapter: {hub: a/d}}\n"
        "other_revision: {hub: a/b, revision: x, start_token: <s>, adapter: {hub: a/d}}\n"
    )
    assert list_references(models) == {
        "small": None,
        "base": "small",
        "tuned": "base",
        "other_token": "base of other_token",
        "other_dtype": "base of other_dtype",
        "other_revision": "base of other_revision",
    }


def test_the_revision_of_the_base_can_be_in_the_folder_of_the_adapter(
    config: Callable[[str], Models], tmp_path: Path
) -> None:
    write_adapter_config(tmp_path / "fixed", base_model_name_or_path="a/b", revision="x")
    write_adapter_config(tmp_path / "moved", base_model_name_or_path="a/c", revision="x")
    write_adapter_config(tmp_path / "damaged")
    models = config(
        "at_x: {hub: a/b, revision: x}\n"
        "latest: {hub: a/b}\n"
        "fixed: {hub: a/b, adapter: {path: ../fixed}}\n"
        "moved: {hub: a/b, adapter: {path: ../moved}}\n"
        "damaged: {hub: a/b, adapter: {path: ../damaged}}\n"
        "missing: {hub: a/b, adapter: {path: ../missing}}\n"
    )
    found = list_references(models)
    assert (found["fixed"], found["moved"], found["damaged"], found["missing"]) == (
        "at_x",
        "latest",
        "latest",
        "latest",
    )


def test_all_adapters_of_a_series_have_one_base(config: Callable[[str], Models], tmp_path: Path) -> None:
    for step in ("step2", "step10"):
        write_adapter_config(tmp_path / "runs" / step)
    series = "tuned: {path: ../weights, series: {folder: ../runs}}\n"
    assert list_references(config(series)) == {"tuned@step2": "base of tuned", "tuned@step10": "base of tuned"}
    assert list_references(config(series + "base: {path: ../weights}\n")) == {
        "tuned@step2": "base",
        "tuned@step10": "base",
        "base": None,
    }


def test_a_checkpoint_has_the_first_checkpoint_of_its_series(config: Callable[[str], Models]) -> None:
    models = config(
        "one: {hub: a/b, series: {revisions: [x, y, z]}}\n"
        "two: {hub: a/c, series: {revisions: [x, y]}, reference_model: plain}\n"
        "three: {hub: a/c, series: {revisions: [x, y]}, base: plain}\n"
        "plain: {hub: a/p}\n"
    )
    assert list_references(models) == {
        "one@x": None,
        "one@y": "one@x",
        "one@z": "one@x",
        "two@x": "plain",
        "two@y": "plain",
        "three@x": "plain",
        "three@y": "plain",
        "plain": None,
    }


def test_a_fine_tuned_model_names_its_base(config: Callable[[str], Models]) -> None:
    models = config(
        "plain: {hub: a/p}\n"
        "tuned: {hub: a/t, base: plain}\n"
        "explicit: {hub: a/t, base: plain, reference_model: tuned}\n"
        "none: {hub: a/t, base: plain, reference_model: null}\n"
        "adapted: {hub: a/t, base: plain, adapter: {hub: a/d}}\n"
        "adapted_none: {hub: a/t, adapter: {hub: a/d}, reference_model:}\n"
    )
    assert list_references(models) == {
        "plain": None,
        "tuned": "plain",
        "explicit": "tuned",
        "none": None,
        "adapted": "plain",
        "adapted_none": None,
    }
    assert load_configuration().models.names == tuple(models)
    assert load_configuration().models["tuned"].detector_reference == "plain"


def test_a_missing_base_is_an_error_that_names_it(config: Callable[[str], Models]) -> None:
    config("plain: {hub: a/p}\ntuned: {hub: a/t, base: plian}\nelsewhere: {hub: a/t, base: owner/name}\n")
    models = load_configuration().models
    assert list(models) == ["plain"]
    said = [str(problem) for problem in models.problems]
    assert said[0].endswith("models.yaml:3: model tuned: base: there is no model 'plian'; did you mean plain?")
    assert "base: there is no model 'owner/name'" in said[1]


def test_a_base_with_a_broken_entry_is_reported_when_it_is_needed(
    config: Callable[[str], Models], tmp_path: Path
) -> None:
    models = config(
        f"plain: {{hub: a/p, colour: red}}\ntuned: {{path: {save_model(tmp_path / 'tuned')}, base: plain}}\n"
    )
    paths = DataPaths(tmp_path / "data")
    with pytest.raises(ConfigError, match="model plain: unknown key 'colour'"):
        load_reference_model(load_tokenized(models["tuned"], paths), paths)


def test_a_change_of_the_default_changes_the_version_of_its_entry_alone(config: Callable[[str], Models]) -> None:
    tuned = "tuned: {hub: a/t%s}\nplain: {hub: a/p}\nother: {hub: a/o}\n"
    without, with_plain, with_other = (config(tuned % base) for base in ("", ", base: plain", ", base: other"))
    versions = [entry_version(models["tuned"]) for models in (without, with_plain, with_other)]
    assert len(set(versions)) == 3
    assert len({entry_version(models["plain"]) for models in (without, with_plain, with_other)}) == 1
    # The version of an entry without a default is the same as before defaults existed.
    assert entry_version(without["tuned"]) == entry_version(ModelEntry(name="tuned", hub="a/t"))


def test_overrides_do_not_lose_the_default(config: Callable[[str], Models]) -> None:
    models = config("one: {hub: a/b, series: {revisions: [x, y]}}\n")
    changed = apply_overrides(models["one@y"], dtype="bfloat16")
    assert (changed.dtype, changed.detector_reference, changed.checkpoint) == (
        "bfloat16",
        "one@x",
        models["one@y"].checkpoint,
    )
    assert apply_overrides(models["one@y"], reference_model="small").detector_reference == "small"


def test_limits_apply_to_a_base_on_a_server(config: Callable[[str], Models]) -> None:
    models = config(f"served: {{hub: a/b, {SERVER}}}\ntuned: {{hub: a/t, base: served}}\n")
    assert [entry.name for entry, _ in find_endpoint_models(models["tuned"])] == ["served"]


def test_the_base_of_an_adapter_is_loaded_with_and_without_an_entry(
    config: Callable[[str], Models], tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    base = save_model(tmp_path / "weights")
    adapter = save_adapter(tmp_path / "adapter", base)
    paths = DataPaths(tmp_path / "data")
    tuned = f"tuned: {{path: {base}, window: 32, title: Tuned, adapter: {{path: {adapter}}}}}\n"
    without_entry = config(tuned)
    model = load_tokenized(without_entry["tuned"], paths)
    alone = load_reference_model(model, paths)
    assert alone is not None
    assert (alone.entry.name, alone.entry.adapter, alone.entry.title) == ("base of tuned", None, None)
    assert alone.entry.detector_reference is None
    assert (alone.entry.window, alone.context_length) == (32, model.context_length)
    assert alone.identity.weights_digest == model.identity.weights_digest
    assert alone.identity.model_fingerprint != model.identity.model_fingerprint
    fingerprints = f"{alone.identity.model_fingerprint}/{alone.identity.tokenizer_fingerprint}"
    assert build_reference_upstream(alone) == {"reference_model/base of tuned": fingerprints}

    other_dtype = load_tokenized(apply_overrides(without_entry["tuned"], dtype="bfloat16"), paths)
    reference = load_reference_model(other_dtype, paths)
    assert reference is not None
    assert reference.entry.dtype == "bfloat16"

    models = config(f"{tuned}plain: {{path: {base}, window: 32}}\n")
    configured = load_reference_model(load_tokenized(models["tuned"], paths), paths)
    assert configured is not None
    assert build_reference_upstream(configured) == {"reference_model/plain": fingerprints}


def test_an_adapter_by_its_path(config: Callable[[str], Models], tmp_path: Path) -> None:
    base = save_model(tmp_path / "weights")
    adapter = tmp_path / "adapter"
    write_adapter_config(adapter, base_model_name_or_path=str(base))
    assert resolve_model(str(adapter), config("{}")).detector_reference == f"base of {adapter}"
    models = config(
        f"small: {{hub: a/s}}\nplain: {{path: {base}, start_token: <s>, base: small, reference_model: small}}\n"
    )
    entry = resolve_model(str(adapter), models)
    # The reference model of the base is none for the adapter.
    assert (entry.start_token, entry.detector_reference) == ("<s>", "plain")
    write_adapter_config(adapter, base_model_name_or_path="owner/name", revision="x")
    entry = resolve_model(str(adapter), config("plain: {hub: owner/name}\n"))
    assert (entry.revision, entry.detector_reference) == ("x", f"base of {adapter}")


def test_extraction_sets_passages_apart_only_by_an_explicit_reference_model(
    config: Callable[[str], Models], tmp_path: Path
) -> None:
    base = save_model(tmp_path / "weights")
    tuned = save_model(tmp_path / "tuned", seed=1)
    paths = DataPaths(tmp_path / "data")
    models = config(
        f"plain: {{path: {base}}}\n"
        f"tuned: {{path: {tuned}, base: plain}}\n"
        f"explicit: {{path: {tuned}, reference_model: plain}}\n"
    )
    default = load_tokenized(models["tuned"], paths)
    reference = load_reference_model(default, paths)
    assert reference is not None
    assert reference.entry.name == "plain"
    assert load_search_reference(default, paths) is None
    named = load_search_reference(load_tokenized(models["explicit"], paths), paths)
    assert named is not None
    assert named.entry.name == "plain"
