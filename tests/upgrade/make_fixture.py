"""Makes layout-VERSION.tar.xz: a small data folder as the version of now writes it, for later versions to open.

    python tests/upgrade/make_fixture.py          (in the checkout, with tests/ on PYTHONPATH)

Run it when a version is released, and keep the files of earlier versions: test_upgrade.py opens each. All texts are
made up; the model is a random one, kept beside the data: another version of torch could not make the same one.
"""

from __future__ import annotations

import socket
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from made_workspace import Workspace, made_documents, make_workspace, temporal
from matplotlib.figure import Figure
from tiny_models import save_model

from audit_pipeline import __version__

HERE = Path(__file__).parent
MODEL, BENCHMARK = "tiny", "made"


def make(root: Path, patch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with one audit of a model on one benchmark."""
    # Runs are tagged with the machine's name, which is nobody's business.
    patch.setattr(socket, "gethostname", lambda: "machine")
    # Dagster's records hold the plots: coarse ones, for the file to be small.
    draw = Figure.savefig
    patch.setattr(Figure, "savefig", lambda figure, file, **how: draw(figure, file, **{**how, "dpi": 5}))
    model = root / "model"
    workspace = make_workspace(root, patch, **{MODEL: model})
    save_model(model, hidden_size=16, intermediate_size=24)
    workspace.write_benchmarks(**{BENCHMARK: temporal([12])})
    workspace.hold(*made_documents(3, 40))
    result = workspace.run("audit", "--model", MODEL, "--benchmark", BENCHMARK)
    if result.exit_code != 0:
        sys.exit(result.output)
    return workspace


def pack(root: Path, archive: Path) -> None:
    """The workspace's data, without what its readers make anew anyhow: warehouse and reports."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(member.name).parts
        if "reports" in parts or parts[-1].startswith("audit.duckdb") or "storage" in parts[2:]:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in ("data", "model"):
            packed.add(root / name, name, filter=kept)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="layout-") as folder, pytest.MonkeyPatch.context() as patched:
        made = make(Path(folder) / "workspace", patched)
        target = HERE / f"layout-{__version__}.tar.xz"
        pack(made.root, target)
        print(f"{target.name}: {target.stat().st_size:,} bytes")
