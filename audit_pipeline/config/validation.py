"""Validation of an entry's values. Errors of pydantic become messages with the keys of the file and suggestions."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from audit_pipeline.config.problems import Fault, InvalidEntryError, Keys, did_you_mean, find_nearest_names

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T", bound=tuple[Any, ...] | None)

_MISSING = object()


class StrictSettings(BaseModel):
    """Base class of settings: immutable, without unknown keys, infinities and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
# All random number generators of the project accept seeds in this range.
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


def _require_distinct(values: T) -> T:
    if values is not None and len(set(values)) != len(values):
        raise ValueError("must be a list without duplicates")
    return values


Distinct = AfterValidator(_require_distinct)
"""The pydantic validator of a tuple field that must not contain duplicates. None is allowed."""


def validate_as(kind: type[S], value: object) -> S:
    """Convert a plain value to a class of settings, or to any type that pydantic supports.

    Raises:
        InvalidEntryError: If the value is invalid. The error lists all mistakes. Unknown keys come first, because they
            often explain why another key is missing.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidEntryError(_build_faults(error, kind, value)) from error


def resolve_against(folder: Path, path: Path) -> Path:
    """Resolve a path in a configuration file against the folder of the file."""
    return folder / path.expanduser()


def resolve_paths_against(folder: Path, settings: M) -> M:
    """Return a copy of settings in which all paths are resolved against a folder, also in lists and mappings."""

    def resolve(value: Any) -> Any:
        if isinstance(value, Path):
            return resolve_against(folder, value)
        if isinstance(value, tuple):
            return tuple(map(resolve, value))
        if isinstance(value, Mapping):
            return {key: resolve(inner) for key, inner in value.items()}
        return value

    return settings.model_copy(update={key: resolve(value) for key, value in settings})


def _build_faults(error: ValidationError, kind: type[Any], value: object) -> list[Fault]:
    mistakes: list[Any] = list(error.errors(include_url=False))
    faults: list[Fault] = []
    # The locations of missing keys that are probably misspelt. They are not reported a second time as missing.
    misspelt: set[tuple[str | int, ...]] = set()
    for mistake in mistakes:
        if mistake["type"] == "extra_forbidden":
            location = mistake["loc"]
            known_keys = _list_known_keys(kind, location[:-1])
            unused_keys = _exclude_used_keys(known_keys, _get_value(value, location[:-1]))
            faults.append(_build_unknown_key_fault(location, known_keys, unused_keys))
            for name in find_nearest_names(str(location[-1]), unused_keys):
                misspelt.add((*location[:-1], name))
    for mistake in mistakes:
        if mistake["type"] == "missing":
            if mistake["loc"] not in misspelt:
                faults.append(_build_missing_key_fault(mistake["loc"], kind))
        elif mistake["type"] != "extra_forbidden":
            faults.append(_build_value_fault(mistake, value))
    return faults


def _list_known_keys(kind: type[Any], parents: Keys) -> list[str]:
    names: list[str] = []
    for settings in _iterate_settings(kind, parents):
        # The name of an entry is its key in the file.
        names += [name for name in settings.model_fields if name != "name"]
    return names


def _exclude_used_keys(names: Sequence[str], value: object) -> list[str]:
    """Return the names without the keys that the entry already has: an unknown key is hardly a misspelling of these."""
    if not isinstance(value, Mapping):
        return list(names)
    return [name for name in names if name not in value]


def _build_unknown_key_fault(location: Keys, known_keys: Sequence[str], unused_keys: Sequence[str]) -> Fault:
    key = str(location[-1])
    hint = "remove it"
    if find_nearest_names(key, unused_keys):
        hint = did_you_mean(key, unused_keys)
    elif known_keys:
        hint = did_you_mean(key, known_keys, "it may be one of")
    return Fault(location, f"unknown key '{_format_keys(location)}'; {hint}")


def _build_missing_key_fault(location: Keys, kind: type[Any]) -> Fault:
    message = f"key '{_format_keys(location)}' is missing"
    for settings in _iterate_settings(kind, location[:-1]):
        field = settings.model_fields.get(str(location[-1]))
        if field is not None and field.description:
            message += f": {field.description}"
            break
    return Fault(location[:-1], message)


def _build_value_fault(mistake: Mapping[str, Any], value: object) -> Fault:
    keys = _cut_to_existing_keys(mistake["loc"], value)
    message = _simplify_message(mistake["msg"])
    if not keys:
        return Fault(keys, message)
    invalid_value = mistake["input"]
    if not isinstance(invalid_value, Mapping | BaseModel):
        message += f", not {reprlib.repr(invalid_value)}"
    expected = str(mistake.get("ctx", {}).get("expected", ""))
    near = find_nearest_names(str(invalid_value), re.findall(r"'([^']*)'", expected))
    if near:
        message += f"; did you mean {near[0]}?"
    return Fault(keys, f"{_format_keys(keys)}: {message}")


def _cut_to_existing_keys(location: Keys, value: object) -> Keys:
    """Cut a location before its first part that is not a key of the entry. Pydantic appends type names, for example."""
    for length in range(1, len(location) + 1):
        if _get_value(value, location[:length]) is _MISSING:
            return location[: length - 1]
    return location


def _simplify_message(message: str) -> str:
    """Replace pydantic's terms by the terms of configuration files."""
    message = message.removeprefix("Value error, ")
    message = message.replace("Input should be", "must be").replace("Tuple", "list")
    message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a mapping of keys to values")
    # Messages must not mention classes of this project, because users do not know them.
    return re.sub(r" or instance of \w+", "", message)


def _get_value(value: object, keys: Keys) -> object:
    """Return the value that the keys lead to, or _MISSING."""
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key, _MISSING)
        elif isinstance(value, list | tuple) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return _MISSING
    return value


def _format_keys(keys: Keys) -> str:
    return ".".join(str(key) for key in keys)


def _iterate_settings(annotation: Any, keys: Keys = ()) -> Iterator[type[BaseModel]]:
    """Yield the settings classes in a type annotation.

    If ``keys`` is not empty, the classes in the annotation of the nested field at these keys are yielded instead.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # Indices of lists do not occur in annotations.
        names = [key for key in keys if isinstance(key, str)]
        if not names:
            yield annotation
        elif names[0] in annotation.model_fields:
            yield from _iterate_settings(annotation.model_fields[names[0]].annotation, names[1:])
    for argument in get_args(annotation):
        yield from _iterate_settings(argument, keys)
