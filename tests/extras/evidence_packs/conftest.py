"""A workspace with an audited pair whose plan was sealed first, made once and copied for every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from made_workspace import Workspace, enter_workspace, made_documents, make_workspace, temporal
from quick import empty_pictures
from tiny_models import forward_of, single_threaded

from audit_pipeline.extras.evidence_packs.pack import write_pack
from audit_pipeline.extras.evidence_packs.sealed_plan import seal_plan
from audit_pipeline.extras.extraction.pair_extraction import (
    EXTRACTION_VERSION,
    extract_pair,
    find_extraction_settings,
)
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import Pair

PAIR = Pair("made_8", "tiny")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    """The folder of the workspace; audited after the plan was sealed."""
    with pytest.MonkeyPatch.context() as patch, single_threaded(), empty_pictures():
        workspace = make_workspace(tmp_path_factory.mktemp("exhibit") / "made", patch, tiny=tiny_folder("llama"))
        workspace.write_benchmarks(made=temporal([8], extraction={"prefix": 12, "suffix": 8, "grid": True}))
        workspace.fetch(*made_documents(4, 40))
        workspace.build("made")
        workspace.assess("made")
        seal_plan(PAIR, workspace.model("tiny"), workspace.paths, None)
        workspace.audit("tiny", "made_8")
        settings = find_extraction_settings("made_8")
        assert settings is not None
        step = LineageStep.now("extracted", "extraction", EXTRACTION_VERSION)
        extract_pair(PAIR, workspace.model("tiny"), workspace.paths, forward_of, step, settings)
        return workspace.root


@pytest.fixture(scope="session")
def packed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of its pair."""
    out = tmp_path_factory.mktemp("packed") / "pack.zip"
    with pytest.MonkeyPatch.context() as patch:
        workspace = enter_workspace(made, patch)
        model, configuration = workspace.model("tiny"), load_configuration()
        write_pack(out, [PAIR], model, configuration, workspace.paths, on_step=lambda words: None)
    return out


@pytest.fixture
def workspace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A copy of it, named by the environment."""
    copy = tmp_path / "workspace"
    shutil.copytree(made, copy)
    return enter_workspace(copy, monkeypatch)
