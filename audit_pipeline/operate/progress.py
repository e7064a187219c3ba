"""Progress for people: a line for a log, a bar for a terminal.

What belongs here: showing progress. What does not: measuring it (token_statistics/run.py, scoring/file_progress.py).

Everything goes to standard error. A bar is drawn on a terminal only; elsewhere lines come now and then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from audit_pipeline.operate.console import TELL, can_draw_progress, replace_step_line, tell_progress, tell_unless_quiet
from audit_pipeline.report.number_format import format_waiting_time
from audit_pipeline.scoring.file_progress import FileProgress
from audit_pipeline.token_statistics.run import Progress

AnyProgress = TypeVar("AnyProgress", Progress, FileProgress)

_LINE_SECONDS = 15.0


def describe(progress: Progress) -> str:
    """Progress in one line: the phase, texts, tokens a second, the time left in all."""
    tokens = f"{progress.tokens_per_second:,.0f} tokens/s"
    return (
        f"{_describe_phase(progress)}{progress.texts_done:,} of {progress.texts_total:,} texts, {tokens}, "
        f"{_describe_time_left(progress)}"
    )


def _describe_phase(progress: Progress) -> str:
    phase = progress.phase
    return f"step {phase.step} of {phase.steps}, {phase.name}: " if phase is not None and phase.steps > 1 else ""


def _describe_time_left(progress: Progress) -> str:
    left = progress.seconds_left
    is_last = progress.phase is None or progress.phase.later == 0
    if progress.tokens_done == progress.tokens_total and is_last:
        return "done"
    return "starting" if left is None else f"{format_waiting_time(left)} left{'' if is_last else ' in all'}"


def describe_file(progress: FileProgress) -> str:
    """How far a file is in one line: texts, tokens, tokens a second, the time left."""
    if progress.texts_done == progress.texts_total:
        ending = "done"
    else:
        ending = (
            "starting" if progress.seconds_left is None else f"about {format_waiting_time(progress.seconds_left)} left"
        )
    return f"{_format_texts(progress)}, {_format_tokens(progress)}, {ending}"


def progress_logger(log: logging.Logger) -> Callable[[str], None]:
    """A progress callback of a run's step: to the run's log, and to a terminal where there is one."""

    def tell(words: str) -> None:
        log.info(words)
        tell_progress(words)

    return tell


def _format_texts(progress: FileProgress) -> str:
    return f"{progress.texts_done:,} of {_estimate_prefix(progress)}{progress.texts_total:,} texts"


def _format_tokens(progress: FileProgress) -> str:
    if not progress.tokens_total:
        return "from the cache"
    tokens = f"{progress.tokens_done:,} of {_estimate_prefix(progress)}{progress.tokens_total:,} tokens"
    return f"{tokens}, {progress.tokens_per_second:,.0f} tokens/s"


def _estimate_prefix(progress: FileProgress) -> str:
    return "about " if progress.estimated else ""


def terminal_bar(label: str) -> AbstractContextManager[Callable[[Progress], None]]:
    """A bar of tokens for the passes of a model, shown from the first progress told; the callback moves it."""
    columns = (TextColumn("{task.fields[words]}", markup=False),)

    def moved(progress: Progress) -> dict[str, Any]:
        return {
            "completed": progress.tokens_done,
            "total": progress.tokens_total,
            "words": f"{progress.texts_done:,} of {progress.texts_total:,}, {_describe_time_left(progress)}",
            "description": _describe_phase(progress).removesuffix(": ") or label,
        }

    return _draw_bar(label, columns, moved) if can_draw_progress() else _print_progress_lines(label, describe)


@contextmanager
def file_bar(label: str) -> Iterator[Callable[[FileProgress], None]]:
    """A bar of texts for a file, shown from the first progress told; the callback moves it."""
    columns = (TextColumn("{task.fields[words]},", markup=False), TimeRemainingColumn(), TextColumn("left"))
    told = False

    def moved(progress: FileProgress) -> dict[str, Any]:
        rate = f"{progress.tokens_per_second:,.0f} tokens/s" if progress.tokens_total else "from the cache"
        words = f"{_format_texts(progress)}, {rate}"
        return {"completed": progress.texts_done, "total": progress.texts_total, "words": words}

    with (
        _draw_bar(label, columns, moved) if can_draw_progress() else _print_progress_lines(label, describe_file) as show
    ):

        def show_file(progress: FileProgress) -> None:
            nonlocal told
            if not told and can_draw_progress() and (progress.seconds_left or 0) > _LINE_SECONDS:
                # Once in full: a bar has no room for all that the first batch tells.
                tell_unless_quiet(f"{label}: {describe_file(progress)}")
            told = True
            show(progress)

        yield show_file


@contextmanager
def _draw_bar(
    label: str, columns: tuple[ProgressColumn, ...], fields_of: Callable[[AnyProgress], dict[str, Any]]
) -> Iterator[Callable[[AnyProgress], None]]:
    name = TextColumn("{task.description}", markup=False)
    bar = Bar(name, BarColumn(bar_width=16), *columns, console=TELL)
    task = bar.add_task(label, total=None, words="")

    with ExitStack() as drawn:

        def show(progress: AnyProgress) -> None:
            bar.update(task, **fields_of(progress))
            # Started by the first progress: where everything is cached, nothing is drawn.
            if not bar.live.is_started:
                drawn.enter_context(replace_step_line())
                drawn.callback(bar.stop)
                bar.start()

        yield show


@contextmanager
def _print_progress_lines(
    label: str, formatter: Callable[[AnyProgress], str]
) -> Iterator[Callable[[AnyProgress], None]]:
    """The first progress, one now and then, and the last."""
    told_at, told, latest = float("-inf"), "", ""

    def show(progress: AnyProgress) -> None:
        nonlocal told_at, told, latest
        latest = f"{label}: {formatter(progress)}"
        if time.monotonic() - told_at >= _LINE_SECONDS:
            tell_unless_quiet(latest)
            told_at, told = time.monotonic(), latest

    try:
        yield show
    finally:
        if latest != told:
            tell_unless_quiet(latest)
