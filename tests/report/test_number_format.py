"""One spelling for one kind of value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from audit_pipeline.report.number_format import (
    FILTERS,
    format_estimate,
    format_interval,
    format_thousands,
    format_waiting_time,
)

TINY = -1e-9


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("number", {None: "–", math.nan: "–", 0.5: "0.500", -0.5: "−0.500", TINY: "0.000"}),
        ("signed", {None: "–", -0.25: "−0.250", 0.25: "+0.250", TINY: "+0.000"}),
        ("score", {-0.01234567: "−0.01235", 123456.0: "1.235e+05", -0.0: "0"}),
        ("percent", {None: "–", 0.0333: "3.3%", TINY: "0.0%"}),
        ("share", {None: "–", 0.0: "0.00%", 0.00001: "<0.01%", 0.0013: "0.13%", 0.42: "42.00%", TINY: "0.00%"}),
        ("level", {None: "–", 0.05: "5%", 0.001: "0.1%", 1 / 45: "2.2%"}),
        ("probability", {None: "–", 0.0: "0.000", 0.0123: "0.012", 0.00041: "4.1×10⁻⁴"}),
        ("draws", {None: "–", 0.0: "1", 2.0: "100", math.log10(3): "3", 5.3: "199\u202f527", 12.6: "10¹³"}),
        ("amount", {None: "–", -5: "1e-05", -1: "0.10", 0: "1.00", 3.5: "3\u202f162.28", 6: "10⁶"}),
        ("duration", {0.4: "0.4 s", 42.4: "42 s", 200: "3 min 20 s", 7500: "2 h 5 min"}),
        ("setting", {"{}": "", '{"k":0.2,"a":null}': "a=None, k=0.2", "odd": "odd", "[1]": "[1]"}),
        ("visible", {" a": " a", " ": "␣", "": "␣", "\n": "↵", " \n\n": " ↵↵"}),
    ],
)
def test_values_in_words(name: str, values: dict[Any, str]) -> None:
    assert [FILTERS[name](value) for value in values] == [*values.values()]


def test_intervals_and_estimates_in_words() -> None:
    assert (format_interval([None, 1.0]), format_interval([0.25, 1.0])) == ("", "[0.250, 1.000]")
    assert format_interval([0.25, 1.0], rate=True) == "[25.0, 100.0]"
    assert format_interval([-0.25, 1.0], sign=True) == "[−0.250, +1.000]"
    assert (format_interval([TINY, 1.0]), format_interval([TINY, 1.0], rate=True)) == ("[0.000, 1.000]", "[0.0, 100.0]")
    assert (format_estimate(TINY, TINY, 0.5), format_estimate(0.7, None, 0.8)) == ("0.000 [0.000, 0.500]", "0.700")
    assert (format_estimate(0.25, 0.2, 0.3, ".0%"), format_estimate(TINY, None, None, "z.0%")) == ("25% [20, 30]", "0%")
    assert format_estimate(None, None, None) == "not defined"


def test_what_a_terminal_says() -> None:
    assert (format_thousands(1234), format_thousands(None)) == ("1,234", "–")
    waiting = [format_waiting_time(seconds) for seconds in (0.4, 90, 91, 720, 12_000)]
    assert waiting == ["0 s", "90 s", "2 min", "12 min", "3.3 h"]
