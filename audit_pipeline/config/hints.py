"""Suggestions for a name that does not exist: the nearest names, and a family's only partition for its name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from audit_pipeline.errors import ConfigError

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


def resolve_partition(name: str, candidates: Sequence[str]) -> str:
    """Resolve the one of the ``candidates`` that ``name`` means: by its own name, or as the only one of its family.

    Raises ConfigError, naming them, where the family has several, and with the nearest names where there is none.
    """
    if name in candidates:
        return name
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
