"""Progress messages on standard error: a bar on a terminal, and lines at intervals elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from audit_pipeline.pipeline.console import LINE_SECONDS, STDERR, can_draw_progress, print_unless_quiet, show_progress
from audit_pipeline.token_statistics.run import Progress

if TYPE_CHECKING:
    from audit_pipeline.scoring.file import FileProgress

AnyProgress: TypeAlias = "Progress | FileProgress"


def format_progress(progress: AnyProgress) -> str:
    """Format progress as one line: the phase, texts and tokens per second of a pass, or the texts of a file."""
    texts = f"{_format_phase(progress)}{_format_texts(progress)}"
    return f"{texts}, {progress.tokens_per_second:,.0f} tokens/s" if isinstance(progress, Progress) else texts


def _format_phase(progress: AnyProgress) -> str:
    phase = progress.phase if isinstance(progress, Progress) else None
    if phase is None or phase.steps <= 1:
        return ""
    return f"step {phase.step} of {phase.steps}, {phase.name}: "


def _format_texts(progress: AnyProgress) -> str:
    about = "about " if not isinstance(progress, Progress) and progress.estimated else ""
    return f"{progress.texts_done:,} of {about}{progress.texts_total:,} texts"


def progress_logger(log: logging.Logger) -> Callable[[str], None]:
    """Return a progress callback that writes a line to the log of a run, and to a terminal if there is one."""

    def report(line: str) -> None:
        log.info(line)
        show_progress(line)

    return report


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[AnyProgress], None]]:
    """Show a progress bar within the block, or lines of text if it cannot be drawn.

    The bar appears with the first progress, so nothing is drawn if all texts are cached. It counts tokens for passes of
    a model, and texts for a file. Yields the callback that receives the progress.
    """
    if not can_draw_progress():
        with _print_progress_lines(label) as show:
            yield show
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[texts]}", markup=False),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=STDERR)
    task = bar.add_task(label, total=None, texts="")

    def move(progress: AnyProgress) -> None:
        if isinstance(progress, Progress):
            bar.update(task, completed=progress.tokens_done, total=progress.tokens_total)
        else:
            bar.update(task, completed=progress.texts_done, total=progress.texts_total)
        description = _format_phase(progress).removesuffix(": ") or label
        bar.update(task, description=description, texts=_format_texts(progress))
        bar.start()

    try:
        yield move
    finally:
        bar.stop()


@contextmanager
def _print_progress_lines(label: str) -> Iterator[Callable[[AnyProgress], None]]:
    """Yield a callback that prints progress: the first, one line every LINE_SECONDS, and the last at the end."""
    printed_at = float("-inf")
    printed = ""
    latest = ""

    def show(progress: AnyProgress) -> None:
        nonlocal printed_at, printed, latest
        latest = f"{label}: {format_progress(progress)}"
        if time.monotonic() - printed_at >= LINE_SECONDS:
            print_unless_quiet(latest)
            printed_at = time.monotonic()
            printed = latest

    try:
        yield show
    finally:
        if latest != printed:
            print_unless_quiet(latest)
