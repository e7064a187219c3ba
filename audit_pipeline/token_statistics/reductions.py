"""Reduction of a position's logits to the numbers that detectors need, in one sweep over the vocabulary.

The sweep goes over the vocabulary in blocks. While a block is in the processor's cache, all statistics of it are
computed. Blocks are combined as parts of a mixture: the weight of a block is its share of the probability. Means and
variances are merged in the centred form (Chan, Golub and LeVeque 1983), which loses no digits by cancellation, even in
flat or sharp distributions. Memory depends on the size of a block, unless the logits
themselves are stored or the head can only be called as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Protocol

import torch

from audit_pipeline import tables
from audit_pipeline.token_statistics.vocabulary_blocks import (
    KEPT_TYPE,
    Block,
    Logits,
    Reduced,
    Scratch,
    Shares,
    Total,
    apply_softmax,
    join_reduced,
    weigh_block,
)

MEASURED_NAMES = frozenset(measured.name for measured in tables.MEASURED)
"""Names of the statistics of an audit's forward pass."""


class LogitStatistic(Protocol):
    """A statistic that is computed from the logits themselves."""

    def add(self, block: Block) -> None:
        """Update the statistic with the next block of the vocabulary."""
        ...

    def columns(self, total: Total) -> Reduced:
        """Return the finished statistic by name. ``total`` is the sum of exp(logit) over all blocks."""
        ...


class TargetLogprob:
    """The log-probability of the target: the text's next token."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target
        # NaN marks targets that no block contains, so that no other number passes for a logit.
        self.logit = torch.full(target.shape, torch.nan, device=target.device)

    def add(self, block: Block) -> None:
        """Read the logits of the targets that the block contains."""
        column = self._target - block.begin
        is_inside = (column >= 0) & (column < block.logits.shape[1])
        column = column.clamp_(0, block.logits.shape[1] - 1)
        logit = block.logits.gather(1, column.unsqueeze(1)).squeeze(1)
        self.logit = torch.where(is_inside, logit, self.logit)

    def columns(self, total: Total) -> Reduced:
        """Return the log-probability, given the sum over all blocks."""
        return {"logprob": total.log_p(self.logit)}


class _Rank:
    """The number of tokens with a strictly larger logit than the target.

    The target's logit is needed before the sweep reaches its block. It is computed by a product of another shape, so
    its last bit may differ from the block's. Therefore the target is never counted itself, and only the largest logit
    has rank 0.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._before = logits.of(target).unsqueeze(1)
        self._own = own
        self._larger = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block) -> None:
        # Counting in float32 is exact up to 16 million tokens, and much faster than counting in integers.
        self._larger += torch.gt(block.logits, self._before, out=block.buffer).sum(1)

    def columns(self, total: Total) -> Reduced:
        own = self._own.logit
        larger = (self._larger - (own > self._before.squeeze(1)).float()).clamp(min=1)
        return {"rank": torch.where(own >= total.largest, 0, larger).to(torch.int32)}


class _Mode:
    """The most likely token and its log-probability."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._largest = torch.full(target.shape, -torch.inf, device=target.device)
        self._token = torch.zeros_like(target)

    def add(self, block: Block) -> None:
        better = block.largest > self._largest
        if block.logits.device.type == "cpu":
            # An argmax costs ten times as much as a maximum, and few blocks of a row have a new maximum.
            rows = better.nonzero().squeeze(1)
            if len(rows):
                self._token[rows] = block.logits[rows].argmax(1) + block.begin
        else:
            # On a GPU the number of rows is unknown until the device has finished, so all rows are computed.
            self._token = torch.where(better, block.logits.argmax(1) + block.begin, self._token)
        self._largest = torch.maximum(self._largest, block.largest)

    def columns(self, total: Total) -> Reduced:
        return {"max_logprob": -total.log_sum, "argmax_id": self._token.to(torch.int32)}


class _Best:
    """The ``count`` largest logits of each row in descending order, and their tokens: [n, count] each."""

    def __init__(self, count: int, target: torch.Tensor) -> None:
        self._count = count
        self.values = torch.empty(len(target), 0, device=target.device)
        self.tokens = target.new_empty(len(target), 0)

    def add(self, block: Block) -> None:
        best = block.logits.topk(min(self._count, block.logits.shape[1]), dim=1)
        values = torch.cat([self.values, best.values], dim=1)
        tokens = torch.cat([self.tokens, best.indices + block.begin], dim=1)
        self.values, columns = values.topk(min(self._count, values.shape[1]), dim=1)
        self.tokens = tokens.gather(1, columns)


class _TopK(_Best):
    """The ``TOPK_ENTRIES`` most likely tokens and their log-probabilities."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        super().__init__(tables.TOPK_ENTRIES, target)

    def columns(self, total: Total) -> Reduced:
        return {"topk_id": self.tokens.to(torch.int32), "topk_logprob": total.log_p(self.values)}


