"""What a source is, what may be set of it, and what it hands back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from audit_pipeline.config.validation import StrictSettings, Text
from audit_pipeline.errors import escape_unprintable
from audit_pipeline.readers.dates import Dating
from audit_pipeline.readers.whole_files.document import Places

FILE_NAME = "sources.yaml"

# No colon, so that source:collection:name can be taken apart again; no bar, which divides partition names.
Collection = Annotated[Text, Field(pattern=r"^[^:|]+$")]


class SourceSection(StrictSettings):
    """One source's settings, its section of config/sources.yaml; this one for a source of which nothing can be set."""

    @property
    def missing_setting(self) -> str | None:
        """What the user has to set before the source can be fetched, in words; None where it is ready."""
        return None


S = TypeVar("S", bound=SourceSection)


@dataclass(frozen=True)
class Document:
    """One document as its source yields it; ``group`` None means that it is a group of its own.

    ``name`` is unique within ``collection``, and neither changes from one fetch to the next. ``date_kind`` says what
    ``published`` is the date of; ``earliest`` is the first day on which the text can have existed, where that is not
    the day of its publication (a patent is written before it is published); ``places`` where pages or chapters begin.
    ``edition`` is the date that its file gives of this edition, which is not used unless the user says so.
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
    places: Places = ()
    edition: Dating | None = None


@dataclass(frozen=True)
class MissingPart:
    """A part that a source could not get this time, and why.

    ``collection`` and ``name`` say which documents the part held, so that those of an earlier fetch are kept: all of
    the collection, or with a name those called so and those called name#row. Without a collection nothing is kept:
    the part brought documents all the same, or never held any.
    """

    part: str
    reason: str
    collection: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _make_printable(self)

    def can_contain(self, collection: str, name: str) -> bool:
        """Return whether the document was, or may have been, in this part."""
        return self.collection == collection and (
            self.name is None or name == self.name or name.startswith(f"{self.name}#")
        )


@dataclass(frozen=True)
class LeftOut:
    """One document or row that cannot be used (no date, no text), and why."""

    part: str
    reason: str

    def __post_init__(self) -> None:
        _make_printable(self)


def _make_printable(unused: MissingPart | LeftOut) -> None:
    """Spell out control characters: part and reason hold names of files, and become lines of output."""
    object.__setattr__(unused, "part", escape_unprintable(unused.part))
    object.__setattr__(unused, "reason", escape_unprintable(unused.reason))


FetchedItem = Document | MissingPart | LeftOut


@dataclass(frozen=True)
class FetchedDocuments:
    """What one visit to a source brought: documents, parts that did not arrive, documents that cannot be used."""

    documents: tuple[Document, ...]
    missing: tuple[MissingPart, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __iter__(self) -> Iterator[FetchedItem]:
        yield from self.documents
        yield from self.missing
        yield from self.left_out

    @property
    def unused(self) -> tuple[tuple[str, str], ...]:
        """What makes no document, each with the reason: files first, then rows and parts of files, of which there may
        be many."""
        missing = [(part.part, part.reason) for part in self.missing]
        unused = [*missing, *((part.part, part.reason) for part in self.left_out)]
        return tuple(sorted(unused, key=lambda part: any(mark in part[0] for mark in "#!")))


@dataclass(frozen=True)
class Source(Generic[S]):
    """A source by name: what it holds, under which licence, what may be set, and how it is fetched.

    ``fetch`` takes its section of the settings and the folder for downloads, and yields documents, missing parts and
    parts left out (FetchedDocuments will do). It is called where there is no ``missing_setting``, and raises SourceError only
    where nothing at all can be fetched. Its module is imported to learn all this: a parser that takes long to import is
    imported inside ``fetch``.

    ``version`` changes when the same input would give other documents: those there are count as stale then.
    ``on_request`` says that only benchmarks on request are drawn from it, so that its
    documents may be older than a week.
    """

    name: str
    description: str
    licence: str
    settings: type[S]
    fetch: Callable[[S, Path], Iterable[FetchedItem]]
    version: int = 1
    on_request: bool = False


class UnusableDocumentError(Exception):
    """Why a page, row or file makes no document."""


def build_lazy_fetch(module: str) -> Callable[[Any, Path], Iterable[FetchedItem]]:
    """Return the fetch of a connector with this ``module`` source: it imports the module fetch next to it."""
    module_name = f"{module.rpartition('.')[0]}.fetch"

    def fetch(settings: SourceSection, downloads: Path) -> Iterable[FetchedItem]:
        items: Iterable[FetchedItem] = importlib.import_module(module_name).fetch_documents(settings, downloads)
        return items

    return fetch


def collect(items: Iterable[FetchedItem]) -> FetchedDocuments:
    """Return the items of a visit, each kind in its order."""
    found = list(items)
    return FetchedDocuments(
        documents=tuple(item for item in found if isinstance(item, Document)),
        missing=tuple(item for item in found if isinstance(item, MissingPart)),
        left_out=tuple(item for item in found if isinstance(item, LeftOut)),
    )


def document_id(source: str, document: Document) -> str:
    """Return the identity of a document: source:collection:name."""
    return f"{source}:{document.collection}:{document.name}"
