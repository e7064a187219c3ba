"""From a position's logits to the handful of numbers that detectors need, in one sweep over the vocabulary.

What belongs here: reductions over the vocabulary, in float32, each under the name of its column in
contracts.MEASURED. What does not: where logits come from (head.py), running the model (forward.py).

The vocabulary is gone over in blocks. While a block is in the processor's cache, everything that is wanted of it is
taken; blocks are put together as parts of a mixture are: a block weighs what it holds of the probability, means and
variances are merged in the centred form (Chan, Golub and LeVeque 1983), which does not cancel where a
distribution is flat or sharp. So memory depends on the size of a block: full logits are never made.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from audit_pipeline.catalogue.contracts import BEST_TOKENS
from audit_pipeline.token_statistics.encode import TOPK
from audit_pipeline.token_statistics.head import Logits

# Finite stand-in for a logit of minus infinity, in the moments, where its weight is exactly 0 (0 log 0 = 0).
_LOG_ZERO = -1e9
# A CPU is fastest while a block stays in its caches; a GPU wants large pieces.
_ROWS = {"cpu": 1024, "cuda": 4096}
_COLUMNS = {"cpu": 1024, "cuda": 8192}
_NUMPY = {torch.float32: np.float32, torch.int32: np.int32}

Reduced = Mapping[str, torch.Tensor]
"""Statistics of ``n`` positions by name, each a tensor [n] on the logits' device; ``topk_id`` and ``topk_logprob``
are [n, TOPK], ``logits`` [n, V] in float16 and in the computer's own memory."""


