"""Discovery of sources, builders, detectors and other plug-ins, in modules and in entry points of installed packages.

Each kind of plug-in has a registry, such as detectors/registry.py, which defines the modules to search.
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
    """Collect the plug-ins that modules define, by name, in the order of the modules.

    A plug-in that several modules import is collected only once.

    Args:
        modules: The modules.
        label: The plural of the kind in error messages, such as ``detectors``.
        is_wanted: A function that returns True if a module's value is a plug-in of the kind.
        name_of: A function that returns the name of a plug-in.

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
    """All plug-ins of one kind, from this project and from installed packages, such as all detectors.

    Attributes:
        by_name: The plug-ins by name.
        origins: The package of each plug-in from an installed package, as ``package==1.0``, by name.
    """

    by_name: Mapping[str, T]
    origins: Mapping[str, str]

    @property
    def packages_with_versions(self) -> tuple[str, ...]:
        """Return the installed packages that provide plug-ins, with their versions."""
        return tuple(sorted(set(self.origins.values())))


def merge_entry_points(
    own_values: Mapping[str, T],
    group: str,
    kind: type[T],
    name_of: Callable[[T], str],
    adopt: Callable[[T, str], T],
) -> PluginRegistry[T]:
    """Load the plug-ins of installed packages, and return them together with the plug-ins of this project.

    An entry point is skipped with a SkippedPluginWarning if it cannot be loaded or has a wrong type. It is also skipped
    if its name is invalid or taken.

    Args:
        own_values: The plug-ins of this project by name.
        group: The group of the entry points.
        kind: The type of the plug-ins.
        name_of: A function that returns the name of a plug-in.
        adopt: A function that checks a loaded plug-in and returns the plug-in to use. Its second argument is the
            package with its version. It raises an error if the plug-in cannot be used.
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
            message = f"the plug-in {point.name} of {origin} ({point.group}) is skipped ({reason})"
            warnings.warn(SkippedPluginWarning(message), stacklevel=2)
            continue
        values[name] = adopted
        origins[name] = origin
    return PluginRegistry(values, origins)


def _require_free_name(name: object, taken: Container[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"the plug-in's name is {name!r}. A name has 1 to 80 characters: letters, digits, _ and - only."
        )
    if name in taken:
        raise ValueError(f"the name '{name}' is taken. Choose another name.")


def require_string_fields(value: object, *names: str) -> None:
    """Raise TypeError if one of these fields of a value is not a string."""
    for name in names:
        content = getattr(value, name)
        if not isinstance(content, str):
            raise TypeError(f"the field {name} is a {type(content).__name__}, but must be a string")
