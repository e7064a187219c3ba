"""config/benchmarks.yaml: the families of benchmarks, and the benchmarks that they expand to.

What belongs here: reading the file, what it expands to, and finding what a user named. What does not: the entries'
fields (settings.py) and building (build.py and the builders).

A benchmark has one length in words; a family lists several: `release_notes` with words [32, 64] is the benchmarks
`release_notes_32` and `release_notes_64`. A family with words `any` is one benchmark of its own name, whose texts are
as long as they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from audit_pipeline.benchmarks.rolling import RelativeDay, current_day, parse_cutoff
from audit_pipeline.benchmarks.settings import (
    ControlledSettings,
    Design,
    LabelledSettings,
    OnlineSettings,
    RowsSettings,
    Settings,
    ShelfSettings,
    SidesSettings,
    TemplatedSettings,
    TemporalSettings,
    UnitName,
    described,
)
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import DataPaths, config_dir
from audit_pipeline.yaml_files import read_entries

__all__ = [
    "BenchmarkSpec",
    "ControlledSettings",
    "Design",
    "LabelledSettings",
    "OnlineSettings",
    "Settings",
    "ShelfSettings",
    "SidesSettings",
    "TemplatedSettings",
    "TemporalSettings",
    "UnitName",
    "load_benchmarks",
    "moved_cutoffs",
    "resolve",
    "standing",
]

FILE_NAME = "benchmarks.yaml"
CUTOFFS = ("member_before", "nonmember_from")

# No bar, which divides partition names; no slash, blank or dot, which would need quoting in paths and ranges.
FamilyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]

_FAMILY: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="builder")])
_NAME: TypeAdapter[str] = TypeAdapter(FamilyName)
BUILDER_NAMES = tuple(get_args(one.model_fields["builder"].annotation)[0] for one in get_args(Settings))


@dataclass(frozen=True)
class BenchmarkSpec:
    """One benchmark: a family's settings at one length in words. Its name is its partition in Dagster.

    ``words`` None means texts of any length; the family is then one benchmark, of its own name. ``relative`` are the
    words that cutoffs were told in, by key; the settings hold the dates that they mean now.
    """

    family: str
    words: int | None
    settings: Settings
    relative: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        return self.family if self.words is None else f"{self.family}_{self.words}"

    @property
    def length(self) -> int:
        """The one length; raises TypeError where texts are of any, which no builder that cuts texts accepts."""
        if self.words is None:
            raise TypeError(f"{self.name} has no one length")
        return self.words

    @property
    def is_exact(self) -> bool:
        """Whether every text has exactly ``words`` words."""
        return self.words is not None and self.settings.every_length_exact

    @property
    def design(self) -> Design:
        """How the two sides came about; what may be claimed depends on it."""
        return self.settings.design

    @property
    def design_stated_by(self) -> str | None:
        """Whose word the design is; None where it follows from how the texts are drawn here."""
        follows = isinstance(self.settings, TemporalSettings | ControlledSettings) or self.design == "unlabelled"
        return None if follows else f"whoever wrote config/{FILE_NAME}"

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none where it is made of rows."""
        return self.settings.read_sources

    @property
    def control(self) -> str | None:
        """The control whose texts it is made of; its labels say something of that control's models alone."""
        return self.settings.control if isinstance(self.settings, ControlledSettings) else None

    @property
    def is_relative(self) -> bool:
        """Whether a cutoff is told by today, so that it moves when the day is rolled."""
        return bool(self.relative)

    def described(self) -> dict[str, Any]:
        """The entry as JSON values, with the one length (null: any) in place of the family's list."""
        entry = {"family": self.family, **described(self.settings), "words": self.words}
        return {**entry, "relative": dict(self.relative)} if self.relative else entry


def load_benchmarks(folder: Path | None = None, today: date | None = None) -> Mapping[str, BenchmarkSpec]:
    """The benchmarks of benchmarks.yaml by name, in the file's order, shortest length as listed first.

    Cutoffs told by today count from ``today``; where it is not given, from the rolled day of the data folder, and
    where none is kept there yet, from today's date (UTC).
    Raises ConfigError naming the file, the family and the key that is wrong, and DataError where a cutoff is told by
    today and the kept day cannot be read.
    """
    path = (folder or config_dir()) / FILE_NAME

    @cache
    def day() -> date:
        return current_day(DataPaths.from_environment()) if today is None else today

    families: dict[str, Settings] = {}
    specs: list[BenchmarkSpec] = []
    for name, fields in _families(path).items():
        families[name], relative = _family(path, name, fields, day)
        lengths = families[name].words
        specs += [BenchmarkSpec(name, words, families[name], relative) for words in lengths or (None,)]
    for spec in specs:
        if spec.words is not None and spec.name in families:
            raise ConfigError(f"{path}: family {spec.name} has the name of a benchmark of family {spec.family}")
    return {spec.name: spec for spec in specs}


