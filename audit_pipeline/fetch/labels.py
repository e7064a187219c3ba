"""Labels as files spell them: member, non-member, unknown, and those that nobody can understand.

What belongs here: the spellings, and keeping count of the others. What does not: which column holds labels, and labels
whose meaning a benchmark's entry states (benchmarks/row_values.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from audit_pipeline.contracts import MEMBER, NON_MEMBER

SPELLINGS: Mapping[str, int | None] = {
    **dict.fromkeys(("1", "1.0", "true", "member"), MEMBER),
    **dict.fromkeys(("0", "0.0", "false", "non-member", "nonmember", "non_member"), NON_MEMBER),
    **dict.fromkeys(("", "none", "null", "nan", "unknown"), None),
}
"""What a label may be, in lower case and without the white space around it."""

_SHOWN, _SHOWN_CHARACTERS = 5, 30


@dataclass
class LabelReader:
    """Reads labels one after another and keeps count of those that it does not understand.

    ``known`` counts the labels of each side; ``not_understood`` those of no known spelling; ``spelt`` are the first
    five of their spellings, each cut to 30 characters: with shifted columns a label may be a whole text.
    """

    known: dict[int, int] = field(default_factory=lambda: {MEMBER: 0, NON_MEMBER: 0})
    not_understood: int = 0
    spelt: list[str] = field(default_factory=list)
    _others: bool = False

    def read(self, value: object) -> int | None:
        """1, 0, or None where the label is unknown or not understood."""
        spelling = _spelling(value)
        if spelling not in SPELLINGS:
            self._note(str(value))
            return None
        label = SPELLINGS[spelling]
        if label is not None:
            self.known[label] += 1
        return label

    def told(self, consequence: str) -> str | None:
        """How many labels were not understood, what followed (``taken as unknown``), and how they were spelt.

        Nothing in it moves a terminal. None where every label was understood.
        """
        if not self.not_understood:
            return None
        spelt = ", ".join([*map(repr, self.spelt), *(["and others"] if self._others else [])])
        return (
            f"{self.not_understood:,} label(s) not understood, {consequence}: {spelt}; "
            "a label is 1 or member, 0 or non-member, or empty"
        )

    def _note(self, spelling: str) -> None:
        self.not_understood += 1
        shown = cut(spelling)
        if shown in self.spelt:
            return
        if len(self.spelt) < _SHOWN:
            self.spelt.append(shown)
        else:
            self._others = True


def cut(spelling: str) -> str:
    """As much of a spelling as is shown."""
    return spelling if len(spelling) <= _SHOWN_CHARACTERS else f"{spelling[:_SHOWN_CHARACTERS]}…"


def _spelling(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip().lower()
