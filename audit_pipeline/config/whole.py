"""All files of the configuration together: what one names must be in another.

What belongs here: loading every file, and the names that lead from one to another. What does not: what is wrong within
an entry (its own domain), and how problems are told (cli/, operate/doctor.py, operate/dagster/).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from audit_pipeline.benchmarks.config import FILE_NAME as BENCHMARKS
from audit_pipeline.benchmarks.config import Benchmarks, BenchmarkSpec, load_benchmarks, resolve
from audit_pipeline.catalogue.paths import config_dir
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import BrokenFileError, Fault, Keys, Problem
from audit_pipeline.controls.config import FILE_NAME as CONTROLS
from audit_pipeline.controls.config import STUDIES_FILE_NAME as STUDIES
from audit_pipeline.controls.config import ControlEntry, StudyEntry, load_controls, load_studies
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import AuditError, ConfigError
from audit_pipeline.models.config import FILE_NAME as MODELS
from audit_pipeline.models.config import ModelEntry, is_elsewhere, load_models
from audit_pipeline.models.watch import FILE_NAME as WATCH
from audit_pipeline.models.watch import load_watched
from audit_pipeline.references.config import FILE_NAME as REFERENCES
from audit_pipeline.references.config import ReferenceEntry, load_references
from audit_pipeline.sources.config import FILE_NAME as SOURCES_FILE
from audit_pipeline.sources.config import SourceSettings, load_source_settings
from audit_pipeline.sources.registry import SOURCES

T = TypeVar("T")

FILES = (SOURCES_FILE, REFERENCES, MODELS, CONTROLS, STUDIES, BENCHMARKS, WATCH)
OF_AUDITS = (SOURCES_FILE, REFERENCES, MODELS, BENCHMARKS)
"""Those that an audit rests on which nobody asks for by name."""


@dataclass(frozen=True)
class _Lead:
    """A key whose text, or texts, name a source, model or the like (``to``), or of models also a hub id or path."""

    keys: tuple[str, ...]
    to: str
    or_elsewhere: bool = False

    @property
    def key(self) -> str:
        return ".".join(self.keys)


_OF_FAMILY = (
    _Lead(("sources",), "source"),
    _Lead(("held_out", "sources"), "source"),
    _Lead(("members", "sources"), "source"),
    _Lead(("control",), "control"),
)
_OF_CONTROL = (_Lead(("sources",), "source"), _Lead(("base",), "model", or_elsewhere=True))
_OF_STUDY = (_Lead(("control",), "control"), _Lead(("detectors",), "detector"))
_OF_MODEL = (
    _Lead(("control", "name"), "control"),
    _Lead(("reference_model",), "model", or_elsewhere=True),
    _Lead(("reference_corpus",), "corpus"),
)


@dataclass(frozen=True)
class Configuration:
    """Every file as it is now, entries broken that name what there is not.

    A file that cannot be read at all raises its own error to whoever asks for it, and to nobody else.
    """

    folder: Path
    _sources: SourceSettings | AuditError
    _references: Entries[ReferenceEntry] | AuditError
    _models: Entries[ModelEntry] | AuditError
    _controls: Entries[ControlEntry] | AuditError
    _studies: Entries[StudyEntry] | AuditError
    _benchmarks: Benchmarks | AuditError
    _watched: Entries[tuple[str, ...]] | AuditError

    @property
    def sources(self) -> SourceSettings:
        return _readable(self._sources)

    @property
    def models(self) -> Entries[ModelEntry]:
        return _readable(self._models)

    @property
    def controls(self) -> Entries[ControlEntry]:
        return _readable(self._controls)

    @property
    def studies(self) -> Entries[StudyEntry]:
        return _readable(self._studies)

    @property
    def benchmarks(self) -> Benchmarks:
        return _readable(self._benchmarks)

    def benchmarks_named(self, name: str) -> list[BenchmarkSpec]:
        """The benchmarks that a user means by ``name``, as :func:`resolve` finds them.

        Raises ConfigError, too, where the settings of a source of theirs are broken.
        """
        specs = resolve(name, self.benchmarks)
        for source in dict.fromkeys(source for spec in specs for source in spec.sources):
            self.sources.require_usable(source)
        return specs

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong, file by file."""
        return tuple(problem for name in FILES for problem in self.problems_of(name))

    def problems_beside(self, file: str) -> tuple[Problem, ...]:
        """The same without why ``file`` cannot be read at all: that is the error of whoever needs it."""
        return tuple(one for one in self.problems if one.entry is not None or one.path.name != file)

    def problems_of(self, file: str) -> tuple[Problem, ...]:
        """All that is wrong with one of ``FILES``."""
        read = dict(
            zip(
                FILES,
                (
                    *(self._sources, self._references, self._models, self._controls),
                    *(self._studies, self._benchmarks, self._watched),
                ),
                strict=True,
            )
        )[file]
        if isinstance(read, BrokenFileError):
            return (read.problem,)
        if isinstance(read, AuditError):
            return (Problem(self.folder / file, None, f"cannot be read: {read}"),)
        return read.problems


