"""Settings made of an entry's plain values, and pydantic's errors in plain words."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from audit_pipeline.config.problems import Fault, InvalidEntryError, Keys, did_you_mean, find_nearest_names

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T", bound=tuple[Any, ...] | None)

_NOTHING = object()


class StrictSettings(BaseModel):
    """What an entry holds: unknown keys are refused, nothing changes once it is read, no number is infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
# What every library's generator of random numbers takes.
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


def _require_distinct(values: T) -> T:
    if values is not None and len(set(values)) != len(values):
        raise ValueError("a value is named twice")
    return values


Distinct = AfterValidator(_require_distinct)
"""Of a field that is a tuple, or None: no value may be in it twice."""


def validate_as(kind: type[S], value: object) -> S:
    """Return ``value`` as a ``kind``, a class of settings or any type that pydantic knows.

    Raises InvalidEntryError with every mistake, unknown keys first: a key that is missing is often one that is
    misspelt.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise InvalidEntryError(_build_faults(error, kind, value)) from error


def resolve_against(folder: Path, path: Path) -> Path:
    """Return ``path`` counted from ``folder``, in which the file lies that names it."""
    return folder / path.expanduser()


def resolve_paths_against(folder: Path, settings: M) -> M:
    """Return ``settings`` with every path in them, in lists and mappings too, counted from ``folder``."""

    def resolve(value: Any) -> Any:
        if isinstance(value, Path):
            return resolve_against(folder, value)
        if isinstance(value, tuple):
            return tuple(map(resolve, value))
        return {key: resolve(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value

    return settings.model_copy(update={key: resolve(value) for key, value in settings})


def _build_faults(error: ValidationError, kind: type[Any], value: object) -> list[Fault]:
    mistakes: list[Any] = list(error.errors(include_url=False))
    faults, misspelt = [], set()
    for mistake in mistakes:
        if mistake["type"] == "extra_forbidden":
            *parents, key = mistake["loc"]
            fields = [name for settings in _iterate_settings(kind, parents) for name in settings.model_fields]
            known, given = [name for name in fields if name != "name"], _get_value(value, parents)
            # A key that the entry has as well is hardly a misspelling's.
            free = [name for name in known if not isinstance(given, Mapping) or name not in given]
            near = find_nearest_names(str(key), free)
            misspelt |= {(*parents, name) for name in near}
            hint = did_you_mean(str(key), free if near else known, "it may be one of")
            words = f"unknown key '{_format_keys(mistake['loc'])}'; {hint if known else 'take it out'}"
            faults.append(Fault(mistake["loc"], words))
    for mistake in mistakes:
        if mistake["type"] == "missing":
            if mistake["loc"] not in misspelt:
                *parents, key = mistake["loc"]
                declared = [settings.model_fields.get(key) for settings in _iterate_settings(kind, parents)]
                means = next((f": {field.description}" for field in declared if field and field.description), "")
                faults.append(Fault(parents, f"key '{_format_keys(mistake['loc'])}' is missing{means}"))
        elif mistake["type"] != "extra_forbidden":
            faults.append(_build_value_fault(mistake, value))
    return faults


def _build_value_fault(mistake: Mapping[str, Any], value: object) -> Fault:
    # After the keys of the entry come names of pydantic's own.
    loc = mistake["loc"]
    length = next((n for n in range(len(loc)) if _get_value(value, loc[: n + 1]) is _NOTHING), len(loc))
    keys, given = loc[:length], mistake["input"]
    message = (
        mistake["msg"].removeprefix("Value error, ").replace("Input should be", "must be").replace("Tuple", "list")
    )
    message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a mapping of keys to values")
    # Classes are not the user's.
    message = re.sub(r" or instance of \w+", "", message)
    if not keys:
        return Fault(keys, message)
    shown = "" if isinstance(given, Mapping | BaseModel) else f", not {reprlib.repr(given)}"
    near = find_nearest_names(str(given), re.findall(r"'([^']*)'", str(mistake.get("ctx", {}).get("expected", ""))))
    hint = f"; did you mean {near[0]}?" if near else ""
    return Fault(keys, f"{_format_keys(keys)}: {message}{shown}{hint}")


def _get_value(value: object, keys: Keys) -> object:
    """Return what ``keys`` lead to within ``value``; _NOTHING if there is nothing."""
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key, _NOTHING)
        else:
            is_place = isinstance(value, list | tuple) and isinstance(key, int) and key < len(value)
            value = value[key] if is_place else _NOTHING  # type: ignore[index]
    return value


def _format_keys(keys: Keys) -> str:
    return ".".join(str(key) for key in keys)


def _iterate_settings(annotation: Any, keys: Keys = ()) -> Iterator[type[BaseModel]]:
    """Yield the classes of settings that a type names (in tuples, optional or bare), or those that ``keys`` lead to."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        names = [key for key in keys if isinstance(key, str)]
        if not names:
            yield annotation
        elif names[0] in annotation.model_fields:
            yield from _iterate_settings(annotation.model_fields[names[0]].annotation, names[1:])
    for argument in get_args(annotation):
        yield from _iterate_settings(argument, keys)
