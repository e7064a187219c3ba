"""One row of the table of a split's quality.

What belongs here: what every measure says of its value. What does not: the measures (compared_rows.py,
described_rows.py), and the table itself (quality.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from audit_pipeline.metrics.intervals import NO_INTERVAL, Interval

BETWEEN = "between"
BOTH = "both"


@dataclass(frozen=True)
class QualityRow:
    """One value of one measure.

    ``part`` is what of the measure it is (a control, a size of n-grams, a unit of length), ``side`` whom it is of:
    members, non-members, both, or between them. ``value`` is None where it could not be measured; ``method`` says how
    it was, or why not. ``n`` is how many texts it rests on.
    """

    measure: str
    part: str
    side: str
    value: float | None
    n: int
    method: str
    interval: Interval = NO_INTERVAL
    verdict: str | None = None

    @property
    def columns(self) -> dict[str, object]:
        """The columns of SPLIT_QUALITY that are the row's own, by name."""
        return {
            "measure": self.measure,
            "part": self.part,
            "side": self.side,
            "value": self.value,
            "ci_low": self.interval.low,
            "ci_high": self.interval.high,
            "n": self.n,
            "method": self.method,
            "verdict": self.verdict,
        }
