"""The problems of a configuration file, for tests of all domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from audit_pipeline.config.problems import Problem
from audit_pipeline.errors import ConfigError


class _Loaded(Protocol):
    @property
    def problems(self) -> Sequence[Problem]: ...


def problems_of(load: Callable[[Path], _Loaded], folder: Path) -> str:
    """Return the problems of a file, one per line, or the reason why it is unreadable."""
    try:
        return "\n".join(map(str, load(folder).problems))
    except ConfigError as error:
        return str(error)
