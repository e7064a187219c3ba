"""Rows of the warehouse as the report takes them: plain values, and estimates out of three columns.

What belongs here: running a query of the report, and turning its cells into parts. What does not: the queries
themselves (report_data.py, report_section.py, report_background.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import duckdb

from audit_pipeline.report.document import Estimate, Fact

Row = Mapping[str, Any]


def rows(connection: duckdb.DuckDBPyConnection, sql: str, **parameters: object) -> list[dict[str, Any]]:
    """The rows of a query; what is no number, or no finite one, is None, for JSON has no other word for it."""
    found = connection.sql(sql, params=parameters or None).to_arrow_table().to_pylist()
    return [{name: finite(value) for name, value in row.items()} for row in found]


def finite(value: Any) -> Any:
    """The value, None where it is a float that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def estimate(row: Row, name: str, method: str | None = None, *, low: str = "_low", high: str = "_high") -> Estimate:
    """The columns ``name``, ``name_low`` and ``name_high`` of a row; the endings may be others."""
    return Estimate(value=row[name], low=row[name + low], high=row[name + high], method=method)


def flattened(value: object, *, key: str = "") -> list[tuple[str, str]]:
    """Nested JSON as lines of (key, value): keys joined with ›, plain lists on one line, empty values left out."""
    if isinstance(value, Mapping):
        lines = [flattened(item, key=f"{key} › {name}" if key else str(name)) for name, item in value.items()]
        return [line for group in lines for line in group]
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        lines = [flattened(item, key=f"{key} › {position}") for position, item in enumerate(value, start=1)]
        return [line for group in lines for line in group]
    if isinstance(value, list):
        value = ", ".join(_word(item) for item in value)
    return [] if value is None or value == "" else [(key, _word(value))]


def facts(value: object, *, most: int | None = None) -> list[Fact]:
    """Nested JSON as facts, ``most`` of them at most, each cut to a bounded length."""
    return [Fact(name=cut(name, 200), value=cut(text, 1000)) for name, text in flattened(value)[:most]]


def cut(text: str, most: int) -> str:
    """``text``, its end replaced by … where it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
