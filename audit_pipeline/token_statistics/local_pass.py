"""Batches of windows through a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import torch

from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.tokens import Window, iterate_batches

TOKEN_BUDGET = {"cpu": 512, "cuda": 32768}
"""Padded tokens of one batch."""

Begun = Callable[[], Sequence[WindowResult]]
"""A batch that was begun: returns its results, and waits for a device that is still at them."""


def run_in_batches(forward: Any, work: Work) -> Generator[Sequence[WindowResult]]:
    """Run every window that wants something, and yield the results of each batch: see :class:`Backend`.

    ``forward`` is the ForwardPass that calls this: its module imports this one, and cannot be imported here.

    The next batch is begun before the results of the one before it are awaited, so that a device always has work.
    """
    before: Begun | None = None
    with closing(_begin_batches(forward, work)) as batches:
        while True:
            try:
                begun = next(batches, None)
            except BaseException:
                if before is not None:
                    yield before()
                raise
            if before is not None:
                yield before()
            if begun is None:
                return
            before = begun


def _begin_batches(forward: Any, work: Work) -> Generator[Begun]:
    """Begin every batch in turn; one that the device's memory does not hold is run in halves."""
    encoded, wanted = work.prepared.encoded, work.wanted
    try:
        for wants_own, wants_branches, has_modes, batch in _batch_by_task(forward, work):
            waiting = [batch]
            while waiting:
                part = waiting.pop()
                modes = [work.modes_of(window) for window in part] if has_modes else None
                try:
                    if not wants_branches:
                        begun: Begun = forward.begin(encoded, part, wanted, before=work.before)
                    elif modes is not None and not wants_own:
                        begun = partial(list, forward.run_branches(encoded, part, modes, work.steps))
                    else:
                        results = forward.run_with_branches(encoded, part, work.steps, wanted, argmax=modes)
                        begun = partial(list, results)
                except torch.OutOfMemoryError:
                    if len(part) == 1:
                        raise
                    if work.before:
                        forward.forget_prefix()
                    torch.cuda.empty_cache()
                    middle = len(part) // 2
                    waiting += [part[middle:], part[:middle]]
                else:
                    yield begun
    finally:
        forward.forget_prefix()


def _batch_by_task(forward: Any, work: Work) -> Iterator[tuple[bool, bool, bool, Sequence[Window]]]:
    """Batches of windows that want the same: their own statistics, branches, and these from cached modes or not."""
    groups: dict[tuple[bool, bool, bool], list[Window]] = {}
    wants_pass, wants_branches = work.prepared.wants_pass, work.prepared.wants_branches
    for window in work.prepared.windows:
        task = wants_pass(window.text), wants_branches(window.text), window.text in work.modes
        groups.setdefault(task, []).append(window)
    for task, windows in groups.items():
        batches = iterate_batches(
            windows,
            TOKEN_BUDGET[forward.device.type],
            equal_lengths=forward.equal_lengths,
            length_step=forward.length_step,
            prefix_length=0 if forward.shared_prefix else len(work.before),
            pad_length=forward.pad_length,
        )
        yield from ((*task, batch) for batch in batches)
