"""Parsing of dates, written by people or programs, to the first and the last day that a date can mean.

A time with a time zone is converted to its day in UTC. A time without a time zone means the day that is written. A
year, a month or an ambiguous date such as 01/02/2024 means an interval of days.
"""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime

DATE_ADVICE = "Write dates as 2024-05-31, 2024-05 or 2024."

_ABSENT = frozenset(("", "nan", "nat", "none", "null", "<na>", "n/a", "na", "n.d.", "nd", "s.d.", "unknown", "-", "?"))
_MAX_QUOTE_LENGTH = 40
_FIRST_YEAR = 1000
_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


@dataclass(frozen=True)
class Dating:
    """The interval of days in which a text was published.

    Attributes:
        published: The last day of the interval.
        earliest: The first day of the interval, or None if the interval is a single day.
    """

    published: date
    earliest: date | None = None

    @property
    def first_day(self) -> date:
        """Return the first day of the interval."""
        return self.earliest or self.published

    def __str__(self) -> str:
        return str(self.published) if self.earliest is None else f"{self.earliest} to {self.published}"


class UnreadableDateError(ValueError):
    """An error for a value that cannot be used as a date. The message quotes the value."""


def parse_dating(value: object, today: date | None = None) -> Dating | None:
    """Parse a date to the interval of days that it means.

    Args:
        value: A date, a datetime, a number (a year, 20240531, or the time since 1970) or a written date.
        today: The current day in UTC. An interval that begins later than the next day is refused.

    Returns:
        The interval, or None if the value is null, blank or a word for a missing date, such as "unknown".

    Raises:
        UnreadableDateError: If the value cannot be parsed as a date, or is before the year 1000 or in the future.
    """
    if _is_absent(value):
        return None
    quoted = repr(value) if len(repr(value)) <= _MAX_QUOTE_LENGTH else f"{repr(value)[:_MAX_QUOTE_LENGTH]}…"
    try:
        dating = _parse_value(value)
    except (ValueError, OverflowError):
        raise UnreadableDateError(f"{quoted} is not a readable date") from None
    # Some programs write the year 1 or 101 if a date is missing.
    if dating.first_day.year < _FIRST_YEAR:
        raise UnreadableDateError(f"{quoted} is before the year {_FIRST_YEAR}")
    # In other time zones, the next day has already begun up to 14 hours before it begins in UTC.
    if dating.first_day > (today or datetime.now(UTC).date()) + timedelta(days=1):
        raise UnreadableDateError(f"{quoted} is in the future")
    return dating


def build_dating_from_years(years: Collection[int]) -> Dating | None:
    """Return the interval from the first day of the earliest year to the last day of the latest year.

    Returns:
        The interval, or None if there is no year, or if a year is not between 1 and 9999.
    """
    if not years or min(years) < 1 or max(years) > 9999:
        return None
    return Dating(date(max(years), 12, 31), date(min(years), 1, 1))


def merge_datings(datings: Collection[Dating]) -> Dating | None:
    """Return the smallest interval that contains all given intervals, or None if there are none."""
    if not datings:
        return None
    first_day = min(dating.first_day for dating in datings)
    last_day = max(dating.published for dating in datings)
    return _build_dating(first_day, last_day)


def parse_edition_dates(values: Iterable[str | None]) -> Dating | None:
    """Return the interval from the earliest to the latest of the edition dates in a file's metadata.

    Returns:
        The interval, or None if no date can be parsed. The date 0101-01-01, which some programs write for a missing
        date, is ignored.
    """
    datings: list[Dating] = []
    for value in values:
        with suppress(UnreadableDateError):
            dating = parse_dating(value)
            if dating is not None:
                datings.append(dating)
    return merge_datings(datings)


def _is_absent(value: object) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def _build_dating(first: date, last: date) -> Dating:
    if first > last:
        raise ValueError("the last day is before the first day")
    return Dating(last) if first == last else Dating(last, first)


def _build_from_numbers(year: int, month: int = 0, day: int = 0) -> Dating:
    """Return the interval of a year, a month or a day. 0 stands for an unknown month or day, as in 1998-05-00."""
    if month == 0:
        if day:
            raise ValueError("the date has a day, but no month")
        return Dating(date(year, 12, 31), date(year, 1, 1))
    first = date(year, month, day or 1)
    return Dating(first) if day else Dating(first.replace(day=monthrange(year, month)[1]), first)


