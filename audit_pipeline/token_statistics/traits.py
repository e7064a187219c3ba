"""What a model's configuration and weights tell of how it can be run.

What belongs here: reading that off them. What does not: trying it out (forward.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from audit_pipeline.token_statistics.products import faster_with_onednn


def length_step_of(config: Any) -> int | None:
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


def most_faster_with_onednn(layers: Sequence[torch.nn.Linear]) -> bool:
    """Whether oneDNN is faster with the shape of weights that most of the model's products are made with."""
    parameters: Counter[torch.Size] = Counter()
    for layer in layers:
        parameters[layer.weight.shape] += layer.weight.numel()
    if not parameters:
        return False
    [(most, _)] = parameters.most_common(1)
    return faster_with_onednn(next(layer.weight for layer in layers if layer.weight.shape == most))
