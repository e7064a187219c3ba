"""All files of the configuration, and the planner of their benchmarks and models.

The whole configuration is checked: a name in one file must exist in the other file that it refers to.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from audit_pipeline import extras
from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import Benchmarks, BenchmarkSpec, exclude_on_request, resolve_benchmarks
from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.config.problems import BrokenFileError, Fault, Keys, Problem, did_you_mean
from audit_pipeline.detectors.registry import ONE_PASS, REGISTRY
from audit_pipeline.errors import AuditError
from audit_pipeline.models import config as models
from audit_pipeline.models import model_proposals
from audit_pipeline.models.config import ModelEntry, exclude_control_models, is_path_or_hub_id
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import STAGES, STAGES_FILE
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState, find_seen_models
from audit_pipeline.sources import config as sources
from audit_pipeline.sources.config import SourceSettings, all_sources
from audit_pipeline.store.paths import DataPaths, config_dir
from audit_pipeline.tables import Pair

E = TypeVar("E")
T = TypeVar("T")

_FILES_OF_EXTRAS: Mapping[str, EntryFile[Any]] = collect_by_name(
    extras.find_modules("config"),
    label="files of config/",
    is_wanted=lambda value: isinstance(value, EntryFile),
    name_of=lambda file: file.name,
)
_READERS: tuple[tuple[EntryFile[Any], Callable[[Path], Any]], ...] = (
    (sources.FILE, sources.load_source_settings),
    (models.FILE, models.load_models),
    (benchmarks.FILE, benchmarks.load_benchmarks),
    (STAGES_FILE, STAGES_FILE.load),
    (model_proposals.FILE, model_proposals.load_watched),
    *((file, file.load) for file in _FILES_OF_EXTRAS.values()),
)
"""Every file and its reader: the core's files, and the files that the ``config`` modules of extras declare."""
FILES = tuple(file.name for file, _ in _READERS)
"""The names of all files."""
FILES_OF_AUDITS = tuple(file.name for file, _ in _READERS if file.affects_audits)
"""The names of the files that audits depend on."""
FILES_BY_DIMENSION = {file.dimension: file for file, _ in _READERS if file.dimension is not None}
"""The files whose entries are names of partitions, by the dimension of the partitions."""


