"""Speed of models on this machine: measured rates, the faster library for matrix products, and batch sizes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.weights import count_parameters, require_device
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics import layer_tuning
from audit_pipeline.token_statistics.load_checks import read_load_check
from audit_pipeline.token_statistics.reductions import MEASURED_NAMES
from audit_pipeline.token_statistics.tokens import Window, wrap_token_ids

# forward.py imports this module, so its class cannot be imported here.
ForwardPass = Any

TOKEN_BUDGET = {"cpu": 512, "cuda": 32768}
"""Maximum number of tokens per batch of windows, including padding, by type of device."""

# A batch on a GPU with at least this number of tokens, including padding, takes no much shorter window. Matrix products
# of this size run at almost full speed, so padding costs more time than one more batch.
_MIN_GPU_BATCH_TOKENS = 4096
# For small models, a GPU computes faster than the processor can start kernels, so batches are larger.
_SMALL_MODEL = 1_000_000_000
_MIN_GPU_BATCH_TOKENS_OF_SMALL_MODEL = 16384

BRANCH_TOKENS = {"cpu": 512, "cuda": 32768}
"""Maximum number of tokens per batch of branches, including padding, by type of device."""

BRANCH_ROW_TOKENS = {"cpu": 128, "cuda": 512}
"""Approximate maximum number of tokens per row of packed branches, by type of device."""

# Size of the batch with which the speed of a GPU is measured.
_TIMED_TEXTS = 64
_TIMED_LENGTH = 128

# Side of the square matrices whose product is timed.
_SIDE = {"cpu": 1024, "cuda": 8192}
# A forward pass reaches about this share of the rate of a square matrix product.
_SHARE_OF_PEAK = 0.7

# Shape of the matrix product that is timed with oneDNN and with torch's default library. Both reach full speed at it.
_ROWS = 256
_COLUMNS = 4096
_REPEATS = 3
# Products with smaller weights cost so little that the measurement is noise.
_MIN_WEIGHT_SIZE = 1 << 16
# A smaller advantage may be noise. It does not justify last digits that differ from torch's default.
_MIN_SPEEDUP = 1.1
# Tolerated relative deviation of products that add the same numbers in another order.
_TOLERANCE = 1e-5


def choose_min_batch_tokens(model: torch.nn.Module, device: torch.device) -> int:
    """Return the number of tokens, including padding, from which a batch takes no windows that are much shorter.

    On a processor, it is the budget of a batch: batches are small, so little of them is padding.
    """
    if device.type != "cuda":
        return TOKEN_BUDGET[device.type]
    if sum(parameter.numel() for parameter in model.parameters()) < _SMALL_MODEL:
        return _MIN_GPU_BATCH_TOKENS_OF_SMALL_MODEL
    return _MIN_GPU_BATCH_TOKENS


def measure_tokens_per_second(forward: ForwardPass) -> float | None:
    """Measure the speed of a model with one batch, including its reductions.

    Returns:
        Tokens per second, or None if the batch exceeds the memory.
    """
    max_length = getattr(forward.config, "max_position_embeddings", None) or _TIMED_LENGTH
    length = min(_TIMED_LENGTH, max_length)
    generator = np.random.default_rng(0)
    texts = []
    for _ in range(_TIMED_TEXTS):
        texts.append(wrap_token_ids(generator.integers(forward.vocab_size, size=length, dtype=np.int32)))
    batch = [Window(number, 0, length, 1, False) for number in range(_TIMED_TEXTS)]
    try:
        with forward.running():
            # The first run includes the time of compiling.
            forward.begin_batch(texts, batch, MEASURED_NAMES)()
            start = time.perf_counter()
            forward.begin_batch(texts, batch, MEASURED_NAMES)()
    except torch.OutOfMemoryError:
        return None
    return _TIMED_TEXTS * length / (time.perf_counter() - start)


def estimate_pass_seconds(model: TokenizedModel, paths: DataPaths, tokens: int, device: str) -> float:
    """Estimate how many seconds ``tokens`` tokens take on ``device``.

    If the model was loaded on this GPU before, the estimate uses the rate that was measured then. Otherwise it counts
    two operations per parameter and token, at 70% of the rate of a square matrix product in the model's dtype.
    Attention over long windows takes additional time.

    Raises:
        ModelError: If the device does not exist.
    """
    require_device(device)
    if not tokens:
        return 0.0
    load_check = read_load_check(model, paths, device)
    if load_check is not None and load_check.tokens_per_second is not None:
        return tokens / load_check.tokens_per_second
    rate = _SHARE_OF_PEAK * _measure_operations_per_second(model.entry.dtype, device)
    return 2.0 * count_parameters(model) * tokens / rate


def _measure_operations_per_second(dtype: str, device: str) -> float:
    side = _SIDE["cuda" if device.startswith("cuda") else "cpu"]
    matrix = torch.ones(side, side, dtype=getattr(torch, dtype), device=device)
    linear = layer_tuning.choose_linear_function(onednn=is_faster_with_onednn(matrix))

    def measure_product() -> float:
        start = time.perf_counter()
        # .item() waits for the device.
        linear(matrix, matrix, None)[0, 0].item()
        return time.perf_counter() - start

    measure_product()
    return 2.0 * side**3 / min(measure_product() for _ in range(3))


def is_model_faster_with_onednn(layers: Sequence[torch.nn.Linear]) -> bool:
    """Return True if oneDNN is faster for weights of the shape that most of the model's parameters have."""
    parameters: Counter[torch.Size] = Counter()
    for layer in layers:
        parameters[layer.weight.shape] += layer.weight.numel()
    if not parameters:
        return False
    [(shape, _)] = parameters.most_common(1)
    return is_faster_with_onednn(next(layer.weight for layer in layers if layer.weight.shape == shape))


def is_faster_with_onednn(weight: torch.Tensor) -> bool:
    """Return True if oneDNN multiplies by a linear layer's ``weight`` [out, in] correctly and faster than torch.

    torch multiplies float32 matrices with MKL, which reaches about half of the peak speed of some processors. On an AMD
    EPYC with AVX-512, oneDNN is 2.2 times as fast. On other processors the two are equal. So both are timed once per
    model and machine. The result is False on a GPU, for dtypes other than float32, for small weights, and without
    oneDNN.
    """
    is_possible = weight.device.type == "cpu" and weight.dtype == torch.float32 and layer_tuning.has_onednn()
    if not is_possible or weight.numel() < _MIN_WEIGHT_SIZE:
        return False
    weight = weight.detach()[:_COLUMNS]
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(_ROWS, weight.shape[1], generator=generator)
    use_onednn = layer_tuning.choose_linear_function(onednn=True)

    def multiply_with_torch() -> torch.Tensor:
        return functional.linear(hidden, weight)

    def multiply_with_onednn() -> torch.Tensor:
        return use_onednn(hidden, weight, None)

    expected = multiply_with_torch()
    product = multiply_with_onednn()
    # Written so that NaN counts as a deviation.
    if not (product - expected).norm() <= _TOLERANCE * expected.norm():
        return False
    torch_seconds = []
    onednn_seconds = []
    for _ in range(_REPEATS):
        torch_seconds.append(_measure_seconds(multiply_with_torch))
        onednn_seconds.append(_measure_seconds(multiply_with_onednn))
    return min(torch_seconds) > _MIN_SPEEDUP * min(onednn_seconds)


def _measure_seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