class Scratch:
    """Buffers that are reused from call to call: on a CPU, fresh memory costs as much as the arithmetic."""

    def __init__(self, device: torch.device, rows: int | None = None, columns: int | None = None) -> None:
        self.rows = rows or _ROWS[device.type]
        self.columns = columns or _COLUMNS[device.type]
        self._buffers = [torch.empty(self.rows * self.columns, device=device) for _ in range(2)]

    def two(self, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two scratch tensors [rows, columns]."""
        first, second = (buffer[: rows * columns].view(rows, columns) for buffer in self._buffers)
        return first, second


def sweep(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
    """Statistics of the next-token distributions that ``logits`` give, those that are ``wanted``.

    logits: of n positions, reduced in float32 whatever their dtype. target: [n], the tokens that came next. Of these
    names, each costs time only where it is wanted:

    - ``logprob``: log p of the target (always there).
    - ``mean``, ``std``: mu = E_z~p[log p(z)] and sigma = sd_z~p[log p(z)] (eq. 3 of Zhang et al. 2025).
    - ``max_logprob``, ``argmax_id``: the mode's log p, and the mode.
    - ``rank``: how many tokens have a strictly larger logit than the target.
    - ``topk``: the ``TOPK`` best tokens, best first, as ``topk_id`` and ``topk_logprob``.
    - ``log_mass_40``: the log of what the ``BEST_TOKENS`` best tokens have together of the probability.
    - ``log_sum_p2``: log of the sum of p^2 over the vocabulary.
    - ``logits``: the logits themselves.
    """
    step = scratch.rows
    return joined(
        [
            _sweep_rows(logits.part(begin, begin + step), target[begin : begin + step], scratch, frozenset(wanted))
            for begin in range(0, max(len(logits), 1), step)
        ]
    )


def joined(pieces: Sequence[Reduced]) -> Reduced:
    """The statistics of consecutive positions, one after the other."""
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def fetched(reduced: Reduced) -> dict[str, npt.NDArray[Any]]:
    """The statistics as arrays of the same names and shapes, in one transfer: each would wait for the device anew."""
    on_device = {name: values for name, values in reduced.items() if values.dtype.itemsize == 4}
    rows = {name: values.reshape(len(values), math.prod(values.shape[1:])) for name, values in on_device.items()}
    together = torch.cat([values.contiguous().view(torch.int32) for values in rows.values()], dim=1).cpu().numpy()
    ends = np.cumsum([values.shape[1] for values in rows.values()])[:-1]
    arrays: dict[str, npt.NDArray[Any]] = {
        name: np.ascontiguousarray(columns).view(_NUMPY[on_device[name].dtype]).reshape(on_device[name].shape)
        for name, columns in zip(rows, np.split(together, ends, axis=1), strict=True)
    }
    return {name: arrays[name] if name in arrays else values.numpy() for name, values in reduced.items()}


def _sweep_rows(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: frozenset[str]) -> Reduced:
    own = _Own(target)
    ofs: list[_OfLogits] = [make(logits, target, own) for names, make in _OF_LOGITS if wanted & names]
    weighed_by: list[_OfWeights] = [make(target) for names, make in _OF_WEIGHTS if wanted & names]
    total = Total.of_nothing(target)
    for begin in range(0, logits.width, scratch.columns):
        end = min(begin + scratch.columns, logits.width)
        values, room = scratch.two(len(logits), end - begin)
        values = logits.block(begin, end, values)
        block = Block(begin, values, values.amax(1), room)
        for one in (own, *ofs):
            one.add(block)
        total, shares = total.with_block(block.largest, _weigh(block))
        for weighed in weighed_by:
            weighed.add(block, shares)
    statistics: tuple[_OfLogits | _OfWeights, ...] = (own, *ofs, *weighed_by)
    return {name: values for one in statistics for name, values in one.columns(total).items()}


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


def _weigh(block: Block) -> torch.Tensor:
    """Weigh a block, in place, and return the log of the sum of exp(logit - the row's largest): [n]."""
    block.largest.clamp_(min=_LOG_ZERO)
    block.logits.clamp_(min=_LOG_ZERO).sub_(block.largest.unsqueeze(1))
    torch.softmax(block.logits, dim=1, out=block.room)
    # The largest logit is 0 now, so its softmax is 1 over the sum.
    return block.room.amax(1).log_().neg_()


class _OfLogits(Protocol):
    """A statistic that is taken from the logits themselves."""

    def add(self, block: Block) -> None: ...

    def columns(self, total: Total) -> Reduced: ...


class _Own:
    """The target's log-probability."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target
        # Not a number where no block has the target: nothing that is no logit may pass for one.
        self.logit = torch.full(target.shape, torch.nan, device=target.device)

    def add(self, block: Block) -> None:
        place = self._target - block.begin
        inside = (place >= 0) & (place < block.logits.shape[1])
        place = place.clamp_(0, block.logits.shape[1] - 1)
        found = block.logits.gather(1, place.unsqueeze(1)).squeeze(1)
        self.logit = torch.where(inside, found, self.logit)

    def columns(self, total: Total) -> Reduced:
        return {"logprob": total.log_p(self.logit)}


class _Rank:
    """How many tokens have a strictly larger logit than the target.

    The target's logit has to be known before its block comes. Where it is multiplied in another shape than its block,
    the last bit may differ: then the target is not counted itself, the largest of all has rank 0, and no other has.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, own: _Own) -> None:
        self._before = logits.of(target).unsqueeze(1)
        self._own = own
        self._larger = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block) -> None:
        # Counted in float32: exact up to 16 million tokens, and much faster than in whole numbers.
        self._larger += torch.gt(block.logits, self._before, out=block.room).sum(1)

    def columns(self, total: Total) -> Reduced:
        own = self._own.logit
        larger = (self._larger - (own > self._before.squeeze(1)).float()).clamp(min=1)
        return {"rank": torch.where(own >= total.largest, 0, larger).to(torch.int32)}


