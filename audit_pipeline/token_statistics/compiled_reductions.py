"""Compiled computation of the statistics of reductions.py, from whole rows of logits on a GPU.

The function :func:`reductions.sweep` writes every block of logits to memory several times, and a GPU waits meanwhile.
torch.compile turns the formulas into loops that read the logits once and write only the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.nn import functional

from audit_pipeline.tables import BEST_TOKENS, BETAS, P_FLOOR, TOPK_ENTRIES
from audit_pipeline.token_statistics.layer_tuning import set_recompile_limit
from audit_pipeline.token_statistics.reductions import sweep
from audit_pipeline.token_statistics.vocabulary_blocks import LOG_ZERO, Logits, Reduced, Scratch, join_reduced

# Maximum number of logits, and maximum number of rows of logits, that are reduced at once.
_MAX_LOGITS = 1 << 28
_MAX_ROWS = 1024
# Statistics that are left to sweep(): logits are copied rather than reduced, and log_p_drawn needs sorted rows.
_SWEPT = frozenset({"logits", "log_p_drawn"})

_Formulas = Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]


class CompiledReductions:
    """Compiled replacement of :func:`sweep`. Each set of statistics is compiled at its first use.

    Args:
        rows: Number of positions that are reduced at once. The default depends on the size of the vocabulary.
    """

    def __init__(self, rows: int | None = None) -> None:
        set_recompile_limit()
        self._rows = rows
        self._compiled: dict[frozenset[str], _Formulas] = {}

    def __call__(self, logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
        """Compute the ``wanted`` statistics. Arguments and result are those of :func:`sweep`.

        Raises:
            RuntimeError: If torch cannot compile on this machine.
        """
        swept = _SWEPT.intersection(wanted)
        names = frozenset(wanted) - swept
        if names not in self._compiled:
            self._compiled[names] = torch.compile(_build_formulas(names), dynamic=False)
        step = self._rows or min(_MAX_ROWS, _MAX_LOGITS // logits.width)
        pieces = []
        for begin in range(0, max(len(logits), 1), step):
            targets = target[begin : begin + step]
            # The number of rows is always the same, with padding at the end. Another shape would be compiled again.
            padded_targets = functional.pad(targets, (0, step - len(targets)))
            padded = self._compiled[names](logits.part(begin, begin + step).whole(step), padded_targets)
            pieces.append({name: values[: len(targets)] for name, values in padded.items()})
        statistics: dict[str, torch.Tensor] = {}
        if swept:
            statistics.update(sweep(logits, target, scratch, swept))
        statistics.update(join_reduced(pieces))
        return statistics


def _build_formulas(wanted: frozenset[str]) -> _Formulas:
    """Return a function that computes the statistics ``wanted``, which :func:`sweep` documents.

    The function receives logits [n, V] in any float dtype and targets [n].
    """

    def compute(logits: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        values = logits.float()
        largest = values.amax(1, keepdim=True).clamp(min=LOG_ZERO)
        target_logit = values.gather(1, target.unsqueeze(1))
        centred = values.clamp(min=LOG_ZERO) - largest
        log_sum, mean, std, p = _compute_moments(centred)
        statistics = {"logprob": (target_logit - largest).squeeze(1) - log_sum}
        if "mean" in wanted:
            statistics |= {"mean": mean - log_sum, "std": std}
        if "max_logprob" in wanted or "argmax_id" in wanted:
            statistics |= {"max_logprob": -log_sum, "argmax_id": logits.argmax(1).to(torch.int32)}
        if "rank" in wanted:
            statistics["rank"] = (values > target_logit).sum(1).to(torch.int32)
        if "topk" in wanted:
            best = logits.topk(min(TOPK_ENTRIES, logits.shape[1]), dim=1)
            statistics["topk_id"] = best.indices.to(torch.int32)
            statistics["topk_logprob"] = best.values.float() - largest - log_sum.unsqueeze(1)
        if "log_mass_40" in wanted:
            best_values = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1).values.float()
            statistics["log_mass_40"] = (best_values - largest).exp().sum(1).log() - log_sum
        if "log_sum_p2" in wanted:
            statistics["log_sum_p2"] = p.square().sum(1).log()
        if "log_sum_sqrt_p" in wanted:
            statistics["log_sum_sqrt_p"] = p.clamp(min=P_FLOOR).sqrt().sum(1).log()
        if "log_sum_p_beta" in wanted:
            moments = [_compute_moments(centred * beta) for beta in BETAS]
            log_sums = [sums - beta * log_sum for beta, (sums, *_) in zip(BETAS, moments, strict=True)]
            statistics["log_sum_p_beta"] = torch.stack(log_sums, dim=1)
            statistics["mean_at_beta"] = torch.stack([mean - sums for sums, mean, *_ in moments], dim=1)
            statistics["std_at_beta"] = torch.stack([std for _, _, std, _ in moments], dim=1)
        return statistics

    return compute


def _compute_moments(centred: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the moments of logits under their softmax.

    Args:
        centred: Logits minus the row's largest: [n, V].

    Returns:
        The log of the sum of exp(logit), mean and standard deviation of a logit under p, [n] each, and p [n, V].
    """
    weights = centred.exp()
    total = weights.sum(1, keepdim=True)
    p = weights / total
    mean = (p * centred).sum(1, keepdim=True)
    # The centred second moment is used, because E[x^2] - E[x]^2 cancels in flat distributions.
    std = (p * (centred - mean).square()).sum(1).sqrt()
    return total.squeeze(1).log(), mean.squeeze(1), std, p
