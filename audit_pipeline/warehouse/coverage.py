"""The statuses of the views coverage and not_audited; the rule that gives them is told in sql/views/coverage.sql.

What belongs here: names that Python shares with those views. What does not: the rule itself, and how the report lays it
out (report_coverage.py).
"""

from __future__ import annotations

STATUSES = ("failed", "not_applicable", "stale", "missing", "done")
"""Worst first: a fault, input that cannot be used, a number that may no longer hold, no number, all as it should be."""
