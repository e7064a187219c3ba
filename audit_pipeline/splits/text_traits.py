"""Traits of a text that reveal its side without any model: the years and months that it mentions, and its language.

A temporal split separates texts by date. So a text that mentions a year often reveals its side. The blind control of
dates and the table of split quality read:

- Numbers of four digits from 1500 to 2099 (`1999`, `1990s`, `2024-03-01`, `1.3.2024`, `2024年`). They are not part of
  a longer number or a word, not an amount of money, and not the decimals of a number.
- Chinese years in digits (二〇二四年).
- English month names.
- The months of numeric dates that begin with the year (`2024-03`, `2024/3/1`, `2024年3月`).

Two-digit years and written-out years are not read. A number such as "1800 people" counts as a year. That is harmless if
such numbers are equally frequent on both sides.

The detector of languages reads sequences of a few bytes. It is often wrong on 32 words, on lists of names and on code.
So a single mismatch is weak evidence. The shares of the languages on the two sides are reliable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

_HAN_DIGITS = str.maketrans("〇零一二三四五六七八九", "00123456789")
_HAN_YEAR = re.compile(r"[〇零一二三四五六七八九]{4}(?=\s*年)")
_YEAR = re.compile(
    r"(?<![A-Za-z0-9$€£¥#])(?<!\d[.,])(?P<plain>(?:1[5-9]|20)\d\d)s?(?![A-Za-z0-9%])(?![.,]\d{3}(?!\d))"
    r"|(?<![\d.])\d{1,2}\.\d{1,2}\.(?P<dotted>(?:1[5-9]|20)\d\d)(?![A-Za-z0-9])",
    re.ASCII,
)
_NUMERIC_MONTH = re.compile(r"(?<![\d.])(?:1[5-9]|20)\d\d\s*(?:[-/.]|年)\s*(1[0-2]|0?[1-9])(?!\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# "may" and "march" are verbs, too. They are read as months only if they are capitalised.
_MONTH_NAME = re.compile(
    r"\b(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b"
)


def find_years_and_months(text: str) -> tuple[list[int], list[int]]:
    """Find the years (1500 to 2099) and the months (1 to 12) that a text mentions, with repetitions.

    Years are in the order of the text. Months that are written as names come first, in the order of the text, then
    months that are written as numbers. The module docstring lists the forms that are read.
    """
    normalised = unicodedata.normalize("NFKC", text)
    normalised = _HAN_YEAR.sub(lambda match: match.group().translate(_HAN_DIGITS), normalised)
    years = [int(match["plain"] or match["dotted"]) for match in _YEAR.finditer(normalised)]
    months = [_MONTHS.index(name[:3]) + 1 for name in _MONTH_NAME.findall(normalised)]
    months += map(int, _NUMERIC_MONTH.findall(normalised))
    return years, months


MAX_CHARACTERS = 1000


def detect_languages(texts: Sequence[str]) -> list[str]:
    """Return the most likely language of each text, from its first 1000 characters.

    The code is ISO 639-1, or ISO 639-3 if the language has no shorter code.
    """
    identifier = _load_identifier()
    return [str(identifier.classify(text[:MAX_CHARACTERS])[0]) for text in texts]


def is_same_language(declared: str, detected: str) -> bool:
    """Return True if both codes name one language, for example `zh-TW` (declared) and `zh` (detected)."""
    return declared.lower().replace("_", "-").split("-")[0] == detected.lower().split("-")[0]


@cache
def _load_identifier() -> Any:
    # Most commands detect no language, and the import is slow.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415

    # Any code can restrict the package's shared identifier to some languages. So this module loads its own.
    return LanguageIdentifier.from_model_file(MODEL_FILE)
