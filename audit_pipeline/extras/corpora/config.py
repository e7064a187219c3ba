"""config/references.yaml: the corpora that token frequencies are counted in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.validation import Language, StrictSettings, Text, resolve_against, validate_as
from audit_pipeline.tables import digest

FILE_NAME = "references.yaml"
DEFAULT = "sotu"

# No bar, which divides partition names; no slash, blank or dot, which would need quoting in paths and ranges.
CorpusName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
HubId = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]


class ReferenceEntry(StrictSettings):
    """One corpus: where its documents are, and how much of them is counted."""

    name: CorpusName
    hub: HubId | None = Field(default=None, description="a data set of the hub, read as a stream")
    files: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="which files of the data set; * stands for anything, slashes included"
    )
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    path: Path | None = Field(default=None, description="a file or a folder; a relative one counts from this file's")
    package: Literal["sotu"] | None = Field(default=None, description="documents of a source that needs no download")
    text_column: Text | None = Field(default=None, description="None: text, else input, else the only column")
    language: Language = Field(description="of the documents, as ISO 639-1; it should be that of the audited texts")
    licence: Text = Field(description="of the documents")
    max_documents: AtLeastOne | None = Field(default=None, description="only so many documents are counted; None: all")
    max_bytes: AtLeastOne | None = Field(default=None, description="of UTF-8 text; the document that passes it counts")
    max_tokens_per_document: AtLeastOne | None = Field(
        default=None, description="None: all of a document; the published code of DC-PDD cuts at 1,024"
    )
    notes: str | None = Field(default=None, description="whatever a reader should know")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package)) != 1:
            raise ValueError("exactly one of hub, path and package says where the corpus is")
        if (self.hub is None) != (self.files is None):
            raise ValueError("files goes with hub: it says which files of the data set are read")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        return self

    @property
    def settings_digest(self) -> str:
        """Digest of all that can change the counts, but for the documents themselves."""
        return digest(self.model_dump(mode="json", exclude={"language", "licence", "notes"}))[:16]


def _build_reference_entry(name: str, fields: Any, folder: Path) -> ReferenceEntry:
    entry = validate_as(ReferenceEntry, {**fields, "name": name})
    if entry.path is None:
        return entry
    return entry.model_copy(update={"path": resolve_against(folder, entry.path).resolve()})


FILE = EntryFile(
    FILE_NAME,
    "references",
    "corpus",
    "it says in which corpora token frequencies are counted",
    _build_reference_entry,
    is_optional=True,
    affects_audits=True,
    dimension="corpus",
    permanent_partitions=(DEFAULT,),
)


def load_references(folder: Path | None = None) -> Entries[ReferenceEntry]:
    """The entries of references.yaml; none where there is no such file.

    Raises ConfigError, naming the file, where none of it can be read.
    """
    return FILE.load(folder)
