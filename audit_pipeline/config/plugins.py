"""Discovery of sources, builders, detectors and other named values, in modules and in entry points of packages.

The registry of each kind defines which modules are searched.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Container, Iterable, Mapping
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
    """Collect the wanted values of modules by name, in the order of the modules.

    A value that a module imports from another module counts once.

    Args:
        modules: The modules.
        label: The plural of the kind in error messages, such as ``detectors``.
        is_wanted: Returns whether a value is of the kind.
        name_of: Returns the name of a value.

    Raises:
        ConfigError: If two values have the same name.
    """
    values: dict[str, T] = {}
    module_names: dict[str, str] = {}
    for module in modules:
        wanted: list[T] = [value for value in vars(module).values() if is_wanted(value)]
        for value in wanted:
            name = name_of(value)
            if name not in values:
                values[name] = value
                module_names[name] = module.__name__
            elif values[name] is not value:
                raise ConfigError(
                    f"there are two {label} named '{name}', in {module_names[name]} and in {module.__name__}. "
                    "Rename one of them."
                )
    return values


@dataclass(frozen=True)
class PluginRegistry(Generic[T]):
    """The values of this project and of installed packages, such as all sources or all detectors.

    Attributes:
        by_name: The values by name.
        origins: The packages of the plug-ins, as ``package==1.0``, by the names of the values.
    """

    by_name: Mapping[str, T]
    origins: Mapping[str, str]

    @property
    def packages_with_versions(self) -> tuple[str, ...]:
        """Return the packages that provide values, with their versions."""
        return tuple(sorted(set(self.origins.values())))


def merge_entry_points(
    own_values: Mapping[str, T],
    group: str,
    kind: type[T],
    name_of: Callable[[T], str],
    adopt: Callable[[T, str], T],
) -> PluginRegistry[T]:
    """Add the values of entry points to the values of this project.

    An entry point is skipped if it cannot be loaded, has a wrong type, or has an invalid or taken name. It causes a
    SkippedPluginWarning.

    Args:
        own_values: The values of this project by name.
        group: The group of the entry points.
        kind: The type of the values.
        name_of: Returns the name of a value.
        adopt: Returns the value to use, for a value and its package. Raises an error if the value cannot be used.
    """
    values = dict(own_values)
    origins: dict[str, str] = {}
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        origin = "an unknown package"
        if point.dist is not None:
            origin = f"{point.dist.name}=={point.dist.version}"
        try:
            value = point.load()
            if not isinstance(value, kind):
                raise TypeError(f"{point.value} is a {type(value).__name__}, not a {kind.__name__}")
            adopted = adopt(value, origin)
            name = name_of(value)
            _require_free_name(name, values)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything
            reason = f"{type(error).__name__}: {to_one_line(error)}"
            message = f"{point.name} of {origin} ({point.group}) is skipped ({reason})"
            warnings.warn(SkippedPluginWarning(message), stacklevel=2)
            continue
        values[name] = adopted
        origins[name] = origin
    return PluginRegistry(values, origins)


def _require_free_name(name: object, taken: Container[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"its name is {name!r}. Use letters, digits, _ and - only.")
    if name in taken:
        raise ValueError(f"the name '{name}' is taken. Choose another name.")


def require_string_fields(value: object, *names: str) -> None:
    """Raise TypeError if one of these fields of a value is not a string."""
    for name in names:
        content = getattr(value, name)
        if not isinstance(content, str):
            raise TypeError(f"{name} is a {type(content).__name__}, but must be a string")
