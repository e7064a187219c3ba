"""Exports of benchmarks: the written files, and refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_workspace import Workspace, made_documents, temporal


@pytest.fixture
def built(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    workspace.write_benchmarks(made=temporal([12, 16]), other=temporal([8]))
    workspace.fetch(*made_documents(4, 60))
    workspace.build("made")
    return workspace


def test_a_family_is_exported(built: Workspace, tmp_path: Path) -> None:
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


def test_a_refused_export_is_one_line_and_writes_nothing(
    built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    out = ("--out", str(tmp_path / "out"))
    for options, message in (
        (("--export", "other", *out), "the benchmark other_8 has not been built yet"),
        (("--export", "mdae", *out), "there is no benchmark 'mdae' in config/benchmarks.yaml; did you mean made"),
        (("--export", "made", "--push", "made", *out), "Use the form owner/name"),
        (("--export", "made", "--push", "a/b", *out), "no token for the hub. Set HF_TOKEN"),
        (("--export", "made", "--build", "made", *out), "--build cannot be combined with --export"),
        (out, "require --export NAME"),
        (("--export", "made"), "--export requires --out FOLDER"),
    ):
        done = built.run("benchmarks", *options)
        assert done.exit_code == 2, options
        assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()
