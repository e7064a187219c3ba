"""The years and months that a text mentions.

What belongs here: finding them in running text. What does not: the date of the document itself (`published`), and how
well the found dates tell two sides apart (blind_controls.py).

A temporal split is made by date, so a text that names a year often names its own side. What is read: numbers of four
digits from 1500 to 2099 that are not part of a longer number or a word, an amount of money or the decimals of a number
(`1999`, `1990s`, `2024-03-01`, `1.3.2024`, `2024年`), Chinese years in digits (二〇二四年), English month names, and
the months of dates that are all digits and begin with the year (`2024-03`, `2024/3/1`, `2024年3月`). Two-digit years
and written-out ones are not read. A number such as "1800 people" is taken for a year: as many of those on both sides
do no harm.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_HAN_DIGITS = str.maketrans("〇零一二三四五六七八九", "00123456789")
_HAN_YEAR = re.compile(r"[〇零一二三四五六七八九]{4}(?=\s*年)")
_YEAR = re.compile(
    r"(?<![A-Za-z0-9$€£¥#])(?<!\d[.,])(?P<plain>(?:1[5-9]|20)\d\d)s?(?![A-Za-z0-9%])(?![.,]\d{3}(?!\d))"
    r"|(?<![\d.])\d{1,2}\.\d{1,2}\.(?P<dotted>(?:1[5-9]|20)\d\d)(?![A-Za-z0-9])",
    re.ASCII,
)
_NUMERIC_MONTH = re.compile(r"(?<![\d.])(?:1[5-9]|20)\d\d\s*(?:[-/.]|年)\s*(1[0-2]|0?[1-9])(?!\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# "may" and "march" are verbs too: only with a capital letter are they months.
_MONTH_NAME = re.compile(
    r"\b(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b"
)


@dataclass(frozen=True)
class DatesInText:
    """Every mention, repeated ones too: ``years`` in the order of the text, ``months`` (1 to 12) names first."""

    years: tuple[int, ...]
    months: tuple[int, ...]


def dates_in(text: str) -> DatesInText:
    """The years (1500 to 2099) and months that ``text`` mentions; see the module for what is read as one."""
    plain = unicodedata.normalize("NFKC", text)
    plain = _HAN_YEAR.sub(lambda found: found.group().translate(_HAN_DIGITS), plain)
    names = [_MONTHS.index(found[:3]) + 1 for found in _MONTH_NAME.findall(plain)]
    numbers = [int(found) for found in _NUMERIC_MONTH.findall(plain)]
    years = tuple(int(found["plain"] or found["dotted"]) for found in _YEAR.finditer(plain))
    return DatesInText(years, tuple(names + numbers))
