"""Models of the hub through the real client: revisions, the offline cache, refusals and broken connections."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from bad_server import fault
from hub_server import STRANGER, TOKEN, HubServer
from made_repositories import files_of
from made_workspace import made_text
from tiny_models import save_model

CallInProcess = Callable[..., Any]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
CHUNK = 10 << 20
"""The client keeps so much at a time, and goes on from there."""


@pytest.fixture(scope="module")
def files(tiny_folder: Callable[[str], Path]) -> dict[str, bytes]:
    return files_of(tiny_folder("llama"))


@pytest.mark.slow
def test_a_model_is_scored_by_id_and_revision_and_again_offline(
    hub: HubServer, cli: Cli, files: dict[str, bytes], tmp_path: Path
) -> None:
    other = files_of(save_model(tmp_path / "other", "llama", seed=1))
    made = hub.add("model", "maker/small", other)
    first = made.commit(files, "v1")
    made.commit(other)
    (tmp_path / "config").mkdir()
    entries = {"pinned": {"hub": "maker/small", "revision": "v1"}}
    (tmp_path / "config" / "models.yaml").write_text(yaml.safe_dump({"models": entries}))
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(made_text(f"text {number}", 12) + "\n" for number in range(3)))

    def scored(data: str, **variables: str) -> list[float]:
        out = tmp_path / f"{data}.parquet"
        options = ("--texts", str(texts), "--out", str(out), "--detectors", "loss,min_k_plus_plus")
        folders = {"CORPUS_AUDIT_CONFIG": str(tmp_path / "config"), "CORPUS_AUDIT_DATA": str(tmp_path / data)}
        done = cli("score", "--model", "pinned", *options, **folders, **variables)
        assert done.returncode == 0, done.stderr
        found: list[float] = pq.read_table(out).column("score").to_pylist()
        return found

    online = scored("online")
    assert len(online) == 6
    assert {first in one.path for one in hub.asked("/resolve/")} == {True}, "files of that revision alone"
    asked = len(hub.requests)
    # A data folder of its own: nothing of the first run's texts is there, so the model itself is loaded.
    assert scored("offline", HF_HUB_OFFLINE="1") == online
    assert len(hub.requests) == asked
    [snapshot] = (tmp_path / "hub-home" / "hub" / "models--maker--small" / "snapshots").iterdir()
    assert snapshot.name == first
    assert files_of(snapshot) == files


def test_refused_models_raise_errors_and_are_not_requested_again(
    hub: HubServer, call_in_process: CallInProcess, files: dict[str, bytes]
) -> None:
    hub.add("model", "maker/gated", files, gated=True)
    hub.add("model", "maker/open", files)
    pickled = {name: content for name, content in files.items() if not name.endswith(".safetensors")}
    hub.add("model", "maker/pickled", {**pickled, "pytorch_model.bin": b"cos\nsystem\n"})
    asked = [("maker/gated", None), ("maker/open", "v9"), ("maker/none", None), ("maker/pickled", None)]
    with_tokens = [("maker/gated", None, STRANGER), ("maker/none", None, STRANGER), ("maker/gated", None, TOKEN)]
    gated, revision, none, pickle, stranger, nobody, let_in = call_in_process("locate", *asked, *with_tokens)
    assert "maker/gated is gated: accept its terms on the hub, and set HF_TOKEN" in gated["error"]
    assert "maker/open@v9 has no revision v9" in revision["error"]
    assert "maker/none is not on the hub, or is private: correct the name, or set HF_TOKEN" in none["error"]
    assert "maker/pickled contains no weights as safetensors. Pickled weights" in pickle["error"]
    assert not hub.asked("pytorch_model.bin", "HEAD")
    assert not hub.asked("pytorch_model.bin")
    assert "maker/gated is gated, and the account of HF_TOKEN has no access: accept its terms" in stranger["error"]
    assert "maker/none is not on the hub, or is private" in nobody["error"]
    for one in (gated, revision, none, pickle, stranger, nobody):
        assert one["transient"] is False
        assert "\n" not in one["error"]
    assert files_of(Path(let_in["folder"])) == files
    assert let_in["from"] == "hub maker/gated"


@pytest.mark.slow
def test_a_command_ends_with_the_one_line_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a text\n")
    options = ("--texts", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "out.parquet"))
    done = cli("score", "--model", "maker/none", *options)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: maker/none is not on the hub, or is private")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_transient_faults_are_retried_or_reported(
    hub: HubServer, call_in_process: CallInProcess, files: dict[str, bytes]
) -> None:
    names = ("busy", "waits", "reset", "broken", "cut")
    large = {**files, "model.safetensors": bytes(range(256)) * (12 << 12)}
    for name in names:
        hub.add("model", f"maker/{name}", large if name == "cut" else files)
    hub.fail("/api/models/maker/busy", fault(429, retry_after=30))
    hub.fail("/maker/waits/resolve/", fault(429, retry_after=0), method="GET")
    hub.cut("maker/cut/model.safetensors", after=CHUNK + 1000)
    hub.cut("maker/reset/model.safetensors", after=1000, reset=True)
    hub.fail("/api/models/maker/broken", fault(503))
    busy, waits, reset, broken, cut = call_in_process("locate", *[(f"maker/{name}", None) for name in names])
    assert (
        "maker/busy cannot be fetched now, because the hub is busy (status 429) and requests a pause of 30 s"
    ) in busy["error"]
    assert ("maker/reset cannot be fetched now, because the hub cannot be reached or the connection failed") in reset[
        "error"
    ]
    assert "maker/broken cannot be fetched now, because the hub is busy (status 503)" in broken["error"]
    assert [one["transient"] for one in (busy, reset, broken)] == [True] * 3
    assert files_of(Path(waits["folder"])) == files
    assert files_of(Path(cut["folder"])) == large
    ranges = [request.header("Range") for request in hub.asked("maker/cut/model.safetensors")]
    assert ranges == [None, f"bytes={CHUNK}-"], "what was there already is not fetched again"

    # The incomplete download does not count as a model, and the next run completes it.
    [offline] = call_in_process("locate", ("maker/reset", None), HF_HUB_OFFLINE="1")
    assert (
        "maker/reset is not complete in the local hub cache, and HF_HUB_OFFLINE forbids requests: unset"
    ) in offline["error"]
    assert offline["transient"] is False
    [again] = call_in_process("locate", ("maker/reset", None))
    assert files_of(Path(again["folder"])) == files


@pytest.mark.slow
def test_the_cache_is_used_if_the_hub_is_down(
    hub: HubServer, call_in_process: CallInProcess, files: dict[str, bytes]
) -> None:
    main = hub.add("model", "maker/kept", files).refs["main"]
    [there] = call_in_process("locate", ("maker/kept", None))
    assert (there["commit"], there["weights"]) == (main, f"hub:maker/kept@{main}")
    hub.stop()
    kept, never = call_in_process("locate", ("maker/kept", None), ("maker/never", None))
    assert kept == there
    assert ("maker/never cannot be fetched now, because the hub cannot be reached or the connection failed") in never[
        "error"
    ]
    assert never["transient"] is True
    [off] = call_in_process("locate", ("maker/never", None), HF_HUB_OFFLINE="1")
    assert "maker/never is not in the local hub cache, and HF_HUB_OFFLINE forbids requests" in off["error"]
    assert off["transient"] is False
