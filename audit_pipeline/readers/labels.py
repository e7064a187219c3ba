"""Labels as files spell them: member, non-member, unknown, and those that cannot be understood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from audit_pipeline.tables import MEMBER, NON_MEMBER

SPELLINGS: Mapping[str, int | None] = {
    **dict.fromkeys(("1", "1.0", "true", "member"), MEMBER),
    **dict.fromkeys(("0", "0.0", "false", "non-member", "nonmember", "non_member"), NON_MEMBER),
    **dict.fromkeys(("", "none", "null", "nan", "unknown"), None),
}
"""What a label may be, in lower case and without the white space around it."""

NOT_UNDERSTOOD = "label is neither 1, 0 nor empty"

_SHOWN, _SHOWN_CHARACTERS = 5, 30


class SpellingError(ValueError):
    """A label of no known spelling."""


def parse_label(value: object) -> int | None:
    """1, 0, or None where the label is unknown; raises SpellingError if it cannot be understood."""
    spelling = label_to_spelling(value).lower()
    if spelling not in SPELLINGS:
        raise SpellingError(NOT_UNDERSTOOD)
    return SPELLINGS[spelling]


@dataclass
class LabelReader:
    """Reads labels in order and keeps count of those that it does not understand.

    ``known`` counts the labels of each side; ``not_understood`` those of no known spelling; ``spelt`` are the first
    five of their spellings, with how often each was met. Of more than 30 characters none is shown, and all count as
    one (None): with shifted columns a label may be a whole text.
    """

    known: dict[int, int] = field(default_factory=lambda: {MEMBER: 0, NON_MEMBER: 0})
    not_understood: int = 0
    spelt: dict[str | None, int] = field(default_factory=dict)
    _others: bool = False

    def read(self, value: object) -> int | None:
        """1, 0, or None where the label is unknown or not understood."""
        try:
            label = parse_label(value)
        except SpellingError:
            self.count_not_understood(value)
            return None
        if label is not None:
            self.known[label] += 1
        return label

    def count_not_understood(self, value: object) -> None:
        """Count a label that is not understood."""
        self.not_understood += 1
        spelling = str(value).strip()
        shown = spelling if len(spelling) <= _SHOWN_CHARACTERS else None
        if shown in self.spelt or len(self.spelt) < _SHOWN:
            self.spelt[shown] = self.spelt.get(shown, 0) + 1
        else:
            self._others = True

    def describe_not_understood(self, consequence: str) -> str | None:
        """How many labels were not understood, what followed (``taken as unknown``), and how they were spelt.

        Nothing in it moves a terminal. None where every label was understood.
        """
        if not self.not_understood:
            return None
        long = f"cells of more than {_SHOWN_CHARACTERS} characters"
        spelt = [
            f"{long if spelling is None else repr(spelling)} ({count:,})" for spelling, count in self.spelt.items()
        ]
        return (
            f"{self.not_understood:,} label(s) not understood, {consequence}: "
            f"{', '.join([*spelt, *(['and others'] if self._others else [])])}; "
            "a label is 1 or member, 0 or non-member, or empty"
        )


def shorten_spelling(spelling: str) -> str:
    """As much of a spelling as is shown."""
    return spelling if len(spelling) <= _SHOWN_CHARACTERS else f"{spelling[:_SHOWN_CHARACTERS]}…"


def label_to_spelling(value: object) -> str:
    """A cell as Python writes it, without the white space around it; empty where there is nothing (None, NaN)."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip()