def load_configuration(folder: Path | None = None) -> Configuration:
    """Every file of ``folder``, the configuration's by default; nothing is raised, and all is among the problems."""
    folder = folder or config_dir()

    def read(load: Callable[[Path], T]) -> T | AuditError:
        try:
            return load(folder)
        except AuditError as error:
            return error

    references, controls, models = read(load_references), read(load_controls), read(load_models)
    studies, benchmarks = read(load_studies), read(load_benchmarks)
    names = {
        "source": tuple(SOURCES),
        "detector": tuple(REGISTRY),
        "corpus": _names(references),
        "control": _names(controls),
        "model": _names(models),
    }
    if not isinstance(models, AuditError):
        models = models.without(_astray(models, _OF_MODEL, names))
    if not isinstance(controls, AuditError):
        controls = controls.without(_astray(controls, _OF_CONTROL, names))
    if not isinstance(studies, AuditError):
        varied = {} if isinstance(controls, AuditError) else _not_to_be_varied(studies, controls)
        studies = studies.without(_astray(studies, _OF_STUDY, names)).without(varied)
    if not isinstance(benchmarks, AuditError):
        benchmarks = benchmarks.without(_astray(benchmarks.families, _OF_FAMILY, names))
    return Configuration(
        folder, read(load_source_settings), references, models, controls, studies, benchmarks, read(load_watched)
    )


def _readable(read: T | AuditError) -> T:
    if isinstance(read, AuditError):
        raise read
    return read


def _names(entries: Entries[T] | AuditError) -> Collection[str] | None:
    """The names in a file, those of its broken entries too; None where it cannot be read, and so nothing be said."""
    return None if isinstance(entries, AuditError) else entries.names


def _astray(
    entries: Entries[T], leads: Sequence[_Lead], names: Mapping[str, Collection[str] | None]
) -> dict[str, list[Fault]]:
    """What is named in ``entries``, broken ones too, and is not there; by entry."""
    found: dict[str, list[Fault]] = defaultdict(list)
    for entry, given in entries.given.items():
        for lead in leads:
            known = names[lead.to]
            for keys, name in _texts_at(given, lead.keys):
                if known is not None and name not in known and not (lead.or_elsewhere and is_elsewhere(name)):
                    hint = did_you_mean(name, known)
                    found[entry].append(Fault(keys, f"{lead.key}: there is no {lead.to} '{name}'; {hint}"))
    return found


def _texts_at(given: object, keys: tuple[str, ...]) -> Iterator[tuple[Keys, str]]:
    """The text, or the texts of the list, that ``keys`` lead to, each with its own place; what else stands there is
    for those to refuse who know what may."""
    for key in keys:
        given = given.get(key) if isinstance(given, dict) else None
    if isinstance(given, str):
        yield keys, given
    if isinstance(given, list):
        for place, one in enumerate(given):
            if isinstance(one, str):
                yield (*keys, place), one


def _not_to_be_varied(studies: Entries[StudyEntry], controls: Entries[ControlEntry]) -> dict[str, list[Fault]]:
    """What a study varies and its control does not have, or not with that value; by study."""
    found: dict[str, list[Fault]] = defaultdict(list)
    for name, study in studies.items():
        control = controls.get(study.control)
        if control is None:
            continue
        for setting, values in study.vary.items():
            for place, value in enumerate(values):
                try:
                    control.changed(**{setting: value})
                except ConfigError as error:
                    found[name].append(Fault(("vary", setting, place), f"vary.{setting}: {value}: {error}"))
    return found
