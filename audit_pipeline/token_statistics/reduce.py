"""From a position's logits to the handful of numbers that detectors need.

What belongs here: reductions over the vocabulary, in float32, each under the name of its column in
contracts.MEASURED. What does not: running the model (forward.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

# Finite stand-in for log 0 in the moments, where its weight p is exactly 0 (the convention 0 log 0 = 0).
_LOG_ZERO = -1e9
_ROWS_AT_ONCE_CPU = 32
SIGMA_FLOOR = 1e-6
"""A standard deviation is at least this much where something is divided by it (the papers' published code)."""


Reduced = Mapping[str, torch.Tensor]
"""Statistics of ``n`` positions by the name of their column (contracts.MEASURED), each a tensor [n] on the logits'
device; and ``topk_id`` and ``topk_logprob`` [n, k] where they were asked for."""


class Workspace:
    """Buffers that are reused from call to call: on a CPU, fresh memory costs as much as the arithmetic."""

    def __init__(self, device: torch.device, vocab_size: int) -> None:
        # A CPU is fastest while the rows at work stay in its caches; a GPU wants one large piece.
        self.rows = _ROWS_AT_ONCE_CPU if device.type == "cpu" else 1024
        self._buffers = [torch.empty(self.rows, vocab_size, dtype=torch.float32, device=device) for _ in range(2)]

    def two(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two scratch tensors [rows, vocabulary]."""
        return self._buffers[0][:rows], self._buffers[1][:rows]


def reduce_logits(logits: torch.Tensor, target: torch.Tensor, workspace: Workspace, topk: int = 0) -> Reduced:
    """Statistics of the next-token distributions given by ``logits``.

    logits: [n, V] in any float dtype, reduced in float32. target: [n], the tokens that came next. Returns log p of
    the target, mu = E_z~p[log p(z)] and sigma = sd_z~p[log p(z)] (eq. 3 of Zhang et al. 2025), the mode and its log p,
    the target's rank (tokens with a strictly larger logit), and the ``topk`` best tokens where asked for.
    """
    step = workspace.rows
    return joined(
        [
            _reduce_rows(logits[begin : begin + step].float(), target[begin : begin + step], workspace, topk)
            for begin in range(0, len(logits), step)
        ]
    )


def reduce_moments(
    logits: torch.Tensor, target: torch.Tensor, workspace: Workspace
) -> tuple[torch.Tensor, torch.Tensor]:
    """log p of the ``target`` [n] and its z-score (log p - mu) / sigma, sigma clamped at ``SIGMA_FLOOR``: [n] each.

    logits: [n, V] in any float dtype, reduced in float32. What branches need, and nothing more.
    """
    step = workspace.rows
    logprobs, scores = [], []
    for begin in range(0, len(logits), step):
        rows = logits[begin : begin + step].float()
        log_p, p = workspace.two(len(rows))
        torch.log_softmax(rows, dim=-1, out=log_p)
        logprob = log_p.gather(1, target[begin : begin + step].unsqueeze(1)).squeeze(1)
        torch.exp(log_p, out=p)
        mean, variance = _moments(log_p, p)
        logprobs.append(logprob)
        scores.append((logprob - mean) / variance.sqrt_().clamp_(min=SIGMA_FLOOR))
    return torch.cat(logprobs), torch.cat(scores)


def _moments(log_p: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of log p under p: [n] each; both arguments [n, V] are overwritten."""
    log_p.clamp_(min=_LOG_ZERO)
    mean = torch.linalg.vecdot(p, log_p)
    # The centred second moment: E[x^2] - E[x]^2 would cancel where the distribution is flat.
    log_p.sub_(mean.unsqueeze(1))
    return mean, torch.linalg.vecdot(p.mul_(log_p), log_p).clamp_(min=0)


def joined(pieces: Sequence[Reduced]) -> Reduced:
    """The statistics of consecutive positions, one after the other."""
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def _reduce_rows(logits: torch.Tensor, target: torch.Tensor, workspace: Workspace, topk: int) -> Reduced:
    log_p, p = workspace.two(len(logits))
    target = target.unsqueeze(1)
    argmax = logits.max(dim=-1).indices
    larger = torch.gt(logits, logits.gather(1, target), out=p).sum(dim=-1)
    torch.log_softmax(logits, dim=-1, out=log_p)
    logprob = log_p.gather(1, target).squeeze(1)
    max_logprob = log_p.gather(1, argmax.unsqueeze(1)).squeeze(1)
    best_k = log_p.topk(topk, dim=-1) if topk else None
    torch.softmax(logits, dim=-1, out=p)
    mean, variance = _moments(log_p, p)
    return {
        "logprob": logprob,
        "mean": mean,
        "std": variance.sqrt_(),
        "max_logprob": max_logprob,
        "argmax_id": argmax.to(torch.int32),
        "rank": larger.to(torch.int32),
        **({"topk_id": best_k.indices.to(torch.int32), "topk_logprob": best_k.values} if best_k is not None else {}),
    }
