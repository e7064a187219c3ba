"""Blocks of the vocabulary, and how what is known of several is put together.

What belongs here: a block of logits, weighed, its share of the whole, and the memory that blocks are worked on in. What
does not: what is taken from them (of_logits.py, of_weights.py), the sweep over them (reduce.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

# Finite stand-in for a logit of minus infinity, in the moments, where its weight is exactly 0 (0 log 0 = 0).
_LOG_ZERO = -1e9
# A CPU is fastest while a block stays in its caches; a GPU wants large pieces.
_ROWS = {"cpu": 1024, "cuda": 4096}
_COLUMNS = {"cpu": 1024, "cuda": 8192}
# What is kept of every token until the whole vocabulary has been seen; fewer positions are swept at once for it.
_KEPT_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
KEPT_TYPE = torch.float16

Reduced = Mapping[str, torch.Tensor]
"""Statistics of ``n`` positions by name, each a tensor [n] on the logits' device; ``topk_id`` and ``topk_logprob``
are [n, TOPK], those of temperatures [n, len(BETAS)], ``logits`` [n, V] in float16 and in the computer's own memory."""


class Scratch:
    """Buffers that are reused from call to call: on a CPU, fresh memory costs as much as the arithmetic."""

    def __init__(self, device: torch.device, rows: int | None = None, columns: int | None = None) -> None:
        self._device = device
        self.rows = rows or _ROWS[device.type]
        self.columns = columns or _COLUMNS[device.type]
        self._buffers: dict[str, torch.Tensor] = {}

    def rows_kept(self, width: int) -> int:
        """How many positions are swept at once where something is kept of each of ``width`` tokens."""
        return max(1, min(self.rows, _KEPT_BYTES[self._device.type] // (KEPT_TYPE.itemsize * width)))

    def room(self, name: str, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The scratch tensor [rows, columns] that is called ``name``, with whatever stands in it."""
        size = rows * columns
        if name not in self._buffers or len(self._buffers[name]) < size:
            # The smaller one is given back first: both need not be in memory.
            self._buffers.pop(name, None)
            self._buffers[name] = torch.empty(size, dtype=dtype, device=self._device)
        return self._buffers[name][:size].view(rows, columns)


@dataclass(frozen=True)
class Shares:
    """How the blocks before and one more are put together: [n] each.

    ``before`` and ``now`` are what either has of the probability of both together; ``before_below`` and ``now_below``
    how far its largest logit is below the largest of both (0 or less).
    """

    before: torch.Tensor
    now: torch.Tensor
    before_below: torch.Tensor
    now_below: torch.Tensor


@dataclass(frozen=True)
class Total:
    """The sum of exp(logit) over some blocks as exp(``largest`` + ``log_sum``): [n] each.

    The two stay apart until the end: where one token has nearly all of the probability, the second is next to nothing,
    and would be lost beside the first.
    """

    largest: torch.Tensor
    log_sum: torch.Tensor

    @classmethod
    def of_nothing(cls, target: torch.Tensor) -> Total:
        """Of no block, for as many rows as ``target`` has."""
        largest = torch.full(target.shape, _LOG_ZERO, device=target.device)
        return cls(largest, torch.full_like(largest, -torch.inf))

    def with_block(self, largest: torch.Tensor, log_sum: torch.Tensor) -> tuple[Total, Shares]:
        """The total with one more block in it, and both parts' shares."""
        both = torch.maximum(self.largest, largest)
        before_below, now_below = self.largest - both, largest - both
        before, now = self.log_sum + before_below, log_sum + now_below
        together = torch.logaddexp(before, now)
        shares = Shares(torch.exp(before - together), torch.exp(now - together), before_below, now_below)
        return Total(both, together), shares

    def log_p(self, logit: torch.Tensor) -> torch.Tensor:
        """The log-probability that a logit [n] or [n, k] stands for."""
        if logit.dim() == 1:
            return (logit - self.largest) - self.log_sum
        return (logit - self.largest.unsqueeze(1)) - self.log_sum.unsqueeze(1)


@dataclass(frozen=True)
class Block:
    """The logits [n, b] of the tokens from ``begin`` on, the largest of each row [n], and room for as many [n, b].

    Once weighed, ``logits`` are less the row's largest, and ``room`` holds their softmax: what each token has of the
    block's probability.
    """

    begin: int
    logits: torch.Tensor
    largest: torch.Tensor
    room: torch.Tensor


def weigh(block: Block) -> torch.Tensor:
    """Weigh a block, in place, and return the log of the sum of exp(logit - the row's largest): [n]."""
    block.largest.clamp_(min=_LOG_ZERO)
    block.logits.clamp_(min=_LOG_ZERO).sub_(block.largest.unsqueeze(1))
    return softmax(block)


def softmax(block: Block) -> torch.Tensor:
    """Fill the room of a block whose rows have 0 as their largest logit; the log of the sum of exp(logit): [n]."""
    torch.softmax(block.logits, dim=1, out=block.room)
    # The largest logit is 0, so its softmax is 1 over the sum.
    return block.room.amax(1).log_().neg_()
