"""What several commands say in the same way.

What belongs here: options' types, one finding in words. What does not: printing itself (console.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from audit_pipeline.console import tell
from audit_pipeline.data_folder import require_writable
from audit_pipeline.paths import DataPaths

FILE = click.Path(path_type=Path, dir_okay=False)


def data_to_write() -> DataPaths:
    """The data folder, for a command that writes there; raises DataError where that cannot be."""
    paths = DataPaths.from_environment()
    require_writable(paths.root)
    return paths


def tell_step(what: str) -> None:
    """One step of a longer piece of work, on standard error."""
    tell(f"• {what}")


def setting(parameters: str) -> str:
    """A detector's parameters, from their canonical JSON."""
    return " ".join(f"{name}={value}" for name, value in json.loads(parameters).items())


def with_interval(row: dict[str, Any], metric: str) -> str:
    """A metric of a row of the leaderboard with its interval."""
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
