"""Progress for people: a line for a log, a bar for a terminal.

What belongs here: showing progress. What does not: measuring it (token_statistics/run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from audit_pipeline.token_statistics.run import Progress


def describe(progress: Progress) -> str:
    """Progress in one line: texts, tokens, tokens a second, seconds left."""
    left = progress.seconds_left
    if progress.tokens_done == progress.tokens_total:
        ending = "done"
    else:
        ending = f"{left:,.0f} s left" if left is not None else "starting"
    return (
        f"{progress.texts_done}/{progress.texts_total} texts, "
        f"{progress.tokens_done:,}/{progress.tokens_total:,} tokens, "
        f"{progress.tokens_per_second:,.0f} tokens/s, {ending}"
    )


@contextmanager
def terminal_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error, shown from the first progress told; the callback moves it."""
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tokens, {task.fields[rate]:,.0f}/s,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
    )
    task = bar.add_task(what, total=None, rate=0.0)

    def tell(progress: Progress) -> None:
        # Started by the first progress: where everything is cached, nothing is drawn.
        bar.start()
        bar.update(task, total=progress.tokens_total, completed=progress.tokens_done, rate=progress.tokens_per_second)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
