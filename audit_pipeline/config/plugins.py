"""What is found rather than listed: by its module in this project, or by the entry point of an installed package.

Sources, builders, detectors and providers of needs each get their name here, once; each kind's registry says which
modules are searched.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Generic, TypeVar

from audit_pipeline.errors import ConfigError, SkippedPluginWarning, to_one_line

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def collect_by_name(
    modules: Iterable[ModuleType], *, label: str, is_wanted: Callable[[object], bool], name_of: Callable[[T], str]
) -> dict[str, T]:
    """Collect every value of the modules that ``is_wanted``, by name, in the modules' order; messages say ``label``.

    What a module imports from another counts once. Raises ConfigError, naming both modules, where two have one name.
    """
    found: dict[str, tuple[T, str]] = {}
    for module in modules:
        values: list[T] = [value for value in vars(module).values() if is_wanted(value)]
        for value in values:
            other, module_name = found.setdefault(name_of(value), (value, module.__name__))
            if other is not value:
                raise ConfigError(
                    f"there are two {label} named '{name_of(value)}', in {module_name} and in {module.__name__}: "
                    "rename one"
                )
    return {name: value for name, (value, _) in found.items()}


@dataclass(frozen=True)
class PluginRegistry(Generic[T]):
    """Sources or detectors by name: those of this project and those of installed packages.

    ``origins`` are the packages of the latter with their versions, as ``package==1.0``, by the same names.
    """

    found: Mapping[str, T]
    origins: Mapping[str, str]

    @property
    def packages_with_versions(self) -> tuple[str, ...]:
        """Return every package that brings something, with its version, once."""
        return tuple(sorted(set(self.origins.values())))


def merge_entry_points(
    own_values: Mapping[str, T],
    group: str,
    kind: type[T],
    name_of: Callable[[T], str],
    adopt: Callable[[T, str], T],
) -> PluginRegistry[T]:
    """Return ``own_values`` and those that entry points of ``group`` name, each a ``kind``, in the order of the names.

    ``adopt`` gets a value and its package, raises where it cannot be used, and returns it as it is used. What cannot be
    loaded or used, is no ``kind`` or has a name that is taken is left out with a LeftOutWarning; others go on.
    """
    found, origins = dict(own_values), {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        origin = f"{point.dist.name}=={point.dist.version}" if point.dist is not None else "an unknown package"
        try:
            value = point.load()
            if not isinstance(value, kind):
                raise TypeError(f"{point.value} is no {kind.__name__} but a {type(value).__name__}")
            adopted, name = adopt(value, origin), name_of(value)
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(f"its name is {name!r}: use letters, digits, _ and -")
            if name in found:
                raise ValueError(f"there is an entry '{name}' already: give yours another name")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what other people's code may raise is not known
            reason = f"{type(error).__name__}: {to_one_line(error)}"
            words = f"{point.name} of {origin} ({point.group}) is left out ({reason})"
            warnings.warn(SkippedPluginWarning(words), stacklevel=2)
            continue
        found[name], origins[name] = adopted, origin
    return PluginRegistry(found, origins)


def require_string_fields(value: object, *names: str) -> None:
    """Raise TypeError where one of these fields of ``value`` is no text."""
    for name in names:
        if not isinstance(getattr(value, name), str):
            raise TypeError(f"{name} is a {type(getattr(value, name)).__name__}, and has to be a text")
