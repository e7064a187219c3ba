"""Export of a benchmark to the hub by the real client, and a build from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_server import TOKEN, HubServer
from made_workspace import Workspace, made_documents, make_workspace, temporal

NAME = "maker/made"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Build two lengths of a family."""
    workspace = make_workspace(tmp_path / "ours", monkeypatch)
    workspace.write_benchmarks(made=temporal([12, 16], calibration_fraction=0.3))
    workspace.fetch(*made_documents(6, 60))
    workspace.build("made")
    workspace.assess("made")
    return workspace


@pytest.fixture
def pushed(built: Workspace, cli: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    def pushed(name: str = NAME, out: str = "out", **variables: str) -> Any:
        own = {"CORPUS_AUDIT_DATA": str(built.paths.root), "CORPUS_AUDIT_CONFIG": str(built.config), **variables}
        return cli("benchmarks", "--export", "made", "--out", str(tmp_path / out), "--push", name, "--json", **own)

    return pushed


@pytest.mark.slow
def test_a_pushed_benchmark_builds_the_same_benchmark(
    hub: HubServer, built: Workspace, pushed: Callable[..., Any], call_in_process: Callable[..., Any], tmp_path: Path
) -> None:
    there = hub.add("dataset", NAME, {".gitattributes": b"", "README.md": b"", "data/old.parquet": b""})
    done = pushed(HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    files = there.commits[there.refs["main"]]
    assert sorted(files) == [
        ".gitattributes",
        "README.md",
        *(f"data/made_{words}/{split}.parquet" for words in (12, 16) for split in ("calibration", "evaluation")),
    ], "the files of an earlier push are replaced"
    assert b"pretty_name: 'made" in files["README.md"]
    answer = json.loads(done.stdout)
    digests = {row["benchmark"]: row["content_digest"] for row in answer["exported"]}
    assert answer["address"] == f"{hub.url}/datasets/{NAME}"
    (made,) = hub.asked("/api/repos/create", "POST")
    assert json.loads(made.body)["visibility"] == "private"

    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    entry = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert entry["made"]["hub"] == NAME
    built.write_benchmarks(again=entry["made"])
    own = {"CORPUS_AUDIT_CONFIG": str(built.config), "HF_TOKEN": TOKEN}
    again = call_in_process("build", *(f"again_{words}" for words in (12, 16)), **own)
    assert [one["content_digest"] for one in again] == [digests["made_12"], digests["made_16"]]


@pytest.mark.slow
def test_pushes_without_token_name_or_permission_are_refused(
    hub: HubServer, pushed: Callable[..., Any], tmp_path: Path
) -> None:
    done = pushed()
    assert done.returncode == 2
    assert "there is no token for the hub. Set HF_TOKEN" in done.stderr
    assert not (tmp_path / "out").exists()
    done = pushed("made", HF_TOKEN=TOKEN)
    assert done.returncode == 2
    assert "Use the form owner/name" in done.stderr

    done = pushed(HF_TOKEN="hf_of_nobody")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"Error: the data set {NAME} ")
    assert (tmp_path / "out" / "README.md").exists(), "what was written stays"
