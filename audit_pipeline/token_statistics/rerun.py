"""Branches run anew, each a sequence of its own: for models that have no packed pass, and to check the packed one with.

What belongs here: which sequences, in which batches. What does not: tensors and running them (forward.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from audit_pipeline.token_statistics.branches import Branches, Ints


@dataclass(frozen=True, eq=False)
class Rerun:
    """One batch of branches with their prefixes: ids [branches, length], padded with 0 on the right.

    ``rows`` are the flat places of the logits along the branches; ``which`` says which of all branches' tokens stand
    there, in order.
    """

    ids: Ints
    rows: Ints
    which: Ints


def reruns(
    branches: Branches, whole: Ints, token_budget: int, *, equal: bool, length_step: int | None
) -> Iterator[Rerun]:
    """The branches in batches of at most ``token_budget`` padded tokens, longest first.

    ``whole`` are the lengths of the windows. ``equal``: only sequences of one length share a batch. ``length_step``:
    where a window is longer than that, its branches are padded to its length, since the model encodes positions by it.
    """
    lengths = branches.start + branches.length
    if length_step is not None:
        own = whole[branches.window]
        lengths = np.where(own > length_step, own, lengths)
    batch: list[int] = []
    for branch in np.argsort(-lengths, kind="stable").tolist():
        longest = int(lengths[batch[0]]) if batch else 0
        if batch and (
            (len(batch) + 1) * longest > token_budget
            or (equal and lengths[branch] != longest)
            or (length_step is not None and lengths[branch] <= length_step < longest)
        ):
            yield _rerun(branches, np.array(batch), longest)
            batch = []
        batch.append(branch)
    if batch:
        yield _rerun(branches, np.array(batch), int(lengths[batch[0]]))


def _rerun(branches: Branches, chosen: Ints, length: int) -> Rerun:
    start, count = branches.start[chosen], branches.length[chosen]
    place = np.arange(length)
    ids = branches.ids[branches.window[chosen], :length].copy()
    ids[np.arange(len(chosen)), start] = branches.replacement[chosen]
    ids[place >= (start + count)[:, None]] = 0
    along = (place >= start[:, None]) & (place < (start + count)[:, None])
    owner = np.repeat(np.arange(len(chosen)), count)
    step = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    return Rerun(ids, np.flatnonzero(along), branches.offsets[chosen][owner] + step)
