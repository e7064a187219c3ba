"""Many texts after one prefix, whose keys and values are computed once.

A cache as the model library has it would need the prefix's keys and values once a text, copied in every layer: at 32
words a text that costs half of a pass. Here the queries of all texts meet the prefix in one product.
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
# Scores of so many pairs of a query and a key at a time: on a CPU they stay in its caches, and a long text's whole
# matrix of them is never made.
_PLACES = {"cpu": 1 << 20, "cuda": 1 << 26}

# Masks are made for names that the library knows alone: it hands out none for others.
AttentionMaskInterface.register(_NAME, sdpa_mask)


@dataclass(frozen=True)
class PrefixLayer:
    """One layer's ``keys`` [heads, prefix, d], and ``values`` the other way round: [heads, d, prefix]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class SharedPrefix:
    """A prefix, by its token ids, and what its own pass has left in every layer."""

    ids: Sequence[int]
    layers: Sequence[PrefixLayer]

    @classmethod
    def from_cache(cls, ids: Sequence[int], cache: Cache) -> SharedPrefix:
        """Create a prefix from the cache that a pass over ``ids``, a batch of one sequence, has filled."""
        return cls(ids, [PrefixLayer(layer.keys[0], layer.values[0].mT.contiguous()) for layer in cache.layers])


class _OwnKeys(DynamicLayer):  # type: ignore[misc]
    """One layer's part of the cache: it says how long the prefix is, and hands out a text's own keys and values."""

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
    """The model's arguments apart from the ids of a batch of texts after ``prefix``."""
    return {"past_key_values": Cache(layers=[_OwnKeys(len(prefix.ids)) for _ in prefix.layers]), "use_cache": True}


@contextmanager
def attend_to_prefix(config: Any, prefix: SharedPrefix, linear: Linear) -> Iterator[None]:
    """Within it, the attention of the model of ``config`` looks at ``prefix``, too; its products are ``linear``'s."""
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
    """Attention of a batch's texts to the prefix and to themselves: [texts, length, query heads, d].

    ``query`` [texts, query heads, length, d]; ``key`` and ``value`` [texts, heads, length, d], the texts' own;
    ``attention_mask`` [texts, 1, length, prefix + length], True where a token may look, None: everywhere.
    """
    layer = prefix.layers[int(module.layer_idx)]  # type: ignore[arg-type]
    texts, heads, length, width = key.shape
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    grouped = query.reshape(texts, heads, -1, length, width)
    found = grouped.new_empty(*grouped.shape[:-1], value.shape[-1])
    # Every token sees the whole prefix, but where a layer looks back a few tokens only.
    first = 0
    if attention_mask is not None and bool(attention_mask[..., : len(prefix.ids)].all()):
        first = len(prefix.ids)
    for piece, part in _split_texts_and_positions(
        query.device.type, texts, length, grouped.shape[2] * (len(prefix.ids) + length)
    ):
        # The model is causal: what follows a piece is hidden from all of it.
        own = slice(length if attention_mask is None else part.stop)
        looked_at = slice(first, len(prefix.ids) + part.stop)
        hidden = None if attention_mask is None else ~attention_mask[piece, :, part, looked_at]
        for head in range(heads):
            found[piece, head, :, part] = _attend_single_head(
                grouped[piece, head, :, part],
                (layer.keys[head], layer.values[head]),
                (key[piece, head, own], value[piece, head, own]),
                hidden,
                softcap,
                linear,
            )
    return found.flatten(1, 2).transpose(1, 2).contiguous(), None


def _split_texts_and_positions(device: str, texts: int, length: int, pairs: int) -> Iterator[tuple[slice, slice]]:
    """Texts and positions that are worked on at a time, of texts with so many ``pairs`` of query and key a position.

    Several whole texts, or a part of one that is too long.
    """
    most = _PLACES[device]
    several, step = max(1, most // (pairs * length)), max(1, min(length, most // pairs))
    for begin in range(0, texts, several):
        for start in range(0, length, step):
            yield slice(begin, begin + several), slice(start, min(start + step, length))


def _attend_single_head(
    query: torch.Tensor,
    prefix_tensors: tuple[torch.Tensor, torch.Tensor],
    own_tensors: tuple[torch.Tensor, torch.Tensor],
    hidden: torch.Tensor | None,
    softcap: float | None,
    linear: Linear,
) -> torch.Tensor:
    """One head's attention of ``query`` [texts, group, length, d]: its shape with the values' d.

    ``prefix_tensors`` are keys [prefix, d] and values [d, prefix], ``own_tensors`` both [texts, own, d]. ``hidden``
    [texts, 1, length, n], True where a token may not look at the last n of prefix and own.
    """
    texts, group, length, _ = query.shape
    flat = query.flatten(0, 2)
    of_own = (flat.view(texts, group * length, -1) @ own_tensors[0].mT).flatten(0, 1)
    scores = torch.cat([linear(flat, prefix_tensors[0], None), of_own], dim=-1)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if hidden is not None:
        scores.view(texts, group, length, -1)[..., -hidden.shape[-1] :].masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    own_weights = weights[:, len(prefix_tensors[0]) :].unflatten(0, (texts, group * length))  # type: ignore[no-untyped-call]
    # The two parts are made in order: the second is added to the first.
    attended = linear(weights[:, : len(prefix_tensors[0])], prefix_tensors[1], None).view(texts, group * length, -1)
    return attended.add_(own_weights @ own_tensors[1]).view(texts, group, length, -1)
