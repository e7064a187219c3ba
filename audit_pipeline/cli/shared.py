"""What several commands say in the same way.

What belongs here: options' types, one finding in words. What does not: printing itself (console.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.console import tell
from audit_pipeline.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.models.load import TokenizedModel
    from audit_pipeline.token_statistics.forward import ForwardPass

FILE = click.Path(path_type=Path, dir_okay=False)


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


def loader(paths: DataPaths, device: str | None) -> Callable[[TokenizedModel], ForwardPass]:
    """What loads a model where something of it is not in the cache; torch is imported then, and not before."""

    def load(wanted: TokenizedModel) -> ForwardPass:
        from audit_pipeline.token_statistics.ready import forward_pass

        tell_step(f"loading {wanted.entry.name}")
        ready = forward_pass(wanted, paths, device, tell_step)
        if not ready.packed:
            tell_step(f"{wanted.entry.name} takes no packed branches: infilling runs each anew, which takes far longer")
        return ready

    return load
