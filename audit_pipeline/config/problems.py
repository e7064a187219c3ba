"""Problems in configuration files with their lines and messages, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.errors import ConfigError, to_one_line

Keys = Sequence[str | int]
"""The path to a value: keys of mappings and indices of lists."""


@dataclass(frozen=True)
class Problem:
    """A mistake in a file.

    Attributes:
        path: The file.
        line: The line, or None if it is unknown.
        message: The message, without file, line and entry.
        entry: The kind and name of the entry (``model m``), or None if the mistake concerns the whole file.
    """

    path: Path
    line: int | None
    message: str
    entry: str | None = None

    def __str__(self) -> str:
        location = str(self.path)
        if self.line is not None:
            location += f":{self.line}"
        message = to_one_line(self.message)
        if self.entry is not None:
            return f"{location}: {self.entry}: {message}"
        if self.line is not None:
            return f"{location}: {message}"
        # Messages without line and entry continue a sentence: "FILE is missing".
        return f"{location} {message}"


def format_problems(problems: Iterable[Problem]) -> str:
    """Format problems in one line. Consecutive problems of one entry name the file and the entry only once."""
    parts: list[str] = []
    before: Problem | None = None
    for problem in problems:
        if before is not None and (problem.path, problem.entry) == (before.path, before.entry):
            message = problem.message
            parts.append(message if problem.line in (None, before.line) else f"line {problem.line}: {message}")
        else:
            parts.append(str(problem))
        before = problem
    return "; ".join(parts)


class BrokenFileError(ConfigError):
    """An error for a configuration file without readable entries: it is missing or not valid YAML."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class Fault:
    """A mistake in an entry.

    Attributes:
        keys: The path to the value within the entry.
        message: The message, without the entry.
        line: The line, or None to look up the line of ``keys`` later.
    """

    keys: Keys
    message: str
    line: int | None = None


class InvalidEntryError(Exception):
    """An error for an entry that cannot be used, with all its faults. entries.py converts the faults to problems."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)


_MAX_SUGGESTIONS = 3
_MAX_RATIO_DIFFERENCE = 0.15
_MAX_LISTED_NAMES = 20


def find_nearest_names(word: str, candidates: Iterable[str]) -> list[str]:
    """Return the candidates that are similar to a misspelt word, most similar first. Case is ignored."""
    by_spelling = {name.casefold(): name for name in candidates}
    spelt = word.casefold()
    close = difflib.get_close_matches(spelt, by_spelling, n=_MAX_SUGGESTIONS)
    ratios = [difflib.SequenceMatcher(None, spelling, spelt).ratio() for spelling in close]
    names: list[str] = []
    for spelling, ratio in zip(close, ratios, strict=True):
        # If a name is almost identical to the word, much less similar suggestions would only distract.
        if ratio >= max(ratios) - _MAX_RATIO_DIFFERENCE:
            names.append(by_spelling[spelling])
    return names


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "there are") -> str:
    """Return a hint for an unknown name: ``did you mean a or b?``, or ``there are: a, b, c`` if no name is similar.

    Args:
        word: The unknown name.
        candidates: The known names.
        otherwise: The start of the hint if no candidate is similar.
    """
    names = list(candidates)
    close = find_nearest_names(word, names)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"{otherwise}: {format_names(names)}"


def format_names(names: Sequence[str]) -> str:
    """Format the first names and the number of the others. Without names, return ``none``."""
    if not names:
        return "none"
    formatted = ", ".join(names[:_MAX_LISTED_NAMES])
    if len(names) > _MAX_LISTED_NAMES:
        formatted += f" and {len(names) - _MAX_LISTED_NAMES} more"
    return formatted


def split_names(names: str) -> list[str]:
    """Split a comma-separated list of names, and drop duplicates and empty names."""
    stripped = [name.strip() for name in names.split(",")]
    return list(dict.fromkeys(filter(None, stripped)))


def resolve_partition(name: str, candidates: Sequence[str]) -> str:
    """Return the benchmark with this name, or the only benchmark of the family with this name.

    A family consists of an entry's benchmarks at several text lengths, such as ``notes_32`` and ``notes_64``.

    Raises:
        ConfigError: If the family has several benchmarks, or if no benchmark matches.
    """
    if name in candidates:
        return name
    if "," in name:
        raise ConfigError(f"'{name}' is a list of names. Give the name of one benchmark.")
    members = list_family_partitions(name, candidates)
    if len(members) == 1:
        return members[0]
    if members:
        raise ConfigError(
            f"the family {name} consists of several benchmarks. Choose one of them: {format_names(members)}"
        )
    raise ConfigError(f"there is no benchmark '{name}'; {did_you_mean(name, candidates)}")


def list_family_partitions(family: str, candidates: Iterable[str]) -> list[str]:
    """Return the benchmarks of a family: those named FAMILY or FAMILY_LENGTH, such as ``notes_32``."""
    pattern = re.compile(rf"{re.escape(family)}(_[0-9]+)?")
    return [name for name in candidates if pattern.fullmatch(name)]
