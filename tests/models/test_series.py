"""Series of checkpoints: their order, and their steps and tokens."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest

from audit_pipeline.errors import ConfigError, ModelError, ModelFilesWarning
from audit_pipeline.models.config import Models, load_models, resolve_model, resolve_models
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.pipeline.whole_configuration import load_configuration


def load_entries(folder: Path, entries: str) -> Models:
    (folder / "models.yaml").write_text("models:\n" + indent(entries, "  "))
    return load_models(folder)


def list_positions(models: Models) -> list[tuple[str, int | None, int | None]]:
    return [
        (entry.name, entry.checkpoint.step, entry.checkpoint.tokens) for entry in models.values() if entry.checkpoint
    ]


def make_folders(root: Path, *names: str, file: str = "config.json") -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / file).write_text("{}")


def test_revisions_are_models_in_the_order_of_the_entry(tmp_path: Path) -> None:
    models = load_entries(
        tmp_path,
        "before: {hub: a/b}\n"
        "pythia: {hub: e/p, title: Pythia, dtype: bfloat16,\n"
        "  series: {revisions: [step512, step1000], tokens_per_step: 100}}\n"
        "olmo: {hub: a/o, series: {revisions: [stage1-step7000-tokens30B, main], tokens: [30, 40]}}\n"
        "after: {hub: a/c, adapter: {hub: a/d}, series: {revisions: [x, y], steps: [10, 20]}}\n",
    )
    assert list_positions(models) == [
        ("pythia@step512", 512, 51_200),
        ("pythia@step1000", 1000, 100_000),
        ("olmo@stage1-step7000-tokens30B", 7000, 30),
        ("olmo@main", None, 40),
        ("after@x", 10, None),
        ("after@y", 20, None),
    ]
    assert models.names == ("before", *(name for name, *_ in list_positions(models)))
    last = models["pythia@step1000"]
    assert (last.hub, last.revision, last.title, last.dtype) == ("e/p", "step1000", "Pythia, step1000", "bfloat16")
    adapted = models["after@y"]
    assert adapted.revision is None
    assert adapted.adapter is not None
    assert adapted.adapter.revision == "y"
    assert entry_version(last) == entry_version(last.model_copy(update={"checkpoint": None}))


def test_a_folder_of_checkpoints_is_sorted_by_step(tmp_path: Path) -> None:
    make_folders(tmp_path / "runs", "checkpoint-1000", "checkpoint-500", "final", "step_50K")
    make_folders(tmp_path / "runs", "logs", file="notes.txt")
    state = {"global_step": 600, "num_input_tokens_seen": 7}
    (tmp_path / "runs" / "checkpoint-500" / "trainer_state.json").write_text(json.dumps(state))
    models = load_entries(tmp_path, "mine: {series: {folder: runs, tokens_per_step: 10}}\n")
    assert list_positions(models) == [
        ("mine@checkpoint-500", 600, 7),
        ("mine@checkpoint-1000", 1000, 10_000),
        ("mine@step_50K", 50_000, 500_000),
        ("mine@final", None, None),
    ]
    assert models["mine@final"].path == tmp_path / "runs" / "final"


def test_a_folder_of_adapters_is_a_series_on_their_base(tmp_path: Path) -> None:
    make_folders(tmp_path / "runs", "step2", "step10", file="adapter_config.json")
    models = load_entries(tmp_path, "mine: {hub: a/b, series: {folder: runs}}\n")
    assert list_positions(models) == [("mine@step2", 2, None), ("mine@step10", 10, None)]
    assert [(entry.hub, entry.adapter and entry.adapter.path) for entry in models.values()] == [
        ("a/b", tmp_path / "runs" / name) for name in ("step2", "step10")
    ]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{hub: a/b, series: {}}", "either 'revisions' or 'folder'"),
        ("{hub: a/b, series: [x]}", "either 'revisions' or 'folder'"),
        ("{hub: a/b, series: {revisions: []}}", "revisions"),
        ("{hub: a/b, series: {revisions: [x, x]}}", "'revisions' lists 'x' twice"),
        (
            "{hub: a/b, series: {revisions: [x], steps: [1, 2]}}",
            "'steps' lists 2 numbers, but 'revisions' lists 1 revisions. List one number per revision.",
        ),
        (
            "{hub: a/b, series: {folder: runs, tokens: [1]}}",
            "'tokens' lists 1 numbers, but 'revisions' lists 0 revisions. List one number per revision.",
        ),
        ("{hub: a/b, series: {revision: [x]}}", "unknown key 'revision'"),
        ("{path: m, series: {revisions: [x]}}", "'revisions' requires that the adapter"),
        ("{hub: a/b, revision: z, series: {revisions: [x]}}", "and no 'revision'"),
        ("{series: {folder: empty}}", "contains no checkpoints"),
        ("{path: m, series: {folder: runs}}", "replace the keys 'adapter' and 'path' of the entry. Remove both keys."),
        ("{adapter: {path: m}, series: {folder: runs}}", "Remove both keys."),
    ],
)
def test_an_invalid_series_is_one_broken_entry(tmp_path: Path, entry: str, words: str) -> None:
    make_folders(tmp_path / "runs", "step2")
    models = load_entries(tmp_path, f"good: {{hub: a/b}}\nmine: {entry}\n")
    assert models.names == ("good", "mine")
    (problem, *_) = models.problems
    assert words in str(problem)
    with pytest.raises(ConfigError):
        resolve_model("mine", models)


def test_the_name_of_a_series_stands_for_its_models(tmp_path: Path) -> None:
    models = load_entries(tmp_path, "mine: {hub: a/b, series: {revisions: [x, y]}}\nother: {hub: a/c}\n")
    assert [entry.name for entry in resolve_models("mine", models)] == ["mine@x", "mine@y"]
    assert [entry.name for entry in resolve_models("mine@y", models)] == ["mine@y"]
    assert [entry.name for entry in resolve_models("other", models)] == ["other"]
    with pytest.raises(ModelError, match=r"mine is a series of 2 models\. Name a checkpoint, such as mine@y"):
        resolve_model("mine", models)


def test_an_unknown_reference_model_breaks_the_whole_series(tmp_path: Path) -> None:
    load_entries(tmp_path, "mine: {hub: a/b, reference_model: none, series: {revisions: [x, y]}}\nother: {hub: a/c}\n")
    models = load_configuration(tmp_path).models
    assert models.names == ("mine", "other")
    assert list(models) == ["other"]
    assert "there is no model 'none'" in str(models.problems[0])


def test_the_warning_lists_skipped_folders_with_reasons(tmp_path: Path) -> None:
    make_folders(
        tmp_path / "runs", "checkpoint-100", "checkpoint-200", "tmp-checkpoint-300", "checkpoint-400.tmp", ".old"
    )
    for name in ("checkpoint-500", "checkpoint-600"):
        (tmp_path / "runs" / name).mkdir()
    (tmp_path / "runs" / "checkpoint-600" / "model.safetensors").write_bytes(b"half of it")
    (tmp_path / "runs" / "config.json").write_text("{}")
    (tmp_path / "runs" / "latest").symlink_to("checkpoint-200")
    (tmp_path / "runs" / "gone").symlink_to("checkpoint-0")
    (tmp_path / "runs" / "notes.txt").write_text("not a folder")
    with pytest.warns(ModelFilesWarning) as caught:
        models = load_entries(tmp_path, "mine: {series: {folder: runs}}\n")
    assert list(models) == ["mine@checkpoint-100", "mine@checkpoint-200"]
    _, _, reasons = str(caught[0].message).partition("runs: ")
    assert reasons.split("; ") == [
        "runs itself (to audit the model in it, add a separate entry)",
        "'.old' (hidden)",
        "'checkpoint-400.tmp' (its name contains tmp, so it is unfinished)",
        "'checkpoint-500' (empty)",
        "'checkpoint-600' (without config.json)",
        "'gone' (a link)",
        "'latest' (a link)",
        "'tmp-checkpoint-300' (its name contains tmp, so it is unfinished)",
    ]


def test_the_error_for_a_folder_without_checkpoints_lists_skipped_folders(tmp_path: Path) -> None:
    make_folders(tmp_path / "runs", "tmp-checkpoint-300")
    (problem,) = load_entries(tmp_path, "mine: {series: {folder: runs}}\n").problems
    assert "contains no checkpoints" in str(problem)
    assert "These folders are skipped: 'tmp-checkpoint-300' (its name contains tmp, so it is unfinished)" in str(
        problem
    )


@pytest.mark.parametrize(
    "names",
    [
        ["epoch-2", "epoch-10"],
        ["epoch_2", "epoch-10", "Epoch 11"],
        ["2", "10", "final"],
        ["0009", "10"],
        ["epoch-0.5", "epoch-1.25", "epoch-1.5"],
        ["epoch1-part2", "epoch1-part10", "epoch2-part1"],
        ["checkpoint-300", "global_step500", "step1000", "ckpt-2000", "iteration_3000", "epoch=2-step=4000", "last"],
        ["tokens500M", "tokens-2B", "tokens10B"],
        ["500M", "2B", "10B"],
    ],
)
def test_numbers_in_names_are_ordered_as_numbers(tmp_path: Path, names: list[str]) -> None:
    make_folders(tmp_path / "runs", *sorted(names))
    models = load_entries(tmp_path, "mine: {series: {folder: runs}}\n")
    assert [name.removeprefix("mine@") for name in models] == names
    assert [entry.checkpoint.position for entry in models.values() if entry.checkpoint] == [*range(1, len(names) + 1)]


@pytest.mark.parametrize("state", ['{"global_step": 2', "[]", "{}", '{"global_step": "x"}'])
def test_a_damaged_trainer_state_leaves_the_step_of_the_name(tmp_path: Path, state: str) -> None:
    make_folders(tmp_path / "runs", "checkpoint-200")
    (tmp_path / "runs" / "checkpoint-200" / "trainer_state.json").write_text(state)
    assert list_positions(load_entries(tmp_path, "mine: {series: {folder: runs}}\n")) == [
        ("mine@checkpoint-200", 200, None)
    ]
