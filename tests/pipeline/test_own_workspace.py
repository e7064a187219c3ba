"""The workspace of a check: it is created once, updated later, and other files are not overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from audit_pipeline.benchmarks.config import exclude_on_request, load_benchmarks
from audit_pipeline.errors import AuditError, ConfigError, ModelError
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.user_files import (
    Inventory,
    UserFiles,
    inspect_user_files,
)
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.pipeline.workspace_creation import (
    create_workspace,
    ensure_workspace,
    make_dry_run_workspace,
    resolve_workspace_model,
)
from audit_pipeline.sources.local_files import LocalFilesSettings

TINY: dict[str, dict[str, Any]] = {"tiny": {"hub": "owner/tiny"}}
TEXT = "The lanterns were lit before the carriage came down the long hill, and nobody said a word about it. "


def looked(folder: Path, *names: str, held_out: str | None = None) -> Inventory:
    for name in (*names, *([held_out] if held_out else [])):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "a.txt").write_text(f"{TEXT * 9}{name}")
    return inspect_user_files(
        UserFiles(tuple(folder / name for name in names), (folder / held_out,) if held_out else ())
    )


def test_the_workspace_has_a_valid_configuration(tmp_path: Path) -> None:
    made = ensure_workspace(tmp_path / "made", looked(tmp_path, "books", held_out="new"), TINY)
    assert made.is_new
    config = load_configuration(tmp_path / "made" / "config")
    assert config.problems == ()
    assert list(config.models) == ["tiny", "instrument_check_exposed", "instrument_check_twin"]
    assert list(config.benchmarks) == ["own_files_64", "instrument_check_64"]
    assert list(exclude_on_request(config.benchmarks)) == ["own_files_64"], (
        "the weekly audit leaves the instrument check alone"
    )
    section = config.sources.for_source("local_files")
    assert isinstance(section, LocalFilesSettings)
    assert section.roots_by_collection == {"audited": (tmp_path / "books",), "held_out": (tmp_path / "new",)}
    # What the keys mean stands in the files.
    assert "held_out" in (tmp_path / "made/config/benchmarks.yaml").read_text().split("\nbenchmarks:")[0]


def test_the_same_request_changes_nothing_and_keeps_edits(tmp_path: Path) -> None:
    folder, files = tmp_path / "made", looked(tmp_path, "books")
    ensure_workspace(folder, files, TINY)
    benchmarks = folder / "config/benchmarks.yaml"
    benchmarks.write_text(benchmarks.read_text().replace("- 64", "- 128", 1))
    made = ensure_workspace(folder, files, TINY)
    assert (made.is_new, made.written) == (False, ())
    assert list(load_benchmarks(folder / "config")) == ["own_files_128", "instrument_check_64"]


def test_held_out_documents_and_models_are_added(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    ensure_workspace(folder, looked(tmp_path, "books"), TINY)
    made = ensure_workspace(folder, looked(tmp_path, "books", held_out="new"), {"other": {"hub": "owner/other"}})
    assert set(made.written) == {"benchmarks.yaml", "sources.yaml", "models.yaml"}
    assert list(load_models(folder / "config"))[::3] == ["tiny", "other"]
    assert load_benchmarks(folder / "config")["own_files_64"].design == "unstated"
    assert ensure_workspace(folder, looked(tmp_path, "books", held_out="new"), TINY).written == ()


def test_a_dry_run_claims_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with make_dry_run_workspace(folder, looked(tmp_path, "books"), TINY) as tried:
        assert load_configuration(tried.folder / "config").problems == ()
        assert not folder.exists()
    assert not tried.folder.exists()
    assert ensure_workspace(folder, looked(tmp_path, "more"), TINY).is_new
    with make_dry_run_workspace(folder, looked(tmp_path, "more"), TINY) as tried:
        assert tried.folder == folder, "what is there of these files is used"
    assert folder.exists()
    with (
        pytest.raises(ConfigError, match="workspace of other files"),
        make_dry_run_workspace(folder, looked(tmp_path, "books"), TINY),
    ):
        pass


def test_a_workspace_that_check_did_not_make_is_left_alone(tmp_path: Path) -> None:
    create_workspace(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="was not created by"):
        ensure_workspace(tmp_path / "theirs", looked(tmp_path, "books"), TINY)


def configured(folder: Path, monkeypatch: pytest.MonkeyPatch, **models: dict[str, Any]) -> None:
    create_workspace(folder)
    (folder / "config/models.yaml").write_text(yaml.safe_dump({"models": models}))
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(folder / "config"))


def test_a_models_entry_is_taken_along_with_its_reference_model_and_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: dict[str, dict[str, Any]] = {
        "big": {"path": "weights/big", "reference_model": "small", "start_token": "<s>"},
        "small": {"hub": "owner/small", "revision": "main"},
    }
    configured(tmp_path / "here", monkeypatch, **entries)
    entry, needed = resolve_workspace_model("big", tmp_path / "made")
    assert entry.name == "big"
    assert needed == {
        "big": {**entries["big"], "path": str(tmp_path / "here/config/weights/big")},
        "small": entries["small"],
    }
    ensure_workspace(tmp_path / "made", looked(tmp_path, "books"), needed)
    assert load_configuration(tmp_path / "made/config").problems == ()
    # The workspace's own entry comes first from now on.
    configured(tmp_path / "elsewhere", monkeypatch, big={"hub": "somebody/else"})
    entry, needed = resolve_workspace_model("big", tmp_path / "made")
    assert (entry.reference_model, needed) == ("small", {})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("taught", ConfigError, "is a model of a control"),
        ("biig", ModelError, "did you mean big"),
        ("./nowhere", ModelError, "does not exist"),
    ],
)
def test_models_that_cannot_be_had_are_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, error: type[AuditError], said: str
) -> None:
    taught = {"control": {"name": "instrument_check", "role": "exposed"}}
    configured(tmp_path / "here", monkeypatch, big={"hub": "owner/big"}, taught=taught)
    with pytest.raises(error, match=said):
        resolve_workspace_model(given, tmp_path / "made")


def test_a_hub_id_and_a_folder_are_entries_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path / "here", monkeypatch, big={"hub": "owner/big"})
    (tmp_path / "weights").mkdir()
    assert resolve_workspace_model("owner/other", tmp_path / "made")[1] == {"owner/other": {"hub": "owner/other"}}
    path = str(tmp_path / "weights")
    assert resolve_workspace_model(path, tmp_path / "made")[1] == {path: {"path": path}}
