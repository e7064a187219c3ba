"""Benchmark of texts after a shared prefix, compared with the texts alone and with running prefix and text together.

Run by hand: ``python bench/bench_prefix.py [--words 32 64 128 256] [--shots 1 4 7] [--tokens 1500]``.

The table has these columns:

- *in passes*: the time of the texts after the prefix, whose keys and values are cached, divided by the time of the
  texts' own pass. The own pass computes all statistics of an audit. The pass after the prefix only computes
  log-probabilities. The aim is 1.15.
- *with the prefix*: the same ratio, but the time includes one run of the prefix itself.
- *full rerun*: the time of running prefix and text together, divided by the time with cached keys and values.
- *largest difference*: between the log-probabilities of both methods.

All variants run in turn within a repeat, in the batches of an audit. On a CPU, the time is the processor time of this
process. Ratios are computed within a repeat, and their median is printed.

This script measures time. Correctness is tested in tests/token_statistics/test_shared_prefix.py and tests/golden.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from bench_token_statistics import texts_from_addresses

from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import (
    EncodedText,
    Prefix,
    Window,
    cut_windows,
    encode,
    encode_prefix,
    iterate_batches,
    put_after,
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--words", type=int, nargs="+", default=[32, 64, 128, 256], help="Lengths of texts, in words.")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 4, 7], help="Numbers of texts in the prefix.")
    parser.add_argument("--shot-words", type=int, default=32, help="Length of a text in the prefix, in words.")
    parser.add_argument("--tokens", type=int, default=1500, help="Approximate total number of tokens of the texts.")
    parser.add_argument(
        "--repeats", type=int, default=5, help="Number of repeats after a first run, which is not timed."
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default=choose_default_device())
    return parser.parse_args()


def measure_seconds(work: Callable[[], None], device: str) -> float:
    """Return the time of ``work`` in seconds.

    On a CPU this is the processor time of this process, because other processes use the machine, too.
    """
    clock = time.process_time if device == "cpu" else time.perf_counter
    started = clock()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - started


class Bench:
    """Texts of one length with a prefix, and the variants of running them."""

    def __init__(self, forward: ForwardPass, own: list[EncodedText], prefix: Prefix) -> None:
        self.forward, self.own, self.prefix = forward, own, prefix
        self.texts = [put_after(prefix, one) for one in own]
        windows = [one for number, text in enumerate(own) for one in cut_windows(number, text, 8192, 4096)]
        budget = TOKEN_BUDGET[forward.device.type]
        self.batches: list[list[Window]] = [list(one) for one in iterate_batches(windows, budget)]
        self.anew: list[list[Window]] = [
            list(one) for one in iterate_batches(windows, budget, prefix_length=len(prefix.ids) - 1)
        ]

    def run_own_pass(self) -> None:
        for batch in self.batches:
            self.forward.begin(self.own, batch)()

    def run_after_cached_prefix(self) -> None:
        for batch in self.batches:
            self._run(batch)

    def run_prefix_and_texts(self) -> None:
        self.forward.begin(self.texts[:1], [Window(0, 0, 1, 0, True)], (), before=[0])()
        self.run_after_cached_prefix()

    def rerun_prefix_with_each_text(self) -> None:
        shared, self.forward.shared_prefix = self.forward.shared_prefix, False
        for batch in self.anew:
            self._run(batch)
        self.forward.shared_prefix = shared

    def find_largest_difference(self) -> float:
        """Return the largest difference between the log-probabilities with and without a cached prefix."""
        batch = self.batches[-1][:4]
        shared, self.forward.shared_prefix = self._run(batch), False
        anew, self.forward.shared_prefix = self._run(batch), True
        return max(float(np.abs(one - other).max()) for one, other in zip(shared, anew, strict=True))

    def _run(self, batch: list[Window]) -> list[np.ndarray]:
        found = self.forward.begin(self.texts, batch, (), before=self.prefix.ids[:-1])()
        return [done.values["logprob"] for done in found if done.values is not None]


def main() -> None:
    given = parse()
    with tempfile.TemporaryDirectory() as folder:
        entry = apply_overrides(resolve_model(given.model, load_models()), dtype=given.dtype)
        model = load_tokenized(entry, DataPaths(Path(folder)))
        forward = ForwardPass(load_weights(model, given.device), model.vocab_size)
    if not forward.shared_prefix:
        raise SystemExit(
            f"{given.model} cannot share a prefix: it reads the prefix again for every text. Use another model."
        )
    print(f"{given.model} {given.dtype} on {given.device}, {torch.get_num_threads()} threads")
    print("words shots  tokens: prefix  texts | in passes  with the prefix | full rerun | largest difference")
    shots = texts_from_addresses(max(given.shots), given.shot_words)
    for words in given.words:
        texts = texts_from_addresses(max(shots_count := max(given.shots), given.tokens // words) + shots_count, words)
        encoded = encode(model, texts[shots_count:])
        for count in given.shots:
            bench = Bench(forward, encoded, encode_prefix(model, "".join(shots[:count])))
            ratios: list[tuple[float, float, float]] = []
            for number in range(given.repeats + 1):
                own, shared, both, anew = (
                    measure_seconds(work, given.device)
                    for work in (
                        bench.run_own_pass,
                        bench.run_after_cached_prefix,
                        bench.run_prefix_and_texts,
                        bench.rerun_prefix_with_each_text,
                    )
                )
                if number:
                    # The first round warms up.
                    ratios.append((shared / own, both / own, anew / shared))
            passes, with_prefix, faster = (statistics.median(column) for column in zip(*ratios, strict=True))
            tokens = sum(len(one.token_id) for one in encoded)
            print(
                f"{words:5d} {count:5d} {len(bench.prefix.ids):15d} {tokens:6d} | {passes:9.2f} {with_prefix:16.2f} |"
                f" {faster:10.1f} | {bench.find_largest_difference():.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
