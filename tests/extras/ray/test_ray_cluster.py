"""Ray itself: two nodes on this machine, and kill -9 of a worker, a node and a driver during a shard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from ray_nodes import SECOND, Nodes, two_nodes
from safetensors.torch import load_file, save_file
from tiny_models import SENTENCES, save_model, tokenized

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.backends import open_backend
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cache import list_parts, read_part
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

COUNT = 400
PATIENCE_SECONDS = 300.0
_CLI = (
    "from audit_pipeline.extras.ray import ray_backend; ray_backend._NOTICE_SECONDS = 20\n"
    "from audit_pipeline.cli import main; main()"
)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Start the only cluster of a test session."""
    pytest.importorskip("ray")
    with two_nodes() as started:
        yield started


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


def ended(driver: subprocess.Popen[str]) -> str:
    output, _ = driver.communicate(timeout=PATIENCE_SECONDS)
    assert driver.returncode == 0, output
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
    until(driver, lambda: bool(nodes.at_work()))
    nodes.at_work()[0].kill()
    until(driver, lambda: bool(rows(model, data)) and bool(nodes.at_work(SECOND)))
    nodes.kill_second_node()
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
    driver = start(broken, tmp_path / "data", texts_of("third")[:3], nodes)
    output, _ = driver.communicate(timeout=PATIENCE_SECONDS)
    assert driver.returncode == 2, output
    assert "Error: the model's logits are not numbers in float32" in output.splitlines()[-1]
    assert "Traceback" not in output
