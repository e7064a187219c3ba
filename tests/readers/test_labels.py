"""Spellings of labels, and the report of unknown spellings."""

from __future__ import annotations

import math

import pytest

from audit_pipeline.readers.labels import LabelReader


@pytest.mark.parametrize(
    ("spelt", "label"),
    [
        *((value, 1) for value in (1, 1.0, True, "1", "1.0", " 1 ", "TRUE", "Member")),
        *((value, 0) for value in (0, 0.0, False, "0", "0.0", "false", "non-member", "NonMember", "non_member")),
        *((value, None) for value in (None, math.nan, "", "  ", "null", "None", "NaN", "unknown")),
    ],
)
def test_known_spellings_are_parsed(spelt: object, label: int | None) -> None:
    reader = LabelReader()
    assert reader.read(spelt) == label
    assert reader.describe_unknown_spellings("taken as unknown") is None
    assert sum(reader.known.values()) == (label is not None)


def test_unknown_spellings_are_counted_and_the_first_five_are_quoted() -> None:
    reader = LabelReader()
    spelt = ["yes", "yes", "01", "x" * 40, "red \x1b[31m", -1, 2, "another"]
    assert [reader.read(value) for value in [1, *spelt, 0, 1]] == [1, *[None] * 8, 0, 1]
    assert reader.known == {1: 2, 0: 1}
    words = reader.describe_unknown_spellings("taken as unknown")
    assert words == (
        "8 label(s) have an unknown spelling (taken as unknown): 'yes' (2), '01' (1), "
        "cells of more than 30 characters (1), 'red \\x1b[31m' (1), '-1' (1), and others. "
        "Valid labels are 1 or member, 0 or non-member, or empty."
    )
