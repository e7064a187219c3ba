"""Settings of sources without a file."""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.config.entries import Entries
from audit_pipeline.sources.base import SourceSection
from audit_pipeline.sources.config import SourceSettings


def source_settings(**sections: SourceSection) -> SourceSettings:
    return SourceSettings(Entries(Path("sources.yaml"), "section", sections))
