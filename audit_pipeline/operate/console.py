"""What the command line prints, and where.

What belongs here: standard output and error as commands use them, tables, the same as JSON, the step that a command is
at, and keeping a terminal from obeying what a file holds. What does not: what is said (cli/), bars (progress.py).

Results go to standard output, all else to standard error. Only a terminal is drawn on, and coloured where NO_COLOR is
not set; a pipe gets plain lines.
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
from rich.live import Live
from rich.table import Table
from rich.text import Text

from audit_pipeline.report.number_format import format_waiting_time

# No emoji codes: what is shown is other people's text, paths and SQL.
OUT = Console(emoji=False)
TELL = Console(stderr=True, emoji=False)
_NAMED_SKIPS = 5
_PATIENCE, _TOLD_EVERY = 2.0, 15.0
_TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

Row = Mapping[str, Any]
Cell = str | Callable[[Row], object]
Columns = Sequence[tuple[str, Cell] | tuple[str, Cell, Callable[[Any], str]]]

_document: ContextVar[dict[str, Any] | None] = ContextVar("document", default=None)
"""What a command that was asked for JSON has said so far."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether the command was asked to tell no steps and no progress."""


class SkippedRow(Protocol):
    """A row of a user's file that could not be used."""

    @property
    def location(self) -> str:
        """Its position."""

    @property
    def reason(self) -> str:
        """Why it could not be used."""


@contextmanager
def collect_output(*, as_json: bool) -> Iterator[None]:
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
        end_step()
        if finished or document:
            # Characters beyond ASCII escaped: a terminal obeys some of them, and not every pipe can take them.
            click.echo(json.dumps(to_json_value(document), indent=2, allow_nan=False))


@contextmanager
def quietly() -> Iterator[None]:
    """Within the block no steps and no progress are told; warnings, errors and results are."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether the command that runs was asked to tell no steps and no progress."""
    return _quiet.get()


def can_draw_progress() -> bool:
    """Whether standard error is a terminal that can be drawn on, and the user wants to see progress there."""
    # A notebook counts as a terminal, and would want widgets.
    return TELL.is_terminal and not (TELL.is_dumb_terminal or TELL.is_jupyter or is_quiet())


def is_json_output() -> bool:
    """Whether the command that runs was asked for a JSON document."""
    return _document.get() is not None


def say(words: str, **facts: object) -> None:
    """Words on standard output, as they are; or ``facts``, which hold the same, in the JSON document."""
    document = _document.get()
    if document is None:
        end_step()
        OUT.print(words, markup=False, highlight=False, soft_wrap=True)
    elif facts:
        _add(document, facts)
    elif words.strip():
        tell_unless_quiet(words.strip())


def show_table(name: str, rows: Iterable[Row], columns: Columns) -> None:
    """``rows`` on standard output: as a table of ``columns``, or as they are under ``name`` in the JSON document.

    A column is its head, what it shows of a row (the value under a key, or what a function makes of the row), and how
    that is written where it is not as :func:`format_cell_value` writes it.
    """
    rows = list(rows)
    document = _document.get()
    if document is not None:
        _add(document, {name: rows})
        return
    end_step()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column[0], overflow="fold")
    for row in rows:
        table.add_row(*(format_cell(row, *column[1:]) for column in columns))
    # A pipe has no width: nothing is folded there.
    console = OUT if OUT.is_terminal else Console(width=10_000, emoji=False)
    console.print(table, markup=False, highlight=False, crop=False)


def format_cell(row: Row, cell: Cell, formatter: Callable[[Any], str] | None = None) -> str:
    """What a column shows of a row."""
    value = row[cell] if isinstance(cell, str) else cell(row)
    return format_cell_value(value) if formatter is None else formatter(value)


def tell(words: str, style: str | None = None) -> None:
    """One line on standard error; what a file or a name holds is shown, never obeyed."""
    TELL.print(escape_control_characters(words), style=style, markup=False, highlight=False, soft_wrap=True)


def tell_unless_quiet(words: str) -> None:
    """As :func:`tell`, what a user may want to know and who asked for quiet does not."""
    if not is_quiet():
        tell(words)


