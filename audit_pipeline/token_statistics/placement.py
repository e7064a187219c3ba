"""Where the layers of a model lie, and which of them another library holds.

What belongs here: reading that off a model in memory. What does not: putting it there (models/weights.py), running it
(forward.py).
"""

from __future__ import annotations

from typing import Any

import torch


def is_wrapped(layer: torch.nn.Module) -> bool:
    """Whether another library calls this layer in its own way (accelerate, a tensor-parallel plan): its weights may lie
    elsewhere, or be a part of themselves, and the layer has to be called rather than multiplied with."""
    return "forward" in layer.__dict__


def device_of_ids(model: torch.nn.Module) -> torch.device:
    """The device that token ids are given to a model on."""
    first = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None  # type: ignore[operator]
    return _device(first) or next(model.parameters()).device


def device_of_logits(model: torch.nn.Module) -> torch.device:
    """The device that a model's logits are made on."""
    last = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    return _device(last) or device_of_ids(model)


def _device(layer: Any) -> torch.device | None:
    """Where a layer is run: weights that are not in memory (on 'meta') are brought there for it."""
    hook = getattr(layer, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        device = getattr(one, "execution_device", None)
        if device is not None:
            return torch.device(device)
    own = next(layer.parameters(), None) if isinstance(layer, torch.nn.Module) else None
    return None if own is None or own.device.type == "meta" else own.device
