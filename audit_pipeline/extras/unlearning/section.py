"""The conclusions of the report's section on unlearning."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from audit_pipeline.extras.unlearning.conclusion import conclude_unlearning


def add_conclusion(row: dict[str, Any], results: object) -> dict[str, Any]:
    """Return a row of the section's query, which describes one comparison, with the columns of its conclusion."""
    conclusion = conclude_unlearning(row["raw_compared"], before=row["before"], after=row["model"])
    return {**row, **asdict(conclusion)}


COMPLETED_BY = {"unlearning": add_conclusion}
"""The functions that complete a row of a section's query, by the section's name."""
