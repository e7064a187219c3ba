"""The layers of a model on this machine: their devices, the library for matrix products, compilation and threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import joblib
import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Function from hidden states [..., in], weights [out, in] and a bias [out] or None to their product [..., out]."""

ONE_THREAD_BELOW = 20_000_000
"""A model with fewer parameters uses one thread, because several threads would mostly wait for each other."""

# Maximum number of compiled variants per function: shapes of batches, and sets of statistics times vocabulary sizes.
_MAX_COMPILED_SHAPES = 128


def is_wrapped(layer: torch.nn.Module) -> bool:
    """Return True if another library (accelerate) replaces the layer's ``forward``.

    The weights of such a layer may lie on another device. Call the layer; do not multiply by its weights.
    """
    return "forward" in layer.__dict__


def find_input_device(model: torch.nn.Module) -> torch.device:
    """Return the device that receives the token ids of a model."""
    layer = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None  # type: ignore[operator]
    return _find_device(layer) or next(model.parameters()).device


def find_output_device(model: torch.nn.Module) -> torch.device:
    """Return the device that computes the logits of a model."""
    layer = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    return _find_device(layer) or find_input_device(model)


def _find_device(layer: Any) -> torch.device | None:
    """Return the device that runs a layer. Weights on 'meta' are moved to the execution device before each run."""
    hook = getattr(layer, "_hf_hook", None)
    for inner in getattr(hook, "hooks", (hook,)):
        device = getattr(inner, "execution_device", None)
        if device is not None:
            return torch.device(device)
    if not isinstance(layer, torch.nn.Module):
        return None
    parameter = next(layer.parameters(), None)
    if parameter is None or parameter.device.type == "meta":
        return None
    return parameter.device


def choose_linear_function(*, onednn: bool) -> Linear:
    """Return the function that multiplies linear layers: oneDNN's, or torch's default.

    The products of oneDNN have no gradient, so they cannot be used for training.
    """
    if onednn:
        return _multiply_with_onednn
    return functional.linear


def find_linear_layers(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """Return the plain linear layers of a model, including its head, without wrapped layers (:func:`is_wrapped`)."""
    return [layer for layer in model.modules() if type(layer) is torch.nn.Linear and not is_wrapped(layer)]


@contextmanager
def use_linear(layers: Sequence[torch.nn.Linear], *, onednn: bool) -> Iterator[None]:
    """Multiply ``layers`` inside this block with the function that :func:`choose_linear_function` returns."""
    changed = layers if onednn else []
    try:
        for layer in changed:
            # Intercepting torch's functions instead would slow down every other call of them.
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


def has_onednn() -> bool:
    """Return True if this version of torch has oneDNN's product for plain tensors."""
    return _find_onednn_operator() is not None


@cache
def _find_onednn_operator() -> Callable[..., torch.Tensor] | None:
    # torch has no public function that uses oneDNN for plain tensors. This operator is the one that its compiler calls.
    # A version of torch without the operator uses torch's default product.
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    operator: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if operator is None else operator.default


def set_recompile_limit() -> None:
    """Let torch compile a function for many shapes. Its default is to stop at eight, without a warning."""
    # This import takes half a second, so only callers that compile pay for it.
    import torch._dynamo  # noqa: PLC0415

    torch._dynamo.config.recompile_limit = _MAX_COMPILED_SHAPES


def compile_decoder_layers(decoder: torch.nn.Module) -> None:
    """Make torch compile each layer of a decoder separately at its first run."""
    set_recompile_limit()
    layers = max((part for part in decoder.modules() if isinstance(part, torch.nn.ModuleList)), key=len)
    for layer in layers:
        layer.compile()


def find_longrope_switch(config: Any) -> int | None:
    """Return the maximum length that LongRoPE encodes with its short factors. None for other position encodings."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    for layer in [parameters, *nested]:
        if layer.get("rope_type") == "longrope":
            return int(layer.get("original_max_position_embeddings") or config.original_max_position_embeddings)
    return None


def has_local_attention(config: Any) -> bool:
    """Return True if some layers attend to a fixed number of cache positions, even against their mask (GPT-Neo)."""
    return "local" in (getattr(config, "attention_layers", None) or ())


def set_threads(parameters: int | None = None) -> int:
    """Give torch one thread per core that this process may use, and return the number of threads.

    torch's default counts all cores of the machine, even if a container may use only some of them. Its threads then
    wait for each other. If the user has set OMP_NUM_THREADS, that value stays. The pool for parallel operators stays
    idle in inference, so its size does not matter.

    Args:
        parameters: Number of parameters of the model that will run. A model with fewer than ``ONE_THREAD_BELOW`` gets
            one thread.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        threads = joblib.cpu_count(only_physical_cores=True)
        if parameters is not None and parameters < ONE_THREAD_BELOW:
            threads = 1
        torch.set_num_threads(threads)
    return torch.get_num_threads()
