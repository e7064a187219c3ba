"""Detection of unreadable text: characters that a wrong encoding or an unknown font produces.

The rules accept every language, code, tables, verse and short texts. docs/input-files.md contains their error rates.
Nothing is repaired: unreadable text is skipped and reported. No library decides if a text is readable: detectors of
languages and encodings always return their best guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import filterfalse, pairwise, product
from math import inf

REPAIRS: dict[int, str | None] = {0: "\ufffd"}
for _ligature in map(chr, range(0xFB00, 0xFB07)):
    REPAIRS[ord(_ligature)] = unicodedata.normalize("NFKC", _ligature)
"""Table for str.translate that replaces ligatures (fi, fl, ffi, …) by letters, and NUL by U+FFFD."""

MIN_CHARACTERS = 150
"""Minimum length of a text whose letters are examined, in characters without white space."""

# Characters of no script: control, private use, U+FFFD and noncharacters. White space, the backspaces of printed
# manuals and the escapes of coloured logs are not included.
_NO_CHARACTER = re.compile("[\x00-\x07\x0e-\x1a\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffd-\uffff\U000f0000-\U0010ffff]")
_ASCII = bytes(range(128))
_NO_ASCII_CHARACTERS = "".join(_NO_CHARACTER.findall(_ASCII.decode("ascii"))).encode("ascii")
_GLYPH_NAME = re.compile(r"\(cid:\d+\)|/(?:uni[0-9A-Fa-f]{4}|[A-Za-z]{0,3}\d{1,5})(?![\w.])")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_PLAIN = re.compile("[A-Za-z]")
_MARKED = re.compile("[ªµºÀ-ÖØ-öø-\u02af]")
_RUN = re.compile(r"(\S)\1{2,}")
_MISREAD_AS = ("cp1252", "latin-1", "cp1251", "koi8-r", "mac-roman", "cp437", "cp850", "gb18030")
_WITH_HAN = ("HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
_NO_SCRIPT = frozenset(("MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", ""))

# Maximum shares of characters or letters in readable text.
_MAX_NO_CHARACTERS = 0.1
_MAX_GLYPH_NAMES = 0.5
_MAX_MISREAD = 0.2
_MAX_MARKED = 0.6
_MAX_MIXED = 0.5
# Minimum share of non-ASCII characters that become valid UTF-8 if they are encoded with the wrongly used encoding.
_MIN_UTF8 = 0.8
_MIN_PAIRS = 80
_MIN_LETTERS = 0.7
_MIN_DISTINCT = 14
_MIN_USES = 5
_MIN_FOLLOWING = 0.7
# Mean log-probabilities of letter pairs, in nats. Hardly any readable text is below _UNLIKELY. Most readable texts are
# above _LIKELY.
_UNLIKELY = -6.7
_LIKELY = -6.0
_MIN_GAIN = 1.0
_SHIFTS = [shift for size in range(1, 97) if size != ord("a") - ord("A") for shift in (size, -size)]
_SAMPLED_PIECES = 20
_PIECE_CHARACTERS = 2_500
_MAX_NAMED = 3

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = _ALPHABET + _ALPHABET.upper()
# Rarity of each pair of letters within words, with one row per first letter: 4 * (-log p - 3) in base 36. The counts
# are from 412 languages in Latin letters with equal weights, without diacritics.
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
    """Return the reason why a text is unreadable, or None if it is readable. Long texts are sampled."""
    if len(text) > _SAMPLED_PIECES * _PIECE_CHARACTERS:
        begins = range(0, len(text), len(text) // _SAMPLED_PIECES)
        text = "\n".join(text[begin : begin + _PIECE_CHARACTERS] for begin in begins)
    size = sum(map(len, text.split()))
    if count_illegible_characters(text) > _MAX_NO_CHARACTERS * size:
        return "the text contains control, private-use or replacement characters instead of letters"
    if size < MIN_CHARACTERS:
        return None
    if sum(map(len, _GLYPH_NAME.findall(text))) > _MAX_GLYPH_NAMES * size:
        return "the text contains names or numbers of glyphs instead of letters"
    if not text.isascii() and (_is_mojibake(text, size) or _is_mixed(text)):
        return "the letters belong to another encoding than that of the file"
    if _has_unlikely_letters(_RUN.sub(r"\1", text)):
        return "the letters form words of no language"
    return None


def count_illegible_characters(text: str) -> int:
    """Count the characters that belong to no script: control, private use, U+FFFD and noncharacters."""
    # Deleting bytes takes a tenth of the time of the pattern, which thus only reads the characters outside ASCII. UTF-8
    # has no byte of ASCII within another character.
    encoded = text.encode("utf-8", "surrogatepass")
    n_ascii = len(encoded) - len(encoded.translate(None, _NO_ASCII_CHARACTERS))
    if text.isascii():
        return n_ascii
    others = encoded.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    return n_ascii + len(_NO_CHARACTER.findall(others))


def find_unknown_characters(text: str) -> tuple[tuple[str, str], ...]:
    """Return a tuple of one problem about the characters that belong to no script, or an empty tuple.

    The problem consists of the number of characters and a message.
    """
    counts = Counter(_NO_CHARACTER.findall(text))
    if not counts:
        return ()
    listed = ", ".join(f"U+{ord(character):04X} ({count:,})" for character, count in counts.most_common(_MAX_NAMED))
    if len(counts) > _MAX_NAMED:
        listed += f" and {len(counts) - _MAX_NAMED} more"
    reason = f"these characters stand for unknown letters: {listed}. They stay in the text, which changes every score"
    return ((format_count(counts.total(), "character"), reason),)


def format_count(count: int, unit: str) -> str:
    """Return a count with its unit: 1 character, 1,200 characters."""
    if count == 1:
        return f"1 {unit}"
    return f"{count:,} {unit}s"


def _is_mojibake(text: str, size: int) -> bool:
    """Return True if much of a text was decoded with a wrong encoding.

    Two cases are detected. In the first case, UTF-8 was decoded with another encoding. Encoding the text with that
    encoding then yields valid UTF-8. In the second case, an alphabet such as Cyrillic was decoded with a wrong 8-bit
    encoding. The text then consists mostly of Latin letters with diacritics.

    Args:
        text: The text.
        size: Its number of characters without white space.
    """
    n_marked = len(_MARKED.findall(text))
    n_plain = len(_PLAIN.findall(text))
    if n_marked > _MIN_PAIRS and n_marked > _MAX_MARKED * (n_marked + n_plain):
        return True
    characters = " ".join(_NOT_ASCII.findall(text))
    if len(characters) <= _MAX_MISREAD * size:
        return False
    n_valid = max(_count_mojibake(characters, encoding) for encoding in _MISREAD_AS)
    return n_valid > _MIN_UTF8 * len(characters)


def _count_mojibake(characters: str, encoding: str) -> float:
    """Estimate the number of characters that become valid UTF-8 if they are encoded with ``encoding``.

    Args:
        characters: Characters outside ASCII.
        encoding: The encoding with which UTF-8 may have been decoded by mistake.
    """
    content = characters.encode(encoding, "ignore")
    return len(characters) * len(content.decode("utf-8", "ignore").encode()) / max(len(content), len(characters))


def _is_mixed(text: str) -> bool:
    """Return True if more than half of the pairs of letters within words mix two scripts."""
    n_pairs = 0
    n_mixed = 0
    for first, second in pairwise(map(_find_script, text)):
        if first not in _NO_SCRIPT and second not in _NO_SCRIPT:
            n_pairs += 1
            n_mixed += first != second
    return n_pairs >= _MIN_PAIRS and n_mixed > _MAX_MIXED * n_pairs


@cache
def _find_script(letter: str) -> str:
    """Return the script of a letter by the first word of its Unicode name, or "" for other characters."""
    if not letter.isalpha():
        return ""
    script = unicodedata.name(letter, "").partition(" ")[0]
    if script in _WITH_HAN:
        return "CJK"
    return script


def _has_unlikely_letters(text: str) -> bool:
    """Return True if the letter pairs are rare in every language, and an unknown font explains that.

    A PDF font without a map to Unicode may shift all characters by the same number of code points. Then characters that
    are shifted back have usual pairs. Or it numbers its letters in the order of first use.
    """
    score = _score_letter_pairs(_count_letter_pairs(text))
    if score is not None and score > _UNLIKELY:
        return False
    counts = Counter("".join(text.split()))
    if score is None:
        if sum(map(counts.__getitem__, _LETTERS)) > _MIN_LETTERS * counts.total():
            return False
        likely = _LIKELY
    else:
        likely = max(score + _MIN_GAIN, _UNLIKELY + _MIN_GAIN / 5)
    if _has_sequential_codes(counts):
        return True
    return any(_score_shifted(text, counts, shift) > likely for shift in _SHIFTS)


def _has_sequential_codes(counts: Counter[str]) -> bool:
    """Return True if the code points of most characters increase by 1 or 2 in the order of first use.

    Some fonts number their letters in the order of first use. Digits are ignored, because a text that counts uses them
    in order.
    """
    codes = list(map(ord, filterfalse(str.isdigit, counts)))
    n_following = sum(second - first in (1, 2) for first, second in pairwise(codes))
    is_repeated = _MIN_DISTINCT <= len(codes) <= counts.total() / _MIN_USES
    return is_repeated and n_following > _MIN_FOLLOWING * len(codes)


def _score_shifted(text: str, counts: Counter[str], shift: int) -> float:
    """Return the score of a text whose characters are shifted in Unicode, or -inf if few become Latin letters."""
    letters = {ord(letter) - shift: letter for letter in _LETTERS if ord(letter) >= shift}
    if sum(map(counts.__getitem__, map(chr, letters))) < _MIN_LETTERS * counts.total():
        return -inf
    others = dict.fromkeys(map(ord, counts), ".")
    score = _score_letter_pairs(_count_letter_pairs(text.translate(others | letters)))
    if score is None:
        return -inf
    return score


def _count_letter_pairs(text: str) -> Counter[str]:
    """Count the pairs of the 26 Latin letters. The result is empty unless the text is mostly words of these letters."""
    plain = "".join(filter(lambda c: not unicodedata.combining(c), unicodedata.normalize("NFKD", text))).lower()
    words = plain.split()
    size = sum(map(len, words))
    letter_counts = list(filter(None, map(plain.count, _ALPHABET)))
    if not 2 * len(words) <= size <= 10 * len(words) or len(letter_counts) < _MIN_DISTINCT:
        return Counter()
    if sum(letter_counts) < _MIN_LETTERS * size:
        return Counter()
    pairs = Counter(map("".join, pairwise(plain)))
    return Counter({pair: count for pair, count in pairs.items() if pair in _load_pair_log_probabilities()})


def _score_letter_pairs(pairs: Counter[str]) -> float | None:
    """Return the mean log-probability of the pairs in nats, or None if there are too few pairs."""
    total = pairs.total()
    if total < _MIN_PAIRS:
        return None
    return sum(count * _load_pair_log_probabilities()[pair] for pair, count in pairs.items()) / total


@cache
def _load_pair_log_probabilities() -> Mapping[str, float]:
    pairs = map("".join, product(_ALPHABET, repeat=2))
    rarities = "".join(_RARITY.split())
    return {pair: -3 - int(rarity, 36) / 4 for pair, rarity in zip(pairs, rarities, strict=True)}
