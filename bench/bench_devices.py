"""A model divided over several processes (tensor_parallel) beside the same model in one: differences and times.

Run by hand: ``python bench/bench_devices.py [--model smollm2-135m] [--ranks 3] [--texts 40] [--words 64]``.

Both run the same batches as an audit makes them: the texts' own pass, their branches over the first one's modes, and
the texts behind a prefix. Told are the largest differences of the log-probabilities, once beside the model as an audit
runs it and once beside the model with torch's own products, which the ranks use; the seconds of each, the fastest of
the repeats, with as many threads a process as OMP_NUM_THREADS says; and the seconds until each is ready.
What belongs here: timing, and differences on the real model. What does not: correctness
(tests/token_statistics/test_divided_models.py).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_token_statistics import texts_from_addresses

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer
from audit_pipeline.token_statistics.backend import WindowStatistics
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.local_pass import TOKEN_BUDGET, LocalPass, Task
from audit_pipeline.token_statistics.tokens import (
    EncodedText,
    Window,
    encode,
    iterate_batches,
    window_and_stride,
    windows_of,
)

WANTED = ("logprob", "mean", "std", "max_logprob", "argmax_id", "rank")
STEPS = 5
PREFIX_TOKENS = 200
Found = list[np.ndarray]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--words", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a data folder that has the model's converted weights")
    return parser.parse_args()


class Work:
    """The texts in batches, and the three ways to run them."""

    def __init__(self, model: TokenizedModel, texts: Sequence[str]) -> None:
        self.encoded: list[EncodedText] = encode(model, texts)
        place = window_and_stride(model)
        windows = [one for number, text in enumerate(self.encoded) for one in windows_of(number, text, *place)]
        self.batches: list[Sequence[Window]] = list(iterate_batches(windows, TOKEN_BUDGET["cpu"]))
        self.before = [one for text in self.encoded for one in text.token_id.tolist()][:PREFIX_TOKENS]
        self.modes: dict[Window, np.ndarray] = {}

    def own(self, forward: LocalPass) -> Found:
        found = list(self._run(forward, WANTED))
        self.modes = self.modes or {one.window: one.values["argmax_id"] for one in found}
        return [one.values["logprob"] for one in found]

    def branches(self, forward: LocalPass) -> Found:
        task = Task(own=False, branches=True, from_modes=True)
        found = [
            done.branches
            for batch in self.batches
            for done in forward.run_batch(
                self.encoded, batch, task, wanted=(), steps=STEPS, modes=[self.modes[window] for window in batch]
            )
        ]
        return [one.logprob for one in found if one is not None]

    def behind(self, forward: LocalPass) -> Found:
        forward.forget_prefix()
        return [one.values["logprob"] for one in self._run(forward, ("logprob",), self.before)]

    def _run(self, forward: LocalPass, wanted: Sequence[str], before: Sequence[int] = ()) -> Iterator[WindowStatistics]:
        task = Task(own=True, branches=False, from_modes=False)
        for batch in self.batches:
            for done in forward.run_batch(self.encoded, batch, task, wanted=wanted, before=before):
                assert done.statistics is not None
                yield done.statistics


def best(work: Callable[[], Found], repeats: int) -> tuple[float, Found]:
    """The fewest seconds, and what was found."""
    seconds, found = [], []
    for _ in range(repeats):
        started = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), found


def farthest(one: Found, other: Found) -> float:
    return max(float(np.abs(a - b).max(initial=0.0)) for a, b in zip(one, other, strict=True))


def loaded(model: TokenizedModel, paths: DataPaths, what: str) -> LocalPass:
    started = time.perf_counter()
    ready = load_forward_pass(model, paths, "cpu")
    print(f"{what}: ready after {time.perf_counter() - started:.1f} s")
    return ready


def main() -> None:
    given = parse()
    with tempfile.TemporaryDirectory() as fresh:
        paths = DataPaths(given.data or Path(fresh))
        entry = resolve_model(given.model, load_models())
        model = load_tokenizer(entry, paths)
        whole = loaded(model, paths, "one process")
        several = load_tokenizer(entry.model_copy(update={"tensor_parallel": given.ranks}), paths)
        divided = loaded(several, paths, f"{given.ranks} ranks")
        assert isinstance(whole, ForwardPass)
        plain = ForwardPass(whole.model, model.vocab_size, replace(whole.checked, onednn=False))
        work = Work(model, texts_from_addresses(given.texts, given.words))
        work.own(whole)
        tokens = sum(window.length for batch in work.batches for window in batch)
        print(f"{given.texts} texts of {given.words} words, {tokens} tokens in {len(work.batches)} batches")
        for name, run in (("own pass", work.own), ("branches", work.branches), ("behind a prefix", work.behind)):
            times, found = zip(
                *(best(lambda run=run, one=one: run(one), given.repeats) for one in (whole, plain, divided)),  # type: ignore[misc]
                strict=True,
            )
            beside_audit, beside_torch, by_products = (
                f"{farthest(found[one], found[other]):.1e}" for one, other in ((0, 2), (1, 2), (0, 1))
            )
            print(
                f"{name}: largest difference {beside_audit} (torch's products {beside_torch}; one process, both "
                f"products {by_products}); {times[0]:.1f} s, torch's products {times[1]:.1f} s, ranks {times[2]:.1f} s"
            )


if __name__ == "__main__":
    main()
