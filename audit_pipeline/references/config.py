"""config/references.yaml: the corpora that token frequencies are counted in.

What belongs here: the entries' fields, their validation, and finding the one that a user named. What does not: reading
the corpora (corpus.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from audit_pipeline.contracts import digest
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import config_dir
from audit_pipeline.yaml_files import one_line, read_entries

FILE_NAME = "references.yaml"
DEFAULT = "sotu"

# No bar, which divides partition names; no slash, blank or dot, which would need quoting in paths and ranges.
CorpusName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
HubId = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]


class ReferenceEntry(BaseModel):
    """One corpus: where its documents are, and how much of them is counted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: CorpusName
    hub: HubId | None = Field(default=None, description="a data set of the hub, read as a stream")
    files: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        default=None, description="which files of the data set; * stands for anything, slashes included"
    )
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    path: Path | None = Field(default=None, description="a file or a folder; a relative one counts from this file's")
    package: Literal["sotu"] | None = Field(default=None, description="documents of a source that needs no download")
    text_column: Text | None = Field(default=None, description="None: text, else input, else the only column")
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
    licence: Text
    max_documents: AtLeastOne | None = None
    max_bytes: AtLeastOne | None = Field(default=None, description="of UTF-8 text; the document that passes it counts")
    max_tokens_per_document: AtLeastOne | None = Field(
        default=None, description="None: all of a document; the published code of DC-PDD cuts at 1,024"
    )
    notes: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
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


def load_references(folder: Path | None = None) -> Mapping[str, ReferenceEntry]:
    """The entries of references.yaml by name, in the file's order.

    Raises ConfigError naming the file, the entry and the key that is wrong.
    """
    return read_references((folder or config_dir()) / FILE_NAME)


def read_references(path: Path) -> Mapping[str, ReferenceEntry]:
    """The entries of one file in the form of references.yaml; as :func:`load_references`."""
    entries = read_entries(path, "references", "corpus", "it says in which corpora token frequencies are counted")
    return {name: _entry(path, name, fields) for name, fields in entries.items()}


def reference_named(name: str, references: Mapping[str, ReferenceEntry]) -> ReferenceEntry:
    """The entry of that name; raises ConfigError where there is none."""
    if name in references:
        return references[name]
    near = difflib.get_close_matches(name, references, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"configured: {', '.join(references) or 'none'}"
    raise ConfigError(f"{name} is not in config/references.yaml; {hint}")


def _entry(path: Path, name: str, fields: object) -> ReferenceEntry:
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: corpus {name}: the entry holds no fields")
    try:
        entry = ReferenceEntry(**{**fields, "name": name})
    except (ValidationError, TypeError) as error:
        raise ConfigError(f"{path}: corpus {name}: {_first_problem(error)}") from error
    if entry.path is None:
        return entry
    return entry.model_copy(update={"path": (path.parent / entry.path.expanduser()).resolve()})


def _first_problem(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return one_line(error)
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{where}'; take it out or correct its spelling"
    message = problem["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    return f"{where}: {message}" if where else message
