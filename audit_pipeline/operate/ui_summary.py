"""What the UI shows of something that was made: numbers, small tables, a picture, paths.

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
    where it is not of a table. ``page``: the file of the report's page on it."""

    rows: int | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, tuple[tuple[str, ...], Body]] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    page: Path | None = None
