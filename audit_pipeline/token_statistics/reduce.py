"""From a position's logits to the handful of numbers that detectors need, in one sweep over the vocabulary.

What belongs here: the sweep, in float32, and bringing what it found from the device. What does not: the reductions
(of_logits.py, of_weights.py), where logits come from (head.py), running the model (forward.py).

The vocabulary is gone over in blocks. While a block is in the processor's cache, everything that is wanted of it is
taken; blocks are put together as parts of a mixture are: a block weighs what it holds of the probability, means and
variances are merged in the centred form (Chan, Golub and LeVeque 1983), which does not cancel where a
distribution is flat or sharp. So memory depends on the size of a block: full logits are never made.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from audit_pipeline.token_statistics.blocks import Block, Reduced, Scratch, Total, weigh
from audit_pipeline.token_statistics.head import Logits
from audit_pipeline.token_statistics.of_logits import OF_LOGITS, LogitStatistic, TargetLogprob
from audit_pipeline.token_statistics.of_weights import KEEPING, OF_WEIGHTS, WeighedBlockStatistic

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
    """
    step = scratch.rows_kept(logits.width) if KEEPING.intersection(wanted) else scratch.rows
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
    own = TargetLogprob(target)
    ofs: list[LogitStatistic] = [make(logits, target, own) for names, make in OF_LOGITS if wanted & names]
    weighed_by: list[WeighedBlockStatistic] = [
        make(logits, target, scratch) for names, make in OF_WEIGHTS if wanted & names
    ]
    total = Total.of_nothing(target)
    for begin in range(0, logits.width, scratch.columns):
        end = min(begin + scratch.columns, logits.width)
        values, room = (scratch.room(name, len(logits), end - begin) for name in ("logits", "softmax"))
        values = logits.block(begin, end, values)
        block = Block(begin, values, values.amax(1), room)
        for one in (own, *ofs):
            one.add(block)
        total, shares = total.with_block(block.largest, weigh(block))
        for weighed in weighed_by:
            weighed.add(block, shares)
    statistics: tuple[LogitStatistic | WeighedBlockStatistic, ...] = (own, *ofs, *weighed_by)
    return {name: values for one in statistics for name, values in one.columns(total).items()}
