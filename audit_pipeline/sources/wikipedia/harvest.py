"""The pages that the API gives, and how many of them are left out.

Shi et al. 2024, section 2.2: event pages by the day of their creation, without pages titled "Timeline of" or "List of".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audit_pipeline.sources.base import HarvestItem, LeftOut
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness
from audit_pipeline.sources.wikipedia.api import PART, LeftOutPage, find_refusal, iterate_api_pages
from audit_pipeline.sources.wikipedia.source import NAME, WikipediaSettings

_EXAMPLES = 3


def harvest(settings: WikipediaSettings, downloads: Path, api: str | None = None) -> Iterator[HarvestItem]:
    """Yield the event pages, and how many are left out, by reason and with the titles of a few.

    Answers of the API are kept in ``downloads``/wikipedia for ``days_kept`` days: a killed harvest goes on where it
    was. ``api`` is the address of api.php, that of the language's Wikipedia by default.
    """
    politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
    address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
    titles: dict[str, list[str]] = {}
    with PoliteClient(downloads / NAME, politeness, find_refusal=find_refusal) as client:
        for item in iterate_api_pages(settings, client, address):
            if isinstance(item, LeftOutPage):
                titles.setdefault(item.reason, []).append(item.title)
            else:
                yield item
    for reason, found in titles.items():
        examples = ", ".join(found[:_EXAMPLES])
        yield LeftOut(f"{PART}: {len(found)} ({examples}{', …' if len(found) > _EXAMPLES else ''})", reason)
