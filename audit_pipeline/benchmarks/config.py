"""The file config/benchmarks.yaml: families of benchmarks, their builders, and their benchmarks.

A benchmark has one length in words. A family lists several lengths: `release_notes` with words [32, 64] is the
benchmarks `release_notes_32` and `release_notes_64`. A family with words `any` is one benchmark with the family's name.
Its texts have any length.

A cutoff can be relative, such as "90 days before today". If a relative cutoff moved at midnight, its benchmark would be
stale every day. So a day that is stored in the data folder counts as today: the reference day. Only the weekly audit
and `corpus-audit audit --refresh` move it forward.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from dateutil.relativedelta import relativedelta

from audit_pipeline.benchmarks import builders
from audit_pipeline.benchmarks.builder_interface import Builder
from audit_pipeline.benchmarks.settings import FILE_NAME, BenchmarkSpec, FamilySettings, build_benchmark_name
from audit_pipeline.config import problems
from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem, did_you_mean, find_nearest_names
from audit_pipeline.config.validation import resolve_paths_against, validate_as
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DataPaths, explain_invalid_partition


def _find_builders() -> dict[str, Builder[Any]]:
    """Return the builders of all modules in builders/, sorted by name. A new module needs no registration."""
    modules = []
    for module in pkgutil.iter_modules(builders.__path__):
        modules.append(importlib.import_module(f"{builders.__name__}.{module.name}"))
    found: dict[str, Builder[Any]] = collect_by_name(
        modules,
        label="builders",
        is_wanted=lambda value: isinstance(value, Builder),
        name_of=lambda builder: builder.name,
    )
    return dict(sorted(found.items()))


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

# The bar separates the parts of partition names. A slash, blank or dot would need quoting in paths and ranges.
_FAMILY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Family:
    """An entry of benchmarks.yaml.

    Attributes:
        settings: The settings. Cutoffs are dates.
        relative: The relative cutoffs in words, such as "90 days before today", by key.
    """

    settings: FamilySettings
    relative: Mapping[str, str]


class Benchmarks(Entries[BenchmarkSpec]):
    """The benchmarks of the valid families, and the problems of the broken families.

    The benchmarks of a broken family are unknown. So a name counts as broken if it is the name of a broken family, or
    such a name with a length.
    """

    def __init__(self, families: Entries[Family]) -> None:
        self.families = families
        specs = {}
        for name, family in families.items():
            for words in family.settings.words or (None,):
                spec = BenchmarkSpec(name, words, family.settings, family.relative)
                specs[spec.name] = spec
        super().__init__(families.path, "benchmark", specs, raw_values=families.raw_values)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of the broken families."""
        return self.families.problems

    def is_broken(self, name: str) -> bool:
        """Return True if the benchmark or family of this name is broken."""
        return self._find_broken_family(name) is not None

    def require_not_broken(self, name: str) -> None:
        """Raise ConfigError with all problems if the benchmark or family of this name is broken."""
        family = self._find_broken_family(name)
        if family is not None:
            self.families.require_not_broken(family)

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Benchmarks:
        """Return the benchmarks without the families that have ``faults``, which become broken."""
        return Benchmarks(self.families.with_faults(faults))

    def _find_broken_family(self, name: str) -> str | None:
        if name in self:
            return None
        for family in (name, re.sub("_[0-9]+$", "", name)):
            if self.families.is_broken(family):
                return family
        return None


def load_benchmarks(folder: Path | None = None, today: date | None = None) -> Benchmarks:
    """Load the benchmarks of benchmarks.yaml by name, in the order of the file and of the listed lengths.

    Args:
        folder: The folder of the file. The default is the configuration folder.
        today: The day that relative cutoffs count from. The default is the day that is stored in the data folder
            (:func:`read_reference_day`), or today's date (UTC) if no day is stored.

    Raises:
        ConfigError: If the file is unreadable. The message names it.
        DataError: If a cutoff is relative to today and the stored day is unreadable.
    """

    @cache
    def read_day() -> date:
        return read_reference_day(DataPaths.from_environment()) if today is None else today

    families = replace(FILE, read=partial(_parse_family, read_day)).load(folder)
    if not families.names:
        raise problems.BrokenFileError(
            Problem(
                families.path, None, "contains no family under the key 'benchmarks'. Add an entry, or restore the file."
            )
        )
    benchmarks = Benchmarks(families.with_faults(_find_name_collisions(families)))
    return benchmarks.with_faults(_find_missing_pools(benchmarks))


def exclude_on_request(benchmarks: Mapping[str, BenchmarkSpec]) -> Mapping[str, BenchmarkSpec]:
    """Return the benchmarks that sensors, the weekly audit and `all` include: all except those on request."""
    return {name: spec for name, spec in benchmarks.items() if not spec.settings.on_request}


