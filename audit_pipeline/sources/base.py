"""Declaration of a source: its settings, and the documents that it yields."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from audit_pipeline.config.validation import StrictSettings, Text
from audit_pipeline.errors import SourceError, escape_unprintable
from audit_pipeline.http.faults import redact_passwords
from audit_pipeline.readers.dates import Dating
from audit_pipeline.readers.whole_files.document import Places

FILE_NAME = "sources.yaml"

# A colon separates the parts of source:collection:name, and a bar separates the parts of partition names.
Collection = Annotated[Text, Field(pattern=r"^[^:|]+$")]


class SourceSection(StrictSettings):
    """The settings of a source, its section in config/sources.yaml. This base class has no settings."""

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction for a setting that must be set before fetching, or None if the source is ready."""
        return None


S = TypeVar("S", bound=SourceSection)


@dataclass(frozen=True)
class Document:
    """A document of a source.

    Attributes:
        collection: The collection. It does not change between fetches.
        name: The name, unique within the collection. It does not change between fetches.
        title: The title.
        text: The text.
        published: The date of publication, or None if it is unknown.
        language: The language (ISO 639-1).
        licence: The licence.
        url: The address of the document.
        group: The name of its group. The documents of a group are not independent, such as the patents of one family.
            None makes the document a group of its own.
        date_kind: The kind of event on the day ``published``, such as a release.
        earliest: The first day on which the text can have existed, or None if it is the day of publication. For
            example, a patent is written before its publication.
        places: The character offset and label of each page or chapter in the text.
        edition: The date of the edition in the file's metadata, or None. It dates the document only if the user
            requests that.
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
    """A part of a source that could not be fetched.

    The documents of this part from an earlier fetch stay stored. ``collection`` and ``name`` select them.

    Attributes:
        part: A name of the part for messages, such as a file.
        reason: The reason why it could not be fetched.
        collection: The collection of its documents, or None if no earlier documents need to stay.
        name: The name of its document, or of a file whose documents are named ``name#row``. None selects the whole
            collection.
    """

    part: str
    reason: str
    collection: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _make_printable(self)

    def can_contain(self, collection: str, name: str) -> bool:
        """Return True if this part may contain the document with a collection and name."""
        if self.collection != collection:
            return False
        return self.name is None or name == self.name or name.startswith(f"{self.name}#")


@dataclass(frozen=True)
class LeftOut:
    """A document or row that is skipped, because it cannot be used.

    Attributes:
        part: The name of the document or row for messages.
        reason: The reason why it cannot be used, such as a missing date.
    """

    part: str
    reason: str

    def __post_init__(self) -> None:
        _make_printable(self)


def _make_printable(unused: MissingPart | LeftOut) -> None:
    """Escape control characters in part and reason, because both may contain file names and are printed."""
    object.__setattr__(unused, "part", escape_unprintable(unused.part))
    object.__setattr__(unused, "reason", escape_unprintable(unused.reason))


FetchedItem = Document | MissingPart | LeftOut


@dataclass(frozen=True)
class FetchedDocuments:
    """The result of one fetch: documents, missing parts, and documents that cannot be used."""

    documents: tuple[Document, ...]
    missing: tuple[MissingPart, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __iter__(self) -> Iterator[FetchedItem]:
        yield from self.documents
        yield from self.missing
        yield from self.left_out

    @property
    def unused(self) -> tuple[tuple[str, str], ...]:
        """Return part and reason of all missing parts and left-out documents. Files precede rows and parts of files."""
        unused_parts: list[MissingPart | LeftOut] = [*self.missing, *self.left_out]
        unused = [(part.part, part.reason) for part in unused_parts]
        return tuple(sorted(unused, key=lambda part: "#" in part[0] or "!" in part[0]))


@dataclass(frozen=True)
class Source(Generic[S]):
    """The declaration of a source.

    The module of a source is imported often. So ``fetch`` imports parsers that are slow to import.

    Attributes:
        name: The name, which is also its section in config/sources.yaml.
        description: The description of its documents.
        licence: The licence of its documents.
        settings: The class of its settings.
        fetch: A function that yields documents, missing parts and left-out documents. Its arguments are the settings
            and the folder for downloads. It is called only if the settings' ``missing_setting`` is None. It raises
            SourceError only if nothing can be fetched.
        version: The version of the source's code. A new version makes stored documents stale.
        on_request: True if only benchmarks on request use the source. Its documents have no maximum age.
    """

    name: str
    description: str
    licence: str
    settings: type[S]
    fetch: Callable[[S, Path], Iterable[FetchedItem]]
    version: int = 1
    on_request: bool = False


class UnusableDocumentError(Exception):
    """An error for a page, row or file that cannot become a document. The message contains the reason."""


class FetchError(SourceError):
    """An error for a page that cannot be fetched.

    Attributes:
        status: HTTP status of the response, or None without a response.
    """

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{redact_passwords(url)}: {reason}")
        self.status = status


def build_lazy_fetch(module: str) -> Callable[[Any, Path], Iterable[FetchedItem]]:
    """Return a fetch function that imports its parsers only when it is called.

    Args:
        module: The name of a module ``source``. The function calls ``fetch_documents`` of the module ``fetch`` in the
            same package.
    """
    module_name = f"{module.rpartition('.')[0]}.fetch"

    def fetch(settings: SourceSection, downloads: Path) -> Iterable[FetchedItem]:
        items: Iterable[FetchedItem] = importlib.import_module(module_name).fetch_documents(settings, downloads)
        return items

    return fetch


def collect(items: Iterable[FetchedItem]) -> FetchedDocuments:
    """Separate the items of a fetch into documents, missing parts and left-out documents. Each kind keeps its order."""
    documents: list[Document] = []
    missing: list[MissingPart] = []
    left_out: list[LeftOut] = []
    for item in items:
        if isinstance(item, Document):
            documents.append(item)
        elif isinstance(item, MissingPart):
            missing.append(item)
        else:
            left_out.append(item)
    return FetchedDocuments(tuple(documents), tuple(missing), tuple(left_out))


def build_document_id(source: str, document: Document) -> str:
    """Return the identity of a document: source:collection:name."""
    return f"{source}:{document.collection}:{document.name}"
