"""One spelling for one kind of value."""

from __future__ import annotations

from audit_pipeline.report.number_format import (
    amount,
    duration,
    estimate,
    format_thousands,
    format_waiting_time,
    interval,
    level,
    number,
    percent,
    probability,
    score,
    setting,
    share,
    signed,
)


def test_numbers_in_words() -> None:
    assert (number(None), number(float("nan")), number(0.5), number(-0.5)) == ("–", "–", "0.500", "−0.500")
    assert (interval([None, 1.0]), interval([0.25, 1.0]), interval([0.25, 1.0], rate=True)) == (
        "",
        "[0.250, 1.000]",
        "[25.0, 100.0]",
    )
    assert interval([-0.25, 1.0], sign=True) == "[−0.250, +1.000]"
    tiny = -1e-9
    assert (number(tiny), signed(tiny), percent(tiny), score(-0.0), share(tiny), probability(-0.0)) == (
        *("0.000", "+0.000", "0.0%", "0", "0.00%", "0.000"),
    )
    assert (interval([tiny, 1.0]), interval([tiny, 1.0], rate=True)) == ("[0.000, 1.000]", "[0.0, 100.0]")
    assert (estimate(tiny, tiny, 0.5), estimate(tiny, None, None, "z.0%")) == ("0.000 [0.000, 0.500]", "0%")
    assert (score(-0.01234567), score(123456.0), signed(-0.25), signed(None)) == (
        "−0.01235",
        "1.235e+05",
        "−0.250",
        "–",
    )
    assert (percent(0.0333), level(0.05), level(0.001), level(1 / 45)) == ("3.3%", "5%", "0.1%", "2.2%")
    assert (probability(0.0), probability(0.0123), probability(0.00041), probability(None)) == (
        "0.000",
        "0.012",
        "4.1×10⁻⁴",
        "–",
    )
    assert (duration(0.4), duration(42.4), duration(200), duration(7500)) == (
        "0.4 s",
        "42 s",
        "3 min 20 s",
        "2 h 5 min",
    )
    assert [format_waiting_time(seconds) for seconds in (0.4, 90, 91, 720, 12_000)] == [
        "0 s",
        "90 s",
        "2 min",
        "12 min",
        "3.3 h",
    ]
    assert (estimate(0.7123, 0.65, 0.77), estimate(0.7, None, 0.8)) == ("0.712 [0.650, 0.770]", "0.700")
    assert (estimate(0.25, 0.2, 0.3, ".0%"), estimate(None, None, None)) == ("25% [20, 30]", "not defined")
    assert (format_thousands(1234), format_thousands(None)) == ("1,234", "–")
    assert (setting("{}"), setting('{"k":0.2,"a":null}'), setting("odd")) == ("", "a=None, k=0.2", "odd")
    sums = ("–", "1e-05", "0.10", "1.00", "3\u202f162.28", "10⁶")
    assert tuple(amount(value) for value in (None, -5, -1, 0, 3.5, 6)) == sums
