"""Counterfactual branches: what becomes of the next tokens when one token is replaced by the model's own choice.

The branch of position i reads x*_i in the place of x_i and then the text's own tokens after it; it shares with the
text all that precedes i (Raoof et al. 2025, eq. 10 and 11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, DynamicLayer

from audit_pipeline.token_statistics.tokens import IntArray, Window

Ints = npt.NDArray[np.int64]

PLACES_A_TOKEN = 1 << 13
PREFIX_A_TOKEN = 1 << 5


@dataclass(frozen=True, eq=False)
class Branches:
    """The B branches of a batch of windows, by window and position: [B] each.

    ``ids`` [windows, length] are the windows' sequences, start tokens included. ``window`` and ``scored`` say whose
    branch it is: which window's, which of its scored tokens'; ``start`` is that token's place in the sequence,
    ``replacement`` what is there instead. ``length`` >= 1 tokens are read from ``start`` on, the replacement first,
    and as many predicted.
    """

    ids: Ints
    window: Ints
    scored: Ints
    start: Ints
    length: Ints
    replacement: Ints

    def __len__(self) -> int:
        return len(self.window)

    @cached_property
    def offsets(self) -> Ints:
        """Where each branch begins among the tokens of all branches: [B + 1]."""
        return np.concatenate([[0], np.cumsum(self.length)])

    @cached_property
    def owner(self) -> Ints:
        """Whose branch each token of all branches is: [tokens]."""
        return np.repeat(np.arange(len(self)), self.length)

    @cached_property
    def step(self) -> Ints:
        """The distance of each token of all branches from its branch's start, from 0: [tokens]."""
        return np.arange(len(self.owner)) - self.offsets[self.owner]

    @cached_property
    def tokens(self) -> Ints:
        """What is read: [tokens]."""
        own = self.ids[self.window[self.owner], self.start[self.owner] + self.step]
        return np.where(self.step == 0, self.replacement[self.owner], own)

    @cached_property
    def targets(self) -> Ints:
        """What each token read predicts, the text's own next token: [tokens]."""
        return np.asarray(self.ids[self.window[self.owner], self.start[self.owner] + self.step + 1])


def list_branches(batch: Sequence[Window], ids: Ints, argmax: Sequence[IntArray], steps: int) -> Branches:
    """The branches of a batch: one for each scored token that is not the argmax and has a token after it.

    ``argmax`` holds each window's modes, one a scored token. A branch has ``steps`` tokens, fewer where the window
    ends: in a text longer than the model's context it ends with the window that scores its token.
    """
    columns: list[tuple[Ints, ...]] = []
    for number, window in enumerate(batch):
        scored = np.arange(window.end - window.score_from)
        start = scored + window.score_from - window.begin + window.has_start_token
        length = np.minimum(steps, window.length - 1 - start)
        replacement = argmax[number].astype(np.int64)
        is_kept = (length > 0) & (replacement != ids[number, start])
        whose = np.full(int(is_kept.sum()), number)
        columns.append((whose, scored[is_kept], start[is_kept], length[is_kept], replacement[is_kept]))
    empty = np.empty(0, dtype=np.int64)
    return Branches(ids, *(np.concatenate([empty, *parts]) for parts in zip(*columns, strict=True)))


