"""The command that hands a benchmark on: what it writes and says, and what it refuses, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_workspace import Workspace, made_documents, make_workspace, temporal


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path / "ours", monkeypatch)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    workspace.write_benchmarks(made=temporal([12, 16]), other=temporal([8]))
    workspace.fetch(*made_documents(4, 60))
    workspace.build("made")
    return workspace


def test_a_family_is_written_and_told(built: Workspace, tmp_path: Path) -> None:
    done = built.run("benchmarks", "--export", "made", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    listed = json.loads(built.run("benchmarks", "--json").stdout)["benchmarks"]
    digests = {row["benchmark"]: row["content_digest"] for row in listed}
    assert {row["benchmark"]: row["content_digest"] for row in answer["exported"]} == {
        name: digests[name] for name in ("made_12", "made_16")
    }
    assert digests["other_8"] is None
    assert (answer["folder"], answer["texts"]) == (str(tmp_path / "out"), 96)
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--export", "other"], "the benchmark other_8 has not been built yet"),
        (["--export", "mdae"], "there is no benchmark 'mdae' in config/benchmarks.yaml; did you mean made"),
        (["--export", "made", "--push", "made"], "Use the form owner/name"),
        (["--export", "made", "--push", "a/b"], "there is no token for the hub. Set HF_TOKEN"),
        (["--export", "made", "--build", "made"], "--build cannot be combined with --export"),
        ([], "require --export NAME"),
    ],
)
def test_what_is_refused_is_one_line_and_writes_nothing(
    built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    done = built.run("benchmarks", *options, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_place_is_needed(built: Workspace) -> None:
    done = built.run("benchmarks", "--export", "made")
    assert done.exit_code == 2
    assert "--export requires --out FOLDER" in done.stderr
