"""From a position's logits to the handful of numbers that detectors need, in one sweep over the vocabulary.

The vocabulary is gone over in blocks. While a block is in the processor's cache, everything that is wanted of it is
taken; blocks are put together as parts of a mixture are: a block weighs what it holds of the probability, means and
variances are merged in the centred form (Chan, Golub and LeVeque 1983), which does not cancel where a distribution is
flat or sharp. So memory depends on the size of a block: full logits are never made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from audit_pipeline.tables import (
    BEST_TOKENS,
    BETAS,
    DECODINGS,
    DRAWN_FROM,
    GRID_TEMPERATURES,
    MEASURED,
    P_FLOOR,
    TOPK_ENTRIES,
)
from audit_pipeline.token_statistics.vocabulary_blocks import (
    KEPT_TYPE,
    Block,
    Logits,
    Reduced,
    Scratch,
    Shares,
    Total,
    apply_softmax,
    weigh_block,
)

MEASURED_NAMES = frozenset(measured.name for measured in MEASURED)
"""Names of the statistics of an audit's forward pass."""


class LogitStatistic(Protocol):
    """A statistic that is taken from the logits themselves."""

    def add(self, block: Block) -> None: ...

    def columns(self, total: Total) -> Reduced: ...


class TargetLogprob:
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

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._before = logits.of(target).unsqueeze(1)
        self._own = own
        self._larger = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block) -> None:
        # Counted in float32: exact up to 16 million tokens, and much faster than in whole numbers.
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

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        super().__init__(TOPK_ENTRIES, target)

    def columns(self, total: Total) -> Reduced:
        return {"topk_id": self.tokens.to(torch.int32), "topk_logprob": total.log_p(self.values)}


class _Mass(_Best):
    """The log of the probability that the best tokens have together."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        super().__init__(BEST_TOKENS, target)

    def columns(self, total: Total) -> Reduced:
        return {"log_mass_40": torch.logsumexp(total.log_p(self.values), dim=1)}


class _Kept:
    """The logits themselves."""

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._values = torch.empty(len(logits), logits.width, dtype=torch.float16)

    def add(self, block: Block) -> None:
        self._values[:, block.begin : block.begin + block.logits.shape[1]] = block.logits

    def columns(self, total: Total) -> Reduced:
        return {"logits": self._values}


_NUCLEUS = 0.9
# So many of a row's largest logits are ranked, and where its nucleus is larger, so many more, in the end all.
_RANKED = (256, 8192, 1 << 30)
_ROWS_RANKED_AT_ONCE = 32


class _Drawn:
    """The target's log-probability under each of ``DECODINGS``: [n, len(DECODINGS)].

    The logits are kept as they are, since what a way of drawing leaves out shows when the last block is in.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, own: TargetLogprob) -> None:
        self._own = own
        self._values = torch.empty(len(logits), logits.width, device=target.device)

    def add(self, block: Block) -> None:
        self._values[:, block.begin : block.begin + block.logits.shape[1]] = block.logits

    def columns(self, total: Total) -> Reduced:
        values, own = self._values.sub_(total.largest.unsqueeze(1)), self._own.logit - total.largest
        # The largest logit is 0, so its softmax is 1 over the sum; torch's own logsumexp takes six times as long.
        log_sums = torch.stack([-torch.softmax(values / t, dim=1).amax(1).log() for t in GRID_TEMPERATURES], dim=1)
        found = values.new_empty(len(values), len(DECODINGS))
        remaining = torch.arange(len(values), device=values.device)
        for count in _RANKED:
            if not len(remaining):
                break
            wide = []
            for rows in torch.split(remaining, _ROWS_RANKED_AT_ONCE):
                ranked = values[rows].topk(min(count, values.shape[1]), dim=1).values
                found[rows] = _compute_drawn(own[rows], ranked, log_sums[rows])
                # The last temperature is the highest: no other nucleus is larger.
                log_mass = torch.logsumexp(ranked / GRID_TEMPERATURES[-1], dim=1) - log_sums[rows, -1]
                wide.append(rows[log_mass < math.log(_NUCLEUS)])
            remaining = torch.cat(wide)
        return {"log_p_drawn": found}


