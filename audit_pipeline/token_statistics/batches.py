"""Batches of windows through the model.

What belongs here: what a window wants run, batches that want the same, and halving one that a device has no room for.
What does not: which windows there are (prepare.py), what becomes of their statistics (rows.py), tensors (forward.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from audit_pipeline.token_statistics.encode import EncodedText, IntArray
from audit_pipeline.token_statistics.forward import ForwardPass, WindowBranches, WindowStatistics
from audit_pipeline.token_statistics.prepare import Prepared
from audit_pipeline.token_statistics.windows import Window, batches


@dataclass(frozen=True)
class Task:
    """What is run of a batch of windows: their own statistics, their branches, or both; branches from cached modes."""

    own: bool
    branches: bool
    from_modes: bool


@dataclass(frozen=True)
class Done:
    """What one window left behind."""

    window: Window
    statistics: WindowStatistics | None
    branches: WindowBranches | None


@dataclass(frozen=True)
class Job:
    """What all batches of a run have in common; ``modes`` are the cached argmax tokens, by text number.

    ``wanted`` names the statistics of a text's own pass that are kept. ``before`` are the tokens in front of all texts.
    """

    forward: ForwardPass
    encoded: Sequence[EncodedText]
    modes: Mapping[int, IntArray]
    steps: int
    wanted: Collection[str]
    before: Sequence[int] = ()

    def run(self, task: Task, batch: Sequence[Window]) -> list[Done]:
        own: Sequence[WindowStatistics | None] = [None] * len(batch)
        branches: Sequence[WindowBranches | None] = [None] * len(batch)
        modes = [self._modes_of(window) for window in batch] if task.from_modes else None
        if task.branches and (task.own or modes is None):
            own, branches = self.forward.run_with_branches(self.encoded, batch, self.steps, self.wanted, argmax=modes)
        elif modes is not None:
            branches = self.forward.run_branches(self.encoded, batch, modes, self.steps)
        else:
            own = self.forward.run(self.encoded, batch, self.wanted, before=self.before)
        return [Done(*parts) for parts in zip(batch, own, branches, strict=True)]

    def _modes_of(self, window: Window) -> IntArray:
        first = self.encoded[window.text].first_scored
        return self.modes[window.text][window.score_from - first : window.end - first]


def run_batches(job: Job, prepared: Prepared, token_budget: int) -> Iterator[Sequence[Done]]:
    """Run every window that wants something, and yield what each batch left behind."""
    for task, batch in _tasks(job, prepared, token_budget):
        yield _halving(job, task, batch)


def _tasks(job: Job, prepared: Prepared, token_budget: int) -> Iterator[tuple[Task, Sequence[Window]]]:
    """Batches of windows that want the same."""
    groups: dict[Task, list[Window]] = {}
    for window in prepared.windows:
        task = Task(prepared.wants_pass(window.text), prepared.wants_branches(window.text), window.text in job.modes)
        groups.setdefault(task, []).append(window)
    forward = job.forward
    for task, windows in groups.items():
        yield from (
            (task, batch)
            for batch in batches(
                windows,
                token_budget,
                equal_lengths=forward.equal_lengths,
                length_step=forward.length_step,
                before=0 if forward.shared_prefix else len(job.before),
            )
        )


def _halving(job: Job, task: Task, batch: Sequence[Window]) -> list[Done]:
    """Run a batch, in halves where the device's memory does not hold it."""
    try:
        return job.run(task, batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
        if job.before:
            job.forward.forget_prefix()
        torch.cuda.empty_cache()
    middle = len(batch) // 2
    return [one for half in (batch[:middle], batch[middle:]) for one in _halving(job, task, half)]
