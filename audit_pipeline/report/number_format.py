"""Number formats that the report and the terminal share.

Each kind of value has one format. A dash stands for a missing value. A number that rounds to zero has no sign, because
the option ``z`` of Python's format specification removes it.
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
    """Format a number with a typographic minus sign, or return a dash if it is missing."""
    if value is None or math.isnan(value):
        return DASH
    return format(value, format_spec).replace("-", "\u2212")


def format_number(value: float | None) -> str:
    """Format a metric with three decimals."""
    return _format_known(value, "z.3f")


def format_signed(value: float | None) -> str:
    """Format a difference with its sign and three decimals."""
    return _format_known(value, "+z.3f")


def format_score(value: float | None) -> str:
    """Format a score with four significant digits, because detectors differ in scale."""
    return _format_known(value, "z.4g")


def format_percent(value: float | None) -> str:
    """Format a rate in percent with one decimal."""
    return _format_known(value, "z.1%")


def format_share(value: float | None) -> str:
    """Format a share of characters in percent with two decimals. A small share is distinguished from zero."""
    if value is not None and 0 < value < 0.00005:
        return "<0.01%"
    return _format_known(value, "z.2%")


def format_target_rate(value: float | None) -> str:
    """Format a target rate in percent with two significant digits: 5%, 0.1%."""
    if value is None or math.isnan(value):
        return DASH
    return f"{100 * value:.2g}%"


def format_probability(value: float | None) -> str:
    """Format a p- or q-value with three decimals. A value below 0.001 has two significant digits and an exponent."""
    if value is None or not 0 < value < 0.001:
        return _format_known(value, "z.3f")
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}×{_format_power_of_ten(int(exponent))}"


def format_draws(log10: float | None) -> str:
    """Format a sufficient number of draws as a whole number, rounded up.

    From a million on, the format is the nearest power of ten.

    Args:
        log10: Decimal logarithm of the number of draws.
    """
    if log10 is None or math.isnan(log10):
        return DASH
    if log10 >= 6:
        return _format_power_of_ten(round(log10))
    # A whole number must not be rounded up because of a floating-point error.
    return format_count(max(1, math.ceil(10**log10 * (1 - 1e-12))))


def format_money(log10: float | None) -> str:
    """Format an amount of money with at least two digits, or as the nearest power of ten from a million on.

    Args:
        log10: Decimal logarithm of the amount.
    """
    if log10 is None:
        return DASH
    if log10 >= 6:
        return _format_power_of_ten(round(log10))
    if log10 < -1:
        return f"{10**log10:.2g}"
    return f"{10**log10:,.2f}".replace(",", "\u202f")


def _format_power_of_ten(exponent: int) -> str:
    return f"10{str(exponent).translate(_RAISED)}"


def show_blanks(piece: str) -> str:
    """Return a token with an arrow in place of each line break. A token that consists of blanks becomes "␣"."""
    if piece.strip() or "\n" in piece:
        return piece.replace("\n", "↵")
    return "␣"


def format_interval(ends: Sequence[float | None], rate: bool = False, sign: bool = False) -> str:
    """Format an interval in brackets, as percent for a rate. Return an empty text if an end is missing."""
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
    """Format a value with its interval for a terminal, or return ``missing_text`` if the value is missing."""
    if value is None:
        return missing_text
    if low is None or high is None:
        return f"{value:{format_spec}}"
    low_end = format(low, format_spec).removesuffix("%")
    high_end = format(high, format_spec).removesuffix("%")
    return f"{value:{format_spec}} [{low_end}, {high_end}]"


def format_setting(parameters: str | None) -> str:
    """Format a detector's parameters: ``{"k":0.2}`` as ``k=0.2``. A text that is no JSON object stays unchanged."""
    try:
        known = json.loads(parameters or "{}")
    except ValueError:
        known = None
    if not isinstance(known, dict):
        return parameters or ""
    return ", ".join(f"{name}={value}" for name, value in sorted(known.items()))


def format_day(value: date | datetime | None) -> str:
    """Format a date as YYYY-MM-DD, or return 'unknown' if it is missing."""
    return "unknown" if value is None else f"{value:%Y-%m-%d}"


def format_moment(value: datetime | None) -> str:
    """Format a time in UTC to the second, or return 'unknown' if it is missing."""
    return "unknown" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_duration(seconds: float | None) -> str:
    """Format a duration: 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or math.isnan(seconds):
        return DASH
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, remaining_seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remaining_seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_waiting_time(seconds: float) -> str:
    """Format an expected waiting time in one unit: 90 s, 12 min, 3.3 h."""
    if seconds <= 90:
        return f"{seconds:,.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / 3600:,.1f} h"


def name_side(label: int | None) -> str:
    """Return the name of a label: 'member' (1), 'non-member' (0) or 'unknown'."""
    names: Mapping[int | None, str] = {1: "member", 0: "non-member"}
    return names.get(label, "unknown")


def cut(text: str, max_characters: int) -> str:
    """Return a text of at most ``max_characters``. A longer text ends with an ellipsis."""
    if len(text) <= max_characters:
        return text
    return f"{text[: max_characters - 1]}…"


def format_count(value: int | None) -> str:
    """Format a count with thin spaces between thousands."""
    return format_thousands(value).replace(",", "\u202f")


def format_thousands(value: int | None) -> str:
    """Format a count for a terminal, with commas between thousands."""
    return DASH if value is None else f"{value:,}"


def format_yes_or_no(value: object) -> str:
    """Return 'yes' for a true value and 'no' for a false one."""
    return "yes" if value else "no"


def capitalise_first(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def format_count_with_noun(value: int, singular: str, plural: str) -> str:
    """Format a count with its noun."""
    return f"{format_count(value)} {singular if value == 1 else plural}"


def get_ends(estimate: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return both ends of an estimate's interval."""
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
    # The AUROC is the share of pairs in which the text of the first side scores higher.
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
"""The template filters by their names."""
