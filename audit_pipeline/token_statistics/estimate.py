"""How long a pass would take, from the model's size and this machine's arithmetic."""

from __future__ import annotations

import time

import torch

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.weights import count_parameters, require_device
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.layers import choose_linear_function, is_faster_with_onednn
from audit_pipeline.token_statistics.loading import read_load_check

_SIDE = {"cpu": 1024, "cuda": 8192}
_SHARE_OF_PEAK = 0.7


def estimate_pass_seconds(model: TokenizedModel, paths: DataPaths, tokens: int, device: str) -> float:
    """About how long ``tokens`` tokens take on ``device``.

    On a GPU that the model was loaded on before, at the rate that was measured then. Else two operations a parameter
    and token, at the rate of a square matrix product in the model's dtype, of which a forward pass reaches roughly 70%;
    attention over long windows comes on top. Raises ModelError where there is no such device.
    """
    require_device(device)
    if not tokens:
        return 0.0
    known = read_load_check(model, paths, device)
    if known is not None and known.tokens_per_second is not None:
        return tokens / known.tokens_per_second
    rate = _SHARE_OF_PEAK * _measure_operation_rate(model.entry.dtype, device)
    return 2.0 * count_parameters(model) * tokens / rate


def _measure_operation_rate(dtype: str, device: str) -> float:
    side = _SIDE["cuda" if device.startswith("cuda") else "cpu"]
    matrix = torch.ones(side, side, dtype=getattr(torch, dtype), device=device)
    linear = choose_linear_function(onednn=is_faster_with_onednn(matrix))

    def product() -> float:
        started = time.perf_counter()
        # .item() waits for the device.
        linear(matrix, matrix, None)[0, 0].item()
        return time.perf_counter() - started

    product()
    return 2.0 * side**3 / min(product() for _ in range(3))
