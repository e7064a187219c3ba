"""What is wrong with a file of the configuration, where it is and in which words; names that may have been meant."""

from __future__ import annotations

import difflib
import re
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


_NEAREST = 3
_AS_NEAR = 0.15
_LISTED = 20


def find_nearest_names(word: str, candidates: Iterable[str]) -> list[str]:
    """Find the ``candidates`` that ``word`` may be a misspelling of, the nearest first; capitals make no difference."""
    by_spelling = {name.casefold(): name for name in candidates}
    spelt = word.casefold()
    close = difflib.get_close_matches(spelt, by_spelling, n=_NEAREST)
    likeness = [difflib.SequenceMatcher(None, spelling, spelt).ratio() for spelling in close]
    # Beside a name that is all but the same, others are noise.
    return [
        by_spelling[spelling]
        for spelling, like in zip(close, likeness, strict=True)
        if like >= max(likeness) - _AS_NEAR
    ]


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "there are") -> str:
    """'did you mean a or b?', or if no name is near 'there are: a, b, c'."""
    names = list(candidates)
    if close := find_nearest_names(word, names):
        return f"did you mean {' or '.join(close)}?"
    return f"{otherwise}: {format_names(names)}"


def format_names(names: Sequence[str]) -> str:
    """Format the names, of many the first; 'none' where there is none."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more


def split_names(names: str) -> list[str]:
    """Split a list of names at its commas, as every option does that takes several names. Each name is taken once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def resolve_partition(name: str, candidates: Sequence[str]) -> str:
    """Resolve the one of the ``candidates`` that ``name`` means: by its own name, or as the only one of its family.

    Raises ConfigError, naming them, where the family has several, and with the nearest names where there is none.
    """
    if name in candidates:
        return name
    if "," in name:
        raise ConfigError(f"'{name}' is a list of names: name one benchmark")
    found = list_family_partitions(name, candidates)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"the family {name} is several benchmarks; choose one: {format_names(found)}")
    raise ConfigError(f"there is no benchmark '{name}'; {did_you_mean(name, candidates)}")


def list_family_partitions(family: str, candidates: Iterable[str]) -> list[str]:
    """List the ``candidates`` that the ``family`` of that name expands to: itself, or its name and a length."""
    pattern = re.compile(rf"{re.escape(family)}(_[0-9]+)?")
    return [name for name in candidates if pattern.fullmatch(name)]
