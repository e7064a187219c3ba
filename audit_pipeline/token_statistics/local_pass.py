"""A model in this process: batches of windows through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

import torch

from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.tokens import EncodedText, IntArray, Window, iterate_batches

TOKEN_BUDGET = {"cpu": 512, "cuda": 32768}
"""Padded tokens of one batch."""


@dataclass(frozen=True)
class LoadCheck:
    """What the check at loading finds out of a model: see :class:`LocalPass`.

    ``split``: body and head run apart; ``onednn``: its linear layers are multiplied faster by oneDNN (layers.py);
    ``compiled``: its logits are reduced by compiled formulas (compiled_reductions.py). ``tokens_per_second`` is the
    rate of a GPU; None on a processor.
    """

    onednn: bool
    split: bool
    equal_lengths: bool
    packed: bool
    shared_prefix: bool
    compiled: bool = False
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class Task:
    """What is run of a batch of windows: their own statistics, their branches, or both; branches from cached modes."""

    own: bool
    branches: bool
    from_modes: bool


class LocalPass(ABC):
    """A model on this machine, ready to score windows.

    Sequences are padded on the right and no mask is passed: in a causal model no real token can see the padding after
    it, and the fast attention kernels stay in use. Where a model is not causal (or takes its positions from
    padding), the check at loading finds it out and ``equal_lengths`` says that only windows of one length share
    a batch. ``length_step`` is the length beyond which a model encodes positions otherwise (LongRoPE): windows on
    either side of it do not share a batch, since the padded length decides. ``packed`` says whether branches run as
    one packed pass over the keys and values of their text; where the check finds that this does not give what running
    each branch separately gives (or the model keeps no keys and values), each is run separately. ``shared_prefix`` says
    the same of texts after one prefix, whose keys and values are computed once. ``checked`` is the result of the check;
    ``device`` is where token ids are given to the model.
    """

    device: torch.device
    tokens_run: int
    branch_tokens_run: int
    length_step: int | None
    equal_lengths: bool
    packed: bool
    shared_prefix: bool
    checked: LoadCheck

    def _apply_load_check(self, checked: LoadCheck) -> None:
        """Run the model from now on as the check at loading says."""
        self.checked = checked
        self.equal_lengths, self.packed = checked.equal_lengths, checked.packed
        self.shared_prefix = checked.shared_prefix

    @property
    @abstractmethod
    def described(self) -> str:
        """Where the model is run, and how branches are, in words."""

    @property
    def on_this_machine(self) -> Self:
        """See Backend."""
        return self

    def pad_length(self, length: int) -> int:
        """The length that a batch is run with whose longest sequence has ``length`` tokens."""
        return length

    @abstractmethod
    def run_batch(
        self,
        encoded: Sequence[EncodedText],
        batch: Sequence[Window],
        task: Task,
        *,
        wanted: Collection[str],
        steps: int = 0,
        modes: Sequence[IntArray] | None = None,
        before: Sequence[int] = (),
    ) -> list[WindowResult]:
        """Run one batch of windows; ``encoded`` is the list that the windows' text numbers point into.

        See ForwardPass.run for ``wanted`` and ``before``, and ForwardPass.run_branches for ``steps`` and ``modes``.
        """

    def begin_batch(
        self, encoded: Sequence[EncodedText], batch: Sequence[Window], task: Task, **arguments: Any
    ) -> Callable[[], list[WindowResult]]:
        """As :meth:`run_batch`; what is returned gives the results, and waits for a device that is still at them."""
        done = self.run_batch(encoded, batch, task, **arguments)
        return lambda: done

    @abstractmethod
    def forget_prefix(self) -> None:
        """Free the keys and values of the last prefix; where they are asked for again, it is run again."""

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Run every window that wants something, and yield the results of each batch: see :class:`Backend`.

        The next batch is begun before those of the one before it are awaited, so that a device has always work.
        """
        before: Callable[[], Sequence[WindowResult]] | None = None
        with closing(self._begin_batches(work)) as batches:
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

    def _begin_batches(self, work: Work) -> Generator[Callable[[], Sequence[WindowResult]]]:
        """Begin every batch in turn; one that the device's memory does not hold is run in halves."""
        try:
            for task, batch in self._batch_by_task(work):
                waiting = [batch]
                while waiting:
                    part = waiting.pop()
                    try:
                        begun = self.begin_batch(
                            work.prepared.encoded,
                            part,
                            task,
                            wanted=work.wanted,
                            steps=work.steps,
                            modes=[_modes_of(work, window) for window in part] if task.from_modes else None,
                            before=work.before,
                        )
                    except torch.OutOfMemoryError:
                        if len(part) == 1:
                            raise
                        if work.before:
                            self.forget_prefix()
                        torch.cuda.empty_cache()
                        middle = len(part) // 2
                        waiting += [part[middle:], part[:middle]]
                    else:
                        yield begun
        finally:
            self.forget_prefix()

    def _batch_by_task(self, work: Work) -> Iterator[tuple[Task, Sequence[Window]]]:
        """Batches of windows that want the same."""
        groups: dict[Task, list[Window]] = {}
        prepared = work.prepared
        for window in prepared.windows:
            task = Task(
                prepared.wants_pass(window.text), prepared.wants_branches(window.text), window.text in work.modes
            )
            groups.setdefault(task, []).append(window)
        for task, windows in groups.items():
            yield from (
                (task, batch)
                for batch in iterate_batches(
                    windows,
                    TOKEN_BUDGET[self.device.type],
                    equal_lengths=self.equal_lengths,
                    length_step=self.length_step,
                    prefix_length=0 if self.shared_prefix else len(work.before),
                    pad_length=self.pad_length,
                )
            )


def _modes_of(work: Work, window: Window) -> IntArray:
    first = work.prepared.encoded[window.text].first_scored
    return work.modes[window.text][window.score_from - first : window.end - first]
