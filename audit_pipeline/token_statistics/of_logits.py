"""Statistics that are taken from a block of logits as it comes.

What belongs here: these, by the names of what they leave behind. What does not: those that need the probabilities
(of_weights.py), the sweep (reduce.py).
"""

from __future__ import annotations

from typing import Protocol

import torch

from audit_pipeline.catalogue.contracts import BEST_TOKENS, TOPK_ENTRIES
from audit_pipeline.token_statistics.blocks import Block, Reduced, Total
from audit_pipeline.token_statistics.head import Logits


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
        self._larger += torch.gt(block.logits, self._before, out=block.room).sum(1)

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


OF_LOGITS = (
    ({"rank"}, _Rank),
    ({"max_logprob", "argmax_id"}, _Mode),
    ({"topk"}, _TopK),
    ({"log_mass_40"}, _Mass),
    ({"logits"}, _Kept),
)
"""What leaves the statistics of these names behind."""
