"""The pages that the API gives.

Shi et al. 2024, section 2.2: event pages by the day of their creation, without pages titled "Timeline of" or "List of".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.sources.base import HarvestItem
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness
from audit_pipeline.sources.wikipedia.api import find_refusal, iterate_api_pages
from audit_pipeline.sources.wikipedia.source import NAME, WikipediaSettings


def harvest(settings: WikipediaSettings, downloads: Path, api: str | None = None) -> Iterator[HarvestItem]:
    """Yield the event pages, and how many are left out, by reason.

    Answers of the API are kept in ``downloads``/wikipedia for ``days_kept`` days: a killed harvest goes on where it
    was. ``api`` is the address of api.php, that of the language's Wikipedia by default.
    """
    politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
    with PoliteClient(downloads / NAME, politeness, find_refusal=find_refusal) as client:
        yield from iterate_api_pages(settings, client, address)
