"""Counterfactual branches: the model's predictions after one token was replaced by the model's own choice.

The branch of position i reads the model's most likely token x*_i in place of the text's token x_i. Then it reads the
text's next tokens. It shares all tokens before i with the text (Raoof et al. 2025, eq. 10 and 11).
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

MASK_ENTRIES_PER_TOKEN = 1 << 13
PREFIX_TOKENS_PER_TOKEN = 1 << 5


@dataclass(frozen=True, eq=False)
class Branches:
    """The B branches of a batch of windows, by window and position.

    Attributes:
        ids: Token ids of the windows with their start tokens: [windows, length].
        window: Index of each branch's window in the batch: [B].
        scored: Index of the replaced token among the scored tokens of the window: [B].
        start: Position of the replaced token in the sequence: [B].
        length: Number of tokens that are read from ``start`` on, at least 1: [B]. Each of them predicts one token.
        replacement: Token id that each branch reads at ``start`` instead of the text's token: [B].
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
        """Return the index of each branch's first token among the tokens of all branches: [B + 1]."""
        return np.concatenate([[0], np.cumsum(self.length)])

    @cached_property
    def owner(self) -> Ints:
        """Return the index of the branch that each token of all branches belongs to: [tokens]."""
        return np.repeat(np.arange(len(self)), self.length)

    @cached_property
    def step(self) -> Ints:
        """Return the distance of each token of all branches from its branch's start, from 0: [tokens]."""
        return np.arange(len(self.owner)) - self.offsets[self.owner]

    @cached_property
    def tokens(self) -> Ints:
        """Return the tokens that the branches read: [tokens]."""
        tokens = self.ids[self.window[self.owner], self.start[self.owner] + self.step]
        return np.where(self.step == 0, self.replacement[self.owner], tokens)

    @cached_property
    def targets(self) -> Ints:
        """Return the target of each token that the branches read, which is the next token of the text: [tokens]."""
        return np.asarray(self.ids[self.window[self.owner], self.start[self.owner] + self.step + 1])


def list_branches(batch: Sequence[Window], ids: Ints, argmax: Sequence[IntArray], steps: int) -> Branches:
    """Return the branches of a batch: one per scored token that differs from its argmax and has a token after it.

    A branch is shorter than ``steps`` if its window ends before. In a text longer than the model's context, it ends
    with the window that scores its token.

    Args:
        batch: The windows.
        ids: Token ids of the windows: [windows, length].
        argmax: Argmax token of each scored token, one array per window.
        steps: Maximum number of tokens per branch.
    """
    columns: list[tuple[Ints, ...]] = []
    for number, window in enumerate(batch):
        scored = np.arange(window.end - window.score_from)
        start = scored + window.score_from - window.begin + window.has_start_token
        length = np.minimum(steps, window.length - 1 - start)
        replacement = argmax[number].astype(np.int64)
        has_branch = (length > 0) & (replacement != ids[number, start])
        owner = np.full(int(has_branch.sum()), number)
        columns.append((owner, scored[has_branch], start[has_branch], length[has_branch], replacement[has_branch]))
    empty = np.empty(0, dtype=np.int64)
    return Branches(ids, *(np.concatenate([empty, *parts]) for parts in zip(*columns, strict=True)))


