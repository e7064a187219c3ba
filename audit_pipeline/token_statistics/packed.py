"""Branches as one packed pass: many of a text's branches side by side in a row, over the keys and values of its pass.

What belongs here: the mask, the positions and the key-value cache that let every branch see the text before it and
itself, and nothing else. What does not: which branches there are (branches.py), the reduction (reduce.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, DynamicLayer

from audit_pipeline.token_statistics.branches import Row


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
        return torch.cat([prefix[:, :, : self._length].index_select(0, self._windows), own], dim=-2)

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int, *args: Any) -> tuple[int, int]:
        return self._length + query_length, 0


@dataclass(frozen=True)
class Layout:
    """A batch of rows as arrays, padded on the right: [R, C] each; ``branch`` is -1 in the padding.

    ``windows`` [R] are the rows' windows; ``prefix`` is the number of prefix tokens that are at hand to every row.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor
    branch: torch.Tensor
    targets: torch.Tensor
    windows: torch.Tensor
    prefix: int

    @property
    def used(self) -> torch.Tensor:
        """Flat indices of the places that hold a token, row by row."""
        return (self.branch.flatten() >= 0).nonzero().squeeze(1)


def lay_out(rows: Sequence[Row], device: torch.device) -> Layout:
    """The rows of one batch as tensors on ``device``."""
    shape = (len(rows), max(row.length for row in rows))
    ids, targets = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    # Padding sits at position 1 and sees the sequence's first token: no row of the mask is empty.
    starts, positions = np.ones(shape, dtype=np.int64), np.ones(shape, dtype=np.int64)
    branch = np.full(shape, -1, dtype=np.int64)
    for number, row in enumerate(rows):
        at = 0
        for which, one in enumerate(row.branches):
            place = (number, slice(at, at + len(one.tokens)))
            ids[place], targets[place] = one.tokens, one.targets
            positions[place] = np.arange(one.start, one.start + len(one.tokens))
            starts[place], branch[place] = one.start, which
            at += len(one.tokens)

    def on_device(array: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return Layout(
        ids=on_device(ids),
        positions=on_device(positions),
        starts=on_device(starts),
        branch=on_device(branch),
        targets=on_device(targets),
        windows=on_device(np.array([row.window for row in rows])),
        prefix=max(row.prefix for row in rows),
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
    return torch.where(sees, 0.0, torch.finfo(dtype).min).to(dtype).unsqueeze(1)


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
