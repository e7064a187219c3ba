"""Suggestions for a name that does not exist.

What belongs here: the nearest names, in words, and a family's name in place of its only partition. What does not: which
names exist.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from audit_pipeline.errors import ConfigError

_NEAREST = 3
_AS_NEAR = 0.15
_LISTED = 20
_LONGEST = 200


def nearest(given: str, known: Iterable[str]) -> list[str]:
    """The names of ``known`` that ``given`` may be a misspelling of, the nearest first; capitals make no difference."""
    by_spelling = {name.casefold(): name for name in known}
    spelt = given[:_LONGEST].casefold()
    close = difflib.get_close_matches(spelt, by_spelling, n=_NEAREST)
    likeness = [difflib.SequenceMatcher(None, spelling, spelt).ratio() for spelling in close]
    # Beside a name that is all but the same, others are noise.
    return [
        by_spelling[spelling]
        for spelling, like in zip(close, likeness, strict=True)
        if like >= max(likeness) - _AS_NEAR
    ]


def did_you_mean(given: str, known: Iterable[str], otherwise: str = "there are") -> str:
    """'did you mean a or b?', or if no name is near 'there are: a, b, c'."""
    names = list(known)
    if close := nearest(given, names):
        return f"did you mean {' or '.join(close)}?"
    return f"{otherwise}: {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """The names, of many the first; 'none' where there is none."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more


def only_partition(given: str, known: Sequence[str]) -> str:
    """The benchmark of ``known`` that ``given`` names: by its own name, or as the only one of its family.

    Raises ConfigError, naming them, where the family has several, and with the nearest names where there is none.
    """
    if given in known:
        return given
    found = partitions_of(given, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"the family {given} is several benchmarks, and one is meant: {listed(found)}")
    raise ConfigError(f"there is no benchmark '{given}'; {did_you_mean(given, known)}")


def partitions_of(family: str, known: Iterable[str]) -> list[str]:
    """The benchmarks of ``known`` that the family of that name expands to: itself, or its name and a length."""
    pattern = re.compile(rf"{re.escape(family)}(_[0-9]+)?")
    return [name for name in known if pattern.fullmatch(name)]