def assign_rows(branches: Branches, row_tokens: int) -> Ints:
    """Return the row of each branch in the model's input: [B], counted from 0 without gaps.

    A row holds branches of one window in the order of their positions. So the first rows attend to only a small part of
    the window. Each row holds about ``row_tokens`` tokens at most. Branches are never cut, so the last branch of a row
    may exceed the limit. The rows of a window are filled evenly, because padding extends each row to the longest one.
    """
    if not len(branches):
        return np.empty(0, dtype=np.int64)
    _, starts, owner = np.unique(branches.window, return_index=True, return_inverse=True)
    ends = branches.offsets[np.append(starts[1:], len(branches))]
    total = ends - branches.offsets[starts]
    tokens_per_row = -(-total // -(-total // row_tokens))
    row_in_window = (branches.offsets[:-1] - branches.offsets[starts][owner]) // tokens_per_row[owner]
    # A long branch can cause a gap in the row numbers, which np.unique closes.
    _, rows = np.unique(np.stack([owner, row_in_window]), axis=1, return_inverse=True)
    return rows.astype(np.int64)


def iterate_row_batches(branches: Branches, rows: Ints, token_budget: int) -> Iterator[Ints]:
    """Yield the branch numbers of each batch of rows, row by row.

    A batch has at most ``token_budget`` padded tokens; a longer row is a batch of its own. Rows of similar length and
    prefix share a batch. ``MASK_ENTRIES_PER_TOKEN`` limits the mask and ``PREFIX_TOKENS_PER_TOKEN`` the prefixes, both
    per token of the budget. So memory does not grow with the texts.
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
        # The longest rows come first, so the first row sets the padded length. The longest prefix in a batch sets the
        # prefix length of all its rows.
        length = int(lengths[order[begin]])
        fitting = order[begin : begin + max(1, token_budget // length)]
        prefix = np.maximum.accumulate(prefixes[fitting])
        number = np.arange(1, len(fitting) + 1)
        fits_mask = number * length * (prefix + length) <= MASK_ENTRIES_PER_TOKEN * token_budget
        fits_prefix = number * prefix <= PREFIX_TOKENS_PER_TOKEN * token_budget
        count = max(1, int((fits_mask & fits_prefix).sum()))
        yield np.concatenate([by_row[row] for row in fitting[:count]])
        begin += count


def halve_batch(rows: Ints, branch_numbers: Ints) -> list[Ints]:
    """Split the branches of a batch into two halves of whole rows. Return a single row unchanged."""
    numbers = np.unique(rows[branch_numbers])
    if len(numbers) == 1:
        return [branch_numbers]
    is_in_first_half = np.isin(rows[branch_numbers], numbers[: len(numbers) // 2])
    return [branch_numbers[is_in_first_half], branch_numbers[~is_in_first_half]]


class _SharedPrefix(DynamicLayer):  # type: ignore[misc]
    """The keys and values of one layer for a batch of windows. Each branch reads those of its own window.

    The rows are selected when the layer runs, so that memory holds the copy of one layer only.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, windows: torch.Tensor, length: int) -> None:
        super().__init__()
        self.keys = keys
        self.values = values
        self._windows = windows
        self._length = length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._append_to_prefix(self.keys, key_states), self._append_to_prefix(self.values, value_states)

    def _append_to_prefix(self, prefix: torch.Tensor | None, own: torch.Tensor) -> torch.Tensor:
        assert prefix is not None
        # Layers may lie on several devices. Each part of the cache lies on the device of its layer.
        windows = self._windows.to(prefix.device)
        return torch.cat([prefix[:, :, : self._length].index_select(0, windows), own], dim=-2)

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int, *args: Any) -> tuple[int, int]:
        return self._length + query_length, 0


