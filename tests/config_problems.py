"""What is wrong with a file of the configuration, as tests of each domain ask for it."""

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
    """Every problem of the file in ``folder``, a line each; of a file that cannot be read at all, why."""
    try:
        return "\n".join(map(str, load(folder).problems))
    except ConfigError as error:
        return str(error)
