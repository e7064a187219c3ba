"""The settings of the sources, from config/sources.yaml.

What belongs here: reading the file, the digest of what is set, and errors that name the file and the key. What does
not: what may be set of a source (its own module).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.paths import is_workspace
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem
from audit_pipeline.config.validating import resolve_paths_against, validated
from audit_pipeline.sources.base import FILE_NAME, SourceSection
from audit_pipeline.sources.registry import all_sources


@dataclass(frozen=True)
class SourceSettings:
    """What is set in config/sources.yaml, by source; a source whose section is left out has its defaults.

    A section that cannot be used is ``broken``: nobody is handed its source's settings or documents.
    """

    sections: Entries[SourceSection]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong with the broken sections."""
        return self.sections.problems

    def is_broken(self, source: str) -> bool:
        """Whether the section of ``source`` cannot be used."""
        return self.sections.is_broken(source)

    def require_usable(self, source: str) -> None:
        """Raise ConfigError, with all that is wrong with it, where the section of ``source`` is broken."""
        self.sections.require_not_broken(source)

    def for_source(self, source: str) -> SourceSection:
        """What is set for ``source``, or its defaults; raises ConfigError where its section is broken.

        A source that there is not has nothing set.
        """
        self.require_usable(source)
        if source in self.sections:
            return self.sections[source]
        known = all_sources().get(source)
        kind: type[SourceSection] = SourceSection if known is None else known.settings
        return kind()

    def digest_for(self, source: str) -> str:
        """Digest of what is set for ``source``, and of its files' names, sizes and times.

        Documents fetched under another setting, or from other files, are other documents. Raises ConfigError where its
        section is broken.
        """
        section = self.for_source(source)
        files = {name: found for name, value in section if (found := _stamped(value))}
        return digest(source, section.model_dump(mode="json"), *([files] if files else []))

    def to_be_set_for(self, source: str) -> str | None:
        """What the user has to set before ``source`` can be fetched; None where it is ready.

        Raises ConfigError where its section is broken.
        """
        return self.for_source(source).to_be_set


def _section(name: str, fields: Any, folder: Path) -> SourceSection:
    known = all_sources()
    if name not in known:
        raise InvalidEntryError([Fault((), f"there is no such section; {did_you_mean(name, known)}")])
    section: SourceSection = validated(known[name].settings, fields)
    return resolve_paths_against(folder, section)


FILE = EntryFile(FILE_NAME, None, "section", "it says which sources to read", _section)


def load_source_settings(folder: Path | None = None) -> SourceSettings:
    """The settings in sources.yaml of ``folder`` (the configuration folder by default).

    A relative path counts from that folder. Raises ConfigError, naming the file, where none of it can be read; a
    section that cannot be used is among the problems, and stops its own source alone.
    """
    return SourceSettings(FILE.load(folder))


def _stamped(value: Any) -> Any:
    """The stamps of a setting that is a path, or holds some; nothing of any other."""
    if isinstance(value, Path):
        return stamps(value)
    if isinstance(value, tuple):
        return [found for one in value if (found := _stamped(one))]
    if isinstance(value, Mapping):
        return {key: found for key, one in value.items() if (found := _stamped(one))}
    return None


def stamps(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of a file, or of every file in a folder: what changes when they do. Nothing is read.

    A workspace within the folder is no part of it: it changes by being used.
    """
    files = sorted(_files_below(path)) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files if file.exists()]
    return [(file.relative_to(path.parent).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in found]


def _files_below(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_workspace(Path(above) / name)]
        yield from (file for name in names if (file := Path(above) / name).is_file())
