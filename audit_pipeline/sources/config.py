"""The settings of the sources, from config/sources.yaml.

What belongs here: the sections of the file, those of the first sources, and errors that name the file and the key. What
does not: the sources, and the sections of those that have a module of settings of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem
from audit_pipeline.config.validating import beside, validated
from audit_pipeline.connectors.books.settings import BooksSettings
from audit_pipeline.connectors.patents.settings import PatentsSettings
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.sources.chinese_changelogs_settings import ChineseChangelogsSettings
from audit_pipeline.sources.section import Language, Section, Text

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
    """Everything that can be set in config/sources.yaml; a section left out has its defaults.

    A section that cannot be used is ``broken``: it has its defaults here, and nobody is handed its source's documents.
    """

    release_notes: ReleaseNotesSettings = ReleaseNotesSettings()
    local_files: LocalFilesSettings = LocalFilesSettings()
    wikipedia: WikipediaSettings = WikipediaSettings()
    patents: PatentsSettings = PatentsSettings()
    books: BooksSettings = BooksSettings()
    chinese_changelogs: ChineseChangelogsSettings = ChineseChangelogsSettings()

    _broken: Entries[Section] | None = PrivateAttr(default=None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong with the broken sections."""
        return () if self._broken is None else self._broken.problems

    def is_broken(self, source: str) -> bool:
        """Whether the section of ``source`` cannot be used."""
        return self._broken is not None and self._broken.is_broken(source)

    def require_usable(self, source: str) -> None:
        """Raise ConfigError, with all that is wrong with it, where the section of ``source`` is broken."""
        if self._broken is not None:
            self._broken.require_not_broken(source)

    def digest_for(self, source: str) -> str:
        """Digest of what is set for ``source``, and of its files' names, sizes and times.

        Documents fetched under another setting, or from other files, are other documents. Raises ConfigError where its
        section is broken.
        """
        self.require_usable(source)
        section: Section | None = getattr(self, source, None)
        if section is None:
            return digest(source, {})
        files = {name: stamps(value) for name, value in section if isinstance(value, Path)}
        return digest(source, section.model_dump(mode="json"), *([files] if files else []))

    def to_be_set_for(self, source: str) -> str | None:
        """What the user has to set before ``source`` can be fetched; None where it is ready.

        Raises ConfigError where its section is broken.
        """
        self.require_usable(source)
        section: Section | None = getattr(self, source, None)
        return section.to_be_set if section is not None else None


def _section(name: str, fields: Any, folder: Path) -> Section:
    fields_of = SourceSettings.model_fields
    if name not in fields_of:
        raise InvalidEntryError([Fault((), f"there is no such section; {did_you_mean(name, fields_of)}")])
    kind: type[Section] = fields_of[name].annotation  # type: ignore[assignment]
    section = validated(kind, fields)
    return section.model_copy(update={key: beside(folder, value) for key, value in section if isinstance(value, Path)})


FILE = EntryFile(FILE_NAME, None, "section", "it says which sources to read", _section)


def load_source_settings(folder: Path | None = None) -> SourceSettings:
    """The settings in sources.yaml of ``folder`` (the configuration folder by default).

    A relative path counts from that folder. Raises ConfigError, naming the file, where none of it can be told; a
    section that cannot be used is among the problems, and stops its own source alone.
    """
    sections = FILE.load(folder)
    settings = SourceSettings.model_validate(dict(sections))
    if sections.problems:
        settings._broken = sections
    return settings


def stamps(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of a file, or of every file in a folder: what changes when they do. Nothing is read."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files if file.exists()]
    return [(file.relative_to(path.parent).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in found]
