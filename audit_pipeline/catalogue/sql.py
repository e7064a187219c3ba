"""SQL (DuckDB's) that declarations of columns and the warehouse share: names, strings, words and excerpts of a text.

What belongs here: expressions, as text. What does not: statements (ddl.py, warehouse/), running any of them.
"""

from __future__ import annotations

EXCERPT_WORDS = 50
EXCERPT_CHARACTERS = 500
"""The most of an audited text that is quoted outside of the tables of texts."""

BLANKS = r"\s\x0B\x1C-\x1F\x{85}\p{Z}"
"""Regex class (RE2) of what ``str.split`` treats as whitespace."""

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Regex class of scripts written without blanks: each character counts as a word of an excerpt."""


def quoted(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


WORDS_OF_TEXT = f"len(regexp_extract_all(text, '[^{BLANKS}]+'))"
"""SQL: the whitespace words of a column ``text``."""

_FLAT = f"trim(regexp_replace(left(text, {4 * EXCERPT_CHARACTERS}), '[{BLANKS}]+', ' ', 'g'))"
_CUT = (
    f"left(regexp_extract({_FLAT}, '^(?:(?:[{UNSPACED}]|[^{BLANKS}{UNSPACED}]+) ?){{0,{EXCERPT_WORDS}}}'),"
    f" {EXCERPT_CHARACTERS})"
)

EXCERPT = (
    f"CASE WHEN length({_CUT}) < length({_FLAT}) OR length(text) > {4 * EXCERPT_CHARACTERS}"
    f" THEN rtrim({_CUT}) || '…' ELSE {_CUT} END"
)
"""SQL: the first words of a column ``text``."""
