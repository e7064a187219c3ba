"""The findings of some pairs, as the warehouse has them.

What belongs here: reading them, of audited models and of controls. What does not: the view itself
(sql/views/leaderboard_history.sql), showing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from audit_pipeline.warehouse.query import open_read_only


def findings_of(warehouse: Path, model: str, benchmarks: Sequence[str]) -> pa.Table:
    """The latest findings of one model on some benchmarks: a row a detector, as the view leaderboard has them.

    Raises DataError where there is no warehouse that can be read.
    """
    with open_read_only(warehouse) as connection:
        statement = (
            "SELECT * EXCLUDE (finished_at, is_latest) FROM leaderboard_history WHERE is_latest AND model = $model "
            "AND list_contains($benchmarks, benchmark) "
            "ORDER BY benchmark, auroc DESC NULLS LAST, detector, parameters"
        )
        return connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)}).to_arrow_table()


def comparisons_of(warehouse: Path, model: str, benchmark: str, detector: str | None) -> pa.Table:
    """Every two detectors that were compared on the same texts, as the view detector_comparison has them; with
    ``detector``, it against each other one. Raises DataError where there is no warehouse that can be read."""
    with open_read_only(warehouse) as connection:
        statement = """
            WITH compared AS (FROM detector_comparison WHERE model = $model AND benchmark = $benchmark)
            SELECT detector, parameters, other, other_parameters, difference, ci_low, ci_high, p_value FROM compared
            WHERE $detector IS NULL OR detector = $detector
            UNION ALL
            SELECT other, other_parameters, detector, parameters, -difference, -ci_high, -ci_low, p_value FROM compared
            WHERE other = $detector
            ORDER BY ALL
        """
        parameters = {"model": model, "benchmark": benchmark, "detector": detector}
        return connection.sql(statement, params=parameters).to_arrow_table()
