"""A source of one document, which needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from audit_pipeline.sources.base import Document, Source, SourceSection


def _fetch(settings: SourceSection, downloads: Path) -> Iterator[Document]:
    text = "A tide gauge is read every hour, and what it says is written down."
    yield Document("gauges", "first", "A gauge", text, date(2024, 3, 1), "en", "CC0-1.0", "https://example.org/gauge")


GAUGES = Source(
    name="gauges",
    description="Notes on tide gauges, an example.",
    licence="CC0-1.0",
    settings=SourceSection,
    fetch=_fetch,
    on_request=True,
)
