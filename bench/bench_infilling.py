"""Benchmark of the branches of the Infilling Score, compared with the published method and with a single pass.

Run by hand: ``python bench/bench_infilling.py [--words 32 64 128 256] [--steps 1 5 10] [--texts 8]``.

The published method (*rerun*) runs the whole text again for every token, with this token replaced. It uses batches of
16 and computes softmax and log-softmax of the whole text's logits. All its batches take the same time, so only a few of
them are timed (``--whole`` times all). Its cost does not depend on m.

*alone* means that the packed pass runs one text at a time, like the published method. *together* means that texts share
batches, as in an audit. All variants run in turn within a repeat. Ratios are computed within a repeat, and their median
is printed. The aim for the cost in passes is 1.5 + m x the share of tokens that are not the model's first choice.

This script measures time. Correctness is tested in tests/token_statistics/test_branches.py and tests/golden.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from bench_token_statistics import seconds_of, texts_from_addresses

from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import EncodedText, Window, cut_windows, encode, iterate_batches

BATCH = 16
TIMED_BATCHES = 2


@dataclass
class Bench:
    """Texts of one length, and the variants of running them.

    Attributes:
        forward: The model.
        encoded: The encoded texts.
        windows: The windows of the texts.
        whole: True if every batch of the published method is timed.
    """

    forward: ForwardPass
    encoded: list[EncodedText]
    windows: list[Window]
    whole: bool

    def run_pass(self) -> None:
        for window in self.windows:
            self.forward.begin(self.encoded, [window])()

    def run_pass_together(self) -> None:
        for batch in self._batches():
            self.forward.begin(self.encoded, batch)()

    def run_branches(self, steps: int) -> None:
        for window in self.windows:
            self.forward.run_with_branches(self.encoded, [window], steps)

    def run_branches_together(self, steps: int) -> None:
        for batch in self._batches():
            self.forward.run_with_branches(self.encoded, batch, steps)

    def _batches(self) -> list[list[Window]]:
        return [list(batch) for batch in iterate_batches(self.windows, TOKEN_BUDGET[self.forward.device.type])]

    def measure_branch_share(self) -> float:
        """Return the share of scored tokens that are not the model's first choice."""
        ranks = np.concatenate(
            [
                done.values["rank"]
                for window in self.windows
                for done in self.forward.begin(self.encoded, [window])()
                if done.values is not None
            ]
        )
        return float((ranks > 0).mean())

    @torch.inference_mode()
    def time_rerun(self, text: EncodedText, argmax: np.ndarray) -> float:
        """Return the time of running one text again for every token, in seconds. ``argmax`` replaces the tokens."""
        start = [] if text.start_token_id is None else [text.start_token_id]
        ids = torch.tensor([*start, *text.token_id.tolist()], device=self.forward.device)
        places = torch.arange(len(start), len(ids))
        changed = ids.repeat(len(places), 1)
        changed[torch.arange(len(places)), places] = torch.tensor(argmax, device=ids.device).long()
        some = [changed[begin : begin + BATCH] for begin in range(0, len(changed), BATCH)]
        timed = some if self.whole else some[:TIMED_BATCHES]

        def work() -> None:
            for batch in timed:
                logits = self.forward.model(input_ids=batch).logits
                log_p = torch.log_softmax(logits[:, :-1], dim=-1)
                p = torch.softmax(logits[:, :-1], dim=-1)
                mean = (p * log_p).sum(-1)
                variance = (p * log_p.square()).sum(-1) - mean.square()
                own = log_p.gather(-1, batch[:, 1:, None]).squeeze(-1)
                ((own - mean) / variance.sqrt()).cpu()

        seconds = seconds_of(work, str(self.forward.device))
        return seconds * sum(len(batch) for batch in some) / sum(len(batch) for batch in timed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--words", type=int, nargs="+", default=[32, 64, 128, 256], help="Lengths of texts, in words.")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5, 10], help="Numbers of future tokens (m).")
    parser.add_argument("--texts", type=int, default=4, help="Number of texts per length.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default=choose_default_device())
    parser.add_argument("--whole", action="store_true", help="Time every batch of the published method.")
    parser.add_argument("--no-baseline", action="store_true", help="Do not run the published method.")
    parser.add_argument("--profile", action="store_true", help="Also profile the packed pass.")
    return parser.parse_args()


def main() -> None:
    given = parse()
    with tempfile.TemporaryDirectory() as folder:
        entry = apply_overrides(resolve_model(given.model, load_models()), dtype=given.dtype)
        model = load_tokenized(entry, DataPaths(Path(folder)))
        forward = ForwardPass(load_weights(model, given.device), model.vocab_size)
    print(
        f"{given.model} {given.dtype} on {given.device}, {torch.get_num_threads()} threads, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print("words  m  speed over rerun: alone  together | in passes: alone  together  aim | share not first choice")
    for words in given.words:
        encoded = encode(model, texts_from_addresses(given.texts, words))
        windows = [one for number, text in enumerate(encoded) for one in cut_windows(number, text, 8192, 4096)]
        bench = Bench(forward, encoded, windows, given.whole)
        share = bench.measure_branch_share()
        done = [done for window in windows for done in forward.begin(encoded, [window])()]
        modes = [window.values["argmax_id"] for window in done if window.values is not None]
        timed: dict[str, list[float]] = {}

        def record_time(name: str, work: Callable[[], None], timed: dict[str, list[float]] = timed) -> None:
            timed.setdefault(name, []).append(seconds_of(work, given.device))

        for _ in range(given.repeats):
            record_time("pass", bench.run_pass)
            record_time("pass together", bench.run_pass_together)
            for steps in given.steps:
                record_time(f"alone {steps}", partial(bench.run_branches, steps))
                record_time(f"together {steps}", partial(bench.run_branches_together, steps))
            if not given.no_baseline:
                # All texts have the same length, so one text is timed.
                seconds = bench.time_rerun(encoded[0], modes[0])
                timed.setdefault("rerun", []).append(seconds * len(encoded))
        for steps in given.steps:
            cells = [
                format_median_ratio(timed.get("rerun"), timed[f"alone {steps}"]),
                format_median_ratio(timed.get("rerun"), timed[f"together {steps}"]),
                format_median_ratio(timed[f"alone {steps}"], timed["pass"]),
                format_median_ratio(timed[f"together {steps}"], timed["pass together"]),
            ]
            print(
                f"{words:5d} {steps:2d}  {cells[0]:23s} {cells[1]:9s} | {cells[2]:>16s} {cells[3]:>9s}"
                f" {1.5 + steps * share:5.2f} | {share:.2f}",
                flush=True,
            )
        if given.profile:
            profiler = cProfile.Profile()
            profiler.runcall(bench.run_branches_together, given.steps[-1])
            pstats.Stats(profiler).sort_stats("tottime").print_stats(12)


def format_median_ratio(dividend: list[float] | None, divisor: list[float]) -> str:
    if dividend is None:
        return "-"
    return f"{statistics.median(one / other for one, other in zip(dividend, divisor, strict=True)):.2f}"


if __name__ == "__main__":
    main()
