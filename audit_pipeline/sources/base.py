"""What a source is, and what it hands back.

What belongs here: the types that every source shares. What does not: any one source, and how a harvest is kept
(store.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from audit_pipeline.sources.config import SourceSettings


@dataclass(frozen=True)
class Document:
    """One document as its source yields it; ``group`` None means that it is a group of its own.

    ``name`` is unique within ``collection``, and neither changes from one harvest to the next. ``date_kind`` says what
    ``published`` is the date of; ``earliest`` is the first day on which the text can have existed, where that is not
    the day of its publication (a patent is written before it is published).
    """

    collection: str
    name: str
    title: str
    text: str
    published: date | None
    language: str
    licence: str
    url: str
    group: str | None = None
    date_kind: str = "publication"
    earliest: date | None = None


@dataclass(frozen=True)
class Missing:
    """A part that a source could not get this time, and why.

    ``collection`` and ``name`` say which documents the part held, so that those of an earlier harvest are kept: all of
    the collection, or with a name those called so and those called name#row. Without a collection nothing is kept:
    the part brought documents all the same, or never held any.
    """

    part: str
    reason: str
    collection: str | None = None
    name: str | None = None

    def held(self, collection: str, name: str) -> bool:
        """Whether the document was, or may have been, in this part."""
        return self.collection == collection and (
            self.name is None or name == self.name or name.startswith(f"{self.name}#")
        )


@dataclass(frozen=True)
class LeftOut:
    """One document or row that is there but cannot be used (no date, no text), and why."""

    part: str
    reason: str


@dataclass(frozen=True)
class Harvest:
    """What one visit to a source brought: documents, parts that did not arrive, documents that cannot be used."""

    documents: tuple[Document, ...]
    missing: tuple[Missing, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Source:
    """A source by name: what it holds, under which licence, and how it is fetched.

    ``fetch`` takes the settings and the folder for downloads; it raises SourceError only where nothing at all can be
    had for a reason that the user must mend first (a path that is not set).
    """

    name: str
    description: str
    licence: str
    fetch: Callable[[SourceSettings, Path], Harvest]


def document_id(source: str, document: Document) -> str:
    """The identity of a document: source:collection:name."""
    return f"{source}:{document.collection}:{document.name}"
