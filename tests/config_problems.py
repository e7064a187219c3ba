"""The problems of a configuration file, for tests of all domains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit_pipeline.errors import ConfigError


def problems_of(load: Callable[[Path], Any], folder: Path) -> str:
    """Return the problems of a file, one per line, or the reason why it is unreadable."""
    try:
        return "\n".join(map(str, load(folder).problems))
    except ConfigError as error:
        return str(error)
