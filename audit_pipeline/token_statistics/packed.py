"""Branches as one packed pass: many of a text's branches side by side in a row, over the keys and values of its pass.

What belongs here: the mask, the positions and the key-value cache that let every branch see the text before it and
itself, and nothing else. What does not: which branches there are (branches.py), the reduction (reduce.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from audit_pipeline.token_statistics.branches import Branches, Ints


class _SharedPrefix(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values of a batch of windows: branches read the rows that they belong to, and add nothing.

    The rows are picked when the layer is reached, so that no more than one layer's copy is in memory.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, windows: torch.Tensor, length: int) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._windows = windows
        self._length = length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._behind(self.keys, key_states), self._behind(self.values, value_states)

    def _behind(self, prefix: torch.Tensor | None, own: torch.Tensor) -> torch.Tensor:
        assert prefix is not None
        # Layers may lie on several devices, their parts of the cache with them.
        windows = self._windows.to(prefix.device)
        return torch.cat([prefix[:, :, : self._length].index_select(0, windows), own], dim=-2)

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int, *args: Any) -> tuple[int, int]:
        return self._length + query_length, 0


@dataclass(frozen=True)
class Layout:
    """A batch of rows as tensors, padded on the right: [R, C] each; ``branch`` is -1 in the padding.

    ``windows`` [R] are the rows' windows; ``prefix`` is the number of prefix tokens that are at hand to every row.
    ``used`` are the flat places that hold a token; ``which`` says which of all branches' tokens stand there, in order.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor
    branch: torch.Tensor
    windows: torch.Tensor
    used: torch.Tensor
    which: Ints
    prefix: int


def lay_out(branches: Branches, rows: Ints, chosen: Ints, device: torch.device) -> Layout:
    """The ``chosen`` branches, those of one row one after the other, as tensors on ``device``.

    ``rows`` holds the number of every branch's row.
    """
    _, first, row = np.unique(rows[chosen], return_index=True, return_inverse=True)
    # Tokens of the chosen branches, in their order: which of all tokens, whose, in which row and column.
    lengths = branches.length[chosen]
    owner = np.repeat(np.arange(len(chosen)), lengths)
    before = np.cumsum(lengths) - lengths
    step = np.arange(len(owner)) - before[owner]
    which = branches.offsets[chosen][owner] + step
    column = np.arange(len(owner)) - before[first][row[owner]]
    shape = (len(first), int(column.max()) + 1)
    used = row[owner] * shape[1] + column

    def spread(values: Ints, padding: int) -> torch.Tensor:
        flat = np.full(shape[0] * shape[1], padding, dtype=np.int64)
        flat[used] = values
        return torch.from_numpy(flat.reshape(shape)).to(device)

    starts = branches.start[chosen][owner]
    return Layout(
        ids=spread(branches.tokens[which], 0),
        # Padding sits at position 1 and sees the sequence's first token: no row of the mask is empty.
        positions=spread(starts + step, 1),
        starts=spread(starts, 1),
        branch=spread(owner, -1),
        windows=torch.from_numpy(branches.window[chosen][first]).to(device),
        used=torch.from_numpy(used).to(device),
        which=which,
        prefix=int(starts.max()),
    )


def mask_of(layout: Layout, dtype: torch.dtype, sliding_window: int | None = None) -> torch.Tensor:
    """The additive mask [R, 1, C, prefix + C]: 0 where a token may look, the dtype's least number where not.

    A token sees the prefix before its branch's start and its own branch up to itself; with ``sliding_window``, of these
    the last so many positions, its own included.
    """
    of_prefix = torch.arange(layout.prefix, device=layout.ids.device)
    position = layout.positions.unsqueeze(2)
    sees_prefix = of_prefix < layout.starts.unsqueeze(2)
    own_position = layout.positions.unsqueeze(1)
    sees_own = (layout.branch.unsqueeze(2) == layout.branch.unsqueeze(1)) & (own_position <= position)
    if sliding_window is not None:
        sees_prefix &= of_prefix > position - sliding_window
        sees_own &= own_position > position - sliding_window
    sees = torch.cat([sees_prefix, sees_own], dim=2)
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min).unsqueeze(1)


def inputs_of(layout: Layout, prefix: Cache, config: Any, dtype: torch.dtype) -> dict[str, Any]:
    """What the model is called with for one batch of rows, ``prefix`` being the cache that their windows' pass left."""
    layers = [_SharedPrefix(one.keys, one.values, layout.windows, layout.prefix) for one in prefix.layers]
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    mask: torch.Tensor | dict[str, torch.Tensor]
    if kinds - {"full_attention"}:
        # Models whose layers differ take one mask a kind of layer.
        mask = {
            "full_attention": mask_of(layout, dtype),
            "sliding_attention": mask_of(layout, dtype, window),
        }
        if kinds == {"sliding_attention"}:
            mask = mask["sliding_attention"]
    else:
        mask = mask_of(layout, dtype, None if kinds else window)
    return {
        "input_ids": layout.ids,
        "attention_mask": mask,
        "position_ids": layout.positions,
        "past_key_values": Cache(layers=layers),
        "use_cache": True,
    }


@contextmanager
def key_positions(decoder: torch.nn.Module, layout: Layout) -> Iterator[None]:
    """ALiBi of a decoder that builds it from a mask (BLOOM), built from the positions of the packed keys instead.

    Such a decoder takes the place of a key in the cache for its position. Others are left alone.
    """
    build = getattr(decoder, "build_alibi_tensor", None)
    if build is None:
        yield
        return
    before = torch.arange(layout.prefix, device=layout.ids.device).expand(len(layout.ids), -1)
    keys = torch.cat([before, layout.positions], dim=1)

    def packed(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
        slopes = build(torch.ones(1, 2, device=keys.device), num_heads, torch.float32)[:, 0, 1]
        alibi = slopes[None, :, None] * keys[:, None, :]
        return torch.as_tensor(alibi.reshape(-1, 1, keys.shape[1]).to(dtype))

    decoder.build_alibi_tensor = packed  # type: ignore[assignment]
    try:
        yield
    finally:
        del decoder.build_alibi_tensor
