"""What the report says of pairs that were not audited: counts, the grid of models and benchmarks, and the reasons.

What belongs here: arranging the rows of the views coverage and not_audited. What does not: the rule behind a status
(coverage.py), reading the views (report_data.py), HTML (report.html.j2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit_pipeline.warehouse.coverage import STATUSES

Row = Mapping[str, Any]

MAX_GRID_MODELS = 60
MAX_GRID_BENCHMARKS = 30
MAX_LISTED = 100

STATUS_IN_WORDS: Mapping[str, str] = {
    "failed": "a fault stopped the latest run; to be run again",
    "not_applicable": "the model or the benchmark could not be used as it is; the reason says what to do",
    "stale": "there is a finding, but what it rests on has changed since; to be audited again",
    "missing": "there is no finding yet",
    "done": "there is a finding, and what it rests on has not changed since",
}


@dataclass(frozen=True)
class Grid:
    """A status for every model (rows) on every benchmark (columns); None where nobody asked for the pair."""

    benchmarks: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str | None]]]


@dataclass(frozen=True)
class CoverageData:
    """What became of the pairs. ``counts``: every status that occurs, worst first.

    ``grid`` is None where it would be too large to read. ``listed`` are the first of those not done, worst first, and
    ``more`` is how many follow. ``config_is_known`` is False where the configuration named no model or no benchmark
    or could not be read, so that pairs nobody ever ran are not among the rows.
    """

    pairs: int
    models: int
    benchmarks: int
    counts: Sequence[tuple[str, int]]
    grid: Grid | None
    listed: Sequence[Row]
    more: int
    config_is_known: bool

    @property
    def all_done(self) -> bool:
        """Whether there is nothing to say but that."""
        return not self.listed


def coverage_data(coverage: Sequence[Row], not_audited: Sequence[Row], *, config_is_known: bool) -> CoverageData:
    """The rows of both views as the report shows them."""
    models = sorted({row["model"] for row in coverage})
    benchmarks = sorted({row["benchmark"] for row in coverage})
    counted = Counter(row["status"] for row in coverage)
    is_small = len(models) <= MAX_GRID_MODELS and len(benchmarks) <= MAX_GRID_BENCHMARKS
    return CoverageData(
        pairs=len(coverage),
        models=len(models),
        benchmarks=len(benchmarks),
        counts=[(status, counted[status]) for status in _worst_first(counted)],
        grid=_grid(coverage, models, benchmarks) if is_small else None,
        listed=not_audited[:MAX_LISTED],
        more=max(0, len(not_audited) - MAX_LISTED),
        config_is_known=config_is_known,
    )


def _worst_first(statuses: Mapping[str, int]) -> list[str]:
    known = [status for status in STATUSES if status in statuses]
    return [*sorted(set(statuses) - set(known)), *known]


def _grid(coverage: Sequence[Row], models: Sequence[str], benchmarks: Sequence[str]) -> Grid:
    found = {(row["model"], row["benchmark"]): row["status"] for row in coverage}
    return Grid(benchmarks, [(model, [found.get((model, benchmark)) for benchmark in benchmarks]) for model in models])
