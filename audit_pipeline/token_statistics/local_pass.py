"""Runs of a model in this process: batches of windows, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from audit_pipeline.token_statistics import calibration
from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.tokens import Window, iterate_batches

# forward.py imports this module, so its class cannot be imported here.
ForwardPass = Any

Fetch = Callable[[], Sequence[WindowResult]]
"""Function that waits for the device and returns the results of a batch."""


@dataclass(frozen=True)
class _Task:
    """The results that are computed for a window.

    Attributes:
        needs_statistics: True if statistics of its text are missing.
        needs_branches: True if the branches of its text are missing.
        has_cached_modes: True if the argmax tokens from which its branches start are cached.
    """

    needs_statistics: bool
    needs_branches: bool
    has_cached_modes: bool


def run_in_batches(forward: ForwardPass, work: Work) -> Generator[Sequence[WindowResult]]:
    """Run all windows that miss results and yield the results of each batch. See :meth:`Backend.run_work`.

    A batch starts before the results of the previous batch are fetched, so that the device always has work.
    """
    previous: Fetch | None = None
    with closing(_start_batches(forward, work)) as batches:
        while True:
            try:
                fetch = next(batches, None)
            except BaseException:
                if previous is not None:
                    yield previous()
                raise
            if previous is not None:
                yield previous()
            if fetch is None:
                return
            previous = fetch


def _start_batches(forward: ForwardPass, work: Work) -> Generator[Fetch]:
    """Start all batches in turn. A batch that exceeds the memory of the device runs in halves."""
    try:
        for task, batch in _batch_by_task(forward, work):
            waiting = [batch]
            while waiting:
                part = waiting.pop()
                try:
                    fetch = _start_batch(forward, work, task, part)
                except torch.OutOfMemoryError:
                    if len(part) == 1:
                        raise
                    if work.before:
                        forward.forget_prefix()
                    torch.cuda.empty_cache()
                    middle = len(part) // 2
                    waiting += [part[middle:], part[:middle]]
                else:
                    yield fetch
    finally:
        forward.forget_prefix()


def _start_batch(forward: ForwardPass, work: Work, task: _Task, batch: Sequence[Window]) -> Fetch:
    encoded = work.prepared.encoded
    if not task.needs_branches:
        fetch: Fetch = forward.begin(encoded, batch, work.wanted, before=work.before)
        return fetch
    modes = None
    if task.has_cached_modes:
        modes = [work.modes_of(window) for window in batch]
    if modes is not None and not task.needs_statistics:
        return partial(list, forward.run_branches(encoded, batch, modes, work.steps))
    return partial(list, forward.run_with_branches(encoded, batch, work.steps, work.wanted, argmax=modes))


def _batch_by_task(forward: ForwardPass, work: Work) -> Iterator[tuple[_Task, Sequence[Window]]]:
    """Yield batches of windows with equal tasks."""
    prepared = work.prepared
    windows_by_task: dict[_Task, list[Window]] = {}
    for window in prepared.windows:
        text = window.text
        task = _Task(prepared.wants_pass(text), prepared.wants_branches(text), text in work.modes)
        windows_by_task.setdefault(task, []).append(window)
    for task, windows in windows_by_task.items():
        batches = iterate_batches(
            windows,
            calibration.TOKEN_BUDGET[forward.device.type],
            min_tokens=forward.min_batch_tokens,
            equal_lengths=forward.equal_lengths,
            length_step=forward.length_step,
            prefix_length=0 if forward.shared_prefix else len(work.before),
            pad_length=forward.pad_length,
        )
        for batch in batches:
            yield task, batch
