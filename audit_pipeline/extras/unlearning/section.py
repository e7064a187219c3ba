"""The section of the report on texts that a model was made to forget: the conclusion of each comparison."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from audit_pipeline.extras.unlearning.conclusion import conclude_unlearning


def add_conclusions(rows: list[dict[str, Any]], results: object) -> None:
    """Add the conclusion to each comparison."""
    for row in rows:
        row.update(asdict(conclude_unlearning(row["_compared"], before=row["before"], after=row["model"])))


COMPLETED_BY = {"unlearning": add_conclusions}
"""What completes the rows of a section's query, by the section's name."""
