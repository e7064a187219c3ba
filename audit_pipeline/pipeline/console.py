"""Output of the command line.

Results go to standard output, everything else to standard error. Progress is drawn and text is coloured on terminals
only. NO_COLOR switches colours off.
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

# Texts, paths and SQL of users may contain words that rich would take for emoji codes.
STDOUT = Console(emoji=False)
STDERR = Console(stderr=True, emoji=False)
LINE_SECONDS = 15.0
"""Minimum time between two lines of progress if no bar is drawn."""
_NAMED_SKIPS = 5

Row = Mapping[str, Any]
Cell = str | Callable[[Row], object]
Columns = Sequence[tuple[str, Cell] | tuple[str, Cell, Callable[[Any], str]]]
Layout = Callable[[Sequence[str], Sequence[Sequence[str]], str | None], str]
"""A function that formats a table for a document from the column heads, the rows of cells and the caption."""

_document: ContextVar[dict[str, Any] | None] = ContextVar("document", default=None)
"""The JSON document of the running command, or None without --json."""
_layout: ContextVar[Layout | None] = ContextVar("layout", default=None)
"""The layout of tables that users paste into a document, or None for tables on a terminal."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
"""True if steps and progress are not printed."""


@contextmanager
def collect_output(*, as_json: bool, layout: Layout | None = None) -> Iterator[None]:
    """Print the results of a command within the block in the requested form.

    With ``as_json`` or a layout, standard output has the document or the tables only. Other results go to standard
    error. If an error ends the block, the document holds the results up to the error. It is omitted if it is empty.

    Args:
        as_json: Print one JSON document at the end of the block.
        layout: Print only tables, in this layout. None: print all results as for a terminal.
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
            # Characters beyond ASCII are escaped, because terminals interpret some of them, and some pipes cannot
            # encode them.
            click.echo(json.dumps(to_json_value(document), indent=2, allow_nan=False))


@contextmanager
def suppress_progress() -> Iterator[None]:
    """Suppress steps and progress within the block. Warnings, errors and results are still printed."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Return whether steps and progress are suppressed."""
    return _quiet.get()


def can_draw_progress() -> bool:
    """Return whether standard error is a terminal for progress bars and progress is not suppressed."""
    # Rich counts a notebook as a terminal, but needs widgets there.
    return STDERR.is_terminal and not (STDERR.is_dumb_terminal or STDERR.is_jupyter or is_quiet())


def is_json_output() -> bool:
    """Return whether the running command prints a JSON document."""
    return _document.get() is not None


def prints_tables_to_paste() -> bool:
    """Return whether the running command prints tables to paste (``--format markdown`` or ``latex``)."""
    return _layout.get() is not None


