"""The source `wikipedia`: event pages of a Wikipedia with the day on which each was created.

What belongs here: the source as the registry knows it. What does not: settings (settings.py), reading (harvest.py).
"""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.connectors.wikipedia.settings import LICENCE, NAME, WikipediaSettings
from audit_pipeline.sources.base import Harvest, Source


def fetch(settings: WikipediaSettings, downloads: Path) -> Harvest:
    """The event pages of every input that is set; its readers are imported when it is called."""
    from audit_pipeline.connectors.wikipedia.harvest import harvest

    return harvest(settings, downloads)


SOURCE = Source(
    NAME,
    "Event pages of Wikipedia by the day of their creation: from a dump, its parquet form, or the API.",
    LICENCE,
    WikipediaSettings,
    fetch,
    on_request=True,
)
