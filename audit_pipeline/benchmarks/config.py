"""config/benchmarks.yaml: the families of benchmarks, and the benchmarks that they expand to.

What belongs here: the entries' fields, their validation, and finding what a user named. What does not: building
(build.py and the builders).

A benchmark has one length in words; a family lists several: `release_notes` with words [32, 64] is the benchmarks
`release_notes_32` and `release_notes_64`.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import config_dir

FILE_NAME = "benchmarks.yaml"

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
    """One benchmark: a family's settings at one length in words. Its name is its partition in Dagster."""

    family: str
    words: int
    settings: Settings

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

    def described(self) -> dict[str, Any]:
        """The entry as JSON values, with the one length in place of the family's list."""
        return {"family": self.family, **self.settings.model_dump(mode="json"), "words": self.words}


def load_benchmarks(folder: Path | None = None) -> Mapping[str, BenchmarkSpec]:
    """The benchmarks of benchmarks.yaml by name, in the file's order, shortest length as listed first.

    Raises ConfigError naming the file, the family and the key that is wrong.
    """
    path = (folder or config_dir()) / FILE_NAME
    families = {name: _family(path, name, fields) for name, fields in _families(path).items()}
    specs = [BenchmarkSpec(name, words, settings) for name, settings in families.items() for words in settings.words]
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


def _families(path: Path) -> dict[str, object]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_EachKeyOnce)  # noqa: S506 - a SafeLoader
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing; it says which benchmarks there are") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {_one_line(error)}") from error
    families = content.get("benchmarks") if isinstance(content, dict) else None
    if not isinstance(families, dict) or set(content) != {"benchmarks"}:
        raise ConfigError(f"{path} must hold one key, 'benchmarks', with an entry a family under it")
    if not families:
        raise ConfigError(f"{path}: there is no family under 'benchmarks'")
    return {str(name): fields for name, fields in families.items()}


def _family(path: Path, name: str, fields: object) -> Settings:
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        problem = "a family's name is made of letters, digits, _ and - (no '|', no '/', not empty)"
        raise ConfigError(f"{path}: family '{name}': {problem}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: family {name}: the entry holds no keys")
    try:
        settings = _FAMILY.validate_python(fields)
    except ValidationError as error:
        raise ConfigError(f"{path}: family {name}: {_first_problem(error)}") from error
    if isinstance(settings, LabelledSettings) and settings.path is not None:
        return settings.model_copy(update={"path": path.parent / settings.path.expanduser()})
    return settings


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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _EachKeyOnce(yaml.SafeLoader):
    """YAML where a key that stands twice is an error: a copied family that was not renamed would vanish otherwise."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key '{key}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)
