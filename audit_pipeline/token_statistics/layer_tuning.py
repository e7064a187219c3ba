"""How a model's layers are computed with on this machine: where they lie, by which library, and with how many threads.

torch multiplies float32 with MKL, which uses about half of what some processors can do (an AMD EPYC with AVX-512 is 2.2
times as fast with oneDNN); on others the two are alike. So both are timed once per model and machine.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import joblib
import torch
from torch.nn import functional


def is_wrapped(layer: torch.nn.Module) -> bool:
    """Whether another library (accelerate) calls this layer in its own way: its weights may lie elsewhere, and it
    has to be called rather than multiplied with."""
    return "forward" in layer.__dict__


def find_input_device(model: torch.nn.Module) -> torch.device:
    """The device that token ids are given to a model on."""
    first = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None  # type: ignore[operator]
    return _find_device(first) or next(model.parameters()).device


def find_output_device(model: torch.nn.Module) -> torch.device:
    """The device that a model's logits are made on."""
    last = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    return _find_device(last) or find_input_device(model)


def _find_device(layer: Any) -> torch.device | None:
    """Where a layer is run: weights that are not in memory (on 'meta') are brought there for it."""
    hook = getattr(layer, "_hf_hook", None)
    for inner in getattr(hook, "hooks", (hook,)):
        device = getattr(inner, "execution_device", None)
        if device is not None:
            return torch.device(device)
    own = next(layer.parameters(), None) if isinstance(layer, torch.nn.Module) else None
    return None if own is None or own.device.type == "meta" else own.device


Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""From hidden states [..., in], weights [out, in] and a bias [out] or None to their product [..., out]."""

# Products of so many rows and columns are timed: enough for either library's full speed.
_ROWS = 256
_COLUMNS = 4096
_REPEATS = 3
# Weights with fewer numbers cost so little that what is measured is noise.
_SMALLEST = 1 << 16
# Below it, a choice that noise may turn round is not worth other last digits than torch's own.
_WORTH = 1.1
# Products of the same numbers in another order.
_TOLERANCE = 1e-5
# Shapes of batches that the layers are compiled for, and sets of statistics times sizes of vocabularies.
_SHAPES = 128


def is_faster_with_onednn(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies with the ``weight`` [out, in] of a linear layer faster than torch by itself, and right.

    False wherever torch cannot be asked for oneDNN (on a GPU, in other dtypes than float32, in a torch without it), and
    for weights so small that it does not matter.
    """
    possible = weight.device.type == "cpu" and weight.dtype == torch.float32 and _find_onednn_operator() is not None
    if not possible or weight.numel() < _SMALLEST:
        return False
    weight = weight.detach()[:_COLUMNS]
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(_ROWS, weight.shape[1], generator=generator)

    def own() -> torch.Tensor:
        return functional.linear(hidden, weight)

    def onednn() -> torch.Tensor:
        return _multiply_with_onednn(hidden, weight)

    expected, found = own(), onednn()
    if not (found - expected).norm() <= _TOLERANCE * expected.norm():
        return False
    best = [
        min(times)
        for times in zip(*((_measure_seconds(own), _measure_seconds(onednn)) for _ in range(_REPEATS)), strict=True)
    ]
    return bool(best[0] > _WORTH * best[1])


def choose_linear_function(*, onednn: bool) -> Linear:
    """The product of a linear layer, by oneDNN or, without ``onednn``, as torch makes it.

    Not for training: oneDNN's products have no gradient.
    """
    return _multiply_with_onednn if onednn else functional.linear


def find_linear_layers(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """The plain linear layers of a model, its head among them; those that another library has wrapped are left out."""
    return [layer for layer in model.modules() if type(layer) is torch.nn.Linear and not is_wrapped(layer)]


@contextmanager
def use_linear(layers: Sequence[torch.nn.Linear], *, onednn: bool) -> Iterator[None]:
    """Within it, ``layers`` make their products as :func:`choose_linear_function` says."""
    changed = layers if onednn else []
    try:
        for layer in changed:
            # On the layer, not by intercepting torch's functions: that would cost every other one of them, too.
            layer.__dict__["forward"] = partial(_forward_with_onednn, layer)
        yield
    finally:
        for layer in changed:
            layer.__dict__.pop("forward", None)


def _forward_with_onednn(layer: torch.nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    return _multiply_with_onednn(hidden, layer.weight, layer.bias)


def _multiply_with_onednn(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    operator = _find_onednn_operator()
    fits = hidden.device.type == weight.device.type == "cpu" and hidden.dtype == weight.dtype == torch.float32
    if operator is None or not fits or not hidden.numel():
        return functional.linear(hidden, weight, bias)
    return operator(hidden, weight, bias, "none", [], "")


@cache
def _find_onednn_operator() -> Callable[..., torch.Tensor] | None:
    # torch has no public way to ask for oneDNN on plain tensors: this is the operator that its compiler calls, and a
    # version of torch without it does as it does by itself.
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if operator is None else operator.default


def _measure_seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def set_recompile_limit() -> None:
    """Let torch compile a function for ``_SHAPES`` shapes; by itself it stops at eight, without a warning."""
    # Imported where something is compiled: it takes half a second.
    import torch._dynamo  # noqa: PLC0415

    torch._dynamo.config.recompile_limit = _SHAPES


def compile_decoder_layers(decoder: torch.nn.Module) -> None:
    """Have torch compile each layer of a decoder by itself, when it is first run."""
    set_recompile_limit()
    layers = max((part for part in decoder.modules() if isinstance(part, torch.nn.ModuleList)), key=len)
    for layer in layers:
        layer.compile()


def find_longrope_switch(config: Any) -> int | None:
    """The length up to which LongRoPE takes its short factors; None for other position encodings."""
    parameters = getattr(config, "rope_parameters", None) or {}
    layers = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    for layer in layers:
        if layer.get("rope_type") == "longrope":
            step = layer.get("original_max_position_embeddings") or config.original_max_position_embeddings
            return int(step)
    return None


def has_local_attention(config: Any) -> bool:
    """Whether layers look back a number of places in the cache, whatever mask they are given (GPT-Neo)."""
    return "local" in (getattr(config, "attention_layers", None) or ())


def is_model_faster_with_onednn(layers: Sequence[torch.nn.Linear]) -> bool:
    """Whether oneDNN is faster with the shape of weights that most of the model's products are made with."""
    parameters: Counter[torch.Size] = Counter()
    for layer in layers:
        parameters[layer.weight.shape] += layer.weight.numel()
    if not parameters:
        return False
    [(most, _)] = parameters.most_common(1)
    return is_faster_with_onednn(next(layer.weight for layer in layers if layer.weight.shape == most))


def set_threads() -> int:
    """Let torch compute with a thread per core that this process may use, and return how many.

    Left to itself torch counts the cores of the machine, also where a container is given a share of them, and its
    threads then wait for each other. What the user set (OMP_NUM_THREADS) is kept. The pool for whole operators side by
    side stays idle in inference, so its size does not matter.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(joblib.cpu_count(only_physical_cores=True))
    return torch.get_num_threads()
