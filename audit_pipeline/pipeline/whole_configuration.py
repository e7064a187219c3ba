"""All files of the configuration together: what one names must be in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from audit_pipeline import extras
from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import Benchmarks, BenchmarkSpec, resolve_benchmarks
from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.config.problems import BrokenFileError, Fault, Keys, Problem, did_you_mean
from audit_pipeline.detectors.registry import ONE_PASS, REGISTRY
from audit_pipeline.errors import AuditError
from audit_pipeline.models import config as models
from audit_pipeline.models import model_proposals
from audit_pipeline.models.config import ModelEntry, is_path_or_hub_id
from audit_pipeline.pipeline.registry import STAGES_FILE
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.config import SourceSettings, all_sources
from audit_pipeline.store.paths import config_dir
from audit_pipeline.tables import Pair

E = TypeVar("E")
T = TypeVar("T")

_OF_EXTRAS: Mapping[str, EntryFile[Any]] = collect_by_name(
    extras.find_modules("config"),
    label="files of config/",
    is_wanted=lambda value: isinstance(value, EntryFile),
    name_of=lambda file: file.name,
)
_READ: tuple[tuple[EntryFile[Any], Callable[[Path], Any]], ...] = (
    (sources.FILE, sources.load_source_settings),
    (models.FILE, models.load_models),
    (benchmarks.FILE, benchmarks.load_benchmarks),
    (STAGES_FILE, STAGES_FILE.load),
    (model_proposals.FILE, model_proposals.load_watched),
    *((file, file.load) for file in _OF_EXTRAS.values()),
)
"""Every file, and how it is read: those of the core, and those in the modules ``config`` of extras."""
FILES = tuple(file.name for file, _ in _READ)
OF_AUDITS = tuple(file.name for file, _ in _READ if file.affects_audits)
OF_DIMENSIONS = {file.dimension: file for file, _ in _READ if file.dimension is not None}
"""The files whose entries have products of their own, by the dimension of these."""


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

    def entries_of(self, file: EntryFile[E]) -> Entries[E]:
        """The entries of a file that is none of the core's."""
        return cast(Entries[E], self._require_read(file))

    def pairs_of_control(self, control: str) -> list[Pair]:
        """Each model of a control on each benchmark of it."""
        models = [model.name for model in self.models.values() if model.control and model.control.name == control]
        own = [spec.name for spec in self.benchmarks.values() if spec.control == control]
        return [Pair(benchmark, model) for model in models for benchmark in own]

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
        names[file.entry_kind] = entries.names if isinstance(entries, Entries) else None
    # Of all that could be read by itself, also where what it names is wrong.
    compared = {
        file.name: file.find_conflicts(entries, files)
        for file, _ in _READ
        if file.find_conflicts is not None and isinstance(entries := files[file.name], Entries)
    }
    for file, _ in _READ:
        entries = files[file.name]
        if file.references and not isinstance(entries, AuditError):
            files[file.name] = entries.with_faults(
                _find_dangling_references(entries.raw_values, file.references, names)
            )
    for name, faults in compared.items():
        files[name] = files[name].with_faults(faults)
    return Configuration(folder, files)


def _find_dangling_references(
    entries: Mapping[str, object], references: Sequence[EntryReference], names: Mapping[str, Collection[str] | None]
) -> dict[str, list[Fault]]:
    """What is named in the values of entries, broken entries too, and is not there; by entry."""
    found: dict[str, list[Fault]] = defaultdict(list)
    for entry, given in entries.items():
        for lead in references:
            known = names[lead.target_kind]
            for keys, name in _texts_at(given, lead.keys):
                if known is not None and name not in known and not (lead.allow_external and is_path_or_hub_id(name)):
                    hint = did_you_mean(name, known)
                    found[entry].append(Fault(keys, f"{lead.key}: there is no {lead.target_kind} '{name}'; {hint}"))
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