def _compute_drawn(own: torch.Tensor, ranked: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """The log-probability of the logit ``own`` [n] under each of ``DECODINGS``: [n, len(DECODINGS)].

    ranked: the largest logits of each row, descending: [n, k]. log_sums: the log of the sum of exp(logit / temperature)
    over the whole vocabulary, by temperature: [n, len(GRID_TEMPERATURES)].
    """
    found = []
    for temperature, log_sum in zip(GRID_TEMPERATURES, log_sums.unbind(1), strict=True):
        log_p = own / temperature - log_sum
        mass = torch.cumsum(torch.exp((ranked / temperature - log_sum.unsqueeze(1)).double()), dim=1)
        last = {
            "all": None,
            "top-k 40": torch.full_like(own, min(BEST_TOKENS, ranked.shape[1]) - 1, dtype=torch.long),
            # Sums of all that round to less than 0.9 end with the last token.
            "top-p 0.9": (mass < _NUCLEUS).sum(1).clamp_(max=ranked.shape[1] - 1),
        }
        for drawn_from in DRAWN_FROM:
            place = last[drawn_from]
            if place is None:
                found.append(log_p)
                continue
            least, within = (values.gather(1, place.unsqueeze(1)).squeeze(1) for values in (ranked, mass))
            # A token that is tied with the last can be drawn.
            found.append(torch.where(own >= least, log_p - within.log().float(), -torch.inf))
    return torch.stack(found, dim=1)


OF_LOGITS = (
    ({"rank"}, _Rank),
    ({"max_logprob", "argmax_id"}, _Mode),
    ({"topk"}, _TopK),
    ({"log_mass_40"}, _Mass),
    ({"logits"}, _Kept),
    ({"log_p_drawn"}, _Drawn),
)
"""What computes the statistics of these names."""


# Roots of what a token has of its block's probability are kept times this: those that matter are normal numbers then.
_KEPT_SCALE = 2.0**15
_LARGEST_KEPT = torch.finfo(KEPT_TYPE).max


class WeighedBlockStatistic(Protocol):
    """A statistic that is taken from a weighed block; it may use its tensors up where it is the last."""

    def add(self, block: Block, shares: Shares) -> None: ...

    def columns(self, total: Total) -> Reduced: ...


class _Collision:
    """The log of the sum of p^2, from the parts' own: a block's p are its share times its softmax."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._sum = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        self._sum = (
            self._sum * shares.before.square() + torch.linalg.vecdot(block.buffer, block.buffer) * shares.now.square()
        )

    def columns(self, total: Total) -> Reduced:
        return {"log_sum_p2": self._sum.log()}


class _Roots:
    """The log of the sum of sqrt(p), p at least ``P_FLOOR``.

    Which tokens are below the floor shows when the last block is in: what is above it is divided by the sum of all. So
    the sum without a floor is taken as the blocks come, and the roots are kept in half precision: what the floor adds
    is small next to the sum, and is made of them in the end.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._scratch = scratch
        self._kept = scratch.get_buffer("roots kept", len(target), logits.width, KEPT_TYPE)
        self._sum = torch.zeros(target.shape, device=target.device)
        self._blocks: list[tuple[int, Shares]] = []

    def add(self, block: Block, shares: Shares) -> None:
        roots = torch.sqrt(block.buffer, out=self._scratch.get_buffer("one", *block.buffer.shape))
        self._sum = self._sum * shares.before.sqrt() + roots.sum(1) * shares.now.sqrt()
        self._kept[:, block.begin : block.begin + roots.shape[1]] = roots.mul_(_KEPT_SCALE)
        self._blocks.append((block.begin, shares))

    def columns(self, total: Total) -> Reduced:
        added = torch.zeros_like(self._sum)
        floor = math.sqrt(P_FLOOR)
        end, share = self._kept.shape[1], torch.ones_like(self._sum)
        for begin, shares in reversed(self._blocks):
            # The share of the whole that a kept root of 1 means; 0 where the block has no probability at all.
            unit = (shares.now * share).sqrt() / _KEPT_SCALE
            values = self._scratch.get_buffer("one", len(self._kept), end - begin).copy_(self._kept[:, begin:end])
            at_most = (floor / unit).clamp_(max=_LARGEST_KEPT)
            added += floor * (end - begin) - torch.minimum(values, at_most.unsqueeze(1), out=values).sum(1) * unit
            end, share = begin, share * shares.before
        return {"log_sum_sqrt_p": (self._sum + added).log()}


class _Moments:
    """Mean and standard deviation of log p under p; uses the block's tensors up."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._mean = torch.zeros(target.shape, device=target.device)
        self._variance = torch.zeros(target.shape, device=target.device)

    def add(self, block: Block, shares: Shares) -> None:
        mean = torch.linalg.vecdot(block.buffer, block.logits)
        # The centred second moment: E[x^2] - E[x]^2 would cancel where the distribution is flat.
        block.logits.sub_(mean.unsqueeze(1))
        variance = torch.linalg.vecdot(block.buffer.mul_(block.logits), block.logits)
        own, new = self._mean + shares.before_below, mean + shares.now_below
        apart = (new - own).square() * (shares.before * shares.now)
        self._mean = own * shares.before + new * shares.now
        self._variance = self._variance * shares.before + variance * shares.now + apart

    def columns(self, total: Total) -> Reduced:
        # Of logits less the row's largest until here: log p is such a logit less the log of the sum.
        return {"mean": self._mean - total.log_sum, "std": self._variance.sqrt()}


class _AtTemperature:
    """The log of the sum of p^beta, and the moments of the distribution that is proportional to p^beta: that of the
    logits times beta.
    """

    def __init__(self, beta: float, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._beta, self._scratch = beta, scratch
        self._total = Total.empty(target)
        self._moments = _Moments(logits, target, scratch)

    def add(self, block: Block) -> None:
        scaled, buffer = (self._scratch.get_buffer(name, *block.logits.shape) for name in ("one", "another"))
        torch.mul(block.logits, self._beta, out=scaled)
        ours = Block(block.begin, scaled, block.largest * self._beta, buffer)
        self._total, shares = self._total.with_block(ours.largest, apply_softmax(ours))
        self._moments.add(ours, shares)

    def columns(self, total: Total) -> Reduced:
        moments = self._moments.columns(self._total)
        # Logits less the largest: the sum of p^beta is that of exp(beta logit), over the sum of exp(logit) to the beta.
        sums = self._total.log_sum - self._beta * total.log_sum
        return {"log_sum_p_beta": sums, "mean_at_beta": moments["mean"], "std_at_beta": moments["std"]}


class _Temperatures:
    """The distribution at each of ``BETAS``, side by side: [n, len(BETAS)] each."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._each = [_AtTemperature(beta, logits, target, scratch) for beta in BETAS]

    def add(self, block: Block, shares: Shares) -> None:
        for statistic in self._each:
            statistic.add(block)

    def columns(self, total: Total) -> Reduced:
        found = [reduction.columns(total) for reduction in self._each]
        return {name: torch.stack([reduction[name] for reduction in found], dim=1) for name in found[0]}


# The moments use the block's tensors up: they come last.
OF_WEIGHTS = (
    ({"log_sum_p2"}, _Collision),
    ({"log_sum_sqrt_p"}, _Roots),
    ({"log_sum_p_beta"}, _Temperatures),
    ({"mean", "std"}, _Moments),
)
"""What computes the statistics of these names."""

KEEPING = {"log_sum_sqrt_p": 1, "log_p_drawn": 2}
"""Those that keep something of every token until the whole vocabulary has been seen: how many values in half precision
a token."""


_NUMPY = {torch.float32: np.float32, torch.int32: np.int32}


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
    - ``log_sum_sqrt_p``: log of the sum of sqrt(p) over the vocabulary, p at least ``P_FLOOR``.
    - ``log_sum_p_beta``, ``mean_at_beta``, ``std_at_beta``: for each of ``BETAS``, the log of the sum of p^beta, and
      mean and standard deviation of log q under q, the distribution that is proportional to p^beta.
    - ``logits``: the logits themselves.
    - ``log_p_drawn``: log p of the target under each of ``DECODINGS``, minus infinity where it cannot be drawn. Of the
      ``BEST_TOKENS`` likeliest, and of the fewest of the likeliest with 0.9 of the probability at the temperature: a
      token that is tied with the last of them can be drawn, and the probability is divided by that of so many tokens.
    """
    kept = sum(values for name, values in KEEPING.items() if name in wanted)
    step = scratch.compute_rows_per_sweep(kept * logits.width) if kept else scratch.rows
    return join_reduced(
        [
            _sweep_rows(logits.part(begin, begin + step), target[begin : begin + step], scratch, frozenset(wanted))
            for begin in range(0, max(len(logits), 1), step)
        ]
    )


def join_reduced(pieces: Sequence[Reduced]) -> Reduced:
    """The statistics of consecutive positions, in order."""
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def copy_to_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device, without waiting for what the device is at."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def begin_fetch(reduced: Reduced) -> Callable[[], dict[str, npt.NDArray[Any]]]:
    """Begin to bring the statistics from the device, in one transfer; what is returned waits for it.

    It gives arrays of the same names and shapes.
    """
    on_device = {name: values for name, values in reduced.items() if values.dtype.itemsize == 4}
    rows = {name: values.reshape(len(values), math.prod(values.shape[1:])) for name, values in on_device.items()}
    together = torch.cat([values.contiguous().view(torch.int32) for values in rows.values()], dim=1)
    ends = np.cumsum([values.shape[1] for values in rows.values()])[:-1]
    here, arrived = together, None
    if together.is_cuda:
        here = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
        here.copy_(together, non_blocking=True)
        arrived = torch.cuda.current_stream(together.device).record_event()

    def fetch() -> dict[str, npt.NDArray[Any]]:
        if arrived is not None:
            arrived.synchronize()
        arrays: dict[str, npt.NDArray[Any]] = {
            name: np.ascontiguousarray(columns).view(_NUMPY[on_device[name].dtype]).reshape(on_device[name].shape)
            for name, columns in zip(rows, np.split(here.numpy(), ends, axis=1), strict=True)
        }
        return {name: arrays[name] if name in arrays else values.numpy() for name, values in reduced.items()}

    return fetch


def _sweep_rows(logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: frozenset[str]) -> Reduced:
    own = TargetLogprob(target)
    ofs: list[LogitStatistic] = [make(logits, target, own) for names, make in OF_LOGITS if wanted & names]
    weighed_by: list[WeighedBlockStatistic] = [
        make(logits, target, scratch) for names, make in OF_WEIGHTS if wanted & names
    ]
    total = Total.empty(target)
    for begin in range(0, logits.width, scratch.columns):
        end = min(begin + scratch.columns, logits.width)
        values, buffer = (scratch.get_buffer(name, len(logits), end - begin) for name in ("logits", "softmax"))
        values = logits.block(begin, end, values)
        block = Block(begin, values, values.amax(1), buffer)
        for statistic in (own, *ofs):
            statistic.add(block)
        total, shares = total.with_block(block.largest, weigh_block(block))
        for weighed in weighed_by:
            weighed.add(block, shares)
    statistics: tuple[LogitStatistic | WeighedBlockStatistic, ...] = (own, *ofs, *weighed_by)
    return {name: values for statistic in statistics for name, values in statistic.columns(total).items()}
