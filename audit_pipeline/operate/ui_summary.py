"""What the UI shows of something that was made: a few numbers, small tables, pictures, paths.

What belongs here: their form. What does not: choosing and rounding them (stages/), and Dagster's own types
(dagster/metadata.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Body = Sequence[tuple[object, ...]]


@dataclass(frozen=True)
class Shown:
    """What is shown, by name: tables as header and body, pictures as Markdown. ``rows``: how many were written, None
    where it is not of a table. ``leads``: what comes first, as Markdown that is short enough to be read in
    place; ``folded``: Markdown that is shown when it is asked for."""

    rows: int | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, tuple[tuple[str, ...], Body]] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    leads: Mapping[str, str] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)