@dataclass(frozen=True)
class Configuration:
    """All files of the configuration.

    An entry that names a missing entry counts as broken. An unreadable file raises its error when it is needed.

    Attributes:
        folder: The folder of the configuration.
    """

    folder: Path
    _files: Mapping[str, Any]

    @property
    def sources(self) -> SourceSettings:
        """Return the settings of sources.yaml."""
        return cast(SourceSettings, self._require_read(sources.FILE))

    @property
    def models(self) -> Entries[ModelEntry]:
        """Return the entries of models.yaml."""
        return cast(Entries[ModelEntry], self._require_read(models.FILE))

    @property
    def benchmarks(self) -> Benchmarks:
        """Return the benchmarks of benchmarks.yaml."""
        return cast(Benchmarks, self._require_read(benchmarks.FILE))

    def benchmarks_named(self, name: str) -> list[BenchmarkSpec]:
        """Return the benchmarks that a user named, as :func:`resolve_benchmarks` does.

        Raises:
            ConfigError: If the name or its entry is wrong, or if the settings of one of its sources are broken.
        """
        specs = resolve_benchmarks(name, self.benchmarks)
        for spec in specs:
            for source in spec.sources:
                self.sources.sections.require_not_broken(source)
        return specs

    def entries_of(self, file: EntryFile[E]) -> Entries[E]:
        """Return the entries of a file."""
        return cast(Entries[E], self._require_read(file))

    def pairs_of_control(self, control: str) -> list[Pair]:
        """Return the pairs of each model and each benchmark of a control."""
        model_names = [model.name for model in self.models.values() if model.control and model.control.name == control]
        benchmark_names = [spec.name for spec in self.benchmarks.values() if spec.control == control]
        return [Pair(benchmark, model) for model in model_names for benchmark in benchmark_names]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of all files, in the order of the files."""
        return tuple(itertools.chain.from_iterable(map(self.problems_of, FILES)))

    def problems_except_unreadable(self, file: str) -> tuple[Problem, ...]:
        """Return the problems of all files, except the problem that a file is unreadable.

        Args:
            file: The name of the file. A caller that needs the file gets the problem as an error.
        """
        return tuple(problem for problem in self.problems if problem.entry is not None or problem.path.name != file)

    def problems_of(self, file: str) -> tuple[Problem, ...]:
        """Return the problems of a file of ``FILES``."""
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
    """Load every file of the configuration. Errors are not raised, but become problems of the configuration.

    Args:
        folder: The folder of the files. By default the workspace's.
    """
    folder = folder or config_dir()

    def read(load: Callable[[Path], T]) -> T | AuditError:
        try:
            return load(folder)
        except AuditError as error:
            return error

    files: dict[str, Any] = {file.name: read(load) for file, load in _READERS}
    compared: dict[str, Mapping[str, Sequence[Fault]]] = {}
    for file, _ in _READERS:
        entries = files[file.name]
        if file.find_conflicts is not None and isinstance(entries, Entries):
            # The comparison needs the entries as read. Below, entries with dangling references are marked as broken.
            compared[file.name] = file.find_conflicts(entries, files)
    names = _collect_names(files)
    for file, _ in _READERS:
        entries = files[file.name]
        if file.references and not isinstance(entries, AuditError):
            files[file.name] = entries.with_faults(
                _find_dangling_references(entries.raw_values, file.references, names)
            )
    for name, faults in compared.items():
        files[name] = files[name].with_faults(faults)
    return Configuration(folder, files)


def _collect_names(files: Mapping[str, Any]) -> dict[str, Collection[str] | None]:
    """Return the names that entries can refer to, by kind, including the names of broken entries.

    The names of an unreadable file are None, because references to its entries cannot be checked.
    """
    names: dict[str, Collection[str] | None] = {
        "source": tuple(all_sources()),
        "detector": tuple(REGISTRY),
        "one-pass detector": tuple(ONE_PASS),
    }
    for file, _ in _READERS:
        entries = files[file.name]
        names[file.entry_kind] = entries.names if isinstance(entries, Entries) else None
    return names


def _find_dangling_references(
    entries: Mapping[str, object], references: Sequence[EntryReference], names: Mapping[str, Collection[str] | None]
) -> dict[str, list[Fault]]:
    """Return the references to missing entries as faults, by the name of the referring entry.

    Args:
        entries: The values of all entries as written, including broken entries.
        references: The keys that refer to other entries.
        names: The existing names by kind.
    """
    faults: dict[str, list[Fault]] = defaultdict(list)
    for entry, value in entries.items():
        for reference in references:
            known = names[reference.target_kind]
            if known is None:
                continue
            for keys, name in _iterate_texts(value, reference.keys):
                is_external = reference.allow_external and is_path_or_hub_id(name)
                if name not in known and not is_external:
                    hint = did_you_mean(name, known)
                    faults[entry].append(
                        Fault(keys, f"{reference.key}: there is no {reference.target_kind} '{name}'; {hint}")
                    )
    return faults


def _iterate_texts(value: object, keys: tuple[str, ...]) -> Iterator[tuple[Keys, str]]:
    """Yield the text at nested keys, or each text of the list at these keys, with its location."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        yield keys, value
    if isinstance(value, list):
        for index, text in enumerate(value):
            if isinstance(text, str):
                yield (*keys, index), text


def build_configured_planner(config: Configuration, paths: DataPaths, *, on_request: bool = False) -> Planner:
    """Return the planner of the configured benchmarks and models.

    No model is loaded. A model counts as new if its entry or its files changed since it was last loaded. It also counts
    as new if the entry or the files of its reference model changed.

    Args:
        config: The configuration.
        paths: The data folder.
        on_request: Whether to include the models of controls, and the benchmarks that are audited only on request.

    Raises:
        ConfigError: If a file of the configuration cannot be read.
    """
    entries: Mapping[str, ModelEntry] = config.models
    specs: Mapping[str, BenchmarkSpec] = config.benchmarks
    if not on_request:
        entries = exclude_control_models(config.models)
        specs = exclude_on_request(config.benchmarks)
    seen = find_seen_models(entries, paths)
    for name, model in list(seen.items()):
        reference = seen.get(model.entry.detector_reference or name, model)
        if not (model.is_current and reference.is_current):
            seen[name] = replace(model, identity=replace(model.identity, model_fingerprint="new"))
    return Planner(WorkspaceState(paths, specs, entries, seen), STAGES)


def build_configured_scope(planner: Planner) -> Scope:
    """Return the scope of all models of a planner on all its benchmarks."""
    return Scope.of_all_pairs(planner.state.specs, planner.state.entries)
