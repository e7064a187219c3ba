"""Rows of declared tables of which a test names only what it is about, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import EXAMPLES, SCORES
from audit_pipeline.tables.table import Table

_EMPTY = {pa.string(): "", pa.int64(): 0, pa.int32(): 0, pa.int8(): 0, pa.float64(): 0.0, pa.bool_(): False}


def filled(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a table: what is not given is null where it may be, else nothing of its type."""
    return {
        column.name: None if column.null else next(iter(column.one_of), _EMPTY.get(column.type, []))
        for column in table.columns
        if not column.sql
    } | values


def example(example_id: str, **values: Any) -> dict[str, Any]:
    """An example to evaluate of the benchmark b, a document and group of its own."""
    own = {"example_id": example_id, "document_id": example_id, "group": example_id, "split": "evaluation"}
    return filled(EXAMPLES, **{"benchmark": "b", "text": "text", "words": 12, "language": "en", **own, **values})


def score(example_id: str, value: float | None, **values: Any) -> dict[str, Any]:
    """A score of the model m on the benchmark b, by loss."""
    own = {"example_id": example_id, "score": value, "detector": "loss", "parameters": "{}", "is_default": True}
    return filled(SCORES, **{"model": "m", "benchmark": "b", "status": "ok", **own, **values})


def examples_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return table_from_rows(rows, EXAMPLES)


def scores_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """As they are: what no store would take is kept."""
    return pa.Table.from_pylist(list(rows), schema=SCORES.schema)
