"""What detectors can need besides a text's own forward pass.

What belongs here: how a need is named, and how it is said that one is not met. What does not: the needs themselves
(each stands in the module of the detector that has it) and how one is met (scoring/needs/, a provider each).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

OWN_PASS = "one pass"


@dataclass(frozen=True)
class Need(Generic[T]):
    """Something that a detector reads besides a text's own statistics: a ``T`` per text.

    ``name`` is that of the module in scoring/needs/ that provides it; ``summary`` says in the list of detectors what it
    is, so that an audit's cost is known before it starts. ``statistics`` are those of every token that the model's back
    end has to give for it, by the names of token_statistics/kept.py.
    """

    name: str
    summary: str
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lacking:
    """That a need is not met for a text, and why."""

    reason: str


def in_words(needs: Iterable[Need[Any]]) -> list[str]:
    """The text's own pass and ``needs``, as they stand in the list of detectors."""
    return sorted([OWN_PASS, *(need.summary for need in needs)])
