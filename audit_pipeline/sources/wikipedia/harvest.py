"""The pages of the data set and of the API together, each page once.

Shi et al. 2024, section 2.2: event pages by the day of their creation, without pages titled "Timeline of" or "List of".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from audit_pipeline.sources.base import Document, HarvestItem, LeftOut
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness
from audit_pipeline.sources.wikipedia.api import find_refusal, iterate_api_pages
from audit_pipeline.sources.wikipedia.data_set import iterate_data_set
from audit_pipeline.sources.wikipedia.pages import LeftOutPage
from audit_pipeline.sources.wikipedia.source import NAME, WikipediaSettings

_EXAMPLES = 3


def harvest(settings: WikipediaSettings, downloads: Path, api: str | None = None) -> Iterator[HarvestItem]:
    """Yield the event pages of the data set, then those of the API.

    A page that both hold is taken from the data set; the others are counted, as are the pages that are left out, by
    reason and with the titles of a few. Answers of the API are kept in ``downloads``/wikipedia for ``days_kept`` days:
    a killed harvest goes on where it was. ``api`` is the address of api.php, that of the language's Wikipedia by
    default.
    """
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], list[str]] = {}
    names, repeated = set[str](), 0
    for item in chain(iterate_data_set(settings), _iterate_api(settings, downloads, api)):
        if isinstance(item, LeftOutPage):
            kind = item.part, item.reason
            counts[kind] += 1
            if counts[kind] <= _EXAMPLES:
                examples.setdefault(kind, []).append(item.title)
        elif isinstance(item, Document) and item.name in names:
            repeated += 1
        else:
            names |= {item.name} if isinstance(item, Document) else set()
            yield item
    for (part, reason), count in counts.items():
        titles = ", ".join(examples[part, reason])
        yield LeftOut(f"{part}: {count} ({titles}{', …' if count > _EXAMPLES else ''})", reason)
    if repeated:
        yield LeftOut(f"pages: {repeated}", "met twice, by page id; the first is taken")


def _iterate_api(settings: WikipediaSettings, downloads: Path, api: str | None) -> Iterator[HarvestItem | LeftOutPage]:
    if settings.categories:
        politeness = Politeness(settings.contact or "", settings.seconds_between, obey_robots=False)
        address = api or f"https://{settings.language}.wikipedia.org/w/api.php"
        with PoliteClient(downloads / NAME, politeness, find_refusal=find_refusal) as client:
            yield from iterate_api_pages(settings, client, address)
