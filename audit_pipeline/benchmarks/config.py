"""config/benchmarks.yaml: the families of benchmarks, what each is built by, and the benchmarks that they expand to.

A benchmark has one length in words; a family lists several: `release_notes` with words [32, 64] is the benchmarks
`release_notes_32` and `release_notes_64`. A family with words `any` is one benchmark of its own name, whose texts are
as long as they are.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

from audit_pipeline.benchmarks import builders
from audit_pipeline.benchmarks.builder_interface import Builder
from audit_pipeline.benchmarks.days_before_today import ensure_reference_day, parse_cutoff, read_reference_day
from audit_pipeline.benchmarks.settings import FILE_NAME, BenchmarkSpec, FamilySettings, build_benchmark_name
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.config.problems import (
    BrokenFileError,
    Fault,
    InvalidEntryError,
    Problem,
    did_you_mean,
    find_nearest_names,
    split_names,
)
from audit_pipeline.config.validation import resolve_paths_against, validate_as
from audit_pipeline.errors import ConfigError
from audit_pipeline.store.paths import DataPaths, explain_invalid_partition


def _find_builders() -> dict[str, Builder[Any]]:
    """The builder of every module in builders/: a new module needs no entry here."""
    names = [f"{builders.__name__}.{module.name}" for module in pkgutil.iter_modules(builders.__path__)]
    modules = (importlib.import_module(name) for name in names)
    return collect_by_name(
        modules,
        label="builders",
        is_wanted=lambda value: isinstance(value, Builder),
        name_of=lambda builder: builder.name,
    )


BUILDERS: Mapping[str, Builder[Any]] = _find_builders()


__all__ = [
    "BUILDERS",
    "FILE_NAME",
    "BenchmarkSpec",
    "exclude_on_request",
    "find_moved_cutoffs",
    "load_benchmarks",
    "resolve_benchmarks",
]

# No bar, which divides partition names; no slash, blank or dot, which would need quoting in paths and ranges.
_FAMILY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Family:
    """An entry of benchmarks.yaml: its settings, and the words of its cutoffs that are relative to today."""

    settings: FamilySettings
    relative: Mapping[str, str]


class Benchmarks(Entries[BenchmarkSpec]):
    """The benchmarks of the families that can be used; problems of broken families are by family.

    Which benchmarks a broken family would be is not known: its own name, and its name with any length, count as its.
    """

    def __init__(self, families: Entries[Family]) -> None:
        self.families = families
        specs = [
            BenchmarkSpec(name, words, family.settings, family.relative)
            for name, family in families.items()
            for words in family.settings.words or (None,)
        ]
        super().__init__(families.path, "benchmark", {spec.name: spec for spec in specs}, raw_values=families.raw_values)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.families.problems

    def is_broken(self, name: str) -> bool:
        return self._find_broken_family(name) is not None

    def require_not_broken(self, name: str) -> None:
        if (family := self._find_broken_family(name)) is not None:
            self.families.require_not_broken(family)

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Benchmarks:
        """The benchmarks with those families broken that have ``faults``, by family."""
        return Benchmarks(self.families.with_faults(faults))

    def _find_broken_family(self, name: str) -> str | None:
        if name in self:
            return None
        family = re.sub("_[0-9]+$", "", name)
        return next((broken for broken in (name, family) if self.families.is_broken(broken)), None)


def load_benchmarks(folder: Path | None = None, today: date | None = None) -> Benchmarks:
    """The benchmarks of benchmarks.yaml by name, in the file's order, shortest length as listed first.

    Cutoffs relative to today count from ``today``; without it, from the rolled day of the data folder, or,
    if that is not recorded yet, from today's date (UTC).
    Raises ConfigError, naming the file, where none of it can be read, and DataError where a cutoff is relative to today
    and the kept day cannot be read.
    """

    @cache
    def day() -> date:
        return read_reference_day(DataPaths.from_environment()) if today is None else today

    families = replace(FILE, read=partial(_parse_family, day)).load(folder)
    if not families.names:
        raise BrokenFileError(Problem(families.path, None, "holds no family under 'benchmarks'"))
    benchmarks = Benchmarks(families.with_faults(_find_name_collisions(families)))
    return benchmarks.with_faults(_find_missing_pools(benchmarks))


def exclude_on_request(benchmarks: Mapping[str, BenchmarkSpec]) -> Mapping[str, BenchmarkSpec]:
    """Those of ``benchmarks`` that sensors, the weekly audit and `all` mean: all but those on request."""
    return {name: spec for name, spec in benchmarks.items() if not spec.settings.on_request}


def resolve_benchmarks(name: str, benchmarks: Benchmarks | None = None) -> list[BenchmarkSpec]:
    """Return the benchmarks that ``name`` means: one by its own name, all of a family, or a list of both with commas.

    Args:
        name: What the user typed.
        benchmarks: The known benchmarks. Default: those of benchmarks.yaml.

    Raises:
        ConfigError: If a family is broken, with all that is wrong with it, or if there is no benchmark of a name, with
            the nearest names.
    """
    known = load_benchmarks() if benchmarks is None else benchmarks
    if "," in name:
        found = (spec for part in split_names(name) for spec in resolve_benchmarks(part, known))
        return list({spec.name: spec for spec in found}.values())
    if name in known:
        return [known[name]]
    known.require_not_broken(name)
    family = [spec for spec in known.values() if spec.family == name]
    if family:
        return family
    names = list(dict.fromkeys([*known, *(spec.family for spec in known.values())]))
    hint = did_you_mean(name, names) if find_nearest_names(name, names) else did_you_mean(name, known)
    raise ConfigError(f"there is no benchmark '{name}' in config/{FILE_NAME}; {hint}")


def resolve_spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """Return the benchmark of a name. If its cutoffs count from today, that day is kept from now on.

    Raises:
        ConfigError: If there is no benchmark of that name.
    """
    (spec,) = resolve_benchmarks(name)
    if spec.has_relative_cutoff:
        ensure_reference_day(paths)
        (spec,) = resolve_benchmarks(name)
    return spec


def find_moved_cutoffs(
    old_benchmarks: Mapping[str, BenchmarkSpec], new_benchmarks: Mapping[str, BenchmarkSpec]
) -> Mapping[str, list[str]]:
    """What rolling the day did: the benchmarks in both whose cutoffs are other dates now, with the moves in words."""
    moves: dict[str, list[str]] = {}
    for name, spec in new_benchmarks.items():
        for key in spec.settings.cutoffs if name in old_benchmarks else ():
            old, new = getattr(old_benchmarks[name].settings, key, None), getattr(spec.settings, key)
            if old is not None and old != new:
                moves.setdefault(name, []).append(f"{name} {key} {old} -> {new}")
    return moves


def _find_name_collisions(families: Entries[Family]) -> dict[str, Sequence[Fault]]:
    """What is wrong with families that have the name of another's benchmark."""
    return {
        f"{name}_{words}": [Fault((), f"its name is that of a benchmark of the family {name}; give it another")]
        for name, family in families.items()
        for words in family.settings.words or ()
        if f"{name}_{words}" in families.names
    }


