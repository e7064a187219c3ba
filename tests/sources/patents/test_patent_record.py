"""Numbers, dates and groups of patents."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.sources.base import UnusableDocumentError
from audit_pipeline.sources.patents.record import (
    Patent,
    build_application_key,
    build_family_key,
    group_patents,
    parse_day,
    parse_publication_number,
)


def patent(number: str, *keys: str) -> Patent:
    return Patent(number, "", {}, date(2020, 1, 2), date(2020, 1, 1), keys, "")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CN-107196804-A", "CN107196804A"),
        (" cn 107196804 b ", "CN107196804B"),
        ("CN:85100001:U", "CN85100001U"),
        ("US2017123456A1", "US2017123456A1"),
        ("CN107196804", None),
        ("", None),
        ("Publication", None),
        ("CN107196804A/../..", None),
    ],
)
def test_publication_numbers(text: str, number: str | None) -> None:
    assert parse_publication_number(text) == number


def test_one_application_is_one_key_however_it_is_written() -> None:
    for text in ("CN201710402626.6A", "CN-201710402626-A", "CN201710402626", "cn:201710402626.6A", "CN201710402626.XA"):
        assert build_application_key(text) == "application:CN201710402626"
    for text in ("", "CN", "see below", "12345678"):
        assert build_application_key(text) is None


def test_family_keys() -> None:
    assert build_family_key(" 74512345 ") == "family:74512345"
    assert [build_family_key(text) for text in ("", "-1", "0", "none")] == [None] * 4


def test_days_in_every_form() -> None:
    for text in ("2024-05-31", "20240531", "2024-05-31T00:00:00Z", " 2024-05-31 "):
        assert parse_day(text, "x") == date(2024, 5, 31)
    for text in ("2024-0531", "31.05.2024", "2024-13-01", "", "2024", "20240000"):
        with pytest.raises(UnusableDocumentError, match="x is not a date that can be read: "):
            parse_day(text, "x")


def test_groups_by_family_application_and_through_others() -> None:
    patents = [
        patent("CN1000001A", "family:7", "application:CN1"),
        patent("CN1000001B", "application:CN1"),
        patent("CN1000002A", "application:CN2", "family:30"),
        patent("CN1000003A"),
        patent("CN1000004A", "application:CN4"),
        patent("CN1000005A", "application:CN5", "application:CN4"),
        patent("CN1000006A", "application:CN2", "family:7"),
        patent("CN1000003A"),
    ]
    assert group_patents(patents) == [
        "family:7", "family:7", "family:7", "publication:CN1000003A", "application:CN4", "application:CN4", "family:7",
        "publication:CN1000003A",
    ]  # fmt: skip


KEYS = st.sampled_from([f"family:{n}" for n in (3, 12, 5)] + [f"application:CN{n}" for n in range(4)])


@given(st.lists(st.lists(KEYS, max_size=3), max_size=8))
def test_groups_are_connected_components(keys: list[list[str]]) -> None:
    patents = [patent(f"CN100000{place}A", *some) for place, some in enumerate(keys)]
    # Brute force: reach every patent that shares a key, until nothing changes.
    reach = [{place} for place in range(len(patents))]
    for _ in patents:
        reach = [
            {
                other
                for place in here
                for other in range(len(patents))
                if other == place or set(keys[other]) & set(keys[place])
            }
            for here in reach
        ]
    groups = group_patents(patents)
    for place, group in enumerate(groups):
        assert {other for other, name in enumerate(groups) if name == group} == reach[place]
    # The order in which they come makes no difference.
    assert group_patents(patents[::-1]) == groups[::-1]
