"""The stage compared with the bare model on one GPU, and what all but the model costs: one command.

Run by hand: ``python bench/gpu_check.py [--ceiling]``. ``--ceiling``: the last section alone, which needs no GPU.
To compare the figures of the GPU with those of an earlier checkout, copy this file there and run it on one machine.
It took about 6 minutes on an H200.

bare: body and head over the same tokens, nothing padded, nothing kept, as transformers runs them. The models of 7 B
have random weights in bfloat16: speed does not depend on the values, and nearly every token branches. The ceiling: a
model that costs nothing and reductions that are zeros, so encoding, batching, rows and files are left.
What belongs here: figures of a GPU. What does not: correctness (tests/), figures of a processor
(bench_token_statistics.py).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from bench_token_statistics import Variant, seconds_of, texts_from_addresses
from transformers import LlamaConfig, LlamaForCausalLM

from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.calibration import TOKEN_BUDGET
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.load_checks import LoadCheck
from audit_pipeline.token_statistics.tokens import cut_windows, encode, iterate_batches
from audit_pipeline.token_statistics.vocabulary_blocks import ComputedLogits, Logits, Reduced, Scratch

SHAPES = {
    "7 B, V=49152": {
        **{"vocab_size": 49152, "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008},
        **{"num_attention_heads": 32, "num_key_value_heads": 32},
    },
    "7 B, V=151936": {
        **{"vocab_size": 151936, "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944},
        **{"num_attention_heads": 28, "num_key_value_heads": 4},
    },
}
TINY = {
    **{"vocab_size": 49152, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128},
    **{"num_attention_heads": 4, "num_key_value_heads": 4},
}


class Check:
    """A device, what texts are divided by on it, and the texts' tokenizer."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_gpu = device.startswith("cuda")
        self.repeats = 3 if self.is_gpu else 1
        self.entry = resolve_model("smollm2-135m", load_models())
        self.started = time.perf_counter()

    def print_result(self, *words: object) -> None:
        print(f"[{time.perf_counter() - self.started:6.1f}]", *words, flush=True)

    def few(self, count: int) -> int:
        """``count`` texts on a GPU; on a processor only so many that the script runs through."""
        return count if self.is_gpu else max(2, count // 500)

    def median(self, work: Callable[[], None]) -> float:
        return statistics.median(seconds_of(work, self.device) for _ in range(self.repeats))

    def tokenized(self, dtype: str) -> TokenizedModel:
        return load_tokenized(apply_overrides(self.entry, dtype=dtype), DataPaths(Path(tempfile.mkdtemp())))

    def variant(
        self,
        model: torch.nn.Module,
        tokenized: TokenizedModel,
        texts: list[str],
        forward: ForwardPass | None = None,
    ) -> Variant:
        ready = forward or ForwardPass(model, tokenized.vocab_size)
        return Variant(tokenized, model, ready, texts, encode(tokenized, texts))

    def compare(self, name: str, variant: Variant) -> float:
        """Print the rates of the stage and of the bare model, and the stage's memory; return the stage's seconds."""
        batches = variant.unpadded_batches()
        variant.stage()
        variant.bare(batches, False)
        before = 0
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        stage = self.median(variant.stage)
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30 if self.is_gpu else 0.0
        bare_rate = sum(batch.numel() for batch in batches) / self.median(lambda: variant.bare(batches, False))
        rate = variant.tokens / stage
        self.print_result(
            f"{name}: {len(variant.texts)} texts, {variant.tokens} tokens; stage {rate:.0f}, bare {bare_rate:.0f} "
            f"tokens/s, stage / bare {rate / bare_rate:.3f}; memory without the weights {memory:.2f} GiB"
        )
        return stage


def build_random(shape: dict[str, int], device: str) -> torch.nn.Module:
    """A Llama in bfloat16 with random weights."""
    config = LlamaConfig(**shape, max_position_embeddings=8192, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model: torch.nn.Module = LlamaForCausalLM(config).eval()
            return model
    finally:
        torch.set_default_dtype(torch.float32)


class Leaking(torch.nn.Module):
    """A model of which every position sees a little of the last token."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids: torch.Tensor, **options: object) -> object:
        output = self.inner(input_ids=input_ids, **options)
        output.logits = output.logits * (1 + 0.02 * input_ids[:, -1:].unsqueeze(2).sign()).to(output.logits.dtype)
        return output


def check_small(check: Check) -> None:
    """The embedded model: short texts in both dtypes, and what further kinds cost."""
    texts = texts_from_addresses(check.few(2000), 40)
    for dtype in ("float32", "bfloat16"):
        tokenized = check.tokenized(dtype)
        variant = check.variant(load_weights(tokenized, check.device), tokenized, texts)
        check.print_result(f"SmolLM2-135M {dtype}", variant.forward.checked)
        alone = check.compare(f"SmolLM2-135M {dtype}, short texts", variant)
        if dtype == "bfloat16":
            for kind in ("renyi", "topk", "temperatures"):
                variant.stage(kind)
                check.print_result(
                    f"with {kind}: {alone / check.median(partial(variant.stage, kind)):.3f} of the stage"
                )


def check_large(check: Check) -> None:
    """Random models of 7 B: texts of three lengths, Infilling, and the check at loading."""
    tokenized = check.tokenized("bfloat16")
    for name, shape in SHAPES.items():
        model = build_random(shape if check.is_gpu else {**TINY, "vocab_size": shape["vocab_size"]}, check.device)
        forward = ForwardPass(model, tokenized.vocab_size)
        check.print_result(name, forward.checked)
        lengths = ((1500, 128), (2000, 32), (60, 1500)) if "49152" in name else ((1500, 128),)
        for count, words in lengths:
            texts = texts_from_addresses(check.few(count), words)
            check.compare(f"{name}, {words} words", check.variant(model, tokenized, texts, forward))
        if "49152" in name:
            texts = texts_from_addresses(check.few(60), 128)
            passes = measure_infilling(check, check.variant(model, tokenized, texts, forward))
            check.print_result(f"{name}: Infilling m = 5 costs {passes:.2f} passes, packed {forward.packed}")
            leaks = ForwardPass(Leaking(model), tokenized.vocab_size)
            check.print_result(f"{name}: a model that sees what follows is found out: {leaks.equal_lengths}")
        if "49152" in name and "compiles" in signature(ForwardPass).parameters:
            # The last, since it stays so: the bare model is compiled then, too, and rates compare with those above.
            began = time.perf_counter()
            compiled = ForwardPass(model, tokenized.vocab_size, forward.checked, compiles=True)
            check.print_result(f"{name}: layers compiled for the first shape in {time.perf_counter() - began:.1f} s")
            texts = texts_from_addresses(check.few(1500), 128)
            check.compare(f"{name}, layers compiled, 128 words", check.variant(model, tokenized, texts, compiled))
        del model, forward
        gc.collect()
        if check.is_gpu:
            torch.cuda.empty_cache()


def measure_infilling(check: Check, variant: Variant) -> float:
    """The cost of branches of five tokens, in passes over the texts."""
    forward, encoded = variant.forward, variant.encoded
    windows = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, 8192, 4096)]
    budget = TOKEN_BUDGET[forward.device.type]
    batches = list(iterate_batches(windows, budget, min_tokens=forward.min_batch_tokens))

    def run(steps: int) -> None:
        for batch in batches:
            forward.run_with_branches(encoded, batch, steps) if steps else forward.begin(encoded, batch)()

    return check.median(partial(run, 5)) / check.median(partial(run, 0))


def measure_ceiling(check: Check, count: int, repeats: int) -> None:
    """The cost of all but the model: seconds of the processor for ``count`` short texts, in one thread."""
    tokenized = check.tokenized("float32")
    model = LlamaForCausalLM(LlamaConfig(**{**TINY, "hidden_size": 16, "vocab_size": tokenized.vocab_size})).eval()
    forward = CostsNothing(model, tokenized.vocab_size, LoadCheck(False, True, False, True, True))
    texts = texts_from_addresses(count, 40)
    variant = Variant(tokenized, model, forward, texts, encode(tokenized, texts))
    threads, budget = torch.get_num_threads(), TOKEN_BUDGET["cpu"]
    torch.set_num_threads(1)
    TOKEN_BUDGET["cpu"] = TOKEN_BUDGET["cuda"]
    try:
        variant.stage()
        took = [seconds_of(variant.stage, "cpu", time.process_time) for _ in range(repeats)]

        def tokenize() -> None:
            tokenized.tokenizer.encode(texts, add_special_tokens=False)

        encoding = [seconds_of(tokenize, "cpu", time.process_time) for _ in range(repeats)]
    finally:
        torch.set_num_threads(threads)
        TOKEN_BUDGET["cpu"] = budget
    check.print_result(
        f"ceiling: {count} texts, {variant.tokens} tokens: {min(took):.3f} s of a processor (median "
        f"{statistics.median(took):.3f}), {count / min(took):.0f} rows/s; the tokenizer alone {min(encoding):.3f} s"
    )


class CostsNothing(ForwardPass):
    """A model without a head, and reductions that are zeros."""

    def __init__(self, model: torch.nn.Module, vocab_size: int, load_check: LoadCheck) -> None:
        super().__init__(model, vocab_size, load_check)
        self._reduce = find_zeros

    def _compute_logits(self, inputs: dict[str, Any], rows: torch.Tensor) -> Logits:
        return ComputedLogits(torch.empty(len(rows), 1))


def find_zeros(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
    """A zero for every statistic."""
    whole = {"argmax_id", "rank"}
    return {
        name: torch.zeros(len(target), dtype=torch.int32 if name in whole else torch.float32)
        for name in ("logprob", *wanted)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=choose_default_device())
    parser.add_argument(
        "--ceiling", action="store_true", help="Measure everything except the model. This needs no GPU."
    )
    parser.add_argument("--texts", type=int, default=2000, help="Number of texts for --ceiling.")
    parser.add_argument("--repeats", type=int, default=7, help="Number of repeats for --ceiling.")
    given = parser.parse_args()
    check = Check(given.device)
    check.print_result(
        "torch", torch.__version__, torch.cuda.get_device_name() if check.is_gpu else "no GPU: tiny models"
    )
    if not given.ceiling:
        check_small(check)
        check_large(check)
    measure_ceiling(check, given.texts, given.repeats)


if __name__ == "__main__":
    main()
