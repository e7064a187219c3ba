"""The findings of some pairs, as the warehouse has them.

What belongs here: reading the view leaderboard. What does not: the view itself (sql/views/leaderboard.sql), showing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from audit_pipeline.warehouse.query import open_read_only


def findings_of(warehouse: Path, model: str, benchmarks: Sequence[str]) -> pa.Table:
    """The rows of the view leaderboard of one model on some benchmarks: a row a detector, in the view's order.

    Raises DataError where there is no warehouse that can be read.
    """
    with open_read_only(warehouse) as connection:
        statement = "SELECT * FROM leaderboard WHERE model = $model AND list_contains($benchmarks, benchmark)"
        return connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)}).to_arrow_table()