def print_result(words: str, **facts: object) -> None:
    """Print a result on standard output, or add it to the JSON document.

    If the command prints tables to paste into a document, the result is printed on standard error. Control characters
    are escaped, except line breaks and tabs.

    Args:
        words: The result as text. If it has several lines, pass names that users chose through
            :func:`escape_unprintable` first, because such a name could contain a line break.
        facts: The same result for the JSON document, by key.
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
    """Print rows as a table on standard output, or add them unchanged to the JSON document.

    Args:
        name: The key of the rows in the JSON document.
        rows: The rows.
        columns: For each column its head, the key of its value (or a function of the row), and optionally a function
            that formats the value. The default is :func:`format_cell_value`.
        parts: The rows by the title of their part, in the order of the table. A part with an empty title has no title
            line.
        caption: Caption of a table to paste.
    """
    rows = list(rows)
    document = _document.get()
    if document is not None:
        _add(document, {name: rows})
        return
    end_step()
    cells: list[list[str]] = []
    for title, part in (parts or {"": rows}).items():
        if title:
            cells.append([title, *[""] * (len(columns) - 1)])
        for row in part:
            cells.append([format_cell(row, *column[1:]) for column in columns])
    layout = _layout.get()
    if layout is not None:
        click.echo(layout([column[0] for column in columns], cells, caption) + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column[0], overflow="fold")
    for line in cells:
        table.add_row(*line)
    # A pipe has no width, so nothing is folded there.
    console = STDOUT if STDOUT.is_terminal else Console(width=10_000, emoji=False)
    console.print(table, markup=False, highlight=False, crop=False)


def format_cell(row: Row, cell: Cell, formatter: Callable[[Any], str] | None = None) -> str:
    """Format the value of a row in one column as text. ``cell`` is the key of the value, or a function of the row."""
    value = row[cell] if isinstance(cell, str) else cell(row)
    return format_cell_value(value) if formatter is None else formatter(value)


def print_message(words: str, style: str | None = None) -> None:
    """Print a line on standard error, with its control characters escaped."""
    STDERR.print(escape_control_characters(words), style=style, markup=False, highlight=False, soft_wrap=True)


def print_unless_quiet(words: str) -> None:
    """Print a line on standard error, unless steps and progress are suppressed."""
    if not is_quiet():
        print_message(words)


class _Activity:
    """The display of slow work: a spinner with the elapsed time on a terminal, else a line every 15 seconds."""

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._printed_at = time.monotonic()
        self.display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=STDERR,
            transient=True,
            # Standard output may be a document or another terminal, so rich must not redirect it.
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not can_draw_progress(),
        )
        self._task = self.display.add_task(label, total=None)
        self.display.start()

    def show(self, status: str) -> None:
        """Show the current status in a few words."""
        words = f"{self._label} {status}".strip()
        self.display.update(self._task, description=escape_control_characters(words))
        if self.display.disable and time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            print_unless_quiet(f"  {words}")


_current: list[_Activity] = []
"""The current step. The list is empty or has one element."""


def print_step(step: str) -> None:
    """Print the name of a step on standard error. The step lasts until the next step or result."""
    end_step()
    if not is_quiet():
        print_message(f"• {step}")
        _current.append(_Activity())


def show_progress(status: str) -> None:
    """Show the status of the current step. Nothing is shown in processes of Dagster, because they have no steps."""
    for step in _current:
        step.show(status)


def end_step() -> None:
    """End the current step, if any."""
    while _current:
        _current.pop().display.stop()


@contextmanager
def report_slow_work(activity: str) -> Iterator[Callable[[str], None]]:
    """Show slow work within the block. Yields a function that shows the current status in a few words."""
    end_step()
    work = _Activity(activity)
    try:
        yield work.show
    finally:
        work.display.stop()


def escape_control_characters(text: str) -> str:
    """Return the text with control characters escaped, except line breaks and tabs."""
    return escape_unprintable(text, keep="\n\t")


def format_cell_value(value: object) -> str:
    """Format a value as a cell of a table."""
    if value is None:
        return ""
    return f"{value:z.4g}" if isinstance(value, float) else escape_unprintable(str(value))


def print_skipped(skipped_rows: Sequence[Skipped], total: int | None = None, what: str = "row(s)") -> None:
    """Print the first skipped rows.

    Args:
        skipped_rows: The skipped rows, or the first of them.
        total: Number of skipped rows. None: all are in ``skipped_rows``.
        what: Noun for the rows in the message.
    """
    if total is None:
        total = len(skipped_rows)
    if not total:
        return
    print_message(f"{total} {what} skipped:")
    for row in skipped_rows[:_NAMED_SKIPS]:
        print_message(escape_unprintable(f"  {row.location}: {row.reason}"))
    if total > _NAMED_SKIPS:
        print_message(f"  and {total - _NAMED_SKIPS} more")


def _add(document: dict[str, Any], facts: Mapping[str, object]) -> None:
    """Add facts to the document. Lists under one key are joined, since a command may show a table several times."""
    for name, value in facts.items():
        before = document.get(name)
        document[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def to_json_value(value: object) -> object:
    """Convert a value to JSON without loss.

    Infinite numbers and NaN become the texts "Infinity", "-Infinity" and "NaN". A decimal that no float represents
    becomes the text of its digits. Bytes become hexadecimal, and other objects their text.
    """
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return _convert_number(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _convert_number(value: float | Decimal) -> object:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    # Numbers of NumPy are floats too, but json prints them differently.
    number = float(value)
    return number if isinstance(value, float) or Decimal(repr(number)) == value else str(value)
