"""Dates in the spellings of people and programs."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.readers.dates import Dating, UnreadableDateError, merge_datings, parse_dating
from audit_pipeline.readers.formats import read_rows

TODAY = date(2025, 6, 1)
YEAR = "1998-01-01 to 1998-12-31"
MAY = "1998-05-01 to 1998-05-31"
TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("value", "days"),
    [
        # Days, as dates, numbers and text
        ("2024-05-31", "2024-05-31"),
        ("2024-5-3", "2024-05-03"),
        ("2024/05/31", "2024-05-31"),
        ("20240531", "2024-05-31"),
        (20240531, "2024-05-31"),
        ("2024-W05-1", "2024-01-29"),
        ("2024年5月31日", "2024-05-31"),
        (date(2024, 5, 31), "2024-05-31"),
        ("31.12.2024", "2024-12-31"),
        ("12/31/2024", "2024-12-31"),
        ("31/12/2024", "2024-12-31"),
        ("05/05/2024", "2024-05-05"),
        ("01.02.2024", "2024-02-01"),
        ("31 May 1998", "1998-05-31"),
        ("May 31st, 1998", "1998-05-31"),
        ("31-May-1998", "1998-05-31"),
        # Years, months and other intervals
        ("1998", YEAR),
        (1998, YEAR),
        (1998.0, YEAR),
        ("1998.0", YEAR),
        ("1998-00-00", YEAR),
        ("1998-05", MAY),
        (" 1998-05 ", MAY),
        ("05/1998", MAY),
        ("1998-05-00", MAY),
        ("May 1998", MAY),
        ("1904-02", "1904-02-01 to 1904-02-29"),
        ("1998/1999", "1998-01-01 to 1999-12-31"),
        ("1998–99", "1998-01-01 to 1999-12-31"),
        ("2001/02", "2001-01-01 to 2002-12-31"),
        ("2024-05-01/2024-05-03", "2024-05-01 to 2024-05-03"),
        ("2024-W05", "2024-01-29 to 2024-02-04"),
        ("2025", "2025-01-01 to 2025-12-31"),
        # Metadata of a PDF
        ("D:20240531233000-05'00'", "2024-06-01"),
        ("D:20240531233000Z00'00'", "2024-05-31"),
        ("D:20240531", "2024-05-31"),
        ("D:1998", YEAR),
        # Day and month in either order
        ("01/02/2024", "2024-01-02 to 2024-02-01"),
        ("01-02-2024 10:00", "2024-01-02 to 2024-02-01"),
        # Moments
        ("2024-05-31T23:30", "2024-05-31"),
        ("2024-05-31 00:00:00.000000000", "2024-05-31"),
        ("20240531T233000", "2024-05-31"),
        ("20240531233000", "2024-05-31"),
        (datetime(2024, 5, 31, 23, 30), "2024-05-31"),
        ("2024-05-31Z", "2024-05-31"),
        ("2024-05-31+09:00", "2024-05-30 to 2024-05-31"),
        (883612800, "1998-01-01"),
        (883612800.5, "1998-01-01"),
        ("883612800000", "1998-01-01"),
        (883612800 * 10**6, "1998-01-01"),
        (883612800 * 10**9, "1998-01-01"),
    ],
)
def test_a_date_means_a_day_or_an_interval(value: object, days: str) -> None:
    assert str(parse_dating(value, TODAY)) == days


@pytest.mark.parametrize(
    "value",
    [
        "2022-01-01T00:30:00+01:00",
        "2021-12-31T23:30:00Z",
        "2022-01-01T08:30:00+09:00",
        "2021-12-31 18:30:00 -0500",
        "2021-12-31 23:30:00 UTC",
        "2022-01-01T08:30:00+09:00[Asia/Tokyo]",
        "Fri, 31 Dec 2021 18:30:00 -0500",
        datetime(2022, 1, 1, 8, 30, tzinfo=TOKYO),
        1640993400,
        1640993400000,
    ],
)
def test_one_moment_is_one_day_in_every_time_zone(value: object) -> None:
    assert parse_dating(value, TODAY) == Dating(date(2021, 12, 31))


@pytest.mark.parametrize("value", [None, "", " ", math.nan, "NaT", "null", "n.d."])
def test_a_missing_date_is_none(value: object) -> None:
    assert parse_dating(value, TODAY) is None


@pytest.mark.parametrize(
    "value",
    [
        *("soon", "c. 1998", "1998?", "Summer 1998", "98", "31/05/98", "2024-13-01", "2024-02-30", "30/02/2024"),
        *("0000", "0000-00-00", "0001-01-01", "0101-01-01T00:00:00+00:00", "-0044", 0, -1, 98, True, 1e300, math.inf),
        # The serial number of a spreadsheet, a minute that is also a millisecond of 1976, a month of 1998 without mark
        *(45443, "45443", "202405311200", "199805", "1998-1997", "2024-05-31T24:30", [], {"$date": 1}, "9" * 500),
        *("2025-06-03", "2026", "2124-05-31", 4102444800),
    ],
)
def test_unreadable_dates_are_refused(value: object) -> None:
    with pytest.raises(UnreadableDateError, match=r"is (not a readable date|in the future|before the year 1000)"):
        parse_dating(value, TODAY)


def test_the_next_day_is_accepted_because_of_time_zones() -> None:
    assert parse_dating("2025-06-02", TODAY) == Dating(date(2025, 6, 2))


def test_several_datings_span_from_the_first_day_to_the_last() -> None:
    both = [Dating(date(2014, 3, 1)), Dating(date(1818, 12, 31), date(1818, 1, 1))]
    assert merge_datings(both) == Dating(date(2014, 3, 1), date(1818, 1, 1))
    assert merge_datings([]) is None


@max_examples(200)
@given(st.text(max_size=30) | st.integers() | st.floats() | st.from_regex(r"[\d./:TZ+ –-]{4,20}", fullmatch=True))
def test_any_value_is_an_ordered_interval_or_refused(value: object) -> None:
    try:
        dating = parse_dating(value, TODAY)
    except UnreadableDateError:
        return
    assert dating is None or (dating.first_day <= dating.published and dating.first_day <= date(2025, 6, 2))


def test_moments_of_a_parquet_column_fall_on_their_day_in_utc(tmp_path: Path) -> None:
    moment = datetime(2022, 1, 1, 8, 30, tzinfo=TOKYO)
    days = []
    for unit in ("s", "us"):
        for zone in ("UTC", "Asia/Tokyo"):
            column = pa.array([None, moment], pa.timestamp(unit, tz=zone))
            pq.write_table(pa.table({"date": column}), tmp_path / "t.parquet")
            days += [parse_dating(row.values["date"]) for row in read_rows(tmp_path / "t.parquet").rows]
    assert days == [None, Dating(date(2021, 12, 31))] * 4
