"""Dates that are relative to today, such as "90 days before today", and the day that counts as today.

A cutoff that moved by itself at midnight would make its benchmark stale every day. So a day that is kept in the data
folder counts as today until the weekly schedule, or a user, rolls it on.
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
    """The day that a cutoff in benchmarks.yaml means; and, where it is relative to ``today``, its words, in small
    letters and single blanks.

    A month or year back from a day that the month does not have is the month's last: 6 months before 31 August is 28 or
    29 February. Raises ValueError, with the accepted forms, for anything else, and where no calendar has the day.
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
    """The day that counts as today; None where none is kept yet.

    Raises DataError, saying what to do, where the file holds anything else.
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
    """Let ``day`` count as today from now on; True where that changes anything.

    Raises DataError where the kept day is later: members' and non-members' sides are only ever moved on, and a clock
    that was wrong once must not move them back unseen.
    """
    kept = read_rolled_day(paths)
    if kept is not None and day < kept:
        raise DataError(
            f"the rolled day is {kept} and does not go back to {day}; if {kept} is wrong, remove {paths.rolled_day} "
            "and roll again"
        )
    if day == kept:
        return False
    write_json(paths.rolled_day, {"day": day.isoformat()})
    return True


def ensure_reference_day(paths: DataPaths) -> date:
    """The rolled day; where there is none yet, today's (UTC), which is kept as such from now on."""
    kept = read_rolled_day(paths)
    if kept is None:
        kept = utc_today()
        roll_day(paths, kept)
    return kept


def read_reference_day(paths: DataPaths) -> date:
    """The day that relative dates count from: the rolled day, or today's (UTC) where none is kept yet."""
    return read_rolled_day(paths) or utc_today()


def utc_today() -> date:
    """Today's date in UTC, whatever zone the machine is set to."""
    return datetime.now(UTC).date()
