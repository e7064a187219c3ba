"""The reductions of reductions.py over whole rows of logits, compiled for a GPU.

The sweep writes every block several times, and a GPU waits for its memory meanwhile. torch.compile makes loops of the
formulas that read the logits as the head leaves them, and write nothing but the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.nn import functional

from audit_pipeline.tables import BEST_TOKENS, BETAS, P_FLOOR, TOPK_ENTRIES
from audit_pipeline.token_statistics.layer_tuning import set_recompile_limit
from audit_pipeline.token_statistics.reductions import join_reduced, sweep
from audit_pipeline.token_statistics.vocabulary_blocks import LOG_ZERO, Logits, Reduced, Scratch

# Logits that are in memory at once, and rows of them.
_MOST_LOGITS = 1 << 28
_MOST_ROWS = 4096
# What the sweep finds, because it is kept rather than reduced, or hangs on sorted rows.
_SWEPT = frozenset({"logits", "log_p_drawn"})

_Formulas = Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]


class CompiledReductions:
    """Reduces as :func:`sweep` does; each set of statistics is compiled when it is first wanted.

    ``rows`` is the number of positions that are reduced at once; None: as many as memory is set aside for.
    """

    def __init__(self, rows: int | None = None) -> None:
        set_recompile_limit()
        self._rows = rows
        self._compiled: dict[frozenset[str], _Formulas] = {}

    def __call__(self, logits: Logits, target: torch.Tensor, scratch: Scratch, wanted: Collection[str]) -> Reduced:
        """See :func:`sweep`. Raises RuntimeError where torch cannot compile on this machine."""
        swept = _SWEPT.intersection(wanted)
        names = frozenset(wanted) - swept
        if names not in self._compiled:
            self._compiled[names] = torch.compile(_build_formulas(names), dynamic=False)
        step = self._rows or min(_MOST_ROWS, _MOST_LOGITS // logits.width)
        pieces = []
        for begin in range(0, max(len(logits), 1), step):
            own = target[begin : begin + step]
            # Always the same number of rows, the last of them padding: another shape would be compiled anew.
            found = self._compiled[names](
                logits.part(begin, begin + step).whole(step), functional.pad(own, (0, step - len(own)))
            )
            pieces.append({name: values[: len(own)] for name, values in found.items()})
        return {**(sweep(logits, target, scratch, swept) if swept else {}), **join_reduced(pieces)}


def _build_formulas(wanted: frozenset[str]) -> _Formulas:
    """The formulas of the statistics ``wanted``, by the names and with the meaning that :func:`sweep` documents.

    They take logits [n, V] in any float dtype and targets [n].
    """

    def compute(logits: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        values = logits.float()
        largest = values.amax(1, keepdim=True).clamp(min=LOG_ZERO)
        own = values.gather(1, target.unsqueeze(1))
        centred = values.clamp(min=LOG_ZERO) - largest
        log_sum, mean, std, p = _compute_moments(centred)
        found = {"logprob": (own - largest).squeeze(1) - log_sum}
        if "mean" in wanted:
            found |= {"mean": mean - log_sum, "std": std}
        if "max_logprob" in wanted or "argmax_id" in wanted:
            found |= {"max_logprob": -log_sum, "argmax_id": logits.argmax(1).to(torch.int32)}
        if "rank" in wanted:
            found["rank"] = (values > own).sum(1).to(torch.int32)
        if "topk" in wanted:
            best = logits.topk(min(TOPK_ENTRIES, logits.shape[1]), dim=1)
            found["topk_id"] = best.indices.to(torch.int32)
            found["topk_logprob"] = best.values.float() - largest - log_sum.unsqueeze(1)
        if "log_mass_40" in wanted:
            best_values = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1).values.float()
            found["log_mass_40"] = (best_values - largest).exp().sum(1).log() - log_sum
        if "log_sum_p2" in wanted:
            found["log_sum_p2"] = p.square().sum(1).log()
        if "log_sum_sqrt_p" in wanted:
            found["log_sum_sqrt_p"] = p.clamp(min=P_FLOOR).sqrt().sum(1).log()
        if "log_sum_p_beta" in wanted:
            at = [(beta, _compute_moments(centred * beta)) for beta in BETAS]
            found["log_sum_p_beta"] = torch.stack([sums - beta * log_sum for beta, (sums, *_) in at], dim=1)
            found["mean_at_beta"] = torch.stack([mean - sums for _, (sums, mean, *_) in at], dim=1)
            found["std_at_beta"] = torch.stack([std for _, (_, _, std, _) in at], dim=1)
        return found

    return compute


def _compute_moments(centred: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of logits [n, V] less the row's largest: the log of the sum of exp(logit), mean and standard deviation of a logit
    under p, [n] each, and p [n, V].
    """
    weights = centred.exp()
    total = weights.sum(1, keepdim=True)
    p = weights / total
    mean = (p * centred).sum(1, keepdim=True)
    # The centred second moment: E[x^2] - E[x]^2 would cancel where the distribution is flat.
    std = (p * (centred - mean).square()).sum(1).sqrt()
    return total.squeeze(1).log(), mean.squeeze(1), std, p
