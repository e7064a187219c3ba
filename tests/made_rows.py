"""Rows of declared tables. A test states only the columns that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import EXAMPLES, SCORES, Table
from audit_pipeline.tables.table import Column

_MOMENT = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def make_row(table: Table, **values: object) -> dict[str, Any]:
    """Return a row with ``values``. Every other column is null, or has its minimum, its first value or "made up"."""
    return {**{column.name: _choose_value(column) for column in table.columns if not column.sql}, **values}


def make_table(table: Table, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Return rows of a declared table, each completed by :func:`make_row`."""
    return table_from_rows([make_row(table, **row) for row in rows], table)


def example(example_id: str, /, **values: object) -> dict[str, Any]:
    """Return an evaluated example of the benchmark b, with its own document and group."""
    own = {"example_id": example_id, "document_id": example_id, "group": example_id, "split": "evaluation"}
    return make_row(EXAMPLES, **{"benchmark": "b", "text": "text", "words": 12, "language": "en", **own, **values})


def score(example_id: str, value: float | None, **values: object) -> dict[str, Any]:
    """Return a score of the model m on the benchmark b by the detector loss."""
    own = {"example_id": example_id, "score": value, "detector": "loss", "parameters": "{}", "is_default": True}
    return make_row(SCORES, **{"model": "m", "benchmark": "b", "status": "ok", **own, **values})


def examples_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return table_from_rows(rows, EXAMPLES)


def scores_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows without checks, so that tests can pass values that no store accepts."""
    return pa.Table.from_pylist(list(rows), schema=SCORES.schema)


def _choose_value(column: Column) -> object:
    if column.null:
        return None
    if pa.types.is_list(column.type):
        return []
    if pa.types.is_date(column.type):
        return date(2026, 3, 1)
    if pa.types.is_timestamp(column.type):
        return _MOMENT
    if column.name == "is_default":
        return True
    if pa.types.is_string(column.type):
        return next(iter(column.one_of), "made up")
    return pa.scalar(column.ge or 0).cast(column.type).as_py()
