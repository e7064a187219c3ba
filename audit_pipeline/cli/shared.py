"""What several commands say in the same way.

What belongs here: options' types, one finding in words. What does not: printing itself (console.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from audit_pipeline.console import Row, answering, tell

FILE = click.Path(path_type=Path, dir_okay=False)
PATH = click.Path(path_type=Path)
"""A file, a folder, or - for standard input."""


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """The option --json: what the command says on standard output, as one JSON document."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
    @functools.wraps(command)
    def run(*arguments: Any, as_json: bool, **options: Any) -> None:
        with answering(as_json=as_json):
            command(*arguments, **options)

    return run


def tell_step(what: str) -> None:
    """One step of a longer piece of work, on standard error."""
    tell(f"• {what}")


def detector_and_setting(row: Row) -> str:
    """A row's detector with its parameters, which are a mapping."""
    return " ".join([row["detector"], *(f"{name}={value}" for name, value in row["parameters"].items())])


def sides(row: Row) -> str:
    """How many members and non-members a row rests on."""
    return f"{row['n_members']} + {row['n_nonmembers']}"


def with_interval(row: Row, metric: str) -> str:
    """A metric of a row with its interval."""
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
