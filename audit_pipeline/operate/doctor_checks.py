"""What the doctor says of one thing that it looked at.

What belongs here: the form that every look gives its result in. What does not: looking (operate/doctor.py,
operate/doctor.py, operate/doctor_missing.py, operate/dagster/health.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Look = Callable[[str], None]
"""A callback with the name of the current check."""

Ending = Literal["well", "badly", "not yet"]
HowEnded = Callable[[str], Ending | None]
"""How a run ended; None where it is not known."""

_NAMED = 5


@dataclass(frozen=True)
class DoctorCheck:
    """One thing looked at."""

    what: str
    ok: bool
    words: str


def abbreviate_names(names: Sequence[object]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(str, names[:_NAMED])) + more
