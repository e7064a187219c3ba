"""Settings of sources without a file, and entries of benchmarks.yaml."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from audit_pipeline.config.entries import Entries
from audit_pipeline.sources import release_notes
from audit_pipeline.sources.base import SourceSection
from audit_pipeline.sources.config import SourceSettings


def temporal(words: list[int], **changes: Any) -> dict[str, Any]:
    """Return the entry of a family of made-up texts in benchmarks.yaml."""
    return {
        "builder": "temporal",
        "description": "made up",
        "sources": [release_notes.NAME],
        "member_before": date(2022, 1, 1),
        "nonmember_from": date(2025, 1, 1),
        "words": words,
        "windows_per_document": 2,
        "calibration_fraction": 0,
        "seed": 5,
        **changes,
    }


def source_settings(**sections: SourceSection) -> SourceSettings:
    return SourceSettings(Entries(Path("sources.yaml"), "section", sections))
