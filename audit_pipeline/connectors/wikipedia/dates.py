"""When the pages of a Wikipedia were created: a table of page ids and days.

What belongs here: reading such a table (``dates`` in the settings). What does not: reading them from a dump of
histories (dump.py), and what a date decides (pages.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from audit_pipeline.catalogue.tables import open_parquet
from audit_pipeline.errors import DataError
from audit_pipeline.sources.base import LeftOut

COLUMNS = ("page_id", "created")
_MOST_NAMED = 100


class CreationDates:
    """Days by page id, in two sorted arrays: some hundred megabytes for the largest Wikipedia, not gigabytes."""

    def __init__(self, page_ids: Iterable[int] = (), days: Iterable[date] = ()) -> None:
        """Of a page named twice the earlier day holds."""
        numbers: npt.NDArray[np.int64] = np.fromiter(page_ids, np.int64)
        ordinals: npt.NDArray[np.int32] = np.fromiter((day.toordinal() for day in days), np.int32)
        order = np.lexsort((ordinals, numbers))
        self._page_ids = numbers[order]
        self._ordinals = ordinals[order]

    def __len__(self) -> int:
        return len(self._page_ids)

    def get(self, page_id: int) -> date | None:
        """The day on which the page was created; None where the table does not say."""
        place = int(np.searchsorted(self._page_ids, page_id))
        if place == len(self._page_ids) or self._page_ids[place] != page_id:
            return None
        return date.fromordinal(int(self._ordinals[place]))


def read_dates(path: Path) -> tuple[CreationDates, tuple[LeftOut, ...]]:
    """The dates in a .csv or .parquet file with the columns page_id and created, and the rows that cannot be read.

    ``created`` is a date, a timestamp (its day in UTC) or text that begins with an ISO date. Raises DataError where
    the file cannot be read or lacks a column.
    """
    page_ids, ordinals = array("q"), array("i")
    refused: list[LeftOut] = []
    unnamed = 0
    for row, (page_id, created) in enumerate(_values(path), 1):
        day, problem = _day(created)
        number, id_problem = _number(page_id)
        if day is None or number is None:
            if len(refused) < _MOST_NAMED:
                refused.append(LeftOut(f"{path.name}:{row}", problem or id_problem))
            else:
                unnamed += 1
            continue
        page_ids.append(number)
        ordinals.append(day.toordinal())
    if unnamed:
        refused.append(LeftOut(f"{path.name}: {unnamed} more rows", "no page id or no date"))
    return CreationDates(page_ids, map(date.fromordinal, ordinals)), tuple(refused)


def _values(path: Path) -> Iterator[tuple[object, object]]:
    """Page id and date of each row, as they stand in the file."""
    columns = list(COLUMNS)
    try:
        if path.suffix.lower() == ".parquet":
            with open_parquet(path) as file:
                _require(path, file.schema_arrow.names)
                for batch in file.iter_batches(columns=columns):
                    yield from _pairs(batch)
        elif path.suffix.lower() == ".csv":
            as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()))
            with pa.csv.open_csv(path, convert_options=as_text) as reader:
                _require(path, reader.schema.names)
                for batch in reader:
                    yield from _pairs(batch)
        else:
            raise DataError(f"{path}: dates are read from .csv or .parquet files, and from dumps of histories")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: the dates cannot be read ({str(error).splitlines()[0]})") from error


def _require(path: Path, names: list[str]) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DataError(f"{path}: no column {' and '.join(missing)}; the columns are: {', '.join(names)}")


def _pairs(batch: pa.RecordBatch) -> Iterator[tuple[object, object]]:
    yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


def _day(value: object) -> tuple[date | None, str]:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo is not None else value).date(), ""
    if isinstance(value, date):
        return value, ""
    try:
        return date.fromisoformat(str(value).strip()[:10]), ""
    except ValueError:
        return None, f"its date of creation cannot be read: {str(value)[:40]!r}"


def _number(value: object) -> tuple[int | None, str]:
    try:
        number = int(str(value))
    except ValueError:
        return None, f"its page id is not a number: {str(value)[:40]!r}"
    return (number, "") if 0 < number < 2**63 else (None, f"its page id is out of range: {str(value)[:40]!r}")
