"""Statistics that are taken from a weighed block: sums and moments of the probabilities.

What belongs here: these, by the names of what they leave behind. What does not: those of the logits themselves
(of_logits.py), how blocks are weighed and put together (blocks.py), the sweep (reduce.py).
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from audit_pipeline.catalogue.contracts import BETAS, P_FLOOR
from audit_pipeline.token_statistics.blocks import KEPT_TYPE, Block, Reduced, Scratch, Shares, Total, softmax
from audit_pipeline.token_statistics.head import Logits

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
            self._sum * shares.before.square() + torch.linalg.vecdot(block.room, block.room) * shares.now.square()
        )

    def columns(self, total: Total) -> Reduced:
        return {"log_sum_p2": self._sum.log()}


class _Roots:
    """The log of the sum of sqrt(p), p at least ``P_FLOOR``.

    Which tokens are below the floor shows when the last block is in: what is above it is divided by the sum of all. So
    the sum without a floor is taken as the blocks come, and the roots are kept in half precision: what the floor adds
    is small beside the sum, and is made of them in the end.
    """

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._scratch = scratch
        self._kept = scratch.room("roots kept", len(target), logits.width, KEPT_TYPE)
        self._sum = torch.zeros(target.shape, device=target.device)
        self._blocks: list[tuple[int, Shares]] = []

    def add(self, block: Block, shares: Shares) -> None:
        roots = torch.sqrt(block.room, out=self._scratch.room("one", *block.room.shape))
        self._sum = self._sum * shares.before.sqrt() + roots.sum(1) * shares.now.sqrt()
        self._kept[:, block.begin : block.begin + roots.shape[1]] = roots.mul_(_KEPT_SCALE)
        self._blocks.append((block.begin, shares))

    def columns(self, total: Total) -> Reduced:
        added = torch.zeros_like(self._sum)
        floor = math.sqrt(P_FLOOR)
        end, behind = self._kept.shape[1], torch.ones_like(self._sum)
        for begin, shares in reversed(self._blocks):
            # What of the whole a kept root of 1 stands for; 0 where the block has no probability at all.
            unit = (shares.now * behind).sqrt() / _KEPT_SCALE
            kept = self._scratch.room("one", len(self._kept), end - begin).copy_(self._kept[:, begin:end])
            at_most = (floor / unit).clamp_(max=_LARGEST_KEPT)
            added += floor * (end - begin) - torch.minimum(kept, at_most.unsqueeze(1), out=kept).sum(1) * unit
            end, behind = begin, behind * shares.before
        return {"log_sum_sqrt_p": (self._sum + added).log()}


class _Moments:
    """Mean and standard deviation of log p under p; uses the block's tensors up."""

    def __init__(self, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
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


class _AtTemperature:
    """The log of the sum of p^beta, and the moments of the distribution that is proportional to p^beta: that of the
    logits times beta."""

    def __init__(self, beta: float, logits: Logits, target: torch.Tensor, scratch: Scratch) -> None:
        self._beta, self._scratch = beta, scratch
        self._total = Total.of_nothing(target)
        self._moments = _Moments(logits, target, scratch)

    def add(self, block: Block) -> None:
        scaled, room = (self._scratch.room(name, *block.logits.shape) for name in ("one", "another"))
        torch.mul(block.logits, self._beta, out=scaled)
        ours = Block(block.begin, scaled, block.largest * self._beta, room)
        self._total, shares = self._total.with_block(ours.largest, softmax(ours))
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
        for one in self._each:
            one.add(block)

    def columns(self, total: Total) -> Reduced:
        found = [one.columns(total) for one in self._each]
        return {name: torch.stack([one[name] for one in found], dim=1) for name in found[0]}


# The moments use the block's tensors up: they come last.
OF_WEIGHTS = (
    ({"log_sum_p2"}, _Collision),
    ({"log_sum_sqrt_p"}, _Roots),
    ({"log_sum_p_beta"}, _Temperatures),
    ({"mean", "std"}, _Moments),
)
"""What leaves the statistics of these names behind."""

KEEPING = frozenset({"log_sum_sqrt_p"})
"""Those that keep something of every token until the whole vocabulary has been seen."""
