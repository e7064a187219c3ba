"""The notebook of the documentation, executed with another model and benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from made_workspace import made_documents, make_workspace, quick_folder, temporal
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_answers.ipynb"


def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_whole_and_kept_without_outputs() -> None:
    nbformat.validate(notebook())
    code = [cell for cell in notebook().cells if cell.cell_type == "code"]
    assert [cell.metadata.get("tags", []) for cell in code].count(["parameters"]) == 1
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.slow
def test_the_notebook_runs_from_start_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> None:
    with quick_folder(tmp_path) as folder:
        made = make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8]))
        made.hold(*made_documents(2, 30))
        # The documents are made in this process, and the notebook's is another one: it finds all of it there.
        assert made.run("audit", "--model", "tiny", "--benchmark", "made").exit_code == 0
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
            monkeypatch.setenv(name, str(tmp_path / name))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        executed = notebook()
        [parameters] = [cell for cell in executed.cells if cell.metadata.get("tags") == ["parameters"]]
        assert 'MODEL = "smollm2-135m"' in parameters.source
        parameters.source = 'import corpus_audit as ca\n\nMODEL, BENCHMARK = "tiny", "made"'
        NotebookClient(executed, timeout=300, resources={"metadata": {"path": str(made.root)}}).execute()
        shown = [cell.outputs for cell in executed.cells if cell.cell_type == "code"]
        assert not [one for outputs in shown for one in outputs if one.get("name") == "stderr"]
        findings, path = shown[-3], shown[-1]
        assert "min_k_plus_plus" in findings[0]["data"]["text/plain"]
        assert str(made.paths.report) in path[0]["data"]["text/plain"]
