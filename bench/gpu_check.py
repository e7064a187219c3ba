"""Benchmark of the token-statistics stage on one GPU, compared with the bare model, and of the stage without a model.

Run by hand: ``python bench/gpu_check.py [--ceiling]``. With ``--ceiling``, only the last section runs, which needs no
GPU. To compare with an earlier checkout, copy this file there and run it on the same machine. The script takes
about 6 minutes on an H200.

- *stage*: the token-statistics stage of an audit.
- *bare*: body and head of the model over the same tokens, as transformers runs them, without padding and output.
- *ceiling*: the stage with a model and reductions that take no time. The remaining time is that of encoding, batching,
  rows and files.

The models of 7 B have random weights in bfloat16. Speed does not depend on the values of weights, and nearly every
token has a branch. bench_token_statistics.py measures the stage on a processor. Correctness is tested in tests/.
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
    """The device, the entry of the small model, and the measurements on this device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_gpu = device.startswith("cuda")
        self.repeats = 3 if self.is_gpu else 1
        self.entry = resolve_model("smollm2-135m", load_models())
        self.started = time.perf_counter()

    def print_result(self, *words: object) -> None:
        print(f"[{time.perf_counter() - self.started:6.1f}]", *words, flush=True)

    def limit_texts(self, count: int) -> int:
        """Return ``count`` on a GPU, and a 500th of it on a processor, so that the script ends soon."""
        return count if self.is_gpu else max(2, count // 500)

    def measure_median(self, work: Callable[[], None]) -> float:
        """Return the median time of ``work`` over the repeats, in seconds."""
        return statistics.median(seconds_of(work, self.device) for _ in range(self.repeats))

    def load_small_model(self, dtype: str) -> TokenizedModel:
        return load_tokenized(apply_overrides(self.entry, dtype=dtype), DataPaths(Path(tempfile.mkdtemp())))

    def build_variant(
        self,
        model: torch.nn.Module,
        tokenized: TokenizedModel,
        texts: list[str],
        forward: ForwardPass | None = None,
    ) -> Variant:
        ready = forward or ForwardPass(model, tokenized.vocab_size)
        return Variant(tokenized, model, ready, texts, encode(tokenized, texts))

    def compare(self, name: str, variant: Variant) -> float:
        """Print the rates of the stage and of the bare model, and the memory of the stage.

        Returns:
            The time of the stage in seconds.
        """
        batches = variant.unpadded_batches()
        variant.stage()
        variant.bare(batches, False)
        before = 0
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        stage = self.measure_median(variant.stage)
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30 if self.is_gpu else 0.0
        bare_seconds = self.measure_median(lambda: variant.bare(batches, False))
        bare_rate = sum(batch.numel() for batch in batches) / bare_seconds
        rate = variant.tokens / stage
        self.print_result(
            f"{name}: {len(variant.texts)} texts, {variant.tokens} tokens; stage {rate:.0f}, bare {bare_rate:.0f} "
            f"tokens/s, stage / bare {rate / bare_rate:.3f}; memory without the weights {memory:.2f} GiB"
        )
        return stage


def build_random(shape: dict[str, int], device: str) -> torch.nn.Module:
    """Build a Llama in bfloat16 with random weights."""
    config = LlamaConfig(**shape, max_position_embeddings=8192, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model: torch.nn.Module = LlamaForCausalLM(config).eval()
            return model
    finally:
        torch.set_default_dtype(torch.float32)


class LeakingModel(torch.nn.Module):
    """A faulty model: its logits at every position depend slightly on the last token."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids: torch.Tensor, **options: object) -> object:
        output = self.inner(input_ids=input_ids, **options)
        output.logits = output.logits * (1 + 0.02 * input_ids[:, -1:].unsqueeze(2).sign()).to(output.logits.dtype)
        return output


def check_small(check: Check) -> None:
    """Measure the small model on short texts in two dtypes, and the cost of additional kinds of statistics."""
    texts = texts_from_addresses(check.limit_texts(2000), 40)
    for dtype in ("float32", "bfloat16"):
        tokenized = check.load_small_model(dtype)
        variant = check.build_variant(load_weights(tokenized, check.device), tokenized, texts)
        check.print_result(f"SmolLM2-135M {dtype}", variant.forward.checked)
        alone = check.compare(f"SmolLM2-135M {dtype}, short texts", variant)
        if dtype == "bfloat16":
            for kind in ("renyi", "topk", "temperatures"):
                variant.stage(kind)
                check.print_result(
                    f"with {kind}: {alone / check.measure_median(partial(variant.stage, kind)):.3f} of the stage"
                )


def check_large(check: Check) -> None:
    """Measure random models of 7 B on texts of three lengths, the Infilling Score, and the check at loading."""
    tokenized = check.load_small_model("bfloat16")
    for name, shape in SHAPES.items():
        model = build_random(shape if check.is_gpu else {**TINY, "vocab_size": shape["vocab_size"]}, check.device)
        forward = ForwardPass(model, tokenized.vocab_size)
        check.print_result(name, forward.checked)
        lengths = ((1500, 128), (2000, 32), (60, 1500)) if "49152" in name else ((1500, 128),)
        for count, words in lengths:
            texts = texts_from_addresses(check.limit_texts(count), words)
            check.compare(f"{name}, {words} words", check.build_variant(model, tokenized, texts, forward))
        if "49152" in name:
            texts = texts_from_addresses(check.limit_texts(60), 128)
            passes = measure_infilling(check, check.build_variant(model, tokenized, texts, forward))
            check.print_result(f"{name}: Infilling m = 5 costs {passes:.2f} passes, packed {forward.packed}")
            leaks = ForwardPass(LeakingModel(model), tokenized.vocab_size)
            check.print_result(f"{name}: a model that leaks later tokens is detected: {leaks.equal_lengths}")
        if "49152" in name and "compiles" in signature(ForwardPass).parameters:
            # This comes last, because the layers stay compiled, also for the bare model.
            began = time.perf_counter()
            compiled = ForwardPass(model, tokenized.vocab_size, forward.checked, compiles=True)
            check.print_result(f"{name}: layers compiled for the first shape in {time.perf_counter() - began:.1f} s")
            texts = texts_from_addresses(check.limit_texts(1500), 128)
            check.compare(f"{name}, layers compiled, 128 words", check.build_variant(model, tokenized, texts, compiled))
        del model, forward
        gc.collect()
        if check.is_gpu:
            torch.cuda.empty_cache()


def measure_infilling(check: Check, variant: Variant) -> float:
    """Return the cost of branches of five tokens, in passes over the texts."""
    forward, encoded = variant.forward, variant.encoded
    windows = [window for number, text in enumerate(encoded) for window in cut_windows(number, text, 8192, 4096)]
    budget = TOKEN_BUDGET[forward.device.type]
    batches = list(iterate_batches(windows, budget, min_tokens=forward.min_batch_tokens))

    def run(steps: int) -> None:
        for batch in batches:
            forward.run_with_branches(encoded, batch, steps) if steps else forward.begin(encoded, batch)()

    return check.measure_median(partial(run, 5)) / check.measure_median(partial(run, 0))


def measure_ceiling(check: Check, count: int, repeats: int) -> None:
    """Print the processor time of the stage without a model, for ``count`` short texts in one thread."""
    tokenized = check.load_small_model("float32")
    model = LlamaForCausalLM(LlamaConfig(**{**TINY, "hidden_size": 16, "vocab_size": tokenized.vocab_size})).eval()
    forward = FreeForwardPass(model, tokenized.vocab_size, LoadCheck(False, True, False, True, True))
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
        f"ceiling: {count} texts, {variant.tokens} tokens: {min(took):.3f} s of processor time (median "
        f"{statistics.median(took):.3f} s), {count / min(took):.0f} rows/s; the tokenizer alone {min(encoding):.3f} s"
    )


class FreeForwardPass(ForwardPass):
    """A forward pass without a head, whose statistics are all zero."""

    def __init__(self, model: torch.nn.Module, vocab_size: int, load_check: LoadCheck) -> None:
        super().__init__(model, vocab_size, load_check)
        self._reduce = return_zeros

    def _compute_logits(self, inputs: dict[str, Any], rows: torch.Tensor) -> Logits:
        return ComputedLogits(torch.empty(len(rows), 1))


def return_zeros(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
    """Return zeros for every statistic. The signature is that of ``reductions.sweep``."""
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