def resolve_benchmarks(name: str, benchmarks: Benchmarks | None = None) -> list[BenchmarkSpec]:
    """Return the benchmarks of a name: a benchmark, all benchmarks of a family, or a comma-separated list of both.

    Args:
        name: The name that the user typed.
        benchmarks: The known benchmarks. The default is those of benchmarks.yaml.

    Raises:
        ConfigError: If a family is broken (with all its problems), or if a name is unknown (with similar names).
    """
    known = benchmarks
    if known is None:
        known = load_benchmarks()
    if "," in name:
        specs = {}
        for part in problems.split_names(name):
            for spec in resolve_benchmarks(part, known):
                specs[spec.name] = spec
        return list(specs.values())
    if name in known:
        return [known[name]]
    known.require_not_broken(name)
    family = [spec for spec in known.values() if spec.family == name]
    if family:
        return family
    names = dict.fromkeys(known)
    for spec in known.values():
        names[spec.family] = None
    hint = did_you_mean(name, known)
    if find_nearest_names(name, names):
        hint = did_you_mean(name, names)
    raise ConfigError(f"there is no benchmark '{name}' in config/{FILE_NAME}; {hint}")


def resolve_spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """Return the benchmark of a name. If its cutoffs are relative to today and no day is stored, store today's date.

    Raises:
        ConfigError: If the name is unknown.
    """
    (spec,) = resolve_benchmarks(name)
    if spec.has_relative_cutoff:
        ensure_reference_day(paths)
        (spec,) = resolve_benchmarks(name)
    return spec


def find_moved_cutoffs(
    old_benchmarks: Mapping[str, BenchmarkSpec], new_benchmarks: Mapping[str, BenchmarkSpec]
) -> Mapping[str, list[str]]:
    """Return, by benchmark, one description of each cutoff whose day differs between the old and the new benchmarks."""
    moves: dict[str, list[str]] = {}
    for name, spec in new_benchmarks.items():
        if name not in old_benchmarks:
            continue
        for key in spec.settings.cutoffs:
            old_day = getattr(old_benchmarks[name].settings, key, None)
            new_day = getattr(spec.settings, key)
            if old_day is not None and old_day != new_day:
                moves.setdefault(name, []).append(f"{name} {key} {old_day} -> {new_day}")
    return moves


def _find_name_collisions(families: Entries[Family]) -> dict[str, Sequence[Fault]]:
    """Return a fault for each family whose name is also the name of another family's benchmark."""
    faults: dict[str, Sequence[Fault]] = {}
    for name, family in families.items():
        for words in family.settings.words or ():
            benchmark = build_benchmark_name(name, words)
            if benchmark in families.names:
                message = f"this name is also the name of a benchmark of the family {name}. Rename one of the families."
                faults[benchmark] = [Fault((), message)]
    return faults


def _find_missing_pools(benchmarks: Benchmarks) -> dict[str, Sequence[Fault]]:
    """Return a fault for each family that takes its texts (key ``pool``) from an unknown benchmark or from itself."""
    faults: dict[str, Sequence[Fault]] = {}
    for name, family in benchmarks.families.items():
        pool = getattr(family.settings, "pool", None)
        others = [spec.name for spec in benchmarks.values() if spec.family != name]
        if pool is not None and pool not in others and not benchmarks.is_broken(pool):
            message = f"pool: there is no other benchmark '{pool}'; {did_you_mean(pool, others)}"
            faults[name] = [Fault(("pool",), message)]
    return faults


def _parse_family(read_day: Callable[[], date], name: str, fields: Any, folder: Path) -> Family:
    if not _FAMILY_NAME.fullmatch(name):
        raise InvalidEntryError(
            [
                Fault(
                    (),
                    "the name of a family may contain only letters, digits, _ and -, and must start with a letter or "
                    "digit",
                )
            ]
        )
    kind = _find_settings_class(fields)
    dates, relative, faults = _parse_cutoffs(fields, kind.cutoffs, read_day)
    try:
        settings = validate_as(kind, {**fields, **dates})
    except InvalidEntryError as error:
        # Faults of the whole entry often concern the cutoffs, so their dates are added.
        days = "".join(f" {key} is {words}, {dates[key]}." for key, words in relative.items())
        for fault in error.faults:
            if fault.keys:
                faults.append(fault)
            else:
                message = f"{fault.message.rstrip('.')}.{days}" if days else fault.message
                faults.append(Fault(fault.keys, message))
    if faults:
        raise InvalidEntryError(faults)
    for words in settings.words or (None,):
        problem = explain_invalid_partition("benchmark", build_benchmark_name(name, words))
        if problem is not None:
            raise InvalidEntryError([Fault((), problem)])
    return Family(resolve_paths_against(folder, settings), relative)


