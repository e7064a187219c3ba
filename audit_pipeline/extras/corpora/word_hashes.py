"""Texts as words that can be compared: one hash per word, and the word's place in its text.

**The rule.** Two texts are compared as follows, and both sides of every comparison follow the same rule:

1. The text is put into NFKC (:func:`normalise`).
2. Characters of no width are dropped: soft hyphens, joiners, marks of direction, variation selectors.
3. Each character is replaced by its full case folding (ẞ and ß are ss). The dot of İ and the missing dot of ı do not
   count: both are i.
4. A word is a run of letters, marks and digits. Everything else separates words. Scripts that are written without
   spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) count by characters.

:func:`hash_words` applies steps 2 to 4. What asks for a single character or word of a text has to normalise it first.

A word's hash is a polynomial over its characters' random values, modulo 2**64, and a run's hash is a polynomial over
its words' hashes. So all hashes of a block are computed at once, from running sums. Two different runs have equal
hashes with a probability of about 2**-64.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int64] | npt.NDArray[np.int32]

BLOCK = 1 << 20
"""Characters that are hashed at once."""
_LAST_LETTER = 0x323B0
"""No code point from here on is a letter or a digit, nor a mark but a variation selector (Unicode 15)."""
_BY_CHARACTER = (
    (0x0E00, 0x0F00),
    (0x1000, 0x10A0),
    (0x1780, 0x1800),
    (0x3005, 0x3008),
    (0x3041, 0x3100),
    (0x31F0, 0x3200),
    (0x3400, 0x4DC0),
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),
    (0x20000, _LAST_LETTER),
)
"""Thai and Lao, Burmese, Khmer, kana, Chinese characters."""
_SEPARATOR, _LETTER, _WHOLE, _REFOLDED = 0, 1, 2, 3
"""Kinds of characters. Refolded are those that case folding replaces by none or by several characters."""
_DROPPED_MARKS = (*range(0xFE00, 0xFE10), 0x034F, 0x0307)
"""Marks that are dropped: variation selectors, the grapheme joiner, the dot that İ leaves above its i in lower case.
NFKC joins the dot to every other letter that is written with one."""
_KEYCAP = 0x20E3

_OF_CHARACTERS = np.uint64(0x9E3779B97F4A7C15)
_OF_WORDS = 0xD6E8FEB86659FD93


@dataclass(frozen=True)
class Words:
    """The words of a text: their hashes (uint64 [n]), first characters and the ends after the last ones (int64 [n]; of
    many texts together int32 [n], within each).
    """

    hashes: Hashes
    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        return len(self.hashes)


def normalise(text: str) -> str:
    """Return the text in NFKC, as :func:`hash_words` needs it."""
    return text if text.isascii() or unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text)


def is_by_character(character: str) -> bool:
    """Return whether a character of a normalised text is a word by itself, as in scripts without spaces."""
    kinds, _, _ = _build_character_tables()
    return bool(kinds[min(ord(character), len(kinds) - 1)] == _WHOLE)


def hash_words_of_texts(texts: Sequence[str]) -> tuple[Words, Places]:
    """The words of ``texts`` one after the other, at their places in the texts as they were given, not in their NFKC;
    and of each text, and after the last one, which word comes first (int64 [len(texts) + 1]).
    """
    parts: list[Words] = []
    counts = [0]
    for some in iterate_batches_by_size(texts, len, BLOCK) if texts else ((),):
        normals = list(map(normalise, some))
        words, first_word = hash_words_of_normals(normals)
        for at, (text, normal) in enumerate(zip(some, normals, strict=True)):
            if normal is not text:
                own = slice(first_word[at], first_word[at + 1])
                starts, ends = map_to_original(text)
                words.ends[own] = ends[words.ends[own] - 1]
                words.starts[own] = starts[words.starts[own]]
        parts.append(Words(words.hashes, words.starts.astype(np.int32), words.ends.astype(np.int32)))
        counts += np.diff(first_word).tolist()
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("hashes", "starts", "ends"))
    return Words(*joined), np.cumsum(counts)


def iterate_batches_by_size(values: Iterable[_T], measure: Callable[[_T], int], target_size: int) -> Iterator[list[_T]]:
    """Yield the values in order, so many at a time as come to about ``target_size`` by their measures."""
    batch: list[_T] = []
    size = 0
    for value in values:
        batch.append(value)
        size += measure(value)
        if size >= target_size:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def hash_words_of_normals(normals: Sequence[str]) -> tuple[Words, Places]:
    """Return the words of texts that are normalised already, as :func:`hash_words_of_texts` gives them."""
    words = hash_words("\n".join(normals))
    begins = np.cumsum([0, *(len(normal) + 1 for normal in normals)])
    first_word = np.searchsorted(words.starts, begins)
    shift = np.repeat(begins[:-1], np.diff(first_word))
    return Words(words.hashes, words.starts - shift, words.ends - shift), first_word


def hash_words(normal: str) -> Words:
    """Return the words of a text that is normalised already."""
    points = np.frombuffer(normal.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds, values, _ = _build_character_tables()
    if not normal.isascii():
        points = np.minimum(points, len(kinds) - 1)
    kind = kinds[points]
    origins: Places | None = None
    if not normal.isascii() and kind.max(initial=0) == _REFOLDED:
        points, origins = _fold_case(points, kind == _REFOLDED)
        kind = kinds[points]
    padded = np.concatenate([[np.uint8(_SEPARATOR)], kind, [np.uint8(_SEPARATOR)]])
    # A boundary lies where the kind changes, and on both sides of a character that is a word by itself.
    boundary = (padded[1:] != padded[:-1]) | (padded[1:] == _WHOLE)
    starts = np.flatnonzero(boundary[:-1] & (kind != _SEPARATOR))
    ends = np.flatnonzero(boundary[1:] & (kind != _SEPARATOR) | (kind == _WHOLE)) + 1
    powers, inverses = _compute_powers(1 << max(len(points), 1).bit_length())
    sums = np.zeros(len(points) + 1, np.uint64)
    np.cumsum(values[points] * powers[: len(points)], out=sums[1:])
    hashes = _mix((sums[ends] - sums[starts]) * inverses[starts])
    if origins is None:
        return Words(hashes, starts, ends)
    return Words(hashes, origins[starts], origins[ends - 1] + 1)


def _fold_case(
    points: npt.NDArray[np.uint32], is_refolded: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint32], Places]:
    """Return code points with the refolded characters replaced, and the place in ``points`` that each comes from."""
    _, _, foldings = _build_character_tables()
    distinct = np.unique(points[is_refolded]).tolist()
    counts = np.ones(len(points), np.int64)
    for point in distinct:
        counts[points == point] = len(foldings[point])
    begins = np.cumsum(counts) - counts
    origins = np.repeat(np.arange(len(points)), counts)
    folded = points[origins]
    for point in distinct:
        places = begins[points == point]
        for offset, character in enumerate(foldings[point]):
            folded[places + offset] = ord(character)
    return folded, origins


def find_word_end(normal: str, place: int, end: int) -> int:
    """Return the last place up to ``end`` at which no word is cut; ``end`` where one word begins before ``place``."""
    kinds, _, _ = _build_character_tables()
    for begin in (max(place, end - 1000), place):
        points = np.frombuffer(normal[begin:end].encode("utf-32-le", "surrogatepass"), np.uint32)
        kind = kinds[np.minimum(points, len(kinds) - 1)]
        outside = np.flatnonzero((kind == _SEPARATOR) | (kind == _WHOLE))
        if len(outside):
            return begin + int(outside[-1]) + 1
    return end


def hash_runs(words: Hashes, n: int) -> Hashes:
    """Return the hash of every run of ``n`` words (uint64 [len(words) - n + 1]), doubling the length of runs."""
    if n == 1:
        return words
    half = n // 2
    shorter = hash_runs(words, half)
    if len(shorter) <= half:
        return np.empty(0, np.uint64)
    runs = shorter[:-half] * np.uint64(pow(_OF_WORDS, half, 1 << 64)) + shorter[half:]
    return runs[:-1] * np.uint64(_OF_WORDS) + words[n - 1 :] if n % 2 else runs


def map_to_original(text: str) -> tuple[Places, Places]:
    """For every character of the text's NFKC, where in ``text`` its cluster begins and where it ends (int64).

    A cluster is a character with the marks that follow it: no normalisation reaches beyond one.
    """
    pieces: list[Places] = []
    place = 0
    for stretch in _BEYOND_ASCII.finditer(text):
        if unicodedata.is_normalized("NFKC", stretch.group()):
            continue
        pieces.append(np.arange(place, stretch.start()))
        clusters = [cluster.span() for cluster in _compile_cluster_pattern().finditer(text, *stretch.span())]
        lengths = [len(unicodedata.normalize("NFKC", text[start:end])) for start, end in clusters]
        whole = len(unicodedata.normalize("NFKC", stretch.group()))
        if sum(lengths) != whole:
            # Letters of Hangul that stand alone join as well.
            clusters, lengths = [stretch.span()], [whole]
        pieces.append(np.repeat(np.array(clusters), lengths, axis=0))
        place = stretch.end()
    pieces.append(np.arange(place, len(text)))
    spans = np.concatenate([piece if piece.ndim == 2 else np.stack([piece, piece + 1], axis=1) for piece in pieces])
    return spans[:, 0], spans[:, 1]


_BEYOND_ASCII = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
"""What is longer than one character before or after NFKC, with the letter that a mark may follow."""


@cache
def _compile_cluster_pattern() -> re.Pattern[str]:
    # Marks, and the vowels and final consonants that Hangul syllables are composed of.
    joined = "".join(
        re.escape(chr(point))
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point))[0] == "M" or 0x1161 <= point <= 0x11FF or point in (0xFF9E, 0xFF9F)
    )
    return re.compile(f".[{joined}]*", re.DOTALL)


@cache
def _build_character_tables() -> tuple[npt.NDArray[np.uint8], Hashes, Mapping[int, str]]:
    """Return the kind and the value of every code point, and what the refolded ones are replaced by.

    The last entry of kinds and values is that of all larger code points.
    """
    characters = list(map(chr, range(_LAST_LETTER + 1)))
    categories = list(map(unicodedata.category, characters))
    kinds = np.array([category[0] in "LMN" for category in categories], np.uint8)
    kinds[_KEYCAP] = _SEPARATOR
    # Case folding takes ΐ apart as far as ι, but its capital is Ϊ with an accent, as NFKC has no sign for both.
    folded = [character.casefold().replace("ι\u0308", "ϊ").replace("υ\u0308", "ϋ") for character in characters]
    for point, category in enumerate(categories):
        if category == "Cf" or point in _DROPPED_MARKS:
            folded[point] = ""
    folded[ord("ı")] = folded[ord("İ")] = "i"
    foldings = {point: folding for point, folding in enumerate(folded) if len(folding) != 1}
    for first, end in _BY_CHARACTER:
        kinds[first:end] = np.where(kinds[first:end] == _SEPARATOR, _SEPARATOR, _WHOLE)
    kinds[list(foldings)] = _REFOLDED
    singles = [ord(folding) if len(folding) == 1 else point for point, folding in enumerate(folded)]
    return kinds, _mix(np.array(singles, np.uint64) + np.uint64(1)), foldings


@cache
def _compute_powers(size: int) -> tuple[Hashes, Hashes]:
    """Return the powers of an odd number, and of its inverse, modulo 2**64 (uint64 [size] each)."""
    base, inverse = np.full(size, _OF_CHARACTERS), np.full(size, np.uint64(pow(int(_OF_CHARACTERS), -1, 1 << 64)))
    base[0] = inverse[0] = 1
    return np.multiply.accumulate(base), np.multiply.accumulate(inverse)


def _mix(values: Hashes) -> Hashes:
    """Return every bit of the result depends on every bit of the value (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
