"""All files of the configuration together: what one names must be in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import Benchmarks, BenchmarkSpec, resolve_benchmarks
from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import BrokenFileError, Fault, Keys, Problem
from audit_pipeline.detectors.registry import ONE_PASS, REGISTRY
from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.extras.chat import config as asking
from audit_pipeline.extras.controls import config as controls
from audit_pipeline.extras.controls.config import ControlEntry, StudyEntry
from audit_pipeline.extras.corpora import config as references
from audit_pipeline.models import config as models
from audit_pipeline.models import watch
from audit_pipeline.models.config import ModelEntry, is_path_or_hub_id
from audit_pipeline.pipeline.stages import settings
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.config import SourceSettings, all_sources
from audit_pipeline.store.paths import config_dir

T = TypeVar("T")

_READ: tuple[tuple[EntryFile[Any], Callable[[Path], Any]], ...] = (
    (sources.FILE, sources.load_source_settings),
    (references.FILE, references.load_references),
    (models.FILE, models.load_models),
    (controls.FILE, controls.load_controls),
    (controls.STUDIES_FILE, controls.load_studies),
    (benchmarks.FILE, benchmarks.load_benchmarks),
    (asking.FILE, asking.load_chat_models),
    (settings.FILE, settings.load_stage_entries),
    (watch.FILE, watch.load_watched),
)
"""Every file, and how it is read: a new one needs a line here and nothing else."""
FILES = tuple(file.name for file, _ in _READ)
OF_AUDITS = (sources.FILE.name, references.FILE.name, models.FILE.name, benchmarks.FILE.name)
"""Those that an audit depends on without naming them."""


@dataclass(frozen=True)
class Configuration:
    """Every file as it is now, entries broken that name what there is not.

    A file that cannot be read at all raises its own error where it is needed, and only there.
    """

    folder: Path
    _files: Mapping[str, Any]

    @property
    def sources(self) -> SourceSettings:
        return cast(SourceSettings, self._require_read(sources.FILE))

    @property
    def models(self) -> Entries[ModelEntry]:
        return cast(Entries[ModelEntry], self._require_read(models.FILE))

    @property
    def controls(self) -> Entries[ControlEntry]:
        return cast(Entries[ControlEntry], self._require_read(controls.FILE))

    @property
    def studies(self) -> Entries[StudyEntry]:
        return cast(Entries[StudyEntry], self._require_read(controls.STUDIES_FILE))

    @property
    def benchmarks(self) -> Benchmarks:
        return cast(Benchmarks, self._require_read(benchmarks.FILE))

    def benchmarks_named(self, name: str) -> list[BenchmarkSpec]:
        """The benchmarks that a user means by ``name``, as :func:`resolve_benchmarks` finds them.

        Raises ConfigError, too, where the settings of a source of theirs are broken.
        """
        specs = resolve_benchmarks(name, self.benchmarks)
        for source in dict.fromkeys(source for spec in specs for source in spec.sources):
            self.sources.sections.require_not_broken(source)
        return specs

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong, file by file."""
        return tuple(problem for name in FILES for problem in self.problems_of(name))

    def problems_except_unreadable(self, file: str) -> tuple[Problem, ...]:
        """The same without why ``file`` cannot be read at all: that error is raised where it is needed."""
        return tuple(problem for problem in self.problems if problem.entry is not None or problem.path.name != file)

    def problems_of(self, file: str) -> tuple[Problem, ...]:
        """All that is wrong with one of ``FILES``."""
        read = self._files[file]
        if isinstance(read, BrokenFileError):
            return (read.problem,)
        if isinstance(read, AuditError):
            return (Problem(self.folder / file, None, f"cannot be read: {read}"),)
        return tuple(read.problems)

    def _require_read(self, file: EntryFile[Any]) -> Any:
        read = self._files[file.name]
        if isinstance(read, AuditError):
            raise read
        return read


def load_configuration(folder: Path | None = None) -> Configuration:
    """Every file of ``folder``, the configuration's by default; nothing is raised, and all is among the problems."""
    folder = folder or config_dir()

    def read(load: Callable[[Path], T]) -> T | AuditError:
        try:
            return load(folder)
        except AuditError as error:
            return error

    files: dict[str, Any] = {file.name: read(load) for file, load in _READ}
    # The names in a file, those of its broken entries too; None where it cannot be read, and so nothing be said.
    names: dict[str, Collection[str] | None] = {
        "source": tuple(all_sources()),
        "detector": tuple(REGISTRY),
        "one-pass detector": tuple(ONE_PASS),
    }
    for file, _ in _READ:
        entries = files[file.name]
        names[file.what] = entries.names if isinstance(entries, Entries) else None
    # A study's values are checked even where what it names is wrong.
    varied = _find_invalid_variations(files[controls.STUDIES_FILE.name], files[controls.FILE.name])
    for file, _ in _READ:
        entries = files[file.name]
        if file.leads and not isinstance(entries, AuditError):
            files[file.name] = entries.without(_find_dangling_references(entries.given, file.leads, names))
    if varied:
        files[controls.STUDIES_FILE.name] = files[controls.STUDIES_FILE.name].without(varied)
    return Configuration(folder, files)


def _find_dangling_references(
    entries: Mapping[str, object], leads: Sequence[EntryReference], names: Mapping[str, Collection[str] | None]
) -> dict[str, list[Fault]]:
    """What is named in the values of entries, broken entries too, and is not there; by entry."""
    found: dict[str, list[Fault]] = defaultdict(list)
    for entry, given in entries.items():
        for lead in leads:
            known = names[lead.to]
            for keys, name in _texts_at(given, lead.keys):
                if known is not None and name not in known and not (lead.or_elsewhere and is_path_or_hub_id(name)):
                    hint = did_you_mean(name, known)
                    found[entry].append(Fault(keys, f"{lead.key}: there is no {lead.to} '{name}'; {hint}"))
    return found


def _texts_at(value: object, keys: tuple[str, ...]) -> Iterator[tuple[Keys, str]]:
    """Yield the text, or the texts of the list, that ``keys`` lead to, each with its place."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        yield keys, value
    if isinstance(value, list):
        for place, text in enumerate(value):
            if isinstance(text, str):
                yield (*keys, place), text


def _find_invalid_variations(
    studies: Entries[StudyEntry] | AuditError, control_entries: Entries[ControlEntry] | AuditError
) -> dict[str, list[Fault]]:
    """What a study varies and its control does not have, or not with that value; by study."""
    found: dict[str, list[Fault]] = defaultdict(list)
    if isinstance(studies, AuditError) or isinstance(control_entries, AuditError):
        return found
    for name, study in studies.items():
        control = control_entries.get(study.control)
        if control is None:
            continue
        variations = [(key, place, value) for key, values in study.vary.items() for place, value in enumerate(values)]
        for setting, place, value in variations:
            try:
                control.changed(**{setting: value})
            except ConfigError as error:
                found[name].append(Fault(("vary", setting, place), f"vary.{setting}: {value}: {error}"))
    return found
