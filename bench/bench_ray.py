"""A model's texts through workers of Ray on two nodes of this machine, with kills: time, memory, and what is lost.

What belongs here: the figures of docs/ray.md. What does not: the tests of the same with a tiny model (tests/cluster/).

    python bench/bench_ray.py [--texts 400] [--model smollm2-135m] [--data FOLDER]

The texts, pieces of this project's own pages, are run in this process first, with one thread, and then by two workers
of one CPU each. A worker is killed (kill -9) in the middle of a shard after the first result, and the second node,
raylet and all, when two fifths are done; nothing takes its place. The rows of both are compared one by one, and the
second run must find everything. FOLDER is a data folder whose converted models are copied, which saves converting.
Where the machine allows it, run it under `unshare -n` (and `ip link set lo up`), which keeps Ray's ports from everybody
else. Ends with exit code 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ray_nodes import ROOT, SECOND, Nodes, two_nodes

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer
from audit_pipeline.scoring.backends import open_backend
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cache import list_parts, read_part
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.local_pass import TOKEN_BUDGET
from audit_pipeline.token_statistics.run import Progress, RunSummary, compute

WORDS = 32
CLOSE = 1e-5
OTHER_BATCH = 384
"""Padded tokens of a batch, other than by default: what rounding alone does to the numbers of a float32 model."""


def pieces(count: int) -> list[str]:
    """So many different pieces of the project's own pages."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))]
    words = " ".join(pages).split()
    found = [" ".join(words[at : at + WORDS]) for at in range(0, len(words) - WORDS, WORDS)]
    assert len(found) >= count, f"the pages have {len(found)} pieces of {WORDS} words"
    return found[:count]


@dataclass
class Kills:
    """Kills a worker, then a node, as the run goes on; notes the most memory that each kind of process has had."""

    nodes: Nodes
    began: float = field(default_factory=time.monotonic)
    begun: int = 0
    killed: list[str] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> None:
        self.note_memory()
        share = progress.tokens_done / progress.tokens_total
        for number, from_share in enumerate((0.0, 0.4)):
            if self.begun == number and share >= from_share:
                # At this moment the worker that has told of a shard may have no other yet.
                self.begun += 1
                threading.Thread(target=(self.kill_worker, self.kill_node)[number], daemon=True).start()

    def kill_worker(self) -> None:
        """Kill -9 whoever runs a shard."""
        while not (busy := self.nodes.at_work()):
            time.sleep(0.05)
        busy[0].kill()
        self.say(f"killed the worker {busy[0].pid} in mid shard")

    def kill_node(self) -> None:
        """Kill -9 the second node while its worker runs a shard."""
        while not self.nodes.at_work(SECOND):
            time.sleep(0.05)
        self.nodes.kill_node(SECOND)
        self.say(f"killed the node {SECOND} with its worker in mid shard")

    def say(self, what: str) -> None:
        """Note a kill."""
        self.killed.append(what)
        self.tell(what)

    def tell(self, what: str) -> None:
        """A line, with the seconds since the beginning."""
        print(f"  {time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def note_memory(self) -> None:
        for process in self.nodes.processes():
            try:
                title = process.cmdline()[0]
                kind = "worker" if title.startswith("ray::Worker") else process.name()
                if kind in {"worker", "raylet", "gcs_server"}:
                    self.peaks[kind] = max(self.peaks.get(kind, 0.0), process.memory_info().rss / 1e6)
            except (psutil.Error, IndexError):
                continue


def in_process(model: TokenizedModel, texts: list[str], paths: DataPaths, batched: DataPaths) -> None:
    """The same texts in this process, and once more in other batches."""
    began = time.monotonic()
    backend = open_backend(model, paths, "cpu")
    loaded = time.monotonic() - began
    summary = compute(model, texts, paths, lambda: backend)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"in process: loaded in {loaded:.1f} s, computed {summary.tokens_computed:,} tokens in {summary.seconds:.1f} s "
        f"({summary.tokens_per_second:.0f} tokens/s), at most {peak:,.0f} MB"
    )
    with patch.dict(TOKEN_BUDGET, cpu=OTHER_BATCH):
        compute(model, texts, batched, lambda: backend)


