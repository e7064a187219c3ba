"""config/benchmarks.yaml: the families of benchmarks, and the benchmarks that they expand to.

What belongs here: the entries' fields, their validation, and finding what a user named. What does not: building
(build.py and the builders).

A benchmark has one length in words; a family lists several: `release_notes` with words [32, 64] is the benchmarks
`release_notes_32` and `release_notes_64`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from audit_pipeline.benchmarks.rolling import RelativeDay, current_day, parse_cutoff
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import DataPaths, config_dir
from audit_pipeline.yaml_files import read_entries

FILE_NAME = "benchmarks.yaml"
CUTOFFS = ("member_before", "nonmember_from")

Design = Literal["temporal", "randomised", "exchangeable"]
UnitName = Literal["whitespace", "jieba"]

# No bar, which divides partition names; no slash, blank or dot, which would need quoting in paths and ranges.
FamilyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
Length = Annotated[int, Field(ge=1, strict=True)]


class _Settings(BaseModel):
    """What every family says, whatever builds it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: Text
    words: Annotated[tuple[Length, ...], Field(min_length=1)]
    unit: UnitName = "whitespace"
    seed: Annotated[int, Field(strict=True)]
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    near_duplicate_threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    licence: Text | None = None
    infilling_m: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None, description="future tokens of the Infilling Score; None: 1 up to 32 words, else 5"
    )
    dc_pdd_a: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="upper bound of DC-PDD; None: 0.01 (paper 002 has 10 for BookMIA)"
    )

    @model_validator(mode="after")
    def _each_length_once(self) -> Self:
        if len(set(self.words)) != len(self.words):
            raise ValueError("words: a length is named twice")
        return self


class TemporalSettings(_Settings):
    """Members are windows of documents published before one date, non-members of those from another date on."""

    builder: Literal["temporal"]
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    member_before: date
    nonmember_from: date
    windows_per_document: Annotated[int, Field(ge=1, strict=True)]
    per_side: Annotated[int, Field(ge=1, strict=True)] | None = None
    balance: Literal["collection", "none"] = "collection"
    language: Language | None = Field(default=None, description="only documents in this language; None: all")
    design: Literal["temporal"] = "temporal"

    @model_validator(mode="after")
    def _sides_apart(self) -> Self:
        if self.nonmember_from < self.member_before:
            raise ValueError(
                f"nonmember_from {self.nonmember_from} is before member_before {self.member_before}: "
                "a document could be on both sides"
            )
        if len(set(self.sources)) != len(self.sources):
            raise ValueError("sources: a source is named twice")
        return self


class LabelledSettings(_Settings):
    """Rows that somebody else has labelled: a hub data set, or a local folder laid out like it."""

    builder: Literal["labelled"]
    hub: Text | None = None
    revision: Text | None = Field(default=None, description="hub branch, tag or commit; None: the newest")
    path: Path | None = Field(default=None, description="a folder; a relative one counts from the file's folder")
    path_variable: Text | None = Field(default=None, description="environment variable that, where set, is the folder")
    split: Text = Field(description="name of the hub split, or of the file without suffix; {words} is the length")
    text_column: Text = "input"
    label_column: Text | None = Field(default="label", description="None: no row is labelled")
    language: Language = "en"
    design: Design

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.hub is None) == (self.path is None):
            raise ValueError("exactly one of hub and path says where the rows are")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        if len(self.words) > 1 and "{words}" not in self.split:
            raise ValueError("split: must hold {words}, which stands for the length, where there are several")
        return self


Settings = TemporalSettings | LabelledSettings
_FAMILY: TypeAdapter[Settings] = TypeAdapter(Annotated[Settings, Field(discriminator="builder")])
_NAME: TypeAdapter[str] = TypeAdapter(FamilyName)


@dataclass(frozen=True)
class BenchmarkSpec:
    """One benchmark: a family's settings at one length in words. Its name is its partition in Dagster.

    ``relative`` are the words that cutoffs were told in, by key; the settings hold the dates that they mean now.
    """

    family: str
    words: int
    settings: Settings
    relative: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        return f"{self.family}_{self.words}"

    @property
    def design(self) -> Design:
        """How the two sides came about; what may be claimed depends on it."""
        return self.settings.design

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none where it is made of labelled rows."""
        return self.settings.sources if isinstance(self.settings, TemporalSettings) else ()

    @property
    def is_relative(self) -> bool:
        """Whether a cutoff is told by today, so that it moves when the day is rolled."""
        return bool(self.relative)

    def described(self) -> dict[str, Any]:
        """The entry as JSON values, with the one length in place of the family's list."""
        settings = self.settings.model_dump(mode="json")
        for name in ("infilling_m", "dc_pdd_a"):
            # Left out, so that entries from before there was such a field keep their digests.
            if settings[name] is None:
                del settings[name]
        entry = {"family": self.family, **settings, "words": self.words}
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
        specs += [BenchmarkSpec(name, words, families[name], relative) for words in families[name].words]
    for spec in specs:
        if spec.name in families:
            raise ConfigError(f"{path}: family {spec.name} has the name of a benchmark of family {spec.family}")
    return {spec.name: spec for spec in specs}


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
    if isinstance(settings, LabelledSettings) and settings.path is not None:
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
        return "key 'builder' is missing; it is temporal or labelled"
    if kind == "union_tag_invalid":
        return "builder: must be temporal or labelled"
    return f"{key}: {message}, not {problem['input']!r}" if key else message
