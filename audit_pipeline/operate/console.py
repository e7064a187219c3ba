"""What the command line prints, and where.

What belongs here: standard output and error as commands use them, tables, the same as JSON, and keeping a terminal from
obeying what a file holds. What does not: what is said (cli/).
"""

from __future__ import annotations

import json
import math
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Protocol

import click
from rich.console import Console
from rich.table import Table

# No emoji codes: what is shown is other people's text, paths and SQL.
OUT = Console(emoji=False)
TELL = Console(stderr=True, emoji=False)
_NAMED_SKIPS = 5
_PATIENCE, _TOLD_EVERY = 2.0, 15.0

Row = Mapping[str, Any]
Columns = Sequence[tuple[str, str | Callable[[Row], object]]]

_document: ContextVar[dict[str, Any] | None] = ContextVar("document", default=None)
"""What a command that was asked for JSON has said so far."""


class SkippedRow(Protocol):
    """A row of a user's file that could not be used."""

    @property
    def location(self) -> str:
        """Where it stands."""

    @property
    def reason(self) -> str:
        """Why it could not be used."""


@contextmanager
def answering(*, as_json: bool) -> Iterator[None]:
    """What a command says on standard output within the block; ``as_json``: as one JSON document, at its end.

    Nothing else reaches standard output then: words that are no fact of the document go to standard error. Where an
    error ends the block, the document holds what was said before it, and is left out where that is nothing.
    """
    if not as_json:
        yield
        return
    document: dict[str, Any] = {}
    token = _document.set(document)
    finished = False
    try:
        yield
        finished = True
    finally:
        _document.reset(token)
        if finished or document:
            # Characters beyond ASCII escaped: a terminal obeys some of them, and not every pipe can take them.
            click.echo(json.dumps(_plain(document), indent=2, allow_nan=False))


def answers_in_json() -> bool:
    """Whether the command that runs was asked for a JSON document."""
    return _document.get() is not None


def say(words: str, **facts: object) -> None:
    """Words on standard output, as they are; or ``facts``, which hold the same, in the JSON document."""
    document = _document.get()
    if document is None:
        OUT.print(words, markup=False, highlight=False, soft_wrap=True)
    elif facts:
        _add(document, facts)
    elif words.strip():
        tell(words.strip())


def show_table(name: str, rows: Iterable[Row], columns: Columns) -> None:
    """``rows`` on standard output: as a table of ``columns``, or as they are under ``name`` in the JSON document.

    A column is its head and what it shows of a row: the value under a key, or what a function makes of the row.
    """
    rows = list(rows)
    document = _document.get()
    if document is not None:
        _add(document, {name: rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, _ in columns:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(shown(row[cell] if isinstance(cell, str) else cell(row)) for _, cell in columns))
    # A pipe has no width: nothing is folded there.
    console = OUT if OUT.is_terminal else Console(width=10_000, emoji=False)
    console.print(table, markup=False, highlight=False, crop=False)


def tell(words: str, style: str | None = None) -> None:
    """One line on standard error; what a file or a name holds is shown, never obeyed."""
    TELL.print(visible(words), style=style, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def telling_what_takes_long(doing: str) -> Iterator[Callable[[str], None]]:
    """A callback for what is being done now, in a few words, for a user who waits longer than two seconds.

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
    """``text`` with the codes spelled out that a terminal would obey; blanks of any width are blanks."""
    return "".join(one if _is_harmless(one) else repr(one)[1:-1] for one in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


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


def _add(document: dict[str, Any], facts: Mapping[str, object]) -> None:
    """Facts into the document; lists of one name are joined: a command may show the same table of several runs."""
    for name, value in facts.items():
        before = document.get(name)
        document[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def _plain(value: object) -> object:
    """``value`` as JSON can hold it: numbers as numbers, null for what is no number, all else as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Decimal) and value == value.to_integral_value():
        # A sum of whole numbers: as a float it would lose its last digits.
        return int(value)
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