def by_workers(model: TokenizedModel, texts: list[str], paths: DataPaths) -> None:
    """The texts by two workers, with kills."""
    began = time.monotonic()
    with two_nodes() as nodes:
        print(f"two nodes started in {time.monotonic() - began:.1f} s")
        os.environ.update(nodes.environment, RAY_ADDRESS=nodes.address)
        kills = Kills(nodes)

        def backend() -> Backend:
            return open_backend(model, paths, "cpu", kills.tell, engine=Engine(name="ray", workers=2))

        summary = compute(model, texts, paths, backend, on_progress=kills)
        speed = f"{summary.tokens_per_second:.0f} tokens/s, loading and kills included"
        kills.tell(f"{summary.texts_computed} texts computed, {speed}")
        print("at most, of one process: " + ", ".join(f"{kind} {peak:,.0f} MB" for kind, peak in kills.peaks.items()))
        require(len(kills.killed) == 2, "a worker and a node were killed")


def require(holds: bool, what: str) -> None:
    """Say whether something is as it should be; end where it is not."""
    print(f"{'yes' if holds else 'NO'}: {what}")
    if not holds:
        sys.exit(1)


def differences(
    model: TokenizedModel, texts: list[str], one: DataPaths, other: DataPaths
) -> tuple[np.ndarray, np.ndarray]:
    """How far every number of one folder is off from the other's, and that as a share of the number itself (of 1 where
    it is less); places and tokens must be equal."""
    rows, others = (
        {row["text_sha256"]: row for row in read_statistics(model, texts, paths).to_pylist()} for paths in (one, other)
    )
    assert rows.keys() == others.keys()
    found, shares = [], []
    for sha256, row in rows.items():
        same = others[sha256]
        assert all(row[name] == same[name] for name in ("token_id", "char_start", "char_end"))
        for name in ("logprob", "mean", "std"):
            found.append(np.abs(np.subtract(row[name], same[name])))
            shares.append(found[-1] / np.maximum(1.0, np.abs(row[name])))
    return np.concatenate(found), np.concatenate(shares)


def compare(model: TokenizedModel, texts: list[str], one: DataPaths, other: DataPaths, batched: DataPaths) -> None:
    """Whether the workers' rows are all there once, and as close to those in process as other batches are."""
    folder = other.token_statistics("base", model.identity.model_fingerprint)
    keys = [key for part in list_parts(folder) for key in read_part(part, ["key"]).column("key").to_pylist()]
    require(len(keys) == len(set(keys)) == len(texts), f"{len(texts)} rows, nothing lost and nothing twice")
    for what, paths in (("in process, other batches", batched), ("by workers", other)):
        off, shares = differences(model, texts, one, paths)
        for kind, values in (("off", off), ("as a share of themselves (of 1 where they are less), off", shares)):
            above = int((values > CLOSE).sum())
            print(
                f"{what}: {kind} by {values.max():.1e} at most, {above} of {len(values):,} numbers by more than "
                f"{CLOSE:.0e}"
            )
        require(shares.max() <= 2 * CLOSE, f"{what}: no number is off by more than {2 * CLOSE:.0e} of itself (or of 1)")


def again(model: TokenizedModel, texts: list[str], paths: DataPaths) -> RunSummary:
    """The second run; whoever asks for the model fails."""
    return compute(model, texts, paths, lambda: sys.exit("NO: the second run asks for the model"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        one, batched, other = (DataPaths(Path(folder) / name) for name in ("in_process", "batched", "ray"))
        for paths in (one, other):
            paths.root.mkdir()
            if given.data is not None:
                shutil.copytree(given.data / "models", paths.root / "models")
        model, texts = load_tokenizer(load_models()[given.model], one), pieces(given.texts)
        in_process(model, texts, one, batched)
        # Which library multiplies is decided by its speed, at the first loading, and rounds otherwise than the other.
        check = model.identity.model_fingerprint
        other.load_check(check).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(one.load_check(check), other.load_check(check))
        by_workers(model, texts, other)
        compare(model, texts, one, other, batched)
        summary = again(model, texts, other)
        require(summary.texts_computed == 0, f"the second run takes {summary.texts_from_cache} texts from the cache")


if __name__ == "__main__":
    main()
