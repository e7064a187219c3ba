"""How a .csv or .tsv file is punctuated: what stands between fields, and what a field is quoted with.

What belongs here: recognising a dialect by the beginning of a file. What does not: reading its records (delimited.py).

The header decides between the usual delimiters: names of columns hardly ever hold one, texts do all the time. Where
the header holds several of them, the one that fits most rows is taken, and of equals the one that DuckDB's sniffer
finds. The quote is the usual one, unless rows do not fit with it and all do with what the sniffer found.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

USUAL = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}

_EMPTY = "(empty)"
_SNIFF = "SELECT Delimiter, Quote, Escape FROM sniff_csv(?, header=true, skip=0, ignore_errors=true{})"


@dataclass(frozen=True)
class Dialect:
    """``quote``: None where nothing is quoted. ``escape`` stands before a quote within a quoted field; None: it is
    doubled there."""

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None

    def __str__(self) -> str:
        quoted = "nothing quoted" if self.quote is None else f"'{self.quote}' as quote"
        escaped = f", '{self.escape}' before a quote within quotes" if self.escape else ""
        return f"CSV with {USUAL[self.delimiter]} between fields and {quoted}{escaped}"

    def reader(self, lines: Iterable[str]) -> Any:
        """The csv module's reader of ``lines``.

        It is strict, because a quote that is never closed otherwise swallows the rest of the file into one field.
        """
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )


def dialect_of(sample: str, *, complete: bool, tabs: bool) -> Dialect:
    """The dialect of a file that begins with ``sample``; ``tabs``: its name says that it is .tsv.

    Where the sample is not the ``complete`` file its last record may be cut and is not looked at. Raises ValueError,
    saying what to do, where the header leaves several delimiters possible and the rows do not tell.
    """
    possible = ["\t"] if tabs else [one for one in USUAL if _columns(sample, Dialect(one)) > 1] or [","]
    sniffed = _sniffed(sample, possible[0] if len(possible) == 1 else None)
    usual = Dialect(possible[0] if len(possible) == 1 else _choose_delimiter(sample, possible, sniffed, complete))
    if sniffed is None:
        return usual
    found = Dialect(usual.delimiter, sniffed.quote, sniffed.escape)
    # Quotes are part of a .csv file; a .tsv file may hold them as characters like any other.
    takes = (
        (found.quote is not None or tabs)
        and not _has_uniform_width(sample, usual, complete)
        and _has_uniform_width(sample, found, complete)
    )
    return found if takes else usual


def _choose_delimiter(sample: str, possible: Sequence[str], sniffed: Dialect | None, complete: bool) -> str:
    """Of several delimiters that the header holds, the one that the rows are cut by; raises ValueError."""
    fitting = {one: _count_fitting_records(sample, Dialect(one), complete) for one in possible}
    best = [one for one in possible if fitting[one] and fitting[one] == max(fitting.values())]
    if len(best) > 1 and sniffed is not None and sniffed.delimiter in best:
        best = [sniffed.delimiter]
    if len(best) != 1:
        named = " and ".join(USUAL[one] for one in possible)
        raise ValueError(
            f"its header holds {named}, and its rows do not show which of them stands between fields: "
            "save it as .tsv, .jsonl or .parquet"
        )
    return best[0]


def _sniffed(sample: str, delimiter: str | None) -> Dialect | None:
    """What DuckDB takes the sample for; None where it cannot tell. It reads files only, so it is given one."""
    given = f", delim='{delimiter}'" if delimiter else ""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file, duckdb.connect() as connection:
        file.write(sample.encode(errors="replace"))
        file.flush()
        try:
            row = connection.execute(_SNIFF.format(given), [file.name]).fetchone()
        except duckdb.Error:
            return None
    if row is None:
        return None
    between, quote, escape = (None if value == _EMPTY else value for value in row)
    return Dialect(between or ",", quote, None if escape == quote else escape)


def _columns(sample: str, dialect: Dialect) -> int:
    """How many columns the header has; 0 where it cannot be read so."""
    header = next(_records(sample, dialect), None)
    return len(header) if header else 0


def _has_uniform_width(sample: str, dialect: Dialect, complete: bool) -> bool:
    """Whether every record behind the header can be read and has as many fields as that."""
    return _count_fitting_records(sample, dialect, complete) == len(
        _split_header_and_records(sample, dialect, complete)[1]
    )


def _count_fitting_records(sample: str, dialect: Dialect, complete: bool) -> int:
    """How many records behind the header have as many fields as that."""
    width, records = _split_header_and_records(sample, dialect, complete)
    return sum(record is not None and len(record) == width for record in records)


def _split_header_and_records(sample: str, dialect: Dialect, complete: bool) -> tuple[int, list[list[str] | None]]:
    """The header's number of fields, and the records behind it that are whole."""
    header, *records = list(_records(sample, dialect)) or [None]
    return len(header or ()), records if complete else records[:-1]


def _records(sample: str, dialect: Dialect) -> Iterator[list[str] | None]:
    """The sample's records that are not blank; None for one that cannot be read."""
    reader = dialect.reader(io.StringIO(sample, newline=""))
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None
        else:
            if record:
                yield record
