"""What installed packages bring by their entry points: detectors and sources of one's own.

What belongs here: loading it, and leaving out what cannot be used. What does not: what a detector or a source is, and
those of this project (each kind's registry).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from audit_pipeline.errors import LeftOutWarning, one_line



@dataclass(frozen=True)
class PluginRegistry(Generic[T]):
    """What there is, by name: that of this project and that of installed packages.

    ``origins`` are the packages of the latter with their versions, as ``package==1.0``, by the same names.
    """

    found: Mapping[str, T]
    origins: Mapping[str, str]

    @property
    def packages(self) -> tuple[str, ...]:
        """Every package that brings something, with its version, once."""
        return tuple(sorted(set(self.origins.values())))


def merge_entry_points(
    own: Mapping[str, T], group: str, kind: type[T], name_of: Callable[[T], str]
) -> PluginRegistry[T]:
    """``own`` and what the entry points of ``group`` name, each a ``kind``, in the order of the entry points' names.

    What cannot be loaded, is no ``kind`` or has a name that is taken is left out with a LeftOutWarning; others go on.
    """
    found, origins = dict(own), {}
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        origin = _origin(point)
        try:
            value = point.load()
        except Exception as error:  # noqa: BLE001 - what other people's code may raise is not known
            _leave_out(point, origin, f"it cannot be imported ({type(error).__name__}: {one_line(error)})")
            continue
        if not isinstance(value, kind):
            _leave_out(point, origin, f"{point.value} is no {kind.__name__} but a {type(value).__name__}")
        elif name_of(value) in found:
            _leave_out(point, origin, f"there is one named '{name_of(value)}' already: give yours another name")
        else:
            found[name_of(value)], origins[name_of(value)] = value, origin
    return PluginRegistry(found, origins)


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name}=={point.dist.version}" if point.dist is not None else "an unknown package"


def _leave_out(point: EntryPoint, origin: str, reason: str) -> None:
    words = f"{point.name} of {origin} ({point.group}) is left out: {reason}"
    warnings.warn(LeftOutWarning(words), stacklevel=3)
