"""What the report says of pairs that were not audited: counts, the grid of models and benchmarks, and the reasons.

What belongs here: arranging the rows of the views coverage and not_audited. What does not: the rule behind a status
(coverage.py), reading the views (report_data.py), HTML (templates/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from audit_pipeline.operate.facts import STATUSES
from audit_pipeline.report.document import Coverage, GridRow, NotDone, StatusCount
from audit_pipeline.report.rows import Row, cut
from audit_pipeline.report.words import STATUS_IN_WORDS

MAX_GRID_MODELS = 60
MAX_GRID_BENCHMARKS = 30
MAX_LISTED = 100


def coverage_of(
    coverage: Sequence[Row], not_audited: Sequence[Row], *, config_is_known: bool, given: Collection[str]
) -> Coverage:
    """The rows of both views as the report shows them; without a grid where it would be too large to read.

    ``given`` are the benchmarks that are tables of scores handed over.
    """
    models = sorted({row["model"] for row in coverage})
    benchmarks = sorted({row["benchmark"] for row in coverage})
    counted = Counter(row["status"] for row in coverage)
    is_small = len(models) <= MAX_GRID_MODELS and len(benchmarks) <= MAX_GRID_BENCHMARKS
    found = {(row["model"], row["benchmark"]): row["status"] for row in coverage}
    return Coverage(
        pairs=len(coverage),
        models=len(models),
        benchmarks=len(benchmarks),
        config_is_known=config_is_known,
        only_given=bool(benchmarks) and set(benchmarks) <= set(given),
        counts=[
            StatusCount(status=status, meaning=STATUS_IN_WORDS.get(status), pairs=counted[status])
            for status in _worst_first(counted)
        ],
        grid_benchmarks=benchmarks if is_small else [],
        grid=[
            GridRow(model=model, statuses=[found.get((model, benchmark)) for benchmark in benchmarks])
            for model in (models if is_small else [])
        ],
        not_done=[_not_done(row) for row in not_audited[:MAX_LISTED]],
        more=max(0, len(not_audited) - MAX_LISTED),
    )


def _not_done(row: Row) -> NotDone:
    values = {name: row[name] for name in NotDone.model_fields}
    return NotDone(**{**values, "reason": None if row["reason"] is None else cut(row["reason"], 600)})


def _worst_first(statuses: Mapping[str, int]) -> list[str]:
    known = [status for status in STATUSES if status in statuses]
    return [*sorted(set(statuses) - set(known)), *known]