class _Mass(_Best):
    """The log of the total probability of the ``BEST_TOKENS`` most likely tokens."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        super().__init__(tables.BEST_TOKENS, target)

    def columns(self, total: Total) -> Reduced:
        return {"log_mass_40": torch.logsumexp(total.log_p(self.values), dim=1)}


class _Kept:
    """The logits themselves, in float16."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._values = torch.empty(len(logits), logits.width, dtype=torch.float16)

    def add(self, block: Block) -> None:
        self._values[:, block.begin : block.begin + block.logits.shape[1]] = block.logits

    def columns(self, total: Total) -> Reduced:
        return {"logits": self._values}


_NUCLEUS = 0.9
# Numbers of largest logits that are ranked. If a row's nucleus (the fewest likeliest tokens with probability 0.9) has
# more tokens, the next number is used, and finally all.
_RANKED = (256, 8192, 1 << 30)
_ROWS_RANKED_AT_ONCE = 32


class _Drawn:
    """The log-probability of the target under each of ``DECODINGS``: [n, len(DECODINGS)].

    All logits are kept, because the tokens that a decoding excludes are known only after the last block.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._own = own
        self._values = torch.empty(len(logits), logits.width, device=target.device)

    def add(self, block: Block) -> None:
        self._values[:, block.begin : block.begin + block.logits.shape[1]] = block.logits

    def columns(self, total: Total) -> Reduced:
        values = self._values.sub_(total.largest.unsqueeze(1))
        target_logit = self._own.logit - total.largest
        # The largest logit is 0, so its softmax is 1 over the sum. torch's own logsumexp takes six times as long.
        scaled = (values / temperature for temperature in tables.GRID_TEMPERATURES)
        log_sums = torch.stack([-torch.softmax(logits, dim=1).amax(1).log() for logits in scaled], dim=1)
        log_p = values.new_empty(len(values), len(tables.DECODINGS))
        remaining = torch.arange(len(values), device=values.device)
        for count in _RANKED:
            if not len(remaining):
                break
            wide = []
            for rows in torch.split(remaining, _ROWS_RANKED_AT_ONCE):
                ranked = values[rows].topk(min(count, values.shape[1]), dim=1).values
                log_p[rows] = _compute_drawn(target_logit[rows], ranked, log_sums[rows])
                # The last temperature is the highest and has the largest nucleus.
                log_mass = torch.logsumexp(ranked / tables.GRID_TEMPERATURES[-1], dim=1) - log_sums[rows, -1]
                wide.append(rows[log_mass < math.log(_NUCLEUS)])
            remaining = torch.cat(wide)
        return {"log_p_drawn": log_p}


def _compute_drawn(target_logit: torch.Tensor, ranked: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """Compute the log-probability of the target under each of ``DECODINGS``: [n, len(DECODINGS)].

    Args:
        target_logit: Logit of the target: [n].
        ranked: The largest logits of each row in descending order: [n, k].
        log_sums: Log of the sum of exp(logit / temperature) over the vocabulary: [n, len(GRID_TEMPERATURES)].
    """
    columns = []
    for temperature, log_sum in zip(tables.GRID_TEMPERATURES, log_sums.unbind(1), strict=True):
        log_p = target_logit / temperature - log_sum
        mass = torch.cumsum(torch.exp((ranked / temperature - log_sum.unsqueeze(1)).double()), dim=1)
        last = {
            "all": None,
            "top-k 40": torch.full_like(target_logit, min(tables.BEST_TOKENS, ranked.shape[1]) - 1, dtype=torch.long),
            # If rounding keeps the sum of all below 0.9, the nucleus ends with the last token.
            "top-p 0.9": (mass < _NUCLEUS).sum(1).clamp_(max=ranked.shape[1] - 1),
        }
        for drawn_from in tables.DRAWN_FROM:
            rank = last[drawn_from]
            if rank is None:
                columns.append(log_p)
                continue
            smallest_logit = ranked.gather(1, rank.unsqueeze(1)).squeeze(1)
            drawn_mass = mass.gather(1, rank.unsqueeze(1)).squeeze(1)
            # A token whose logit equals the smallest drawn logit can be drawn, too.
            columns.append(torch.where(target_logit >= smallest_logit, log_p - drawn_mass.log().float(), -torch.inf))
    return torch.stack(columns, dim=1)


LOGIT_STATISTICS = (
    ({"rank"}, _Rank),
    ({"max_logprob", "argmax_id"}, _Mode),
    ({"topk"}, _TopK),
    ({"log_mass_40"}, _Mass),
    ({"logits"}, _Kept),
    ({"log_p_drawn"}, _Drawn),
)
"""Names of statistics, with the class that computes them from the logits."""


# Square roots of probabilities within a block are multiplied by this factor before they are kept in half precision.
# Without it, relevant roots would be subnormal numbers, which have few digits.
_KEPT_SCALE = 2.0**15
_LARGEST_KEPT = torch.finfo(KEPT_TYPE).max


class WeighedBlockStatistic(Protocol):
    """A statistic that is computed from a block after :func:`vocabulary_blocks.weigh_block`.

    Only the last statistic that receives a block may overwrite the block's tensors.
    """

    def add(self, block: Block, shares: Shares) -> None:
        """Update the statistic with the next block. ``shares`` weigh the earlier blocks and this block."""
        ...

    def columns(self, total: Total) -> Reduced:
        """Return the finished statistic by name. ``total`` is the sum of exp(logit) over all blocks."""
        ...


class _Collision:
    """The log of the sum of p^2. In a block, p is the block's share times its softmax."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._sum = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        self._sum = (
            self._sum * shares.before.square() + torch.linalg.vecdot(block.buffer, block.buffer) * shares.now.square()
        )

    def columns(self, total: Total) -> Reduced:
        return {"log_sum_p2": self._sum.log()}


