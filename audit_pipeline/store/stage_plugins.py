"""What installed packages bring under the entry point ``corpus_audit.stages``: stages, each with its tables and
section.

pipeline/registry.py decides which of them can be used; here they are only loaded.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "corpus_audit.stages"


@cache
def load_stage_plugins() -> tuple[tuple[EntryPoint, Any], ...]:
    """The values of the entry points, in the order of their names; in place of one that cannot be loaded its error."""
    return tuple((point, _load(point)) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what other people's code may raise is not known
        return error
