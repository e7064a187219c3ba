"""The pages of the data set and of the API together, each page once.

Shi et al. 2024, section 2.2: event pages by the day of their creation, without pages titled "Timeline of" or "List of".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audit_pipeline.connectors.wikipedia.api import harvest_api
from audit_pipeline.connectors.wikipedia.data_set import harvest_data_set
from audit_pipeline.connectors.wikipedia.source import WikipediaSettings
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Harvest, LeftOut, merge_harvests


def harvest(settings: WikipediaSettings, downloads: Path) -> Harvest:
    """Return the event pages of the data set, then those of the API.

    A page that both hold is taken from the data set; the others are counted. Answers of the API are kept in
    ``downloads``/wikipedia. Raises SourceError where something has to be set first.
    """
    if settings.to_be_set is not None:
        raise SourceError(settings.to_be_set)
    found = merge_harvests([harvest_data_set(settings), harvest_api(settings, downloads)])
    documents = {document.name: document for document in reversed(found.documents)}
    repeated = len(found.documents) - len(documents)
    counted = (LeftOut(f"pages: {repeated}", "met twice, by page id; the first is taken"),) if repeated else ()
    return replace(found, documents=tuple(reversed(documents.values())), left_out=(*found.left_out, *counted))
