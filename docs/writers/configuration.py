"""docs/reference/configuration.md: every key of config/, from the classes of settings that read it.

What belongs here: keys with type, default and meaning as Markdown. What does not: the meaning of a key (the
`description` of its field).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from audit_pipeline.benchmarks import config as benchmarks
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.row_settings import GroupedRowsSettings, LabelColumnSettings, RowsSettings
from audit_pipeline.benchmarks.settings import DocumentsSettings, FamilySettings
from audit_pipeline.extras.chat import config as asking
from audit_pipeline.extras.controls import config as controls
from audit_pipeline.extras.corpora import config as references
from audit_pipeline.models import config as models
from audit_pipeline.models import model_proposals
from audit_pipeline.sources.config import all_sources
from docs.writers.markdown import escape_markdown, format_markdown_table

_HEAD = """\
# Configuration keys

This page lists the keys of the files in `config/`. Each entry has a name, and commands take this name. If an entry has
an unknown key, lacks a key, or has a value of the wrong type, only this entry is unusable. `corpus-audit models`,
`corpus-audit benchmarks` and `corpus-audit doctor` name it with file and line. A relative path starts at the folder of
its file.
"""
_SHORT: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    date: "date",
    Path: "path",
}
# The keys that several builders share. They are described once, before the builders.
_SHARED: Mapping[type[FamilySettings], str] = {
    FamilySettings: "Every family",
    DocumentsSettings: "Families that are drawn from documents (temporal, shelf)",
    RowsSettings: "Families of rows (labelled, sides, templated, online)",
    LabelColumnSettings: "Families of rows with a label column (labelled, templated, online)",
    GroupedRowsSettings: "Families of rows with groups and dates (labelled, sides, templated)",
}


@dataclass(frozen=True)
class _Key:
    name: str
    takes: str
    default: str
    meaning: str


def configuration_page() -> str:
    """Return the page. Raises ValueError if a key has no description."""
    parts = [_HEAD.rstrip(), *_entries(models.FILE.name, "models", models.ModelEntry)]
    parts += _benchmarks()
    parts += ["## sources.yaml", "Every section has the name of a source. A missing section has its defaults."]
    for name, source in all_sources().items():
        parts += [f"### {name}", escape_markdown(source.description), f"Licence: {escape_markdown(source.licence)}."]
        parts.append(keys_of(source.settings) if source.settings.model_fields else "It has no settings.")
    parts += _entries(references.FILE.name, "references", references.ReferenceEntry)
    parts += _entries(controls.FILE.name, "controls", controls.ControlEntry)
    parts += _entries(controls.STUDIES_FILE.name, "studies", controls.StudyEntry)
    parts += _entries(asking.FILE.name, "chat_models", asking.ChatModel)
    parts += [
        f"## {model_proposals.FILE.name}",
        format_markdown_table(
            ["key", "takes", "default", "meaning"],
            [[f"`{key}`", "list of text", "none", escape_markdown(meaning)] for key, meaning in _WATCH_KEYS.items()],
        ),
    ]
    return "\n\n".join(parts) + "\n"


_WATCH_KEYS = {
    "hub": "owners on the hub; the hub watcher proposes their new models, but audits none of them",
    "owners": "owners of the audits, as e-mail addresses or team:name; the Dagster UI shows them on every asset",
}


def _entries(file: str, key: str, kind: type[BaseModel]) -> list[str]:
    return [f"## {file}", f"Entries are under `{key}`. {escape_markdown(_first_line(kind))}", keys_of(kind)]


def _benchmarks() -> Iterator[str]:
    yield f"## {benchmarks.FILE.name}"
    yield "Entries are under `benchmarks`. The allowed keys of an entry depend on its `builder`."
    for kind, title in _SHARED.items():
        above = next((one for one in kind.__mro__[1:] if one in _SHARED), None)
        yield f"### {title}"
        yield keys_of(kind, known=above)
    for name, builder in BUILDERS.items():
        kind = builder.settings
        above = next(one for one in kind.__mro__[1:] if one in _SHARED)
        yield f"### builder: {name}"
        shared = _SHARED[above].split(" (")[0].lower()
        yield f"{escape_markdown(_first_line(kind))} It also takes the keys of *{shared}*."
        own = keys_of(kind, known=above)
        yield own if own else "It has no further keys."


def _first_line(kind: type[BaseModel]) -> str:
    return (kind.__doc__ or "").split("\n\n")[0].replace("``", "`").replace("\n    ", " ")


def keys_of(kind: type[BaseModel], known: type[BaseModel] | None = None) -> str:
    """Return the table of a class's keys without the keys of ``known``. Nested keys have the form `key.below`."""
    rows = [
        [f"`{key.name}`", key.takes, key.default, escape_markdown(key.meaning)]
        for key in _told(kind, "")
        if known is None or not _same(kind, known, key.name)
    ]
    return format_markdown_table(["key", "takes", "default", "meaning"], rows) if rows else ""


def _same(kind: type[BaseModel], known: type[BaseModel], name: str) -> bool:
    """Return True if the key has the same meaning and default in both classes."""
    first = name.partition(".")[0]
    if first not in known.model_fields:
        return False
    own, other = kind.model_fields[first], known.model_fields[first]
    return first in ("builder", "design") or (own.default, _words(kind, first)) == (other.default, _words(known, first))


def _told(kind: type[BaseModel], above: str) -> Iterator[_Key]:
    for name, field in kind.model_fields.items():
        if field.exclude or (name == "name" and not above):
            # An entry's name is the key that it stands under; what is excluded is no key.
            continue
        if below := _settings_in(field.annotation):
            yield _Key(above + name, "keys below", _default(field), _words(kind, name))
            yield from _told(below, f"{above}{name}.")
        elif named := _settings_by_name(field.annotation):
            yield _Key(above + name, "names, and keys below each", _default(field), _words(kind, name))
            yield from _told(named, f"{above}{name}.NAME.")
        else:
            yield _Key(above + name, _takes(field.annotation), _default(field), _words(kind, name))


def _words(kind: type[BaseModel], name: str) -> str:
    """Return the description of a key's field, or of its field in the class that declared it first."""
    classes = [one for one in kind.__mro__ if issubclass(one, BaseModel)]
    found = [one.model_fields[name].description for one in classes if name in one.model_fields]
    if not (words := next((one for one in found if one), None)):
        raise ValueError(f"{kind.__name__}.{name} has no description. Add one to its field.")
    return words.replace("None:", "by default")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=False)
    if value is PydanticUndefined:
        return "required"
    if value is None or value == ():
        return "none"
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, bool):
        return str(value).lower()
    said = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{said}`".replace("|", "\\|")


def _settings_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_settings_in(one) for one in get_args(annotation) if get_origin(annotation) in (Union, types.UnionType))
    return next((one for one in found if one), None)


def _settings_by_name(annotation: Any) -> type[BaseModel] | None:
    """Return the class of the settings that a mapping contains by name."""
    return _settings_in(get_args(annotation)[1]) if get_origin(annotation) is Mapping else None


def _takes(annotation: Any) -> str:
    """Return a type in words."""
    origin, given = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _takes(given[0])
    if origin is Literal:
        return " \\| ".join(f"`{one}`" for one in given)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_takes(one) for one in given if one is not type(None)))
    # Pairs are a mapping in the file.
    pairs = origin is tuple and get_origin(given[0]) is tuple
    pair = given if origin in (dict, Mapping) else get_args(given[0]) if pairs else ()
    if pair:
        return f"mapping of {_takes(pair[0])} to {_takes(pair[1])}"
    return f"list of {_takes(given[0])}" if origin is tuple else _SHORT[annotation]