def _find_settings_class(fields: Mapping[Any, object]) -> type[FamilySettings]:
    if "builder" not in fields:
        misspelt = find_nearest_names("builder", map(str, fields))
        if misspelt:
            raise InvalidEntryError([Fault((misspelt[0],), f"unknown key '{misspelt[0]}'; did you mean builder?")])
        raise InvalidEntryError([Fault((), f"key 'builder' is missing. Set it to {_format_builder_names()}.")])
    builder = fields["builder"]
    if not isinstance(builder, str) or builder not in BUILDERS:
        similar = find_nearest_names(str(builder), BUILDERS)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        raise InvalidEntryError([Fault(("builder",), f"builder: must be {_format_builder_names()}{hint}")])
    return BUILDERS[builder].settings


def _parse_cutoffs(
    fields: Mapping[Any, object], placeholders: Mapping[str, date], read_day: Callable[[], date]
) -> tuple[dict[str, date], dict[str, str], list[Fault]]:
    """Parse the cutoffs of a family.

    Returns:
        The dates by key (a placeholder if a cutoff is unreadable), the words of relative cutoffs by key, and the
        faults.
    """
    dates: dict[str, date] = {}
    relative: dict[str, str] = {}
    faults: list[Fault] = []
    for key, placeholder in placeholders.items():
        if key not in fields:
            continue
        try:
            day, words = parse_cutoff(fields[key], read_day)
        except ValueError as error:
            faults.append(Fault((key,), f"{key}: {error}"))
            dates[key] = placeholder
            continue
        dates[key] = day
        if words is not None:
            relative[key] = words
    return dates, relative, faults


def _format_builder_names() -> str:
    *names, last = BUILDERS
    return f"{', '.join(names)} or {last}"


def _list_references() -> tuple[EntryReference, ...]:
    references: dict[EntryReference, None] = {}
    for builder in BUILDERS.values():
        references.update(dict.fromkeys(builder.settings.references))
    return tuple(references)


FILE = EntryFile(
    FILE_NAME,
    "benchmarks",
    "family",
    "it lists the benchmarks",
    partial(_parse_family, lambda: read_reference_day(DataPaths.from_environment())),
    references=_list_references(),
    affects_audits=True,
)


ACCEPTED = "a date (2025-01-31), or words: today, 90 days before today, 1 week before today, 6 months before today"

_WORDS = re.compile(r"(?:(?P<amount>[0-9]{1,5}) (?P<unit>day|week|month|year)s? before )?today")


def parse_cutoff(value: object, today: Callable[[], date]) -> tuple[date, str | None]:
    """Return the day of a cutoff, and its words if the cutoff is relative to ``today``.

    The words are in lower case with single blanks. If a month lacks the resulting day, its last day is used: 6 months
    before 31 August is 28 or 29 February.

    Raises:
        ValueError: If the value has no accepted form, or if the day does not exist or is out of range.
    """
    if isinstance(value, datetime):
        if value.timetz() == datetime.min.timetz():
            return value.date(), None
    elif isinstance(value, date):
        return value, None
    elif isinstance(value, str):
        words = " ".join(value.lower().split())
        if (match := _WORDS.fullmatch(words)) is not None:
            before = relativedelta(**{f"{match['unit'] or 'day'}s": int(match["amount"] or 0)})
            try:
                return today() - before, words
            except (ValueError, OverflowError) as error:
                raise ValueError(f"'{words}' is not an existing day ({error})") from error
        with suppress(ValueError):
            return date.fromisoformat(words), None
    raise ValueError(f"must be {ACCEPTED}; not {value!r}")


def read_stored_day(paths: DataPaths) -> date | None:
    """Return the day that counts as today, or None if no day is stored.

    Raises:
        DataError: If the file cannot be read.
    """
    path = paths.rolled_day
    try:
        return date.fromisoformat(read_json(path)["day"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the reference day cannot be read ({path}): {' '.join(str(error).split())}. "
            "Remove the file: relative cutoffs then count from today."
        ) from error


def move_reference_day(paths: DataPaths, day: date) -> bool:
    """Store the day that counts as today, and return True if it changed.

    Raises:
        DataError: If the stored day is later. Cutoffs only move forward, so that a clock that was wrong once does not
            move them back unnoticed.
    """
    rolled_day = read_stored_day(paths)
    if rolled_day is not None and day < rolled_day:
        raise DataError(
            f"the reference day is {rolled_day}, and it cannot move back to {day}. If {rolled_day} is wrong, remove "
            f"{paths.rolled_day} and run corpus-audit audit --refresh."
        )
    if day == rolled_day:
        return False
    write_json(paths.rolled_day, {"day": day.isoformat()})
    return True


def ensure_reference_day(paths: DataPaths) -> date:
    """Return the stored day that counts as today. If no day is stored, store today's date (UTC) and return it."""
    day = read_stored_day(paths)
    if day is None:
        day = utc_today()
        move_reference_day(paths, day)
    return day


def read_reference_day(paths: DataPaths) -> date:
    """Return the day that relative cutoffs count from: the stored day, or today's date (UTC) if no day is stored."""
    return read_stored_day(paths) or utc_today()


def utc_today() -> date:
    """Return today's date in UTC, regardless of the machine's time zone."""
    return datetime.now(UTC).date()