def assign_rows(branches: Branches, row_tokens: int) -> Ints:
    """The number of the row that each branch goes through the model in: [B], rows counted from 0 without a gap.

    A row holds branches of one window, about ``row_tokens`` tokens at most: a branch is never cut, so its last one may
    reach beyond. A window's rows are filled evenly, since a short last one would be padded to the length of the others,
    and in the order of positions, so that the first ones see little of the window.
    """
    if not len(branches):
        return np.empty(0, dtype=np.int64)
    _, first, whose = np.unique(branches.window, return_index=True, return_inverse=True)
    ends = branches.offsets[np.append(first[1:], len(branches))]
    total = ends - branches.offsets[first]
    even = -(-total // -(-total // row_tokens))
    in_window = (branches.offsets[:-1] - branches.offsets[first][whose]) // even[whose]
    # A long branch may leave a number out.
    _, rows = np.unique(np.stack([whose, in_window]), axis=1, return_inverse=True)
    return rows.astype(np.int64)


def iterate_row_batches(branches: Branches, rows: Ints, token_budget: int) -> Iterator[Ints]:
    """Rows in batches of at most ``token_budget`` padded tokens, rows of like length and prefix together.

    The mask of a batch has at most ``PLACES_A_TOKEN`` places a token of the budget, and all of its rows' prefixes
    together at most ``PREFIX_A_TOKEN`` tokens: so memory does not grow with the texts. Yields the numbers of the
    branches in each batch, by row; a row over the budget is a batch of its own.
    """
    if not len(branches):
        return
    lengths = np.bincount(rows, weights=branches.length).astype(np.int64)
    prefixes = np.zeros(len(lengths), dtype=np.int64)
    np.maximum.at(prefixes, rows, branches.start)
    order = np.lexsort((-prefixes, -lengths))
    by_row = np.split(np.argsort(rows, kind="stable"), np.cumsum(np.bincount(rows))[:-1])
    begin = 0
    while begin < len(order):
        # Longest first: the batch's first row sets the padded length, and the longest prefix that of all.
        length = int(lengths[order[begin]])
        fitting = order[begin : begin + max(1, token_budget // length)]
        prefix = np.maximum.accumulate(prefixes[fitting])
        number = np.arange(1, len(fitting) + 1)
        places = number * length * (prefix + length) <= PLACES_A_TOKEN * token_budget
        count = max(1, int((places & (number * prefix <= PREFIX_A_TOKEN * token_budget)).sum()))
        yield np.concatenate([by_row[row] for row in fitting[:count]])
        begin += count


def halve_batch(rows: Ints, branch_numbers: Ints) -> list[Ints]:
    """The branches of a batch in two, no row cut; as they are where they are one row."""
    numbers = np.unique(rows[branch_numbers])
    if len(numbers) == 1:
        return [branch_numbers]
    first = np.isin(rows[branch_numbers], numbers[: len(numbers) // 2])
    return [branch_numbers[first], branch_numbers[~first]]


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
        return self._append_to_prefix(self.keys, key_states), self._append_to_prefix(self.values, value_states)

    def _append_to_prefix(self, prefix: torch.Tensor | None, own: torch.Tensor) -> torch.Tensor:
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
    ``used`` are the flat places that hold a token; ``which`` says which of all branches' tokens are there, in order.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    starts: torch.Tensor
    branch: torch.Tensor
    windows: torch.Tensor
    used: torch.Tensor
    which: Ints
    prefix: int


def build_layout(branches: Branches, rows: Ints, branch_numbers: Ints, device: torch.device) -> Layout:
    """The branches with these ``branch_numbers``, those of one row in order, as tensors on ``device``.

    ``rows`` holds the number of every branch's row.
    """
    _, first, row = np.unique(rows[branch_numbers], return_index=True, return_inverse=True)
    # Tokens of the chosen branches, in their order: which of all tokens, whose, in which row and column.
    lengths = branches.length[branch_numbers]
    owner = np.repeat(np.arange(len(branch_numbers)), lengths)
    before = np.cumsum(lengths) - lengths
    step = np.arange(len(owner)) - before[owner]
    which = branches.offsets[branch_numbers][owner] + step
    column = np.arange(len(owner)) - before[first][row[owner]]
    shape = (len(first), int(column.max()) + 1)
    used = row[owner] * shape[1] + column

    def spread(values: Ints, padding: int) -> torch.Tensor:
        flat = np.full(shape[0] * shape[1], padding, dtype=np.int64)
        flat[used] = values
        return torch.from_numpy(flat.reshape(shape)).to(device)

    starts = branches.start[branch_numbers][owner]
    return Layout(
        ids=spread(branches.tokens[which], 0),
        # Padding sits at position 1 and sees the sequence's first token: no row of the mask is empty.
        positions=spread(starts + step, 1),
        starts=spread(starts, 1),
        branch=spread(owner, -1),
        windows=torch.from_numpy(branches.window[branch_numbers][first]).to(device),
        used=torch.from_numpy(used).to(device),
        which=which,
        prefix=int(starts.max()),
    )


def build_branch_mask(layout: Layout, dtype: torch.dtype, sliding_window: int | None = None) -> torch.Tensor:
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


def build_branch_inputs(layout: Layout, prefix: Cache, config: Any, dtype: torch.dtype) -> dict[str, Any]:
    """What the model is called with for one batch of rows, ``prefix`` being the cache that their windows' pass left."""
    layers = [_SharedPrefix(layer.keys, layer.values, layout.windows, layout.prefix) for layer in prefix.layers]
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    mask: torch.Tensor | dict[str, torch.Tensor]
    if kinds - {"full_attention"}:
        # Models whose layers differ take one mask a kind of layer.
        mask = {
            "full_attention": build_branch_mask(layout, dtype),
            "sliding_attention": build_branch_mask(layout, dtype, window),
        }
        if kinds == {"sliding_attention"}:
            mask = mask["sliding_attention"]
    else:
        mask = build_branch_mask(layout, dtype, None if kinds else window)
    return {
        "input_ids": layout.ids,
        "attention_mask": mask,
        "position_ids": layout.positions,
        "past_key_values": Cache(layers=layers),
        "use_cache": True,
    }


@contextmanager
def use_key_positions(decoder: torch.nn.Module, layout: Layout) -> Iterator[None]:
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


@dataclass(frozen=True, eq=False)
class BranchRerun:
    """One batch of branches with their prefixes: ids [branches, length], padded with 0 on the right.

    ``rows`` are the flat places of the logits along the branches; ``which`` says which of all branches' tokens stand
    there, in order.
    """

    ids: Ints
    rows: Ints
    which: Ints


def iterate_reruns(
    branches: Branches, window_lengths: Ints, token_budget: int, *, equal_lengths: bool, length_step: int | None
) -> Iterator[BranchRerun]:
    """The branches in batches of at most ``token_budget`` padded tokens, longest first.

    ``window_lengths`` are the lengths of the windows. ``equal_lengths``: only sequences of one length share a batch.
    ``length_step``: where a window is longer than that, its branches are padded to its length, since the model encodes
    positions by it.
    """
    lengths = branches.start + branches.length
    if length_step is not None:
        own = window_lengths[branches.window]
        lengths = np.where(own > length_step, own, lengths)
    batch: list[int] = []
    for branch in np.argsort(-lengths, kind="stable").tolist():
        longest = int(lengths[batch[0]]) if batch else 0
        if batch and (
            (len(batch) + 1) * longest > token_budget
            or (equal_lengths and lengths[branch] != longest)
            or (length_step is not None and lengths[branch] <= length_step < longest)
        ):
            yield _build_rerun(branches, np.array(batch), longest)
            batch = []
        batch.append(branch)
    if batch:
        yield _build_rerun(branches, np.array(batch), int(lengths[batch[0]]))


def _build_rerun(branches: Branches, branch_numbers: Ints, length: int) -> BranchRerun:
    start, count = branches.start[branch_numbers], branches.length[branch_numbers]
    place = np.arange(length)
    ids = branches.ids[branches.window[branch_numbers], :length].copy()
    ids[np.arange(len(branch_numbers)), start] = branches.replacement[branch_numbers]
    ids[place >= (start + count)[:, None]] = 0
    along = (place >= start[:, None]) & (place < (start + count)[:, None])
    owner = np.repeat(np.arange(len(branch_numbers)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return BranchRerun(ids, np.flatnonzero(along), branches.offsets[branch_numbers][owner] + step)