class _Step:
    """What is being done: on a terminal a line with the seconds that it has taken, below all that is told, from two
    seconds on; where that is not drawn, how far it is, now and then."""

    def __init__(self, doing: str | None = None) -> None:
        self._doing = doing
        self._how_far = ""
        self._began = time.monotonic()
        self._told = self._began - _TOLD_EVERY + _PATIENCE
        # Standard output stays what it is: it may be a document, or another terminal.
        self._live = Live(
            console=TELL,
            get_renderable=self._line,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.draw()

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self._began

    def draw(self) -> None:
        """Show the line, where there is a terminal and nothing else is drawn there."""
        if can_draw_progress() and not _drawn_instead:
            self._live.start()

    def undraw(self) -> None:
        """Take the line away."""
        self._live.stop()

    def show(self, status: str) -> None:
        """How far it is, in a few words."""
        self._how_far = escape_control_characters(status)
        if not self._live.is_started and not is_quiet() and time.monotonic() - self._told >= _TOLD_EVERY:
            self._told = time.monotonic()
            tell(f"  {status}" if self._doing is None else f"• {self._doing} {status}")

    def _line(self) -> Text:
        if self.seconds < _PATIENCE:
            return Text("", end="")
        said = [format_waiting_time(self.seconds), " ".join(filter(None, (self._doing, self._how_far)))]
        turn = _TURNS[int(8 * self.seconds) % len(_TURNS)]
        return Text(f"{turn} {', '.join(filter(None, said))}", no_wrap=True, overflow="ellipsis")


_now: list[_Step] = []
"""The step that the command is at; none, or one."""
_drawn_instead: list[None] = []
"""What is drawn at the place of the step's line: a terminal has one place that is drawn on again and again."""


def tell_step(step: str) -> None:
    """One step of a longer piece of work, on standard error; it lasts until the next one, or until something is said.

    On a terminal its seconds are shown while it lasts and, where it took more than two, afterwards.
    """
    end_step()
    if is_quiet():
        return
    tell(f"• {step}")
    _now.append(_Step())


def tell_progress(status: str) -> None:
    """How far the step is that was told last; nothing where none was, as in a process of Dagster's."""
    for step in _now:
        step.show(status)


def end_step() -> None:
    """The step that was told last, if any, is over."""
    while _now:
        step = _now.pop()
        step.undraw()
        if can_draw_progress() and step.seconds >= _PATIENCE:
            TELL.print(Text(f"  {format_waiting_time(step.seconds)}", style="dim"))


@contextmanager
def replace_step_line() -> Iterator[None]:
    """Within the block something else is drawn at the place of the step's line."""
    for step in _now:
        step.undraw()
    _drawn_instead.append(None)
    try:
        yield
    finally:
        _drawn_instead.pop()
        for step in _now:
            step.draw()


@contextmanager
def report_slow_work(activity: str) -> Iterator[Callable[[str], None]]:
    """A callback for what is being done now, in a few words, for a user who waits longer than two seconds.

    On a terminal a line on standard error that is gone in the end; else a line there now and then.
    """
    end_step()
    step = _Step(activity)
    try:
        yield step.show
    finally:
        step.undraw()


def escape_control_characters(text: str) -> str:
    """``text`` with the codes spelled out that a terminal would obey; blanks of any width are blanks."""
    return "".join(one if _is_harmless(one) else repr(one)[1:-1] for one in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


def format_cell_value(value: object) -> str:
    """A cell of a table of results."""
    if value is None:
        return ""
    return f"{value:z.4g}" if isinstance(value, float) else escape_control_characters(str(value))


def tell_skipped(skipped_rows: Sequence[SkippedRow], total: int | None = None, what: str = "row(s)") -> None:
    """The first rows that were skipped; ``total``: how many there are, where ``skipped_rows`` are not all of them."""
    total = len(skipped_rows) if total is None else total
    if not total:
        return
    tell(f"{total} {what} skipped:")
    for row in skipped_rows[:_NAMED_SKIPS]:
        tell(f"  {row.location}: {row.reason}")
    if total > _NAMED_SKIPS:
        tell(f"  and {total - _NAMED_SKIPS} more")


def _add(document: dict[str, Any], facts: Mapping[str, object]) -> None:
    """Facts into the document; lists of one name are joined: a command may show the same table of several runs."""
    for name, value in facts.items():
        before = document.get(name)
        document[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def to_json_value(value: object) -> object:
    """``value`` as JSON can hold it, with nothing lost: a number that JSON has no word for as the text "Infinity",
    "-Infinity" or "NaN", a decimal that no float holds as the text of its digits, bytes in hexadecimal, all else as its
    text."""
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return _number_to_json(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _number_to_json(value: float | Decimal) -> object:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    # Numbers of NumPy are floats, too, and written otherwise.
    number = float(value)
    return number if isinstance(value, float) or Decimal(repr(number)) == value else str(value)
