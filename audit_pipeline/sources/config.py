"""The settings of the sources, from config/sources.yaml.

What belongs here: what may stand in the file, and errors that name the file and the key. What does not: the sources.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from audit_pipeline.contracts import digest
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import config_dir
from audit_pipeline.yaml_files import read_yaml

FILE_NAME = "sources.yaml"
WHAT_TO_SET = {"local_files": f"set local_files.path in config/{FILE_NAME} to your folder or file"}

Project = Literal["django", "pytest", "sqlalchemy"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReleaseNotesSettings(_Settings):
    """The projects whose release notes are taken."""

    projects: tuple[Project, ...] = ("django", "pytest", "sqlalchemy")

    @field_validator("projects")
    @classmethod
    def _each_once(cls, projects: tuple[Project, ...]) -> tuple[Project, ...]:
        if not projects:
            raise ValueError("name at least one project")
        if len(set(projects)) != len(projects):
            raise ValueError("a project is named twice")
        return projects


class LocalFilesSettings(_Settings):
    """A folder or file of the user's own, and which columns hold what."""

    path: Path | None = None
    text_column: Text | None = None
    title_column: Text | None = None
    date_column: Text | None = None
    group_column: Text | None = None
    # No colon, so that source:collection:name can be taken apart again; no bar, which divides partition names.
    collection: Annotated[Text, Field(pattern=r"^[^:|]+$")] = "local"
    licence: Text = "unknown"
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] = "en"
    url: Text | None = None

    @field_validator("path", mode="before")
    @classmethod
    def _not_blank(cls, path: object) -> object:
        if isinstance(path, str) and not path.strip():
            raise ValueError("name a folder or file, or null for none")
        return path


class SourceSettings(_Settings):
    """Everything that can be set in config/sources.yaml; a section left out has its defaults."""

    release_notes: ReleaseNotesSettings = ReleaseNotesSettings()
    local_files: LocalFilesSettings = LocalFilesSettings()

    def digest_for(self, source: str) -> str:
        """Digest of what is set for ``source``: documents fetched under another setting are other documents."""
        section = getattr(self, source, None)
        return digest(source, section.model_dump(mode="json") if section is not None else {})

    def to_be_set(self, source: str) -> str | None:
        """What the user has to set before ``source`` can be fetched; None where it is ready."""
        return WHAT_TO_SET[source] if source == "local_files" and self.local_files.path is None else None


def load_source_settings(folder: Path | None = None) -> SourceSettings:
    """The settings in sources.yaml of ``folder`` (the configuration folder by default).

    A relative ``local_files.path`` counts from that folder. Raises ConfigError, naming the file and the key, for a
    file that is missing, is not YAML, or holds a key or value that it may not.
    """
    path = (folder or config_dir()) / FILE_NAME
    content = read_yaml(path, "it says which sources to read")
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold sections such as 'release_notes:', not {type(content).__name__}")
    try:
        settings = SourceSettings.model_validate(
            {key: {} if value is None else value for key, value in content.items()}
        )
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_problem(error)}") from error
    return _with_absolute_path(settings, path.parent)


def _with_absolute_path(settings: SourceSettings, folder: Path) -> SourceSettings:
    local = settings.local_files
    if local.path is None:
        return settings
    absolute = folder / local.path.expanduser()
    return settings.model_copy(update={"local_files": local.model_copy(update={"path": absolute})})


def _first_problem(error: ValidationError) -> str:
    problems: list[Any] = list(error.errors())
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'; take it out or correct its spelling"
    message = str(first["msg"]).removeprefix("Value error, ").replace("valid tuple", "list")
    return f"{key}: {message}, not {first['input']!r}"
