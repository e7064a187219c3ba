"""Registry of sources, and their settings in config/sources.yaml.

A `Source` is declared in a module of this package, or in the module `source` of a subpackage. Other packages declare
sources as entry points. No module imports a source by name. Parsers are imported when documents are fetched.
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
    """Return every source by name: the sources of this package, sorted, and then those of other packages.

    All modules of this package are searched, so that a new source needs no registration.

    Raises:
        ConfigError: If two sources of this package have the same name.
    """
    names: list[str] = []
    for module in pkgutil.iter_modules(sources.__path__):
        name = f"{sources.__name__}.{module.name}"
        names.append(f"{name}.source" if module.ispkg else name)
    modules = [importlib.import_module(name) for name in names if find_spec(name)]
    ours: dict[str, Source[Any]] = collect_by_name(
        modules, label="sources", is_wanted=lambda value: isinstance(value, Source), name_of=lambda source: source.name
    )
    ours = dict(sorted(ours.items()))
    return merge_entry_points(ours, "corpus_audit.sources", Source, lambda source: source.name, _adopt_plugin).by_name


def _adopt_plugin(source: Source[Any], origin: str) -> Source[Any]:
    """Check another package's source, and return a copy whose ``fetch`` raises SourceError instead of other errors.

    Raises:
        TypeError: If the declaration of the source is invalid. Building its default settings may raise other errors.
    """

    def fetch(settings: SourceSection, downloads: Path) -> Iterator[FetchedItem]:
        try:
            for item in source.fetch(settings, downloads):
                if not isinstance(item, FetchedItem):
                    raise TypeError(f"fetch yielded a {type(item).__name__}, not a Document, MissingPart or LeftOut")
                yield item
        except AuditError:
            raise
        except Exception as error:
            # Code of other packages may raise any error.
            raise SourceError(
                f"the source {source.name} of the package {origin} failed ({type(error).__name__}: "
                f"{to_one_line(error)[:200]}). Check its section in config/{FILE_NAME}, or report the error to the "
                "authors of the package."
            ) from error

    require_string_fields(source, "description", "licence")
    if not issubclass(source.settings, SourceSection):
        raise TypeError("the field settings must be a subclass of SourceSection")
    source.settings()
    return replace(source, fetch=fetch)


def require_source(name: str) -> Source[Any]:
    """Return the source with a name.

    Raises:
        SourceError: If the source is unknown. The message contains similar names or all names.
    """
    if name not in all_sources():
        raise SourceError(f"there is no source '{name}'; {did_you_mean(name, all_sources(), 'the sources are')}")
    return all_sources()[name]


@dataclass(frozen=True)
class SourceSettings:
    """The settings in config/sources.yaml by source. A source without a section has the default settings.

    If a section is broken, only the source of this section cannot be used.
    """

    sections: Entries[SourceSection]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of the broken sections."""
        return self.sections.problems

    def for_source(self, source: str) -> SourceSection:
        """Return the settings of a source. Without a section in the file, they are the defaults of the source.

        The settings of an unknown source have no fields.

        Raises:
            ConfigError: If its section is broken.
        """
        self.sections.require_not_broken(source)
        if source in self.sections:
            return self.sections[source]
        known = all_sources().get(source)
        kind: type[SourceSection] = SourceSection if known is None else known.settings
        return kind()

    def digest_for(self, source: str) -> str:
        """Return the digest of a source's settings, and of the files that they name.

        The digest covers name, size and time of modification of each file. Stored documents with another digest are
        stale.

        Raises:
            ConfigError: If its section is broken.
        """
        section = self.for_source(source)
        parts = [section.model_dump(mode="json")]
        stamps = _collect_mapping_stamps(dict(section))
        if stamps:
            parts.append(stamps)
        return digest(source, *parts)


def _parse_section(name: str, fields: Any, folder: Path) -> SourceSection:
    known = all_sources()
    if name not in known:
        raise InvalidEntryError(
            [Fault((), f"there is no source with this name; {did_you_mean(name, known, 'the sources are')}")]
        )
    section: SourceSection = validate_as(known[name].settings, fields)
    return resolve_paths_against(folder, section)


FILE = EntryFile(
    FILE_NAME, None, "section", "it contains the settings of the sources", _parse_section, affects_audits=True
)


def load_source_settings(folder: Path | None = None) -> SourceSettings:
    """Load the settings in sources.yaml.

    If a section is broken, its problems are in ``problems``, and only the source of this section cannot be used.

    Args:
        folder: The folder of the file. Relative paths count from it. By default the configuration folder.

    Raises:
        ConfigError: If the file cannot be read.
    """
    return SourceSettings(FILE.load(folder))


def _collect_stamps(value: Any) -> Any:
    """Return the file stamps (:func:`list_file_stamps`) of all paths in a setting, or an empty value if it has none."""
    if isinstance(value, Path):
        return list_file_stamps(value)
    if isinstance(value, tuple):
        return list(filter(None, map(_collect_stamps, value)))
    if isinstance(value, Mapping):
        return _collect_mapping_stamps(value)
    return None


def _collect_mapping_stamps(settings: Mapping[Any, Any]) -> dict[Any, Any]:
    stamps = {key: _collect_stamps(value) for key, value in settings.items()}
    return {key: stamp for key, stamp in stamps.items() if stamp}


def list_file_stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size in bytes and time of modification (ns) of a file, or of every file in a folder.

    No file is opened.

    A workspace within the folder is ignored, because using it changes its files.
    """
    files = [path]
    if path.is_dir():
        files = []
        for above, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not is_workspace(Path(above) / name)]
            files += [Path(above) / name for name in names]
        files = [file for file in files if file.is_file()]
    stamps = []
    for file in sorted(files):
        with suppress(OSError):
            status = file.stat()
            # A name that is not UTF-8 contains lone surrogates, which cannot be encoded for a digest.
            name = file.relative_to(path.parent).as_posix().encode("utf-8", "backslashreplace").decode()
            stamps.append((name, status.st_size, status.st_mtime_ns))
    return stamps
