"""What the command line prints, and where.

What belongs here: standard output and error as commands use them, tables, and keeping a terminal from obeying what a
file holds. What does not: what is said (cli/).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.table import Table

# No emoji codes: what is shown is other people's text, paths and SQL.
OUT = Console(emoji=False)
TELL = Console(stderr=True, emoji=False)
_NAMED_SKIPS = 5
_PATIENCE, _TOLD_EVERY = 2.0, 15.0


class SkippedRow(Protocol):
    """A row of a user's file that could not be used."""

    @property
    def location(self) -> str:
        """Where it stands."""

    @property
    def reason(self) -> str:
        """Why it could not be used."""


def say(words: str) -> None:
    """Words on standard output, as they are."""
    OUT.print(words, markup=False, highlight=False, soft_wrap=True)


def tell(words: str, style: str | None = None) -> None:
    """One line on standard error; what a file or a name holds is shown, never obeyed."""
    TELL.print(visible(words), style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def telling_what_takes_long(doing: str) -> Iterator[Callable[[str], None]]:
    """A callback that is told what is being done now, in a few words, for whoever waits longer than two seconds.

    On a terminal a line on standard error that is gone in the end; else a line there now and then.
    """
    if TELL.is_terminal:
        with TELL.status(doing) as status:
            yield lambda what: status.update(visible(f"{doing} {what}"))
        return
    told = time.monotonic() - _TOLD_EVERY + _PATIENCE

    def tell_now_and_then(what: str) -> None:
        nonlocal told
        if time.monotonic() - told >= _TOLD_EVERY:
            told = time.monotonic()
            tell(f"• {doing} {what}")

    yield tell_now_and_then


def visible(text: str) -> str:
    """``text`` with the codes spelled out that a terminal would obey."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def new_table(*columns: str) -> Table:
    """An empty table with these heads."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """The table on standard output."""
    # A pipe has no width: nothing is folded there.
    console = OUT if OUT.is_terminal else Console(width=10_000, emoji=False)
    console.print(table, markup=False, highlight=False, crop=False)


def shown(value: object) -> str:
    """A cell of a table of results."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def tell_skipped(skipped: Sequence[SkippedRow], total: int | None = None) -> None:
    """The first rows that were skipped; ``total``: how many there are, where ``skipped`` are not all of them."""
    total = len(skipped) if total is None else total
    if not total:
        return
    tell(f"{total} row(s) skipped:")
    for row in skipped[:_NAMED_SKIPS]:
        tell(f"  {row.location}: {row.reason}")
    if total > _NAMED_SKIPS:
        tell(f"  and {total - _NAMED_SKIPS} more")
