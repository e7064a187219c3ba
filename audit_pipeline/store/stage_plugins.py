"""Loading of stage plug-ins: entry points ``corpus_audit.stages`` of installed packages.

A plug-in is a stage with its tables and its report section. pipeline/registry.py decides which plug-ins are used.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "corpus_audit.stages"


@cache
def load_stage_plugins() -> tuple[tuple[EntryPoint, Any], ...]:
    """Return the entry points in the order of their names, each with its value or the error of loading it."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple((point, _load(point)) for point in points)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything
        return error