def standing(benchmarks: Mapping[str, BenchmarkSpec]) -> Mapping[str, BenchmarkSpec]:
    """Those of ``benchmarks`` that sensors, the weekly audit and `all` mean: all but those on request."""
    return {name: spec for name, spec in benchmarks.items() if not spec.settings.on_request}


def resolve(name: str, benchmarks: Mapping[str, BenchmarkSpec] | None = None) -> list[BenchmarkSpec]:
    """The benchmarks that ``name`` stands for: one by its own name, or all of a family.

    ``benchmarks`` are those of benchmarks.yaml where not given. Raises ConfigError, with the nearest names, where it
    stands for none.
    """
    known = load_benchmarks() if benchmarks is None else benchmarks
    if name in known:
        return [known[name]]
    family = [spec for spec in known.values() if spec.family == name]
    if family:
        return family
    names = list(dict.fromkeys([*known, *(spec.family for spec in known.values())]))
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise ConfigError(f"there is no benchmark '{name}' in config/{FILE_NAME}; {hint}")


def moved_cutoffs(before: Mapping[str, BenchmarkSpec], after: Mapping[str, BenchmarkSpec]) -> Mapping[str, list[str]]:
    """What rolling the day did: the benchmarks in both whose cutoffs are other dates now, with the moves in words."""
    moves = {name: _moves(before[name], spec) for name, spec in after.items() if name in before}
    return {name: words for name, words in moves.items() if words}


def _moves(before: BenchmarkSpec, after: BenchmarkSpec) -> list[str]:
    if not (isinstance(before.settings, TemporalSettings) and isinstance(after.settings, TemporalSettings)):
        return []
    dates = {key: (getattr(before.settings, key), getattr(after.settings, key)) for key in CUTOFFS}
    return [f"{after.name} {key} {old} -> {new}" for key, (old, new) in dates.items() if old != new]


def _families(path: Path) -> Mapping[str, object]:
    families = read_entries(path, "benchmarks", "family", "it says which benchmarks there are")
    if not families:
        raise ConfigError(f"{path}: there is no family under 'benchmarks'")
    return families


def _family(path: Path, name: str, fields: object, day: Callable[[], date]) -> tuple[Settings, Mapping[str, str]]:
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        problem = "a family's name is made of letters, digits, _ and - (no '|', no '/', not empty)"
        raise ConfigError(f"{path}: family '{name}': {problem}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: family {name}: the entry holds no keys")
    dates, relative = _cutoffs(path, name, fields, day)
    try:
        settings = _FAMILY.validate_python({**fields, **dates})
    except ValidationError as error:
        told = "".join(f"; {key} is {words}, {dates[key]}" for key, words in relative.items())
        raise ConfigError(f"{path}: family {name}: {_first_problem(error)}{told}") from error
    if isinstance(settings, RowsSettings) and settings.path is not None:
        settings = settings.model_copy(update={"path": path.parent / settings.path.expanduser()})
    return settings, relative


def _cutoffs(
    path: Path, name: str, fields: Mapping[Any, object], day: Callable[[], date]
) -> tuple[Mapping[str, date], Mapping[str, str]]:
    """The dates that a temporal family's cutoffs are, and the words of those told by today."""
    dates: dict[str, date] = {}
    relative: dict[str, str] = {}
    for key in CUTOFFS:
        if fields.get("builder") != "temporal" or key not in fields:
            continue
        try:
            cutoff = parse_cutoff(fields[key])
            if isinstance(cutoff, RelativeDay):
                relative[key] = cutoff.words
                cutoff = cutoff.on(day())
        except ValueError as error:
            raise ConfigError(f"{path}: family {name}: {key}: {error}") from error
        dates[key] = cutoff
    return dates, relative


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    # The first part of a place is the builder, which chose the fields; it is no key of the entry.
    key = ".".join(str(part) for part in problem["loc"][1:])
    kind, message = problem["type"], problem["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"unknown key '{key}'; take it out or correct its spelling"
    if kind == "missing":
        return f"key '{key}' is missing"
    if kind == "union_tag_not_found":
        return f"key 'builder' is missing; it is {_builders()}"
    if kind == "union_tag_invalid":
        return f"builder: must be {_builders()}"
    return f"{key}: {message}, not {problem['input']!r}" if key else message


def _builders() -> str:
    return f"{', '.join(BUILDER_NAMES[:-1])} or {BUILDER_NAMES[-1]}"
