"""Attention of many texts to one prefix, whose keys and values are computed once.

The cache of transformers would copy the keys and values of the prefix for every text, in every layer. For texts of 32
words this takes half of a pass. Here the queries of all texts are multiplied with the prefix in one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from audit_pipeline.token_statistics.layer_tuning import Linear

_NAME = "corpus_audit_shared_prefix"
# Maximum number of pairs of a query and a key whose scores are computed at once. On a CPU they stay in its caches. The
# whole matrix of a long text is never computed.
_MAX_PAIRS = {"cpu": 1 << 20, "cuda": 1 << 26}

# transformers builds attention masks only for registered names.
AttentionMaskInterface.register(_NAME, sdpa_mask)


@dataclass(frozen=True)
class PrefixLayer:
    """The keys [heads, prefix, d] of one layer, and its transposed values [heads, d, prefix]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class SharedPrefix:
    """A prefix with the keys and values of every layer.

    Attributes:
        ids: Token ids of the prefix.
        layers: Keys and values by layer.
    """

    ids: Sequence[int]
    layers: Sequence[PrefixLayer]

    @classmethod
    def from_cache(cls, ids: Sequence[int], cache: Cache) -> SharedPrefix:
        """Create a prefix from the cache that a pass over ``ids``, a batch of one sequence, has filled."""
        return cls(ids, [PrefixLayer(layer.keys[0], layer.values[0].mT.contiguous()) for layer in cache.layers])


class _OwnKeys(DynamicLayer):  # type: ignore[misc]
    """A cache of one layer that reports the prefix's length, but returns only the texts' own keys and values."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int, *args: Any) -> tuple[int, int]:
        return self._length + query_length, 0


def build_prefix_inputs(prefix: SharedPrefix) -> dict[str, Any]:
    """Return the model's arguments for a batch of texts after ``prefix``, without the token ids."""
    return {"past_key_values": Cache(layers=[_OwnKeys(len(prefix.ids)) for _ in prefix.layers]), "use_cache": True}


@contextmanager
def attend_to_prefix(config: Any, prefix: SharedPrefix, linear: Linear) -> Iterator[None]:
    """Include ``prefix`` in the attention of the model with ``config`` inside this block.

    ``linear`` computes the products with the prefix.
    """
    before = config._attn_implementation
    ALL_ATTENTION_FUNCTIONS[_NAME] = partial(_attention, prefix, linear)
    try:
        config._attn_implementation = _NAME
        yield
    finally:
        config._attn_implementation = before
        del ALL_ATTENTION_FUNCTIONS[_NAME]


def _attention(
    prefix: SharedPrefix,
    linear: Linear,
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of a batch's texts to the prefix and to themselves.

    Args:
        prefix: The prefix.
        linear: Function for products.
        module: The attention layer.
        query: Queries [texts, query heads, length, d].
        key: Keys of the texts [texts, heads, length, d].
        value: Values of the texts [texts, heads, length, d].
        attention_mask: [texts, 1, length, prefix + length], True for visible tokens. None: all are visible.
        scaling: Factor of the scores. The default is 1 / sqrt(d).
        softcap: Bound of the scores, or None.
        kwargs: Further arguments from transformers, which are not used.

    Returns:
        The outputs [texts, length, query heads, d], and None in place of the weights.
    """
    layer = prefix.layers[int(module.layer_idx)]  # type: ignore[arg-type]
    texts, heads, length, width = key.shape
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    grouped = query.reshape(texts, heads, -1, length, width)
    outputs = grouped.new_empty(*grouped.shape[:-1], value.shape[-1])
    # Every token sees the whole prefix, except in layers that look back only a few tokens.
    first_masked = 0
    if attention_mask is not None and bool(attention_mask[..., : len(prefix.ids)].all()):
        first_masked = len(prefix.ids)
    pairs_per_position = grouped.shape[2] * (len(prefix.ids) + length)
    for piece, part in _split_texts_and_positions(query.device.type, texts, length, pairs_per_position):
        hidden = None
        own = slice(length)
        if attention_mask is not None:
            # The model is causal: tokens after a piece are hidden from the whole piece.
            own = slice(part.stop)
            hidden = ~attention_mask[piece, :, part, first_masked : len(prefix.ids) + part.stop]
        for head in range(heads):
            outputs[piece, head, :, part] = _attend_single_head(
                grouped[piece, head, :, part],
                (layer.keys[head], layer.values[head]),
                (key[piece, head, own], value[piece, head, own]),
                hidden,
                softcap,
                linear,
            )
    return outputs.flatten(1, 2).transpose(1, 2).contiguous(), None


def _split_texts_and_positions(device: str, texts: int, length: int, pairs: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of texts and positions that are computed at once: several whole texts, or a part of a long one.

    ``pairs`` is the number of pairs of query and key per position.
    """
    max_pairs = _MAX_PAIRS[device]
    n_texts = max(1, max_pairs // (pairs * length))
    n_positions = max(1, min(length, max_pairs // pairs))
    for begin in range(0, texts, n_texts):
        for start in range(0, length, n_positions):
            yield slice(begin, begin + n_texts), slice(start, min(start + n_positions, length))


def _attend_single_head(
    query: torch.Tensor,
    prefix_tensors: tuple[torch.Tensor, torch.Tensor],
    own_tensors: tuple[torch.Tensor, torch.Tensor],
    hidden: torch.Tensor | None,
    softcap: float | None,
    linear: Linear,
) -> torch.Tensor:
    """Compute the attention of one head.

    Args:
        query: [texts, group, length, d].
        prefix_tensors: Keys [prefix, d] and values [d, prefix] of the prefix.
        own_tensors: Keys and values of the texts, both [texts, own, d].
        hidden: [texts, 1, length, n], True for pairs that are hidden, over the last n tokens of prefix and text.
        softcap: Bound of the scores, or None.
        linear: Function for products.

    Returns:
        The outputs [texts, group, length, d] with the d of the values.
    """
    texts, group, length, _ = query.shape
    flat = query.flatten(0, 2)
    own_scores = (flat.view(texts, group * length, -1) @ own_tensors[0].mT).flatten(0, 1)
    scores = torch.cat([linear(flat, prefix_tensors[0], None), own_scores], dim=-1)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if hidden is not None:
        scores.view(texts, group, length, -1)[..., -hidden.shape[-1] :].masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    own_weights = weights[:, len(prefix_tensors[0]) :].unflatten(0, (texts, group * length))  # type: ignore[no-untyped-call]
    # The second part is added to the first in place, to save memory.
    attended = linear(weights[:, : len(prefix_tensors[0])], prefix_tensors[1], None).view(texts, group * length, -1)
    return attended.add_(own_weights @ own_tensors[1]).view(texts, group, length, -1)