@dataclass(frozen=True)
class Layout:
    """A batch of packed branches as tensors with R rows and C columns, padded on the right.

    Attributes:
        ids: Token ids: [R, C].
        positions: Positions in the sequence: [R, C].
        starts: Start position of each token's branch: [R, C].
        branch: Branch of each token, -1 in the padding: [R, C].
        windows: Window of each row: [R].
        used: Positions in the flattened rows that hold a token: [tokens].
        which: Index of each of these tokens among the tokens of all branches: [tokens].
        prefix: Number of prefix tokens that every row can see.
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
    """Return the branches ``branch_numbers`` as tensors on ``device``. ``rows`` is the row of every branch."""
    _, first_in_row, row = np.unique(rows[branch_numbers], return_index=True, return_inverse=True)
    # The following arrays have one entry per token of the chosen branches, in their order.
    lengths = branches.length[branch_numbers]
    owner = np.repeat(np.arange(len(branch_numbers)), lengths)
    before = np.cumsum(lengths) - lengths
    step = np.arange(len(owner)) - before[owner]
    which = branches.offsets[branch_numbers][owner] + step
    column = np.arange(len(owner)) - before[first_in_row][row[owner]]
    shape = (len(first_in_row), int(column.max()) + 1)
    used = row[owner] * shape[1] + column

    def spread(values: Ints, padding: int) -> torch.Tensor:
        flat = np.full(shape[0] * shape[1], padding, dtype=np.int64)
        flat[used] = values
        return torch.from_numpy(flat.reshape(shape)).to(device)

    starts = branches.start[branch_numbers][owner]
    return Layout(
        ids=spread(branches.tokens[which], 0),
        # Padding has position 1 and sees the first token of the sequence, so that no row of the mask is empty.
        positions=spread(starts + step, 1),
        starts=spread(starts, 1),
        branch=spread(owner, -1),
        windows=torch.from_numpy(branches.window[branch_numbers][first_in_row]).to(device),
        used=torch.from_numpy(used).to(device),
        which=which,
        prefix=int(starts.max()),
    )


def build_branch_mask(layout: Layout, dtype: torch.dtype, sliding_window: int | None = None) -> torch.Tensor:
    """Return the additive mask [R, 1, C, prefix + C]: 0 for visible tokens, the dtype's minimum for hidden ones.

    A token sees the prefix before its branch's start, and its own branch up to itself. With ``sliding_window``, it sees
    only this number of last positions, including its own.
    """
    prefix_position = torch.arange(layout.prefix, device=layout.ids.device)
    position = layout.positions.unsqueeze(2)
    sees_prefix = prefix_position < layout.starts.unsqueeze(2)
    own_position = layout.positions.unsqueeze(1)
    sees_own = (layout.branch.unsqueeze(2) == layout.branch.unsqueeze(1)) & (own_position <= position)
    if sliding_window is not None:
        sees_prefix &= prefix_position > position - sliding_window
        sees_own &= own_position > position - sliding_window
    sees = torch.cat([sees_prefix, sees_own], dim=2)
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min).unsqueeze(1)


def build_branch_inputs(layout: Layout, prefix: Cache, config: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Return the model's arguments for one batch of rows. ``prefix`` is the cache of the pass over their windows."""
    layers = [_SharedPrefix(layer.keys, layer.values, layout.windows, layout.prefix) for layer in prefix.layers]
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    mask: torch.Tensor | dict[str, torch.Tensor]
    if kinds - {"full_attention"}:
        # Models with several kinds of layers receive one mask per kind.
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
    """Use the positions of the packed keys inside this block, for decoders that build ALiBi from a mask (BLOOM).

    Such a decoder uses the index of a key in the cache as its position. Other decoders do not change.
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
    """One batch of branches that run with their prefixes as separate sequences.

    Attributes:
        ids: Token ids, padded with 0 on the right: [branches, length].
        rows: Positions of the branches' own tokens in the flattened batch: [tokens]. Their logits are reduced.
        which: Index of each of these tokens among the tokens of all branches: [tokens].
    """

    ids: Ints
    rows: Ints
    which: Ints


def iterate_reruns(
    branches: Branches, window_lengths: Ints, token_budget: int, *, equal_lengths: bool, length_step: int | None
) -> Iterator[BranchRerun]:
    """Yield the branches in batches of at most ``token_budget`` padded tokens, longest first.

    Args:
        branches: The branches.
        window_lengths: Lengths of their windows in tokens.
        token_budget: Maximum number of padded tokens per batch.
        equal_lengths: Only sequences of equal length share a batch.
        length_step: Length beyond which the model encodes positions in another way, or None. Branches of longer windows
            are padded to the length of their window.
    """
    lengths = branches.start + branches.length
    if length_step is not None:
        own_window = window_lengths[branches.window]
        lengths = np.where(own_window > length_step, own_window, lengths)
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
    start = branches.start[branch_numbers]
    count = branches.length[branch_numbers]
    position = np.arange(length)
    ids = branches.ids[branches.window[branch_numbers], :length].copy()
    ids[np.arange(len(branch_numbers)), start] = branches.replacement[branch_numbers]
    ids[position >= (start + count)[:, None]] = 0
    is_in_branch = (position >= start[:, None]) & (position < (start + count)[:, None])
    owner = np.repeat(np.arange(len(branch_numbers)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return BranchRerun(ids, np.flatnonzero(is_in_branch), branches.offsets[branch_numbers][owner] + step)
