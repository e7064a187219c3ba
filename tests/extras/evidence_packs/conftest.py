"""A workspace with an audited pair, whose plan was sealed before the audit, and its pack."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import bagit
import pytest
from made_workspace import Workspace, copy_workspace, enter_workspace, made_documents, make_workspace, temporal
from quick import empty_pictures
from tiny_models import forward_of, single_threaded

from audit_pipeline.extras.evidence_packs.pack import write_pack
from audit_pipeline.extras.evidence_packs.sealed_plan import seal_plan
from audit_pipeline.extras.extraction import pair_extraction
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import Pair

PAIR = Pair("made_8", "tiny")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    with pytest.MonkeyPatch.context() as patch, single_threaded(), empty_pictures():
        workspace = make_workspace(tmp_path_factory.mktemp("exhibit") / "made", patch, tiny=tiny_folder("llama"))
        workspace.write_benchmarks(made=temporal([8], extraction={"prefix": 12, "suffix": 8, "grid": True}))
        workspace.fetch(*made_documents(4, 40))
        workspace.build("made")
        workspace.assess("made")
        seal_plan(PAIR, workspace.model("tiny"), workspace.paths, None)
        workspace.audit("tiny", "made_8")
        settings = pair_extraction.find_extraction_settings("made_8")
        assert settings is not None
        step = LineageStep.now("extracted", "extraction", pair_extraction.EXTRACTION_VERSION)
        pair_extraction.extract_pair(PAIR, workspace.model("tiny"), workspace.paths, forward_of, step, settings)
        return workspace.root


@pytest.fixture(scope="session")
def packed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "pack.zip"
    with pytest.MonkeyPatch.context() as patch:
        workspace = enter_workspace(made, patch)
        model = workspace.model("tiny")
        write_pack(out, [PAIR], model, load_configuration(), workspace.paths, on_step=lambda words: None)
    return out


@pytest.fixture
def workspace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return copy_workspace(made, tmp_path / "workspace", monkeypatch)


@pytest.fixture
def change_pack(packed: Path, tmp_path: Path) -> Callable[[Callable[[Path], object]], Path]:
    """Return a function that changes the payload of the pack, and updates the digests of the bag."""

    def change(apply: Callable[[Path], object]) -> Path:
        folder = tmp_path / "opened"
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)
        apply(folder / "pack" / "data")
        bagit.Bag(str(folder / "pack")).save(manifests=True)
        changed = tmp_path / "changed.zip"
        with zipfile.ZipFile(changed, "w") as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(path, path.relative_to(folder))
        return changed

    return change
