"""What is wrong with a file of the configuration: where it is, and in which words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import ConfigError, to_one_line

Keys = Sequence[str | int]
"""The way to a value: keys of mappings and places in lists."""


@dataclass(frozen=True)
class Problem:
    """One mistake. ``entry`` names in words the entry that has it ('model m'); None if it is the whole file's."""

    path: Path
    line: int | None
    words: str
    entry: str | None = None

    def __str__(self) -> str:
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        words = to_one_line(self.words)
        if self.entry is not None:
            return f"{place}: {self.entry}: {words}"
        return f"{place} {words}" if self.line is None else f"{place}: {words}"


def format_problems(problems: Iterable[Problem]) -> str:
    """Format several problems in one line; those of one entry name it once."""
    parts: list[str] = []
    before: Problem | None = None
    for problem in problems:
        if before is not None and (problem.path, problem.entry) == (before.path, before.entry):
            words = problem.words
            parts.append(words if problem.line in (None, before.line) else f"line {problem.line}: {words}")
        else:
            parts.append(str(problem))
        before = problem
    return "; ".join(parts)


class BrokenFileError(ConfigError):
    """A file of which no entry can be read, as it is missing or no YAML."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class Fault:
    """One mistake in an entry, at the value that ``keys`` lead to; ``line`` where that is known already."""

    keys: Keys
    words: str
    line: int | None = None


class InvalidEntryError(Exception):
    """An entry that cannot be used, with every mistake in it; entries.py makes problems of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.words for fault in faults))
        self.faults = tuple(faults)
