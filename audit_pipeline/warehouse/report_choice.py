"""Which pairs the report shows where there are too many: in the table of findings, and in a section of their own.

What belongs here: the limits and the order of what matters. What does not: reading the views (report_data.py), what is
said of those left out (report.html.j2).

A section takes three pictures, a line of the table a kilobyte: with thousands of pairs the page would take an hour to
write and nobody could open it. What is left out is all in the warehouse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

MAX_IN_TABLE = 500
MAX_IN_DETAIL = 60


@dataclass(frozen=True)
class ListedPair:
    """One model on one benchmark in the table of findings.

    ``headline``: its rows of the leaderboard; ``section``: the number of its section, None where it has none;
    ``lineage_number``: the report's number of the lineage entry behind the findings.
    """

    model: str
    benchmark: str
    headline: Sequence[Row]
    section: int | None
    lineage_number: int | None


def choose(pairs: Sequence[Row], headlines: Mapping[tuple[str, str], Sequence[Row]]) -> list[tuple[Row, int | None]]:
    """The pairs for the table, in the given order, each with the number of its section, if it has one.

    ``pairs`` name a model and a benchmark; ``headlines`` are the rows of the leaderboard, by both.
    """
    by_weight = sorted(range(len(pairs)), key=lambda place: _weight(headlines.get(_key(pairs[place]), ())))
    sections = {place: number for number, place in enumerate(sorted(by_weight[:MAX_IN_DETAIL]), start=1)}
    return [(pairs[place], sections.get(place)) for place in sorted(by_weight[:MAX_IN_TABLE])]


def _key(pair: Row) -> tuple[str, str]:
    return pair["model"], pair["benchmark"]


def _weight(headline: Sequence[Row]) -> tuple[bool, bool, float]:
    """First what is evaluated, on the present build, and by the AUROC that its best detector has at least."""
    lows = [row["auroc_low"] for row in headline if row["auroc_low"] is not None and not math.isnan(row["auroc_low"])]
    return not headline, not all(row["is_current"] for row in headline), -max(lows, default=-1.0)
