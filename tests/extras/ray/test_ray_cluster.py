"""Ray itself: two nodes on this machine, and kill -9 of a worker, a node and a driver during a shard."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import SENTENCES, save_model, tokenized

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.backends import open_backend
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cache import list_parts, read_part
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

ROOT = Path(__file__).parents[3]
HEAD, SECOND = "127.0.0.1", "127.0.0.2"
_START = ["-c", "from ray.scripts.scripts import main; main()", "start", "--num-cpus=1", "--disable-usage-stats"]
COUNT = 400
PATIENCE_SECONDS = 300.0
_CLI = (
    "from audit_pipeline.extras.ray import ray_backend; ray_backend._NOTICE_SECONDS = 20\n"
    "from audit_pipeline.cli import main; main()"
)


class Nodes:
    """A Ray cluster of two nodes on this machine, each with a loopback address and one CPU.

    The processes of the cluster are identified by its token, which is in their environment. No other process is ended.
    """

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind((HEAD, 0))
            self.address = f"{HEAD}:{probe.getsockname()[1]}"
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_niceness": "0",
            # The monitor includes the memory of other processes on this machine.
            "RAY_memory_monitor_refresh_ms": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        port = self.address.rpartition(":")[2]
        head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
        for ip, options in ((HEAD, head), (SECOND, [f"--address={self.address}"])):
            command = [sys.executable, *_START, f"--node-ip-address={ip}", "--object-store-memory=80000000", *options]
            environment = {**os.environ, **self.environment}
            subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=180)

    def processes(self, name: str = "", ip: str = HEAD) -> list[psutil.Process]:
        """Return the processes whose name begins with ``name``. If ``ip`` is SECOND: only those of the second node."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("RAY_AUTH_TOKEN") != self.environment["RAY_AUTH_TOKEN"]:
                    continue
                title = [process.name(), *process.cmdline()[:1]]
                options = [*process.cmdline(), *chain.from_iterable(parent.cmdline() for parent in process.parents())]
                is_there = ip == HEAD or f"--node_ip_address={ip}" in options
                if is_there and any(word.startswith(name) for word in title):
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Start the only cluster of a test session, and end all of its processes at the end."""
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        started = Nodes(folder)
        try:
            yield started
        finally:
            for process in started.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            deadline = time.monotonic() + 20
            while started.processes() and time.monotonic() < deadline:
                time.sleep(0.1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model that needs some seconds for the texts, so that killed processes are at work.

    Its weights are small. Large random weights in eight layers increase float32's rounding to more than 1e-5.
    """
    made = tmp_path_factory.mktemp("slower") / "slower"
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8}
    return save_model(made, "llama", initializer_range=0.05, **sizes)


def texts_of(mark: str) -> list[str]:
    return [f"{mark} {number} {SENTENCES[number % len(SENTENCES)]} {SENTENCES[number % 5]}" for number in range(COUNT)]


def start(folder: Path, data: Path, texts: list[str], nodes: Nodes) -> subprocess.Popen[str]:
    data.mkdir(exist_ok=True)
    (data / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    asked = ["--model", str(folder), "--texts", str(data / "texts.jsonl"), "--out", str(data / "scores.parquet")]
    settings = {"RAY_ADDRESS": nodes.address, "CORPUS_AUDIT_DATA": str(data), "CORPUS_AUDIT_WORKERS": "2"}
    return subprocess.Popen(
        [sys.executable, "-c", _CLI, "score", *asked, "--detectors", "loss", "--engine", "ray"],
        env={**os.environ, **nodes.environment, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(driver: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = driver.communicate(timeout=PATIENCE_SECONDS)
    assert driver.returncode == code, output
    return output


def until(driver: subprocess.Popen[str], found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows(model: TokenizedModel, data: Path) -> list[str]:
    base = DataPaths(data).token_statistics("base", model.identity.model_fingerprint)
    return [key for part in list_parts(base) for key in read_part(part, ["key"]).column("key").to_pylist()]


def test_a_killed_worker_and_node_lose_and_duplicate_nothing(tmp_path: Path, folder: Path, nodes: Nodes) -> None:
    data, texts = tmp_path / "data", texts_of("first")
    model = tokenized(folder, tmp_path / "known")
    driver = start(folder, data, texts, nodes)
    at_work = "ray::Worker.run"
    until(driver, lambda: bool(nodes.processes(at_work)))
    nodes.processes(at_work)[0].kill()
    until(driver, lambda: bool(rows(model, data)) and bool(nodes.processes(at_work, SECOND)))
    # The raylet of the second node and its children end with signal 9, like a machine that fails.
    [raylet] = nodes.processes("raylet", SECOND)
    for process in [raylet, *raylet.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    output = ended(driver)
    assert f"{COUNT} texts: 0 from the cache, {COUNT} computed" in output
    assert "finished no shard of the texts for" in output
    assert sorted(rows(model, data)) == sorted(set(rows(model, data)))
    here = DataPaths(tmp_path / "here")
    compute(model, texts, here, lambda: open_backend(model, here, "cpu"))
    expected = {row["text_sha256"]: row for row in read_statistics(model, texts, here).to_pylist()}
    found = {row["text_sha256"]: row for row in read_statistics(model, texts, DataPaths(data)).to_pylist()}
    assert expected.keys() == found.keys()
    for sha256, row in expected.items():
        assert row["token_id"] == found[sha256]["token_id"]
        for name in ("logprob", "mean", "std"):
            np.testing.assert_allclose(found[sha256][name], row[name], rtol=1e-5, atol=1e-5)
    again = ended(start(folder, data, texts, nodes))
    assert f"{COUNT} texts: {COUNT} from the cache, 0 computed" in again
    assert "loading" not in again


def test_a_killed_driver_loses_no_written_rows(tmp_path: Path, folder: Path, nodes: Nodes) -> None:
    data, texts = tmp_path / "data", texts_of("second")
    model = tokenized(folder, tmp_path / "known")
    driver = start(folder, data, texts, nodes)
    until(driver, lambda: bool(rows(model, data)))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Ray ends the workers of a driver that is gone.
    while any("ray::Worker" in one.name() for one in nodes.processes() if psutil.pid_exists(one.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    written = len(set(rows(model, data)))
    assert 0 < written < COUNT
    output = ended(start(folder, data, texts, nodes))
    assert f"{COUNT} texts: {written} from the cache, {COUNT - written} computed" in output
    assert sorted(rows(model, data)) == sorted(set(rows(model, data)))
    assert len(rows(model, data)) == COUNT


def test_an_error_of_a_worker_is_one_line(tmp_path: Path, folder: Path, nodes: Nodes) -> None:
    broken = save_model(tmp_path / "broken", "llama")
    [file] = broken.glob("*.safetensors")
    weights = {name: torch.full_like(tensor, torch.nan) for name, tensor in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    output = ended(start(broken, tmp_path / "data", texts_of("third")[:3], nodes), code=2)
    assert "Error: with dtype float32, the model's logits are not numbers" in output.splitlines()[-1]
    assert "Traceback" not in output
