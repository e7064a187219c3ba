"""From an entry's plain values to the settings that they are, and every mistake in it in words.

What belongs here: the base class of all settings, and pydantic's errors in plain words. What does not: the settings of
one kind of entry (the modules of each domain), lines and files (entries.py).
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from audit_pipeline.config.hints import did_you_mean, find_nearest_names
from audit_pipeline.config.problems import Fault, InvalidEntryError, Keys
from audit_pipeline.errors import to_one_line

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)

_LONGEST_VALUE = 60
_NOTHING = object()


class StrictSettings(BaseModel):
    """What an entry holds: unknown keys are refused, nothing changes once it is read, no number is infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
# What every library's generator of random numbers takes.
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


def validate_as(kind: type[S], value: object) -> S:
    """``value`` as a ``kind``, a class of settings or any type that pydantic knows.

    Raises InvalidEntryError with every mistake, unknown keys first: a key that is missing is often one that is
    misspelt.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidEntryError(_build_faults(error, kind, value)) from error


def resolve_against(folder: Path, path: Path) -> Path:
    """``path`` counted from ``folder``, in which the file lies that names it, whatever folder the process runs in.

    Raises InvalidEntryError for the home (~) of a user without one.
    """
    try:
        return folder / path.expanduser()
    except RuntimeError as error:
        raise InvalidEntryError([Fault(("path",), f"path: {path}: {to_one_line(error)}")]) from error


def resolve_paths_against(folder: Path, settings: M) -> M:
    """``settings`` with every path of theirs, in lists and mappings too, as :func:`resolve_against` has it."""

    def counted(value: Any) -> Any:
        if isinstance(value, Path):
            return resolve_against(folder, value)
        if isinstance(value, tuple):
            return tuple(map(counted, value))
        return {key: counted(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value

    return settings.model_copy(update={key: counted(value) for key, value in settings})


def format_value(value: object) -> str:
    """A value in a message, cut where it is long."""
    try:
        text = reprlib.repr(value)
    except ValueError:
        # Python writes no number of thousands of digits.
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _build_faults(error: ValidationError, kind: type[Any], value: object) -> list[Fault]:
    found: list[Any] = list(error.errors(include_url=False))
    unknown = [mistake for mistake in found if mistake["type"] == "extra_forbidden"]
    faults, misspelt = [], set()
    for mistake in unknown:
        loc = tuple(mistake["loc"])
        known = _list_possible_keys(kind, loc[:-1])
        free = [name for name in known if name not in _list_keys_in(value, loc[:-1])]
        # A key that the entry has as well is hardly a misspelling's.
        misspelt |= {(*loc[:-1], name) for name in find_nearest_names(str(loc[-1]), free)}
        faults.append(Fault(loc, _describe_unknown_key(loc, free if find_nearest_names(str(loc[-1]), free) else known)))
    for mistake in found:
        if mistake["type"] == "missing":
            if tuple(mistake["loc"]) not in misspelt:
                faults.append(Fault(mistake["loc"][:-1], _describe_missing_key(kind, mistake["loc"])))
        elif mistake["type"] != "extra_forbidden":
            faults.append(_build_value_fault(mistake, value))
    return faults


def _list_keys_in(value: object, parent_keys: Keys) -> Collection[object]:
    """The keys of the mapping at the place ``parent_keys`` within ``value``."""
    for part in parent_keys:
        value = _get_child_value(value, part)
    return value if isinstance(value, Mapping) else ()


def _describe_missing_key(kind: type[Any], loc: Keys) -> str:
    fields = [
        settings.model_fields[str(loc[-1])]
        for settings in _list_settings_classes(kind, loc[:-1])
        if loc[-1] in settings.model_fields
    ]
    means = next((f": {field.description}" for field in fields if field.description), "")
    return f"key '{_dotted(loc)}' is missing{means}"


def _describe_unknown_key(loc: Keys, known_keys: Sequence[str]) -> str:
    hint = did_you_mean(str(loc[-1]), known_keys, "it may be one of")
    return f"unknown key '{_dotted(loc)}'; {hint if known_keys else 'take it out'}"


def _build_value_fault(error: Mapping[str, Any], value: object) -> Fault:
    keys = _trim_key_path(value, error["loc"])
    message = _to_plain_words(error["msg"])
    expected = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
    near = find_nearest_names(str(error["input"]), expected)
    if not keys:
        return Fault(keys, message)
    given = "" if isinstance(error["input"], Mapping | BaseModel) else f", not {format_value(error['input'])}"
    hint = f"; did you mean {near[0]}?" if near else ""
    return Fault(keys, f"{_dotted(keys)}: {message}{given}{hint}")


def _to_plain_words(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be", "must be").replace("Tuple", "list")
    message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a mapping of keys to values")
    # Classes are not the user's.
    return re.sub(r" or instance of \w+", "", message)


def _trim_key_path(value: object, loc: Keys) -> tuple[str | int, ...]:
    """As much of pydantic's place as leads through ``value``: after it come names of pydantic's own."""
    way: list[str | int] = []
    for part in loc:
        value = _get_child_value(value, part)
        if value is _NOTHING:
            break
        way.append(part)
    return tuple(way)


def _get_child_value(value: object, key: str | int) -> object:
    """What a mapping or list holds under a key or at a place; _NOTHING if it holds nothing there."""
    if isinstance(value, Mapping):
        return value.get(key, _NOTHING)
    if isinstance(value, list | tuple) and isinstance(key, int) and key < len(value):
        return value[key]
    return _NOTHING


def _dotted(keys: Keys) -> str:
    return ".".join(str(key) for key in keys)


def _list_possible_keys(kind: type[Any], parent_keys: Keys) -> list[str]:
    """The keys that a mapping may hold at the place ``parent_keys`` within ``kind``; none where that is not known."""
    return [
        name
        for settings in _list_settings_classes(kind, parent_keys)
        for name in settings.model_fields
        if name != "name"
    ]


def _list_settings_classes(kind: type[Any], parent_keys: Keys) -> list[type[BaseModel]]:
    """The classes of settings that are possible at the place ``parent_keys`` within ``kind``."""
    classes = list(_iterate_settings_classes(kind))
    for part in parent_keys:
        if isinstance(part, str):
            below = [settings.model_fields[part].annotation for settings in classes if part in settings.model_fields]
            classes = [settings for annotation in below for settings in _iterate_settings_classes(annotation)]
    return classes


def _iterate_settings_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """The classes of settings that a type's annotation names, in tuples, optional or bare."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _iterate_settings_classes(argument)
