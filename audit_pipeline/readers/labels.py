"""Labels in files: their spellings for member, non-member and unknown, and the counting of other spellings."""

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
"""The label for each known spelling (in lower case): 1 for members, 0 for non-members, None if nobody knows."""

NOT_UNDERSTOOD = "label is neither 1, 0 nor empty"

_MAX_SHOWN = 5
_MAX_SHOWN_CHARACTERS = 30


class SpellingError(ValueError):
    """An error for a label with an unknown spelling."""


def parse_label(value: object) -> int | None:
    """Return 1 for a member, 0 for a non-member, or None if the value is empty or means unknown, such as null.

    Raises:
        SpellingError: If the spelling of the value is not in SPELLINGS.
    """
    spelling = normalize_spelling(value).lower()
    if spelling not in SPELLINGS:
        raise SpellingError(NOT_UNDERSTOOD)
    return SPELLINGS[spelling]


@dataclass
class LabelReader:
    """A reader of labels that counts unknown spellings.

    Attributes:
        known: Number of members (key 1) and of non-members (key 0). Empty labels are not counted.
        not_understood: Number of labels with an unknown spelling.
        counts: Number of labels for each of the first five unknown spellings. All spellings of more than 30 characters
            are counted under the key None. Such a value may be a whole text if the columns of the file are shifted.
    """

    known: dict[int, int] = field(default_factory=lambda: {MEMBER: 0, NON_MEMBER: 0})
    not_understood: int = 0
    counts: dict[str | None, int] = field(default_factory=dict)
    _others: bool = False

    def read(self, value: object) -> int | None:
        """Parse a label and count it.

        Returns:
            1 for a member, 0 for a non-member, None if the value is empty, means unknown, or has an unknown spelling.
        """
        try:
            label = parse_label(value)
        except SpellingError:
            self.count_unknown_spelling(value)
            return None
        if label is not None:
            self.known[label] += 1
        return label

    def count_unknown_spelling(self, value: object) -> None:
        """Count a label with an unknown spelling."""
        self.not_understood += 1
        spelling = str(value).strip()
        shown = spelling if len(spelling) <= _MAX_SHOWN_CHARACTERS else None
        if shown in self.counts or len(self.counts) < _MAX_SHOWN:
            self.counts[shown] = self.counts.get(shown, 0) + 1
        else:
            self._others = True

    def describe_unknown_spellings(self, consequence: str) -> str | None:
        """Return a message about the labels with an unknown spelling, or None if there are none.

        The message quotes the spellings by ``repr``, so that control characters have no effect on a terminal.

        Args:
            consequence: A phrase about the treatment of these labels, such as "treated as unknown".
        """
        if not self.not_understood:
            return None
        spellings: list[str] = []
        for spelling, count in self.counts.items():
            shown = f"cells of more than {_MAX_SHOWN_CHARACTERS} characters" if spelling is None else repr(spelling)
            spellings.append(f"{shown} ({count:,})")
        if self._others:
            spellings.append("and others")
        return (
            f"{self.not_understood:,} label(s) have an unknown spelling ({consequence}): {', '.join(spellings)}. "
            "Valid labels are 1 or member, 0 or non-member, or empty."
        )


def shorten_spelling(spelling: str) -> str:
    """Return the first 30 characters of a spelling, with an ellipsis if it is longer."""
    if len(spelling) <= _MAX_SHOWN_CHARACTERS:
        return spelling
    return f"{spelling[:_MAX_SHOWN_CHARACTERS]}…"


def normalize_spelling(value: object) -> str:
    """Return a cell as a stripped string. It is empty for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip()
