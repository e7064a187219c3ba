"""Progress for people: a line for a log, a bar for a terminal.

Everything goes to standard error. A bar is drawn on a terminal only; elsewhere lines come now and then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from audit_pipeline.pipeline.console import LINE_SECONDS, STDERR, can_draw_progress, print_unless_quiet, show_progress
from audit_pipeline.scoring.file_progress import FileProgress
from audit_pipeline.token_statistics.run import Progress

AnyProgress = Progress | FileProgress


def format_progress(progress: AnyProgress) -> str:
    """Progress in one line: of a pass its phase, texts and tokens a second, of a file its texts."""
    texts = f"{_format_phase(progress)}{_format_texts(progress)}"
    return f"{texts}, {progress.tokens_per_second:,.0f} tokens/s" if isinstance(progress, Progress) else texts


def _format_phase(progress: AnyProgress) -> str:
    phase = progress.phase if isinstance(progress, Progress) else None
    return f"step {phase.step} of {phase.steps}, {phase.name}: " if phase is not None and phase.steps > 1 else ""


def _format_texts(progress: AnyProgress) -> str:
    about = "about " if isinstance(progress, FileProgress) and progress.estimated else ""
    return f"{progress.texts_done:,} of {about}{progress.texts_total:,} texts"


def progress_logger(log: logging.Logger) -> Callable[[str], None]:
    """A progress callback of a run's step: to the run's log, and to a terminal if any."""

    def report(words: str) -> None:
        log.info(words)
        show_progress(words)

    return report


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[AnyProgress], None]]:
    """A callback that moves a bar, of tokens for the passes of a model and of texts for a file.

    It is shown from the first progress on: where everything is cached, nothing is drawn.
    """
    if not can_draw_progress():
        with _print_progress_lines(label) as show:
            yield show
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[words]}", markup=False),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=STDERR)
    task = bar.add_task(label, total=None, words="")

    def move(progress: AnyProgress) -> None:
        done, total = (
            (progress.tokens_done, progress.tokens_total)
            if isinstance(progress, Progress)
            else (progress.texts_done, progress.texts_total)
        )
        description = _format_phase(progress).removesuffix(": ") or label
        bar.update(task, completed=done, total=total, description=description, words=_format_texts(progress))
        bar.start()

    try:
        yield move
    finally:
        bar.stop()


@contextmanager
def _print_progress_lines(label: str) -> Iterator[Callable[[AnyProgress], None]]:
    """The first progress, one now and then, and the last."""
    printed_at, printed, latest = float("-inf"), "", ""

    def show(progress: AnyProgress) -> None:
        nonlocal printed_at, printed, latest
        latest = f"{label}: {format_progress(progress)}"
        if time.monotonic() - printed_at >= LINE_SECONDS:
            print_unless_quiet(latest)
            printed_at, printed = time.monotonic(), latest

    try:
        yield show
    finally:
        if latest != printed:
            print_unless_quiet(latest)
