"""Relative cutoffs, such as "90 days before today", and the day that counts as today.

If a cutoff moved at midnight, its benchmark would be stale every day. So a day that is stored in the data folder counts
as today. It is called the rolled day, because the weekly schedule or a user moves it forward ("rolls" it).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime

from dateutil.relativedelta import relativedelta

from audit_pipeline.errors import DataError
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DataPaths

ACCEPTED = "a date (2025-01-31), or words: today, 90 days before today, 1 week before today, 6 months before today"

_WORDS = re.compile(r"(?:(?P<amount>[0-9]{1,5}) (?P<unit>day|week|month|year)s? before )?today")


def parse_cutoff(value: object, today: Callable[[], date]) -> tuple[date, str | None]:
    """Return the day of a cutoff, and its words if the cutoff is relative to ``today``.

    The words are in lower case with single blanks. If a month lacks the resulting day, its last day is used: 6 months
    before 31 August is 28 or 29 February.

    Raises:
        ValueError: If the value has no accepted form, or if the day does not exist or is out of range.
    """
    if isinstance(value, datetime):
        if value.timetz() == datetime.min.timetz():
            return value.date(), None
    elif isinstance(value, date):
        return value, None
    elif isinstance(value, str):
        words = " ".join(value.lower().split())
        if (match := _WORDS.fullmatch(words)) is not None:
            before = relativedelta(**{f"{match['unit'] or 'day'}s": int(match["amount"] or 0)})
            try:
                return today() - before, words
            except (ValueError, OverflowError) as error:
                raise ValueError(f"{words}: there is no such day ({error})") from error
        with suppress(ValueError):
            return date.fromisoformat(words), None
    raise ValueError(f"must be {ACCEPTED}; not {value!r}")


def read_rolled_day(paths: DataPaths) -> date | None:
    """Return the day that counts as today, or None if no day is stored.

    Raises:
        DataError: If the file cannot be read.
    """
    path = paths.rolled_day
    try:
        return date.fromisoformat(read_json(path)["day"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the rolled day cannot be read ({path}): {' '.join(str(error).split())}; "
            "remove the file and roll again: relative cutoffs count from today until then"
        ) from error


def roll_day(paths: DataPaths, day: date) -> bool:
    """Store the day that counts as today, and return True if it changed.

    Raises:
        DataError: If the stored day is later. Cutoffs only move forward, so that a clock that was wrong once does not
            move them back unnoticed.
    """
    rolled_day = read_rolled_day(paths)
    if rolled_day is not None and day < rolled_day:
        raise DataError(
            f"the rolled day is {rolled_day} and does not go back to {day}; if {rolled_day} is wrong, remove "
            f"{paths.rolled_day} and roll again"
        )
    if day == rolled_day:
        return False
    write_json(paths.rolled_day, {"day": day.isoformat()})
    return True


def ensure_reference_day(paths: DataPaths) -> date:
    """Return the stored day that counts as today. If no day is stored, store today's date (UTC) and return it."""
    day = read_rolled_day(paths)
    if day is None:
        day = utc_today()
        roll_day(paths, day)
    return day


def read_reference_day(paths: DataPaths) -> date:
    """Return the day that relative cutoffs count from: the stored day, or today's date (UTC) if no day is stored."""
    return read_rolled_day(paths) or utc_today()


def utc_today() -> date:
    """Return today's date in UTC, regardless of the machine's time zone."""
    return datetime.now(UTC).date()
