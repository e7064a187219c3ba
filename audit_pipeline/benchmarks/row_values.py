"""What stands in a row's columns: labels, names and days, as files spell them.

What belongs here: one value at a time, and why it cannot be used. What does not: texts (fetch/rows.py) and which column
means what (row_settings.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER, text_sha256
from audit_pipeline.fetch.labels import cut
from audit_pipeline.fetch.rows import text_problem

_LONGEST_NAME = 200


def label_of(value: object, meanings: Mapping[str, int] | None = None) -> tuple[int | None, str | None]:
    """The label that ``value`` stands for and None; or any label and the reason why it stands for none.

    Files spell 0 and 1 as numbers, as floats (a column with nulls) and as strings (.csv, where an empty field is null).
    ``meanings``, where given, says which values stand for which label; null and an empty field stay unknown.
    """
    plain = value.strip() if isinstance(value, str) else value
    if plain is None or plain == "":
        return None, None
    if meanings:
        if str(plain) in meanings:
            return meanings[str(plain)], None
        return None, f"its label is {_shown(value)}, not {', '.join(meanings)} or null"
    if plain in (MEMBER, str(MEMBER)):
        return MEMBER, None
    if plain in (NON_MEMBER, str(NON_MEMBER)):
        return NON_MEMBER, None
    return None, f"its label is {_shown(value)}, not 0, 1 or null"


def _shown(value: object) -> str:
    """A label as it is spelt, cut: with shifted columns it may be a whole text."""
    return repr(cut(value)) if isinstance(value, str) else cut(repr(value))


def name_of(value: object) -> tuple[str, str | None]:
    """The name (of a group, of a document) and None; or an empty one and the reason why it is none.

    A whole text that serves as a name, such as the passage of several questions, is named by its sha256 (16 digits).
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    problem = text_problem(value)
    if problem is not None or not isinstance(value, str):
        return "", problem
    name = value.strip()
    return (text_sha256(name)[:16] if len(name) > _LONGEST_NAME else name), None


def day_of(value: object) -> tuple[date | None, str | None]:
    """The day that ``value`` says and None, or None and the reason why it says none; null and blank are no day."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None, None
    if isinstance(value, datetime):
        return value.date(), None
    if isinstance(value, date):
        return value, None
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip()).date(), None
        except ValueError:
            pass
    return None, f"is not an ISO date: {value!r}"


def is_value(value: object, wanted: object) -> bool:
    """Whether a row's value is the wanted one, also where its file spells it as text (.csv)."""
    return value == wanted or str(value) == str(wanted)