class _Roots:
    """The log of the sum of sqrt(p), with p at least ``P_FLOOR``.

    The tokens below the floor are known only after the last block, because p is divided by the sum of all. So the sum
    without a floor is computed during the sweep, and the roots are kept in half precision. At the end the contribution
    of the floor is computed from the roots. It is small compared with the sum.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._scratch = scratch
        self._kept = scratch.get_buffer("roots kept", len(target), logits.width, KEPT_TYPE)
        self._sum = torch.zeros(target.shape, device=target.device)
        self._blocks: list[tuple[int, Shares]] = []

    def add(self, block: Block, shares: Shares) -> None:
        roots = torch.sqrt(block.buffer, out=self._scratch.get_buffer("temporary", *block.buffer.shape))
        self._sum = self._sum * shares.before.sqrt() + roots.sum(1) * shares.now.sqrt()
        self._kept[:, block.begin : block.begin + roots.shape[1]] = roots.mul_(_KEPT_SCALE)
        self._blocks.append((block.begin, shares))

    def columns(self, total: Total) -> Reduced:
        added = torch.zeros_like(self._sum)
        floor = math.sqrt(tables.P_FLOOR)
        end = self._kept.shape[1]
        share = torch.ones_like(self._sum)
        for begin, shares in reversed(self._blocks):
            # The root of the probability that a kept root of 1 stands for. It is 0 for blocks without probability.
            unit = (shares.now * share).sqrt() / _KEPT_SCALE
            values = self._scratch.get_buffer("temporary", len(self._kept), end - begin).copy_(self._kept[:, begin:end])
            at_most = (floor / unit).clamp_(max=_LARGEST_KEPT)
            added += floor * (end - begin) - torch.minimum(values, at_most.unsqueeze(1), out=values).sum(1) * unit
            end = begin
            share = share * shares.before
        return {"log_sum_sqrt_p": (self._sum + added).log()}


class _Moments:
    """Mean and standard deviation of log p under p. It overwrites the block's tensors."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._mean = torch.zeros(target.shape, device=target.device)
        self._variance = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        mean = torch.linalg.vecdot(block.buffer, block.logits)
        # The centred second moment is used, because E[x^2] - E[x]^2 cancels in flat distributions.
        block.logits.sub_(mean.unsqueeze(1))
        variance = torch.linalg.vecdot(block.buffer.mul_(block.logits), block.logits)
        mean_before = self._mean + shares.before_below
        mean_now = mean + shares.now_below
        between = (mean_now - mean_before).square() * (shares.before * shares.now)
        self._mean = mean_before * shares.before + mean_now * shares.now
        self._variance = self._variance * shares.before + variance * shares.now + between

    def columns(self, total: Total) -> Reduced:
        # The mean of the shifted logits (logit minus the row maximum). log p = shifted logit - log of the sum.
        return {"mean": self._mean - total.log_sum, "std": self._variance.sqrt()}


