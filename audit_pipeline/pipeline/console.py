"""What the command line prints, and where.

Results go to standard output, all else to standard error. Only a terminal is drawn on, and coloured where NO_COLOR is
not set; a pipe gets plain lines.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from audit_pipeline.errors import escape_unprintable

if TYPE_CHECKING:
    from audit_pipeline.readers.text_rows import Skipped

# No emoji codes: what is shown is other people's text, paths and SQL.
STDOUT = Console(emoji=False)
STDERR = Console(stderr=True, emoji=False)
LINE_SECONDS = 15.0
"""Where no bar is drawn, a line of progress comes at most so often."""
_NAMED_SKIPS = 5

Row = Mapping[str, Any]
Cell = str | Callable[[Row], object]
Columns = Sequence[tuple[str, Cell] | tuple[str, Cell, Callable[[Any], str]]]
Layout = Callable[[Sequence[str], Sequence[Sequence[str]], str | None], str]
"""What writes a table out of its heads, the cells of its rows, and its caption, if any."""

_document: ContextVar[dict[str, Any] | None] = ContextVar("document", default=None)
"""What a command that was asked for JSON has said so far."""
_layout: ContextVar[Layout | None] = ContextVar("layout", default=None)
"""How tables are printed, where the command was asked for tables alone."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether the command was asked to print no steps and no progress."""


@contextmanager
def collect_output(*, as_json: bool, layout: Layout | None = None) -> Iterator[None]:
    """What a command says on standard output within the block; ``as_json``: as one JSON document, at its end;
    ``layout``: its tables alone, as it writes them.

    Nothing else reaches standard output then: words that are no fact of the document go to standard error. Where an
    error ends the block, the document holds what was said before it, and is left out where that is nothing.
    """
    if not as_json:
        layout_token = _layout.set(layout)
        try:
            yield
        finally:
            _layout.reset(layout_token)
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
    """Within the block no steps and no progress are printed; warnings, errors and results are."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether the command that runs was asked to print no steps and no progress."""
    return _quiet.get()


def can_draw_progress() -> bool:
    """Whether standard error is a terminal that can be drawn on, and the user wants to see progress there."""
    # A notebook counts as a terminal, and would want widgets.
    return STDERR.is_terminal and not (STDERR.is_dumb_terminal or STDERR.is_jupyter or is_quiet())


def is_json_output() -> bool:
    """Whether the command that runs was asked for a JSON document."""
    return _document.get() is not None


def is_layout_output() -> bool:
    """Return whether the command that runs was asked for tables to be pasted (``--format markdown`` or ``latex``)."""
    return _layout.get() is not None


def print_result(words: str, **facts: object) -> None:
    """Print words on standard output, or add ``facts``, which hold the same, to the JSON document.

    Control characters are spelled out, except line breaks and tabs. A name of the user's goes through
    :func:`escape_unprintable` before it becomes a part of several lines.
    """
    document = _document.get()
    if document is None and _layout.get() is None:
        end_step()
        STDOUT.print(escape_control_characters(words), markup=False, highlight=False, soft_wrap=True)
    elif document is not None and facts:
        _add(document, facts)
    elif words.strip():
        print_unless_quiet(words.strip())


