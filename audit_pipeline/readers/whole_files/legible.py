"""Whether characters can be text of a language, or are what is left where a font or an encoding was not understood.

The rule spares every language, code, tables and verse, and what is short. docs/input-files.md has its error rates.
Nothing is repaired: what is no text is left out and named.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise, product
from math import inf

REPAIRS: dict[int, str | None] = {
    **{code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)},
    0: "\ufffd",
}
"""For str.translate: ligatures (fi, fl, ffi, …) are their letters, and NUL is a character that is not known."""

LEAST_CHARACTERS = 150
"""Letters of a shorter text are not judged."""

# Not white space, nor the backspaces of a printed manual and the escapes of a coloured log.
_NO_CHARACTER = re.compile("[\x00-\x07\x0e-\x1a\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffd-\uffff\U000f0000-\U0010ffff]")
_GLYPH_NAME = re.compile(r"\(cid:\d+\)|/(?:uni[0-9A-Fa-f]{4}|[A-Za-z]{0,3}\d{1,5})(?![\w.])")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_PLAIN, _MARKED = re.compile("[A-Za-z]"), re.compile("[ªµºÀ-ÖØ-öø-\u02af]")
_RUN = re.compile(r"(\S)\1{2,}")
_MISREAD_AS = ("cp1252", "latin-1", "cp1251", "koi8-r", "mac-roman", "cp437", "cp850", "gb18030")
_WITH_HAN = ("HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
_NO_SCRIPT = frozenset(("MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", ""))

_MOST_NO_CHARACTERS, _MOST_NAMES, _MOST_MISREAD, _MOST_MARKED, _MOST_MIXED = 0.1, 0.5, 0.2, 0.6, 0.5
_LEAST_UTF8 = 0.8
_LEAST_PAIRS, _LEAST_LETTERS, _LEAST_DISTINCT, _LEAST_USES, _LEAST_FOLLOWING = 80, 0.7, 14, 5, 0.7
# Mean log-probabilities of pairs: hardly any text of a language is below the first, most are above the second.
_UNLIKELY, _LIKELY, _LEAST_GAIN = -6.7, -6.0, 1.0
_SHIFTS = [shift for size in range(1, 97) if size != ord("a") - ord("A") for shift in (size, -size)]
_SAMPLED_PIECES, _PIECE = 20, 2_500
_NAMED = 3

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = _ALPHABET + _ALPHABET.upper()
# How rare each pair of letters is within words, a row for the first letter: -log p - 3 in quarters. Counted in 412
# languages of Latin letters, each with equal weight, marks taken off.
_RARITY = """
8bbafgcb9c7672fbd676cdcgaf 8musavtnbrqisrcvvjqrcsktku bsmsfvv7crqispdttmqjduqvno 7suh8tsh8kqlqmbutfkrcpkvih
ffdcbhefbfb9a5kgk799fghieg dstsfntnfusquqfuvjqogunsmq 8gqlcnjhcojjricptjjlcpjmlq 7qonauro9okjmkbmmlohaokolt
9cbbbfcece99a4cei988gfggcg aroscvuobknqmlfptrqkdtpunv 5rpp9smg9mhhmm9hukji7ofthu 6nqk8plj7mjdjlaootihboitir
5crn9nmn9qnlhlagtpkkanivns 4kf98i6h6geihcaijic9ajjkch geedihegfgcbb6bfjacbcggkgj 8usubpvkcqqirrcmvdoldsktnu
ettrluuqjtqppqjpouqncvrvtu 7jlh8okk8mijjhbnpifcckltkn 7pho9pqa8pgkmlahmofbbkjvhp 5pmr7pld6klhnk9nteaf9mlsik
afgfcighcgbab6gfjbcbeihjgi coupdttmdqtmrnfuqmpqgpnsmo 8rtrautlerqmrndsuspqgusvpt hrqskuqsfqopsqkquupmispopq
7qnmaqppbslmmhbnqlmjfppqmr drsofvqkdsqpqohsvrrqiolvno
"""


def explain_illegible(text: str) -> str | None:
    """Return why ``text`` is no text of any language; None where it may be one. Of a long text samples are judged."""
    if len(text) > _SAMPLED_PIECES * _PIECE:
        begins = range(0, len(text), len(text) // _SAMPLED_PIECES)
        text = "\n".join(text[begin : begin + _PIECE] for begin in begins)
    size = sum(map(len, text.split()))
    if count_illegible_characters(text) > _MOST_NO_CHARACTERS * size:
        return "control, private-use or replacement characters in place of letters"
    if size < LEAST_CHARACTERS:
        return None
    if sum(map(len, _GLYPH_NAME.findall(text))) > _MOST_NAMES * size:
        return "names or numbers of glyphs in place of letters"
    if not text.isascii() and (_is_mojibake(text, size) or _is_mixed(text)):
        return "letters of another encoding than the file's"
    if _has_unlikely_letters(_RUN.sub(r"\1", text)):
        return "letters that form words of no language"
    return None


def count_illegible_characters(text: str) -> int:
    """Count the characters that no script has: control, private use, U+FFFD and what Unicode never assigns."""
    return len(_NO_CHARACTER.findall(text))


def describe_unknown_characters(text: str) -> tuple[tuple[str, str], ...]:
    """Return the problem for characters that no script has, however few: their number and which; empty if none."""
    counted = Counter(_NO_CHARACTER.findall(text))
    if not counted:
        return ()
    named = ", ".join(f"U+{ord(character):04X} ({count:,})" for character, count in counted.most_common(_NAMED))
    more = f" and {len(counted) - _NAMED} more" if len(counted) > _NAMED else ""
    reason = f"read, but which letters they are is unknown, and they change every score: {named}{more}"
    return ((format_count(counted.total(), "character"), reason),)


def format_count(count: int, unit: str) -> str:
    """Return a count with its unit: 1 character, 1,200 characters."""
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"


def _is_mojibake(text: str, size: int) -> bool:
    """Whether much of it is UTF-8 that was read as another encoding, or most Latin letters are none of the usual 26,
    as another alphabet is in an encoding of 8 bits."""
    marked, plain = len(_MARKED.findall(text)), len(_PLAIN.findall(text))
    if marked > _LEAST_PAIRS and marked > _MOST_MARKED * (marked + plain):
        return True
    written = " ".join(_NOT_ASCII.findall(text))
    if len(written) <= _MOST_MISREAD * size:
        return False
    return any(_count_mojibake(written, encoding) > _LEAST_UTF8 * len(written) for encoding in _MISREAD_AS)


def _count_mojibake(characters: str, encoding: str) -> float:
    """How many of the characters, none of them ASCII, are UTF-8 once they are written in the encoding."""
    content = characters.encode(encoding, "ignore")
    return len(characters) * len(content.decode("utf-8", "ignore").encode()) / max(len(content), len(characters))


def _is_mixed(text: str) -> bool:
    """Whether most letters within words have a neighbour of another script."""
    scripts = ((_script_of(first), _script_of(second)) for first, second in pairwise(text))
    pairs = [first != second for first, second in scripts if not {first, second} & _NO_SCRIPT]
    return len(pairs) >= _LEAST_PAIRS and sum(pairs) > _MOST_MIXED * len(pairs)


@cache
def _script_of(letter: str) -> str:
    script = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
    return "CJK" if script in _WITH_HAN else script


def _has_unlikely_letters(text: str) -> bool:
    """Whether pairs of Latin letters are rarer than in any language, but would be usual if each character was some
    places further on in Unicode, as those of a font without a map are."""
    score = _score_letter_pairs(_count_letter_pairs(text))
    if score is not None and score > _UNLIKELY:
        return False
    counted = Counter("".join(text.split()))
    if score is None and sum(map(counted.__getitem__, _LETTERS)) > _LEAST_LETTERS * counted.total():
        return False
    likely = _LIKELY if score is None else max(score + _LEAST_GAIN, _UNLIKELY + _LEAST_GAIN / 5)
    return _has_sequential_codes(counted) or any(_score_shifted(text, counted, shift) > likely for shift in _SHIFTS)


def _has_sequential_codes(counted: Counter[str]) -> bool:
    """Whether most characters, as they are met first, follow each other in Unicode: a font numbered them. Digits say
    nothing: a text that counts has them in order."""
    met = [ord(character) for character in counted if not character.isdigit()]
    following = sum(second - first in (1, 2) for first, second in pairwise(met))
    return _LEAST_DISTINCT <= len(met) <= counted.total() / _LEAST_USES and following > _LEAST_FOLLOWING * len(met)


def _score_shifted(text: str, counted: Counter[str], shift: int) -> float:
    letters = {ord(letter) - shift: letter for letter in _LETTERS if ord(letter) >= shift}
    if sum(counted[chr(character)] for character in letters) < _LEAST_LETTERS * counted.total():
        return -inf
    others = {ord(character): "." for character in counted}
    score = _score_letter_pairs(_count_letter_pairs(text.translate(others | letters)))
    return -inf if score is None else score


def _count_letter_pairs(text: str) -> Counter[str]:
    """How often each pair of the 26 letters is in it; none where it is not for the most part words of these."""
    plain = "".join(filter(lambda c: not unicodedata.combining(c), unicodedata.normalize("NFKD", text))).lower()
    words = plain.split()
    size = sum(map(len, words))
    letters = [count for letter in _ALPHABET if (count := plain.count(letter))]
    if not 2 * len(words) <= size <= 10 * len(words) or len(letters) < _LEAST_DISTINCT:
        return Counter()
    if sum(letters) < _LEAST_LETTERS * size:
        return Counter()
    return Counter({pair: n for pair, n in Counter(map("".join, pairwise(plain))).items() if pair in _load_log_p()})


def _score_letter_pairs(pairs: Counter[str]) -> float | None:
    """The mean log-probability of the pairs; None where they are few."""
    total = pairs.total()
    return sum(n * _load_log_p()[pair] for pair, n in pairs.items()) / total if total >= _LEAST_PAIRS else None


@cache
def _load_log_p() -> Mapping[str, float]:
    pairs = map("".join, product(_ALPHABET, repeat=2))
    return {pair: -3 - int(rarity, 36) / 4 for pair, rarity in zip(pairs, "".join(_RARITY.split()), strict=True)}
