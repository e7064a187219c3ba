"""Every source by name, and what is set of it in config/sources.yaml.

A source is a `Source` in a module of this package, in the module `source` of a package in it, or at an entry point of
an installed package. Nothing imports them by name, and their parsers are imported when they are fetched.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from audit_pipeline import sources
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.plugins import collect_by_name, merge_entry_points, require_string_fields
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem, did_you_mean
from audit_pipeline.config.validation import resolve_paths_against, validate_as
from audit_pipeline.errors import AuditError, SourceError, to_one_line
from audit_pipeline.sources.base import FILE_NAME, FetchedItem, Source, SourceSection
from audit_pipeline.store.paths import is_workspace
from audit_pipeline.tables import digest


@cache
def all_sources() -> Mapping[str, Source[Any]]:
    """Return every source by name; a new module needs no entry here. Raises ConfigError if two of ours share a name."""
    names = {f"{sources.__name__}.{module.name}": module.ispkg for module in pkgutil.iter_modules(sources.__path__)}
    found = (f"{name}.source" if is_package else name for name, is_package in names.items())
    modules = (importlib.import_module(name) for name in found if find_spec(name))
    ours: dict[str, Source[Any]] = collect_by_name(
        modules, label="sources", is_wanted=lambda value: isinstance(value, Source), name_of=lambda source: source.name
    )
    return merge_entry_points(ours, "corpus_audit.sources", Source, lambda source: source.name, _guard_plugin).found


def _guard_plugin(source: Source[Any], origin: str) -> Source[Any]:
    """Return a source that another package brings: what it raises is a SourceError that names it.

    Raises whatever is wrong with what it declares.
    """

    def fetch(settings: SourceSection, downloads: Path) -> Iterator[FetchedItem]:
        try:
            for item in source.fetch(settings, downloads):
                if not isinstance(item, FetchedItem):
                    raise TypeError(f"fetch yielded a {type(item).__name__} and no part of a harvest")
                yield item
        except AuditError:
            raise
        except Exception as error:
            # What other people's code may raise is not known.
            raise SourceError(
                f"the source {source.name} of {origin} failed ({type(error).__name__}: {to_one_line(error)[:200]})"
            ) from error

    require_string_fields(source, "description", "licence")
    if not issubclass(source.settings, SourceSection):
        raise TypeError("settings is no class of SourceSection")
    source.settings()
    return replace(source, fetch=fetch)


def require_source(name: str) -> Source[Any]:
    """Return the source called ``name``; raises SourceError, naming the nearest names, or all."""
    if name not in all_sources():
        raise SourceError(f"there is no source '{name}'; {did_you_mean(name, all_sources(), 'the sources are')}")
    return all_sources()[name]


@dataclass(frozen=True)
class SourceSettings:
    """What is set in config/sources.yaml, by source; a source whose section is left out has its defaults.

    A section that cannot be used is ``broken``: its source's settings and documents are not handed out.
    """

    sections: Entries[SourceSection]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong with the broken sections."""
        return self.sections.problems

    def for_source(self, source: str) -> SourceSection:
        """Return what is set for ``source``, or its defaults; raises ConfigError where its section is broken.

        A source that there is not has nothing set.
        """
        self.sections.require_not_broken(source)
        if source in self.sections:
            return self.sections[source]
        known = all_sources().get(source)
        kind: type[SourceSection] = SourceSection if known is None else known.settings
        return kind()

    def digest_for(self, source: str) -> str:
        """Return digest of what is set for ``source``, and of its files' names, sizes and times.

        Documents fetched under another setting, or from other files, are other documents. Raises ConfigError where its
        section is broken.
        """
        section = self.for_source(source)
        files = {name: found for name, value in section if (found := _collect_stamps(value))}
        return digest(source, section.model_dump(mode="json"), *([files] if files else []))


def _parse_section(name: str, fields: Any, folder: Path) -> SourceSection:
    known = all_sources()
    if name not in known:
        raise InvalidEntryError([Fault((), f"there is no such section; {did_you_mean(name, known)}")])
    section: SourceSection = validate_as(known[name].settings, fields)
    return resolve_paths_against(folder, section)


FILE = EntryFile(FILE_NAME, None, "section", "it says which sources to read", _parse_section, affects_audits=True)


def load_source_settings(folder: Path | None = None) -> SourceSettings:
    """Return the settings in sources.yaml of ``folder`` (the configuration folder by default).

    A relative path counts from that folder. Raises ConfigError, naming the file, where none of it can be read; a
    section that cannot be used is among the problems, and stops its own source alone.
    """
    return SourceSettings(FILE.load(folder))


def _collect_stamps(value: Any) -> Any:
    """Return the stamps of a setting that is a path, or holds some; nothing of any other."""
    if isinstance(value, Path):
        return list_file_stamps(value)
    if isinstance(value, tuple):
        return [stamp for item in value if (stamp := _collect_stamps(item))]
    if isinstance(value, Mapping):
        return {key: stamp for key, item in value.items() if (stamp := _collect_stamps(item))}
    return None


def list_file_stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of a file, or of every file in a folder: what changes when they do. Nothing is read.

    A workspace within the folder is no part of it: it changes by being used.
    """
    files = [path]
    if path.is_dir():
        files = []
        for above, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not is_workspace(Path(above) / name)]
            files += [file for name in names if (file := Path(above) / name).is_file()]
    stamps = []
    for file in sorted(files):
        with suppress(OSError):
            status = file.stat()
            # A name that is not UTF-8 has lone surrogates, which no digest can be computed of.
            name = file.relative_to(path.parent).as_posix().encode("utf-8", "backslashreplace").decode()
            stamps.append((name, status.st_size, status.st_mtime_ns))
    return stamps
