"""What the doctor says of one thing that it looked at.

What belongs here: the form that every look gives its result in. What does not: looking (operate/doctor.py,
operate/doctor.py, operate/doctor_missing.py, operate/dagster/health.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Look = Callable[[str], None]
"""A callback with the name of the current check."""

Ending = Literal["well", "badly", "not yet"]
HowEnded = Callable[[str], Ending | None]
"""How a run ended; None where it is not known."""

_named: ContextVar[int | None] = ContextVar("named", default=5)


@dataclass(frozen=True)
class DoctorCheck:
    """One thing looked at."""

    what: str
    ok: bool
    words: str


@contextmanager
def name_all() -> Iterator[None]:
    """Within the block :func:`abbreviate_names` leaves no name out."""
    token = _named.set(None)
    try:
        yield
    finally:
        _named.reset(token)


def abbreviate_names(names: Sequence[object], separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    shown = names[: _named.get()]
    more = f" and {len(names) - len(shown)} more (--all names them)" if len(names) > len(shown) else ""
    return separator.join(map(str, shown)) + more