class _Mode:
    """The most likely token and its log-probability."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: _Own) -> None:
        self._largest = torch.full(target.shape, -torch.inf, device=target.device)
        self._token = torch.zeros_like(target)

    def add(self, block: Block) -> None:
        better = block.largest > self._largest
        if block.logits.device.type == "cpu":
            # Finding the place costs ten times as much as the maximum, and few blocks of a row have a new one.
            rows = better.nonzero().squeeze(1)
            if len(rows):
                self._token[rows] = block.logits[rows].argmax(1) + block.begin
        else:
            # Here it is the other way round: asking how many rows there are would wait for the device.
            self._token = torch.where(better, block.logits.argmax(1) + block.begin, self._token)
        self._largest = torch.maximum(self._largest, block.largest)

    def columns(self, total: Total) -> Reduced:
        return {"max_logprob": -total.log_sum, "argmax_id": self._token.to(torch.int32)}


class _Best:
    """The ``count`` largest logits of each row, largest first, and their tokens: [n, count] each."""

    def __init__(self, count: int, target: torch.Tensor) -> None:
        self._count = count
        self.values = torch.empty(len(target), 0, device=target.device)
        self.tokens = target.new_empty(len(target), 0)

    def add(self, block: Block) -> None:
        best = block.logits.topk(min(self._count, block.logits.shape[1]), dim=1)
        values = torch.cat([self.values, best.values], dim=1)
        tokens = torch.cat([self.tokens, best.indices + block.begin], dim=1)
        self.values, places = values.topk(min(self._count, values.shape[1]), dim=1)
        self.tokens = tokens.gather(1, places)


class _TopK(_Best):
    """The best tokens and their log-probabilities."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: _Own) -> None:
        super().__init__(TOPK, target)

    def columns(self, total: Total) -> Reduced:
        return {"topk_id": self.tokens.to(torch.int32), "topk_logprob": total.log_p(self.values)}


class _Mass(_Best):
    """The log of the probability that the best tokens have together."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: _Own) -> None:
        super().__init__(BEST_TOKENS, target)

    def columns(self, total: Total) -> Reduced:
        return {"log_mass_40": torch.logsumexp(total.log_p(self.values), dim=1)}


class _Kept:
    """The logits themselves."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: _Own) -> None:
        self._values = torch.empty(len(logits), logits.width, dtype=torch.float16)

    def add(self, block: Block) -> None:
        self._values[:, block.begin : block.begin + block.logits.shape[1]] = block.logits

    def columns(self, total: Total) -> Reduced:
        return {"logits": self._values}


class _OfWeights(Protocol):
    """A statistic that is taken from a weighed block; it may use its tensors up where it is the last."""

    def add(self, block: Block, shares: Shares) -> None: ...

    def columns(self, total: Total) -> Reduced: ...


class _Collision:
    """The log of the sum of p^2, from the parts' own: a block's p are its share times its softmax."""

    def __init__(self, target: torch.Tensor) -> None:
        self._sum = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        self._sum = (
            self._sum * shares.before.square() + torch.linalg.vecdot(block.room, block.room) * shares.now.square()
        )

    def columns(self, total: Total) -> Reduced:
        return {"log_sum_p2": self._sum.log()}


class _Moments:
    """Mean and standard deviation of log p under p; uses the block's tensors up."""

    def __init__(self, target: torch.Tensor) -> None:
        self._mean = torch.zeros(target.shape, device=target.device)
        self._variance = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        mean = torch.linalg.vecdot(block.room, block.logits)
        # The centred second moment: E[x^2] - E[x]^2 would cancel where the distribution is flat.
        block.logits.sub_(mean.unsqueeze(1))
        variance = torch.linalg.vecdot(block.room.mul_(block.logits), block.logits)
        own, new = self._mean + shares.before_below, mean + shares.now_below
        apart = (new - own).square() * (shares.before * shares.now)
        self._mean = own * shares.before + new * shares.now
        self._variance = self._variance * shares.before + variance * shares.now + apart

    def columns(self, total: Total) -> Reduced:
        # Of logits less the row's largest until here: log p is such a logit less the log of the sum.
        return {"mean": self._mean - total.log_sum, "std": self._variance.sqrt()}


_OF_LOGITS = (
    ({"rank"}, _Rank),
    ({"max_logprob", "argmax_id"}, _Mode),
    ({"topk"}, _TopK),
    ({"log_mass_40"}, _Mass),
    ({"logits"}, _Kept),
)
_OF_WEIGHTS = (({"log_sum_p2"}, _Collision), ({"mean", "std"}, _Moments))
