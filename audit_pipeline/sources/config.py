"""The settings of the sources, from config/sources.yaml.

What belongs here: the sections of the file, those of the first sources, and errors that name the file and the key. What
does not: the sources, and the sections of those that have a module of settings of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from audit_pipeline.contracts import digest
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import config_dir
from audit_pipeline.sources.books_settings import BooksSettings
from audit_pipeline.sources.chinese_changelogs_settings import ChineseChangelogsSettings
from audit_pipeline.sources.patents_settings import PatentsSettings
from audit_pipeline.sources.section import Language, Section, Text
from audit_pipeline.sources.wikipedia_settings import WikipediaSettings
from audit_pipeline.yaml_files import read_yaml

FILE_NAME = "sources.yaml"

Project = Literal["django", "pytest", "sqlalchemy"]


class ReleaseNotesSettings(Section):
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


class LocalFilesSettings(Section):
    """A folder or file of the user's own, and which columns hold what."""

    path: Path | None = None
    text_column: Text | None = None
    title_column: Text | None = None
    date_column: Text | None = None
    group_column: Text | None = None
    # No colon, so that source:collection:name can be taken apart again; no bar, which divides partition names.
    collection: Annotated[Text, Field(pattern=r"^[^:|]+$")] = "local"
    licence: Text = "unknown"
    language: Language = "en"
    url: Text | None = None

    @property
    def to_be_set(self) -> str | None:
        """What the user has to set before the files can be read; None where they can be."""
        return f"set local_files.path in config/{FILE_NAME} to your folder or file" if self.path is None else None

    @field_validator("path", mode="before")
    @classmethod
    def _not_blank(cls, path: object) -> object:
        if isinstance(path, str) and not path.strip():
            raise ValueError("name a folder or file, or null for none")
        return path


class SourceSettings(Section):
    """Everything that can be set in config/sources.yaml; a section left out has its defaults."""

    release_notes: ReleaseNotesSettings = ReleaseNotesSettings()
    local_files: LocalFilesSettings = LocalFilesSettings()
    wikipedia: WikipediaSettings = WikipediaSettings()
    patents: PatentsSettings = PatentsSettings()
    books: BooksSettings = BooksSettings()
    chinese_changelogs: ChineseChangelogsSettings = ChineseChangelogsSettings()

    def digest_for(self, source: str) -> str:
        """Digest of what is set for ``source``, and of its files' names, sizes and times.

        Documents fetched under another setting, or from other files, are other documents.
        """
        section: Section | None = getattr(self, source, None)
        if section is None:
            return digest(source, {})
        files = {name: stamps(value) for name, value in section if isinstance(value, Path)}
        return digest(source, section.model_dump(mode="json"), *([files] if files else []))

    def to_be_set_for(self, source: str) -> str | None:
        """What the user has to set before ``source`` can be fetched; None where it is ready."""
        section: Section | None = getattr(self, source, None)
        return section.to_be_set if section is not None else None


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
    return _with_absolute_paths(settings, path.parent)


def stamps(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of a file, or of every file in a folder: what changes when they do. Nothing is read."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files if file.exists()]
    return [(file.relative_to(path.parent).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in found]


def _with_absolute_paths(settings: SourceSettings, folder: Path) -> SourceSettings:
    """Every path of every section, counted from the folder of the file."""
    sections = {}
    for name, section in settings:
        paths = {key: folder / value.expanduser() for key, value in section if isinstance(value, Path)}
        sections[name] = section.model_copy(update=paths)
    return settings.model_copy(update=sections)


def _first_problem(error: ValidationError) -> str:
    problems: list[Any] = list(error.errors())
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'; take it out or correct its spelling"
    message = str(first["msg"]).removeprefix("Value error, ").replace("valid tuple", "list")
    return f"{key}: {message}, not {first['input']!r}"
