"""Branches run anew, each a sequence of its own: for models that have no packed pass, and to check the packed one with.

What belongs here: which sequences, in which batches. What does not: tensors and running them (forward.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.token_statistics.branches import Branch


@dataclass(frozen=True, eq=False)
class Rerun:
    """One batch of branches with their prefixes: ids [branches, length], padded with 0 on the right.

    ``rows`` are the flat places of the logits along the branches, ``targets`` the tokens that they predict: [tokens of
    all branches], in order.
    """

    branches: Sequence[Branch]
    ids: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]


def reruns(
    branches: Sequence[Branch],
    windows: npt.NDArray[np.int64],
    whole: Sequence[int],
    token_budget: int,
    *,
    equal: bool,
    length_step: int | None,
) -> Iterator[Rerun]:
    """The branches in batches of at most ``token_budget`` padded tokens, longest first.

    ``windows`` [windows, length] are the token ids of the branches' windows and ``whole`` their lengths. ``equal``:
    only sequences of one length share a batch. ``length_step``: where a window is longer than that, its branches are
    padded to its length, since the model encodes positions by it.
    """

    def length(branch: Branch) -> int:
        if length_step is not None and whole[branch.window] > length_step:
            return whole[branch.window]
        return branch.start + len(branch.tokens)

    batch: list[Branch] = []
    for branch in sorted(branches, key=lambda branch: (-length(branch), branch.window, branch.start)):
        longest = length(batch[0]) if batch else 0
        if batch and (
            (len(batch) + 1) * longest > token_budget
            or (equal and length(branch) != longest)
            or (length_step is not None and length(branch) <= length_step < longest)
        ):
            yield _rerun(batch, windows, longest)
            batch = []
        batch.append(branch)
    if batch:
        yield _rerun(batch, windows, length(batch[0]))


def _rerun(branches: Sequence[Branch], windows: npt.NDArray[np.int64], length: int) -> Rerun:
    ids = np.zeros((len(branches), length), dtype=np.int64)
    rows = []
    for number, branch in enumerate(branches):
        end = branch.start + len(branch.tokens)
        ids[number, : branch.start] = windows[branch.window, : branch.start]
        ids[number, branch.start : end] = branch.tokens
        rows.append(np.arange(number * length + branch.start, number * length + end))
    targets = np.concatenate([branch.targets for branch in branches]).astype(np.int64)
    return Rerun(list(branches), ids, np.concatenate(rows), targets)