def show_table(
    name: str,
    rows: Iterable[Row],
    columns: Columns,
    *,
    parts: Mapping[str, Sequence[Row]] | None = None,
    caption: str | None = None,
) -> None:
    """Print rows on standard output as a table, or put them unchanged into the JSON document.

    Args:
        name: The key of the rows in the JSON document.
        rows: The rows.
        columns: For each column its head, what it shows of a row (the value under a key, or what a function makes of
            the row), and how that is written if not as :func:`format_cell_value` writes it.
        parts: The rows by the title of their part, in the order in which a table shows them. A part without a title
            has no line for it.
        caption: What stands above a table that is to be pasted.
    """
    rows = list(rows)
    document = _document.get()
    if document is not None:
        _add(document, {name: rows})
        return
    end_step()
    cells: list[list[str]] = []
    for title, of_part in ({"": rows} if parts is None else parts).items():
        if title:
            cells.append([title, *[""] * (len(columns) - 1)])
        cells += [[format_cell(row, *column[1:]) for column in columns] for row in of_part]
    if (layout := _layout.get()) is not None:
        click.echo(layout([column[0] for column in columns], cells, caption) + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column[0], overflow="fold")
    for line in cells:
        table.add_row(*line)
    # A pipe has no width: nothing is folded there.
    console = STDOUT if STDOUT.is_terminal else Console(width=10_000, emoji=False)
    console.print(table, markup=False, highlight=False, crop=False)


def format_cell(row: Row, cell: Cell, formatter: Callable[[Any], str] | None = None) -> str:
    """What a column shows of a row."""
    value = row[cell] if isinstance(cell, str) else cell(row)
    return format_cell_value(value) if formatter is None else formatter(value)


def print_message(words: str, style: str | None = None) -> None:
    """One line on standard error; what a file or a name holds is shown, never obeyed."""
    STDERR.print(escape_control_characters(words), style=style, markup=False, highlight=False, soft_wrap=True)


def print_unless_quiet(words: str) -> None:
    """As :func:`print_message`, what a user may want to know and who asked for quiet does not."""
    if not is_quiet():
        print_message(words)


class _Activity:
    """Work that takes a while: on a terminal a line with a spinner and the time so far; else a line now and then."""

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._printed_at = time.monotonic()
        self.display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=STDERR,
            transient=True,
            # Standard output stays what it is: it may be a document, or another terminal.
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not can_draw_progress(),
        )
        self._task = self.display.add_task(label, total=None)
        self.display.start()

    def show(self, status: str) -> None:
        """Show how far it is, in a few words."""
        words = f"{self._label} {status}".strip()
        self.display.update(self._task, description=escape_control_characters(words))
        if self.display.disable and time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            print_unless_quiet(f"  {words}")


_current: list[_Activity] = []
"""The step that the command is at; none, or one."""


def print_step(step: str) -> None:
    """Print one step of a longer piece of work on standard error; it lasts until the next step or the next output."""
    end_step()
    if not is_quiet():
        print_message(f"• {step}")
        _current.append(_Activity())


def show_progress(status: str) -> None:
    """Show how far the last step is; nothing where there is none, as in a process of Dagster's."""
    for step in _current:
        step.show(status)


def end_step() -> None:
    """End the last step, if any."""
    while _current:
        _current.pop().display.stop()


@contextmanager
def report_slow_work(activity: str) -> Iterator[Callable[[str], None]]:
    """A callback for what is being done, in a few words: a line on a terminal that is gone in the end, else a line now
    and then."""
    end_step()
    work = _Activity(activity)
    try:
        yield work.show
    finally:
        work.display.stop()


def escape_control_characters(text: str) -> str:
    """Return ``text`` with the codes spelled out that a terminal would obey. Its line breaks and tabs stay."""
    return escape_unprintable(text, keep="\n\t")


def format_cell_value(value: object) -> str:
    """A cell of a table of results."""
    if value is None:
        return ""
    return f"{value:z.4g}" if isinstance(value, float) else escape_unprintable(str(value))


def print_skipped(skipped_rows: Sequence[Skipped], total: int | None = None, what: str = "row(s)") -> None:
    """The first rows that were skipped; ``total``: how many there are, where ``skipped_rows`` are not all of them."""
    total = len(skipped_rows) if total is None else total
    if not total:
        return
    print_message(f"{total} {what} skipped:")
    for row in skipped_rows[:_NAMED_SKIPS]:
        print_message(escape_unprintable(f"  {row.location}: {row.reason}"))
    if total > _NAMED_SKIPS:
        print_message(f"  and {total - _NAMED_SKIPS} more")


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
