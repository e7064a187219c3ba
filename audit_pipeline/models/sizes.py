"""Bounds on the sizes in a model's config.json: read before anything is built of them.

What belongs here: the bounds. What does not: what else a configuration says (architecture.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.errors import ModelError

# Beyond any model that there is: a file that says more is damaged, and would be built for hours before it is noticed.
MOST = {
    "num_hidden_layers": 1_000,
    "hidden_size": 1_000_000,
    "intermediate_size": 10_000_000,
    "num_attention_heads": 100_000,
    "vocab_size": 10_000_000,
    "max_position_embeddings": 100_000_000,
}


def require_sizes(config: Mapping[str, object], name: str) -> None:
    """Raise ModelError where a size in a config.json, or in its part for text, is beyond that of any model."""
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, Mapping) else [config]
    for key, most in MOST.items():
        for given in (part.get(key) for part in parts):
            if isinstance(given, int) and not 0 <= given <= most:
                raise ModelError(
                    f"{name} cannot be loaded: its config.json says {key}: {given}, and no model has more than "
                    f"{most:,}, or fewer than none; fetch it again, or correct it"
                )
