"""How numbers, intervals, times and settings are written for people: in the report, and on a terminal.

What belongs here: one spelling for one kind of value; a terminal gets plain characters. What does not: sentences
(answers.yaml, notes.yaml), layout (sections/). What is not known is a dash. A number that is rounded to zero has no
sign (the z of Python's format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

DASH = "–"

_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def _format_known(value: float | None, format_spec: str) -> str:
    """The value in a ``format_spec`` of Python's, with a real minus sign; a dash where it is not known."""
    return DASH if value is None or math.isnan(value) else format(value, format_spec).replace("-", "\u2212")


def format_number(value: float | None) -> str:
    """A metric with three decimals."""
    return _format_known(value, "z.3f")


def format_signed(value: float | None) -> str:
    """A difference with its sign and three decimals."""
    return _format_known(value, "+z.3f")


def format_score(value: float | None) -> str:
    """A score with four significant digits: detectors differ in scale."""
    return _format_known(value, "z.4g")


def format_percent(value: float | None) -> str:
    """A rate in percent with one decimal."""
    return _format_known(value, "z.1%")


def format_share(value: float | None) -> str:
    """A share of characters in percent with two decimals; less than a hundredth of a percent differs from nothing."""
    return "<0.01%" if value is not None and 0 < value < 0.00005 else _format_known(value, "z.2%")


def format_target_rate(value: float | None) -> str:
    """A rate that was aimed at, without decimals that say nothing: 5%, 0.1%."""
    return DASH if value is None or math.isnan(value) else f"{100 * value:.2g}%"


def format_probability(value: float | None) -> str:
    """A p- or q-value: three decimals, two digits where it is smaller."""
    if value is None or not 0 < value < 0.001:
        return _format_known(value, "z.3f")
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}×{_format_power_of_ten(int(exponent))}"


def format_draws(log10: float | None) -> str:
    """A number of draws that is enough, given as its decimal logarithm: whole, rounded up, or the nearest power of ten
    where it has many digits."""
    if log10 is None or math.isnan(log10):
        return DASH
    # What is whole but for rounding stays as it is.
    return format_count(max(1, math.ceil(10**log10 * (1 - 1e-12)))) if log10 < 6 else _format_power_of_ten(round(log10))


def format_money(log10: float | None) -> str:
    """A sum of money, given as its decimal logarithm: two digits or more, or the nearest power of ten."""
    if log10 is None:
        return DASH
    if log10 >= 6:
        return _format_power_of_ten(round(log10))
    return f"{10**log10:,.2f}".replace(",", "\u202f") if log10 >= -1 else f"{10**log10:.2g}"


def _format_power_of_ten(exponent: int) -> str:
    return f"10{str(exponent).translate(_RAISED)}"


def show_blanks(piece: str) -> str:
    """A token as it is in a line: the end of a line as an arrow, other blanks alone as a sign for them."""
    return piece.replace("\n", "↵") if piece.strip() or "\n" in piece else "␣"


def format_interval(ends: Sequence[float | None], rate: bool = False, sign: bool = False) -> str:
    """Both ends of an interval in brackets, a rate in percent; nothing where one is not known."""
    low, high = ends
    if low is None or high is None:
        return ""
    if rate:
        return f"[{100 * low:z.1f}, {100 * high:z.1f}]"
    format_end = format_signed if sign else format_number
    return f"[{format_end(low)}, {format_end(high)}]"


def format_estimate(
    value: float | None,
    low: float | None,
    high: float | None,
    format_spec: str = "z.3f",
    missing_text: str = "not defined",
) -> str:
    """A value with its interval for a terminal, in a ``format_spec`` of Python's.

    It is ``missing_text`` where the value is not known.
    """
    if value is None:
        return missing_text
    if low is None or high is None:
        return f"{value:{format_spec}}"
    low_end, high_end = (format(end, format_spec).removesuffix("%") for end in (low, high))
    return f"{value:{format_spec}} [{low_end}, {high_end}]"


def format_setting(parameters: str | None) -> str:
    """A detector's parameters in words: ``{"k":0.2}`` as ``k=0.2``; the text itself where it is no JSON object."""
    try:
        known = json.loads(parameters or "{}")
    except ValueError:
        known = None
    if not isinstance(known, dict):
        return parameters or ""
    return ", ".join(f"{name}={value}" for name, value in sorted(known.items()))


def format_day(value: date | datetime | None) -> str:
    """A date as YYYY-MM-DD; 'unknown' where there is none."""
    return "unknown" if value is None else f"{value:%Y-%m-%d}"


def format_moment(value: datetime | None) -> str:
    """A time in UTC to the second; 'unknown' where there is none."""
    return "unknown" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_duration(seconds: float | None) -> str:
    """How long something took: 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or math.isnan(seconds):
        return DASH
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_waiting_time(seconds: float) -> str:
    """A time in the one unit that people would say it in, for who waits: 90 s, 12 min, 3.3 h."""
    if seconds <= 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"


def name_side(label: int | None) -> str:
    """A label in words."""
    return {1: "member", 0: "non-member"}.get(label, "unknown") if label is not None else "unknown"


def cut(text: str, max_characters: int) -> str:
    """``text``, its end replaced by … where it has more than ``max_characters``."""
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def format_count(value: int | None) -> str:
    """A number of things with thin spaces between thousands."""
    return format_thousands(value).replace(",", "\u202f")


def format_thousands(value: int | None) -> str:
    """A number of things for a terminal, with commas between thousands."""
    return DASH if value is None else f"{value:,}"


def format_yes_or_no(value: object) -> str:
    """A fact in a table."""
    return "yes" if value else "no"


def capitalise_first(words: str) -> str:
    """The words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def format_count_with_noun(value: int, singular: str, plural: str) -> str:
    """A number of things with its noun."""
    return f"{format_count(value)} {singular if value == 1 else plural}"


def get_ends(estimate: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Both ends of an estimate's interval."""
    return estimate["low"], estimate["high"]


FILTERS: Mapping[str, Callable[..., object]] = {
    "amount": format_money,
    "capitalised": lambda words: capitalise_first(words.strip()),
    "count": format_count,
    "cut": cut,
    "day": format_day,
    "draws": format_draws,
    "duration": format_duration,
    "ends": get_ends,
    "interval": format_interval,
    "interval_words": lambda rate: f"95% interval {format_percent(rate['low'])} to {format_percent(rate['high'])}",
    "level": format_target_rate,
    "minute": lambda value: f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
    "moment": format_moment,
    "number": format_number,
    # Of two texts, one a side, how often the first scores higher.
    "per_hundred": lambda auroc: f"{100 * auroc:.0f}",
    "percent": format_percent,
    "probability": format_probability,
    "score": format_score,
    "setting": format_setting,
    "share": format_share,
    "side": name_side,
    "signed": format_signed,
    "visible": show_blanks,
}
"""How templates write values, by the names that they use."""
