"""The source `books`: a folder of the user's own, Project Gutenberg and Standard Ebooks.

What belongs here: the source as the registry knows it. What does not: settings (settings.py), reading (harvest.py).
"""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.connectors.books.settings import LICENCE, NAME, BooksSettings
from audit_pipeline.sources.base import Harvest, Source


def fetch(settings: BooksSettings, downloads: Path) -> Harvest:
    """The books of the folder and of the libraries that are set; its readers are imported when it is called."""
    from audit_pipeline.connectors.books.harvest import harvest

    return harvest(settings, downloads)


SOURCE = Source(
    NAME,
    "Books: a folder of .txt and .epub files with their metadata, Project Gutenberg, Standard Ebooks.",
    LICENCE,
    BooksSettings,
    fetch,
    version=2,
    on_request=True,
)