class _AtTemperature:
    """The log of the sum of p^beta, and the moments of the distribution proportional to p^beta.

    That distribution is the softmax of beta times the logits.
    """

    def __init__(self, beta: float, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._beta = beta
        self._scratch = scratch
        self._total = Total.empty(target)
        self._moments = _Moments(logits, target, scratch)

    def add(self, block: Block) -> None:
        scaled_logits = self._scratch.get_buffer("temporary", *block.logits.shape)
        buffer = self._scratch.get_buffer("second temporary", *block.logits.shape)
        torch.mul(block.logits, self._beta, out=scaled_logits)
        scaled = Block(block.begin, scaled_logits, block.largest * self._beta, buffer)
        self._total, shares = self._total.with_block(scaled.largest, apply_softmax(scaled))
        self._moments.add(scaled, shares)

    def columns(self, total: Total) -> Reduced:
        moments = self._moments.columns(self._total)
        # The sum of p^beta is the sum of exp(beta logit) divided by the power beta of the sum of exp(logit).
        sums = self._total.log_sum - self._beta * total.log_sum
        return {"log_sum_p_beta": sums, "mean_at_beta": moments["mean"], "std_at_beta": moments["std"]}


class _Temperatures:
    """The statistics of :class:`_AtTemperature` for each of ``BETAS``: [n, len(BETAS)] each."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._statistics = [_AtTemperature(beta, logits, target, scratch) for beta in tables.BETAS]

    def add(self, block: Block, shares: Shares) -> None:
        for statistic in self._statistics:
            statistic.add(block)

    def columns(self, total: Total) -> Reduced:
        by_beta = [statistic.columns(total) for statistic in self._statistics]
        columns = {}
        for name in by_beta[0]:
            columns[name] = torch.stack([statistics[name] for statistics in by_beta], dim=1)
        return columns


# The moments overwrite the block's tensors, so they come last.
WEIGHED_STATISTICS = (
    ({"log_sum_p2"}, _Collision),
    ({"log_sum_sqrt_p"}, _Roots),
    ({"log_sum_p_beta"}, _Temperatures),
    ({"mean", "std"}, _Moments),
)
"""Names of statistics, with the class that computes them from blocks after ``weigh_block``."""

KEPT_VALUES = {"log_sum_sqrt_p": 1, "log_p_drawn": 2}
"""Statistics that keep values per token until the end of the sweep: number of half-precision values per token."""


def sweep(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
    """Compute the ``wanted`` statistics of the next-token distributions that ``logits`` give.

    Each statistic costs time only if it is wanted. ``logprob`` is always computed.

    - ``logprob`` is log p of the target.
    - ``mean`` and ``std`` are mu = E_z~p[log p(z)] and sigma = sd_z~p[log p(z)] (eq. 3 of Zhang et al. 2025).
    - ``max_logprob`` and ``argmax_id`` are log p of the mode, and the mode.
    - ``rank`` is the number of tokens with a strictly larger logit than the target.
    - ``topk`` gives the ``TOPK_ENTRIES`` best tokens in descending order, as ``topk_id`` and ``topk_logprob``.
    - ``log_mass_40`` is the log of the total probability of the ``BEST_TOKENS`` best tokens.
    - ``log_sum_p2`` is the log of the sum of p^2 over the vocabulary.
    - ``log_sum_sqrt_p`` is the log of the sum of sqrt(p) over the vocabulary, with p at least ``P_FLOOR``.
    - ``log_sum_p_beta`` is the log of the sum of p^beta for each of ``BETAS``.
    - ``mean_at_beta`` and ``std_at_beta`` are mean and standard deviation of log q under q proportional to p^beta.
    - ``logits`` are the logits themselves.
    - ``log_p_drawn`` is log p of the target under each of ``DECODINGS``, or minus infinity if it cannot be drawn.

    A decoding draws from the ``BEST_TOKENS`` likeliest tokens, or from the fewest likeliest tokens with probability
    0.9. A token that is tied with the last of them can be drawn. The probability of the target is divided by the total
    probability of the tokens up to the last.

    Args:
        logits: Logits of n positions. They are reduced in float32.
        target: The tokens that came next: [n].
        scratch: Buffers that are reused between calls.
        wanted: Names of the statistics.
    """
    n_kept = sum(count for name, count in KEPT_VALUES.items() if name in wanted)
    step = scratch.compute_rows_per_sweep(n_kept * logits.width) if n_kept else scratch.rows
    pieces = []
    for begin in range(0, max(len(logits), 1), step):
        end = begin + step
        pieces.append(_reduce_over_vocabulary(logits.part(begin, end), target[begin:end], scratch, frozenset(wanted)))
    return join_reduced(pieces)


def _reduce_over_vocabulary(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: frozenset[str]) -> Reduced:
    target_logprob = TargetLogprob(target)
    logit_statistics: list[LogitStatistic] = [target_logprob]
    for names, make in LOGIT_STATISTICS:
        if wanted & names:
            logit_statistics.append(make(logits, target, target_logprob))
    weighed_statistics: list[WeighedBlockStatistic] = []
    for names, make_weighed in WEIGHED_STATISTICS:
        if wanted & names:
            weighed_statistics.append(make_weighed(logits, target, scratch))
    total = Total.empty(target)
    for begin in range(0, logits.width, scratch.columns):
        end = min(begin + scratch.columns, logits.width)
        values = scratch.get_buffer("logits", len(logits), end - begin)
        buffer = scratch.get_buffer("softmax", len(logits), end - begin)
        values = logits.block(begin, end, values)
        block = Block(begin, values, values.amax(1), buffer)
        for statistic in logit_statistics:
            statistic.add(block)
        total, shares = total.with_block(block.largest, weigh_block(block))
        for weighed in weighed_statistics:
            weighed.add(block, shares)
    columns: dict[str, torch.Tensor] = {}
    for statistic in logit_statistics:
        columns.update(statistic.columns(total))
    for weighed in weighed_statistics:
        columns.update(weighed.columns(total))
    return columns