def _find_missing_pools(benchmarks: Benchmarks) -> dict[str, Sequence[Fault]]:
    """What is wrong with families that are made of a benchmark that there is not, or of themselves."""
    pools = {name: getattr(family.settings, "pool", None) for name, family in benchmarks.families.items()}
    faults: dict[str, Sequence[Fault]] = {}
    for name, pool in pools.items():
        others = [spec.name for spec in benchmarks.values() if spec.family != name]
        if pool is not None and pool not in others and not benchmarks.is_broken(pool):
            words = f"pool: there is no other benchmark '{pool}'; {did_you_mean(pool, others)}"
            faults[name] = [Fault(("pool",), words)]
    return faults


def _parse_family(day: Callable[[], date], name: str, fields: Any, folder: Path) -> Family:
    if not _FAMILY_NAME.fullmatch(name):
        raise InvalidEntryError([Fault((), "a family's name is made of letters, digits, _ and - (no '|', no '/')")])
    kind = _find_settings_class(fields)
    dates, relative, faults = _parse_cutoffs(fields, kind.cutoffs, day)
    try:
        settings = validate_as(kind, {**fields, **dates})
    except InvalidEntryError as error:
        days = "".join(f"; {key} is {words}, {dates[key]}" for key, words in relative.items())
        faults += [fault if fault.keys else Fault(fault.keys, fault.words + days) for fault in error.faults]
    if faults:
        raise InvalidEntryError(faults)
    for words in settings.words or (None,):
        if (problem := explain_invalid_partition("benchmark", build_benchmark_name(name, words))) is not None:
            raise InvalidEntryError([Fault((), problem)])
    return Family(resolve_paths_against(folder, settings), relative)


def _find_settings_class(fields: Mapping[Any, object]) -> type[FamilySettings]:
    if "builder" not in fields:
        if near := find_nearest_names("builder", map(str, fields)):
            raise InvalidEntryError([Fault((near[0],), f"unknown key '{near[0]}'; did you mean builder?")])
        raise InvalidEntryError([Fault((), f"key 'builder' is missing; it is {_format_builder_names()}")])
    given = fields["builder"]
    if not isinstance(given, str) or given not in BUILDERS:
        near = find_nearest_names(str(given), BUILDERS)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidEntryError([Fault(("builder",), f"builder: must be {_format_builder_names()}{hint}")])
    return BUILDERS[given].settings


def _parse_cutoffs(
    fields: Mapping[Any, object], keys: Mapping[str, date], day: Callable[[], date]
) -> tuple[dict[str, date], dict[str, str], list[Fault]]:
    """The cutoffs that a family names under ``keys``, the words of those relative to today, and what is wrong."""
    dates: dict[str, date] = {}
    relative: dict[str, str] = {}
    faults: list[Fault] = []
    for key, placeholder in keys.items():
        if key not in fields:
            continue
        try:
            dates[key], words = parse_cutoff(fields[key], day)
        except ValueError as error:
            faults.append(Fault((key,), f"{key}: {error}"))
            dates[key] = placeholder
        else:
            relative |= {key: words} if words is not None else {}
    return dates, relative, faults


def _format_builder_names() -> str:
    *names, last = BUILDERS
    return f"{', '.join(names)} or {last}"


FILE = EntryFile(
    FILE_NAME,
    "benchmarks",
    "family",
    "it says which benchmarks there are",
    partial(_parse_family, lambda: read_reference_day(DataPaths.from_environment())),
    references=tuple(dict.fromkeys(lead for builder in BUILDERS.values() for lead in builder.settings.references)),
    affects_audits=True,
)
