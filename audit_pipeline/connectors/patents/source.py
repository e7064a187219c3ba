"""The source `patents`: Chinese patents, for PatentMIA (Zhang et al. 2024).

What belongs here: the source as the registry knows it. What does not: settings (settings.py), reading (harvest.py).
"""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.connectors.patents.settings import LICENCE, NAME, PatentsSettings
from audit_pipeline.sources.base import Harvest, Source


def fetch(settings: PatentsSettings, downloads: Path) -> Harvest:
    """The patents of every input that is set; its readers are imported when it is called."""
    from audit_pipeline.connectors.patents.harvest import harvest

    return harvest(settings, downloads)


SOURCE = Source(
    NAME,
    "Chinese patents with publication and priority date: saved pages, an export, or a crawl.",
    LICENCE,
    PatentsSettings,
    fetch,
    on_request=True,
)
