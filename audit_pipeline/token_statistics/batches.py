"""Batches of windows through a model in this process.

What belongs here: what a window wants run, batches that want the same, and halving one that a device has no room for.
What does not: which windows there are (prepare.py), what becomes of their statistics (rows.py), tensors (forward.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from audit_pipeline.token_statistics.backend import Done, WindowBranches, WindowStatistics, Work
from audit_pipeline.token_statistics.encode import IntArray
from audit_pipeline.token_statistics.windows import Window, batches

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass

TOKEN_BUDGET = {"cpu": 512, "cuda": 32768}
"""Padded tokens of one batch."""


@dataclass(frozen=True)
class Task:
    """What is run of a batch of windows: their own statistics, their branches, or both; branches from cached modes."""

    own: bool
    branches: bool
    from_modes: bool


def run_batches(forward: ForwardPass, work: Work) -> Generator[Sequence[Done]]:
    """Run every window that wants something, and yield what each batch left behind."""
    try:
        for task, batch in _tasks(forward, work):
            yield _halving(forward, work, task, batch)
    finally:
        forward.forget_prefix()


def _tasks(forward: ForwardPass, work: Work) -> Iterator[tuple[Task, Sequence[Window]]]:
    """Batches of windows that want the same."""
    groups: dict[Task, list[Window]] = {}
    prepared = work.prepared
    for window in prepared.windows:
        task = Task(prepared.wants_pass(window.text), prepared.wants_branches(window.text), window.text in work.modes)
        groups.setdefault(task, []).append(window)
    for task, windows in groups.items():
        yield from (
            (task, batch)
            for batch in batches(
                windows,
                work.token_budget or TOKEN_BUDGET[forward.device.type],
                equal_lengths=forward.equal_lengths,
                length_step=forward.length_step,
                before=0 if forward.shared_prefix else len(work.before),
            )
        )


def _halving(forward: ForwardPass, work: Work, task: Task, batch: Sequence[Window]) -> list[Done]:
    """Run a batch, in halves where the device's memory does not hold it."""
    try:
        return _run(forward, work, task, batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
        if work.before:
            forward.forget_prefix()
        torch.cuda.empty_cache()
    middle = len(batch) // 2
    return [one for half in (batch[:middle], batch[middle:]) for one in _halving(forward, work, task, half)]


def _run(forward: ForwardPass, work: Work, task: Task, batch: Sequence[Window]) -> list[Done]:
    encoded, steps, wanted = work.prepared.encoded, work.steps, work.wanted
    own: Sequence[WindowStatistics | None] = [None] * len(batch)
    branches: Sequence[WindowBranches | None] = [None] * len(batch)
    modes = [_modes_of(work, window) for window in batch] if task.from_modes else None
    if task.branches and (task.own or modes is None):
        own, branches = forward.run_with_branches(encoded, batch, steps, wanted, argmax=modes)
    elif modes is not None:
        branches = forward.run_branches(encoded, batch, modes, steps)
    else:
        own = forward.run(encoded, batch, wanted, before=work.before)
    return [Done(*parts) for parts in zip(batch, own, branches, strict=True)]


def _modes_of(work: Work, window: Window) -> IntArray:
    first = work.prepared.encoded[window.text].first_scored
    return work.modes[window.text][window.score_from - first : window.end - first]