def _build_from_moment(moment: datetime) -> Dating:
    return Dating(moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date())


def _parse_value(value: object) -> Dating:
    """Parse a value to the interval of days that it means. The value is not null, blank or a word for a missing date.

    Raises:
        ValueError: If the value is not a date.
        OverflowError: If the value is a number that is too large for a date.
    """
    if isinstance(value, datetime):
        return _build_from_moment(value)
    if isinstance(value, date):
        return Dating(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("the value is not a date")
    return _parse_written(value if isinstance(value, str) else str(math.floor(value)))


def _parse_written(value: str) -> Dating:
    # Chinese and Japanese dates have the order of ISO dates, with characters for year, month and day.
    written = value.replace("年", "-").replace("月", "-").replace("日", " ")
    written = _REGION.sub("", " ".join(written.split()).rstrip("-"))
    for pattern, read in _FORMS:
        match = pattern.fullmatch(written)
        if match:
            return read(*match.groups())
    for mark in _RANGE_MARKS:
        if written.count(mark) == 1:
            first, last = map(_parse_written, written.split(mark))
            return _build_dating(first.first_day, last.published)
    return _read_moment(written)


def _read_moment(written: str) -> Dating:
    """Read an ISO date and time. The time zone may be UTC or GMT instead of an offset, and may follow a blank."""
    joined = _SPACED_OFFSET.sub(r"\1", _ZONE_NAME.sub("+00:00", written))
    return _build_from_moment(datetime.fromisoformat(joined))


def _read_digits(digits: str) -> Dating:
    """Read digits as a year, a compact date (20240531) or a time since 1970.

    Serial numbers of days, which spreadsheets use for dates, are refused.
    """
    if len(digits) == len("1998"):
        return _build_from_numbers(int(digits))
    if len(digits) in (len("20240531"), len("20240531120000")):
        return _build_from_numbers(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    if _COMPACT_MINUTE.fullmatch(digits):
        # The digits may be a compact date or milliseconds in the year 1976.
        raise ValueError("ambiguous digits")
    for least, units_per_second in _EPOCH_UNITS:
        if least <= int(digits) < 100 * least:
            return Dating(datetime.fromtimestamp(int(digits) // units_per_second, UTC).date())
    raise ValueError("the value is not a date")


def _read_year_first(year: str, _: str, month: str, day: str, clock: str | None) -> Dating:
    if clock is None or 0 in (int(month), int(day)):
        return _build_from_numbers(int(year), int(month), int(day))
    return _read_moment(f"{year}-{int(month):02}-{int(day):02}T{clock}")


def _read_year_and_number(year: str, mark: str, number: str) -> Dating:
    """Read 1998-05 as a month and 1998-99 as two years.

    2001/02 can mean February 2001 or the years 2001 and 2002. The result is the two years, which contain the month.
    """
    is_next_year = len(number) == len("02") and int(number) == (int(year) + 1) % 100
    if is_next_year and (mark in "/–" or int(number) > _MONTHS_PER_YEAR):
        return _read_years(year, str(int(year) + 1))
    return _build_from_numbers(int(year), int(number))


def _read_years(first: str, last: str) -> Dating:
    return _build_dating(date(int(first), 1, 1), date(int(last), 12, 31))


def _read_month_and_year(month: str, year: str) -> Dating:
    return _build_from_numbers(int(year), int(month))


def _read_year_last(first: str, mark: str, second: str, year: str) -> Dating:
    """Read a date that ends with the year, such as 31.12.2024 or 12/31/2024.

    If day and month can be swapped, the interval contains both possible days. Dates with dots are never ambiguous,
    because every language that writes dates with dots puts the day first.
    """
    possible: list[Dating] = []
    for day, month in ((int(first), int(second)), (int(second), int(first))):
        if 1 <= month <= _MONTHS_PER_YEAR and not (possible and mark == "."):
            possible.append(_build_from_numbers(int(year), month, day))
    dating = merge_datings(possible)
    if dating is None:
        raise ValueError("the date contains no month")
    return dating


def _read_day_of_named_month(day: str | None, month: str, year: str) -> Dating:
    names = [name for name in _MONTH_NAMES if name == month.lower() or name[:3] == month.lower()[:4].removesuffix("t")]
    if not names:
        raise ValueError("the date contains no month")
    return _build_from_numbers(int(year), _MONTH_NAMES.index(names[0]) + 1, int(day or 0))


def _read_day_in_zone(day: str, offset: str) -> Dating:
    begin = datetime.fromisoformat(f"{day}T00:00:00{offset}")
    end = begin + timedelta(days=1, microseconds=-1)
    return _build_dating(_build_from_moment(begin).published, _build_from_moment(end).published)


def _read_week(year: str, week: str) -> Dating:
    first = date.fromisocalendar(int(year), int(week), 1)
    return _build_dating(first, first + timedelta(days=6))


def _read_mail_date(written: str) -> Dating:
    return _build_from_moment(parsedate_to_datetime(written))


def _read_pdf_date(*parts: str | None) -> Dating:
    """Read a date in the format of PDF metadata: D:20240531233000-05'00'. All parts after the year may be missing."""
    year, month, day, hour, minute, second, offset, offset_minutes = parts
    if hour is None:
        return _build_from_numbers(int(year or 0), int(month or 0), int(day or 0))
    zone = ""
    if offset is not None:
        zone = "Z" if offset in "zZ" else f"{offset}:{offset_minutes or '00'}"
    return _read_moment(f"{year}-{month}-{day}T{hour}:{minute or '00'}:{second or '00'}{zone}")


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_MONTHS_PER_YEAR = 12
_CLOCK = r"(?:,?[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[ap]\.?m\.?)?)?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? )?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_MONTH = r"([a-z]{3,9})\.?"
_PDF_DATE = r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z|[+-]\d\d)(?:'?(\d\d))?'?(?:\d\d'?)?)?"
_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Dating]], ...] = (
    (_compile(r"(\d+)(?:\.0*)?"), _read_digits),
    (_compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ](\d.*))?"), _read_year_first),
    (_compile(r"(\d{4})([-/.–])(\d{1,2})"), _read_year_and_number),
    (_compile(r"(\d{4}) ?[-–—/] ?(\d{4})"), _read_years),
    (_compile(r"(\d{1,2})[-/.](\d{4})"), _read_month_and_year),
    (_compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}){_CLOCK}"), _read_year_last),
    (_compile(r"(\d{4}-\d{2}-\d{2})(Z|[+-]\d{2}:?\d{2})"), _read_day_in_zone),
    (_compile(r"(\d{4})-?W(\d{2})"), _read_week),
    (_compile(_PDF_DATE), _read_pdf_date),
    (_compile(rf"{_WEEKDAY}(?:{_DAY}[ -](?:of )?)?{_MONTH},?[ -](\d{{4}}){_CLOCK}"), _read_day_of_named_month),
    (
        _compile(rf"{_WEEKDAY}{_MONTH} {_DAY},? (\d{{4}}){_CLOCK}"),
        lambda month, day, year: _read_day_of_named_month(day, month, year),
    ),
    (
        _compile(
            rf"({_WEEKDAY}\d{{1,2}}[ -][a-z]{{3}}[ -]\d{{4}} \d{{1,2}}:\d{{2}}(?::\d{{2}})? (?:[+-]\d{{4}}|GMT|UTC?))"
        ),
        _read_mail_date,
    ),
)
_RANGE_MARKS = ("/", "–", "—", " - ", " to ", "..")
_ZONE_NAME = _compile(r" ?(?:UTC|GMT)\Z")
_SPACED_OFFSET = _compile(r" ([+-]\d{2}:?\d{2})\Z")
_REGION = _compile(r"\[[\w/+-]+\]\Z")
_COMPACT_MINUTE = _compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])(?:[01]\d|2[0-3])[0-5]\d")
# For times since 1970 in seconds, milliseconds, microseconds and nanoseconds: the smallest accepted number (it means a
# day in 1973), and the number of units per second.
_EPOCH_UNITS = ((10**8, 1), (10**11, 10**3), (10**14, 10**6), (10**17, 10**9))
