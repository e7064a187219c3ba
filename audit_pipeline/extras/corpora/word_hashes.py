"""Comparable words of texts: the hash of each word and its position in the text.

Both sides of every comparison follow the same rule:

1. The text is converted to NFKC (:func:`normalise`).
2. Zero-width characters are dropped: soft hyphens, joiners, direction marks, variation selectors.
3. Each character is replaced by its full case folding (ẞ and ß become ss). İ and ı both become i.
4. A word is a run of letters, marks and digits. All other characters separate words. In scripts without spaces
   (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each character is a word.

:func:`hash_words` applies steps 2 to 4. Its caller has to apply step 1.

The hash of a word is a polynomial over the random values of its characters, modulo 2**64. The hash of a run is a
polynomial over the hashes of its words. Running sums therefore yield all hashes of a block at once. Two different runs
have equal hashes with a probability of about 2**-64.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int64] | npt.NDArray[np.int32]

BLOCK = 1 << 20
"""Characters per block of hashed text."""
_LAST_LETTER = 0x323B0
"""First of the code points above all letters and digits. The only marks there are variation selectors (Unicode 15)."""
_SPACELESS_RANGES = (
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
"""Ranges of scripts without spaces: Thai and Lao, Burmese, Khmer, kana, Chinese characters."""

# Kinds of characters. A letter (also a mark or a digit) has kind 1.
_SEPARATOR = 0
# A character of a script without spaces is a word by itself.
_WHOLE = 2
# Case folding replaces these characters by no character or by several characters.
_REFOLDED = 3

_DROPPED_MARKS = (*range(0xFE00, 0xFE10), 0x034F, 0x0307)
"""Dropped marks: variation selectors, the grapheme joiner, and the dot above the lower-case i of İ.

NFKC joins the dot to every other letter."""
_KEYCAP = 0x20E3

_CHARACTER_BASE = np.uint64(0x9E3779B97F4A7C15)
_WORD_BASE = 0xD6E8FEB86659FD93


@dataclass(frozen=True)
class Words:
    """The words of a text, or of several texts in order.

    Attributes:
        hashes: Hash of each word, uint64 array of shape (n_words,).
        starts: First character of each word in its text, int64 array of shape (n_words,), or int32 for several texts.
        ends: Character after each word in its text, with the shape and type of ``starts``.
    """

    hashes: Hashes
    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        return len(self.hashes)


def normalise(text: str) -> str:
    """Return the text in NFKC, as :func:`hash_words` needs it."""
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text
    return unicodedata.normalize("NFKC", text)


def is_by_character(character: str) -> bool:
    """Return True if a character of a normalised text is a word by itself, as in scripts without spaces."""
    kinds, _, _ = _build_character_tables()
    return bool(kinds[min(ord(character), len(kinds) - 1)] == _WHOLE)


def hash_words_of_texts(texts: Sequence[str]) -> tuple[Words, Places]:
    """Hash the words of several texts.

    Returns:
        The words of all texts in order, with positions in the original texts instead of their NFKC. The second value is
        the index of each text's first word, followed by the number of all words, int64 array of shape (n_texts + 1,).
    """
    parts: list[Words] = []
    counts = [0]
    for batch in iterate_batches_by_size(texts, len, BLOCK):
        normals = list(map(normalise, batch))
        words, first_word = hash_words_of_normals(normals)
        for at, (text, normal) in enumerate(zip(batch, normals, strict=True)):
            if normal is not text:
                of_text = slice(first_word[at], first_word[at + 1])
                starts, ends = map_to_original(text)
                words.ends[of_text] = ends[words.ends[of_text] - 1]
                words.starts[of_text] = starts[words.starts[of_text]]
        parts.append(Words(words.hashes, words.starts.astype(np.int32), words.ends.astype(np.int32)))
        counts += np.diff(first_word).tolist()
    if not parts:
        parts = [Words(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int32))]
    return concatenate_words(parts), np.cumsum(counts)


def concatenate_words(parts: Sequence[Words]) -> Words:
    """Concatenate one or more arrays of words."""
    hashes = [part.hashes for part in parts]
    starts: list[npt.NDArray[Any]] = [part.starts for part in parts]
    ends: list[npt.NDArray[Any]] = [part.ends for part in parts]
    return Words(np.concatenate(hashes), np.concatenate(starts), np.concatenate(ends))


def iterate_batches_by_size(values: Iterable[_T], measure: Callable[[_T], int], target_size: int) -> Iterator[list[_T]]:
    """Yield the values in order, in batches whose measures sum to about ``target_size``."""
    batch: list[_T] = []
    size = 0
    for value in values:
        batch.append(value)
        size += measure(value)
        if size >= target_size:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def hash_words_of_normals(normals: Sequence[str]) -> tuple[Words, Places]:
    """Hash the words of normalised texts. The result is as in :func:`hash_words_of_texts`."""
    words = hash_words("\n".join(normals))
    begins = np.cumsum([0, *(len(normal) + 1 for normal in normals)])
    first_word = np.searchsorted(words.starts, begins)
    shift = np.repeat(begins[:-1], np.diff(first_word))
    return Words(words.hashes, words.starts - shift, words.ends - shift), first_word


def hash_words(normal: str) -> Words:
    """Hash the words of a normalised text."""
    if normal.isascii():
        return _hash_ascii_words(normal)
    points = np.frombuffer(normal.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds, values, _ = _build_character_tables()
    points = np.minimum(points, np.uint32(len(kinds) - 1))
    kind = kinds.take(points)
    origins: Places | None = None
    if kind.max(initial=0) == _REFOLDED:
        points, origins = _fold_case(points, kind == _REFOLDED)
        kind = kinds[points]
    padded = np.concatenate([[np.uint8(_SEPARATOR)], kind, [np.uint8(_SEPARATOR)]])
    # A change of the kind is a boundary, and so are both sides of a character that is a word by itself.
    boundary = (padded[1:] != padded[:-1]) | (padded[1:] == _WHOLE)
    starts = np.flatnonzero(boundary[:-1] & (kind != _SEPARATOR))
    ends = np.flatnonzero(boundary[1:] & (kind != _SEPARATOR) | (kind == _WHOLE)) + 1
    hashes = _hash_stretches(values.take(points), starts, ends)
    if origins is None:
        return Words(hashes, starts, ends)
    return Words(hashes, origins[starts], origins[ends - 1] + 1)


def _hash_ascii_words(normal: str) -> Words:
    """Hash the words of an ASCII text. The result is that of the general case, in half of the time.

    ASCII has no character that is a word by itself and none that is refolded. Words and separators thus alternate.
    """
    encoded = normal.encode("ascii")
    kinds, values = _build_ascii_tables()
    padded = np.zeros(len(encoded) + 2, np.uint8)
    padded[1:-1] = np.frombuffer(encoded.translate(kinds), np.uint8)
    boundaries = np.flatnonzero(padded[1:] != padded[:-1])
    starts = boundaries[::2]
    ends = boundaries[1::2]
    hashes = _hash_stretches(values.take(np.frombuffer(encoded, np.uint8)), starts, ends)
    return Words(hashes, starts, ends)


def _hash_stretches(values: Hashes, starts: Places, ends: Places) -> Hashes:
    """Hash the stretches [start, end) of a text.

    Args:
        values: The random values of the text's characters, uint64 array of shape (n_characters,). It is overwritten.
        starts: First character of each stretch, int64 array of shape (n_stretches,).
        ends: Character after each stretch, int64 array of shape (n_stretches,).
    """
    powers, inverses = _compute_powers(1 << max(len(values), 1).bit_length())
    values *= powers[: len(values)]
    sums = np.empty(len(values) + 1, np.uint64)
    sums[0] = 0
    np.cumsum(values, out=sums[1:])
    hashes = sums[ends]
    hashes -= sums[starts]
    hashes *= inverses[starts]
    return _mix(hashes)


def _fold_case(
    points: npt.NDArray[np.uint32], is_refolded: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint32], Places]:
    """Replace the refolded characters by their case foldings.

    Returns:
        The new code points and the index in ``points`` of each new code point's origin.
    """
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


def find_word_end(normal: str, start: int, end: int) -> int:
    """Return the last position up to ``end`` that cuts no word, or ``end`` if one word fills the whole range."""
    kinds, _, _ = _build_character_tables()
    for begin in (max(start, end - 1000), start):
        points = np.frombuffer(normal[begin:end].encode("utf-32-le", "surrogatepass"), np.uint32)
        kind = kinds[np.minimum(points, len(kinds) - 1)]
        outside = np.flatnonzero((kind == _SEPARATOR) | (kind == _WHOLE))
        if len(outside):
            return begin + int(outside[-1]) + 1
    return end


def hash_runs(words: Hashes, n: int) -> Hashes:
    """Hash every run of ``n`` words. The length of the runs doubles in each step.

    Returns:
        A uint64 array of shape (len(words) - n + 1,), or an empty array if there are fewer than n words.
    """
    if n == 1:
        return words
    half = n // 2
    shorter = hash_runs(words, half)
    if len(shorter) <= half:
        return np.empty(0, np.uint64)
    runs = shorter[:-half] * np.uint64(pow(_WORD_BASE, half, 1 << 64)) + shorter[half:]
    if n % 2:
        return runs[:-1] * np.uint64(_WORD_BASE) + words[n - 1 :]
    return runs


def map_to_original(text: str) -> tuple[Places, Places]:
    """Map each character of the text's NFKC to its cluster in the original text.

    A cluster is a character with the marks that follow it. Normalisation never crosses the border of a cluster.

    Returns:
        The start and the end of each character's cluster, two int64 arrays of shape (n_normalised_characters,).
    """
    # Each array contains the pairs [start, end) of consecutive characters.
    pieces: list[Places] = []
    place = 0
    for stretch in _BEYOND_ASCII.finditer(text):
        if unicodedata.is_normalized("NFKC", stretch.group()):
            continue
        pieces.append(_build_single_spans(place, stretch.start()))
        clusters = [cluster.span() for cluster in _compile_cluster_pattern().finditer(text, *stretch.span())]
        lengths = [len(unicodedata.normalize("NFKC", text[start:end])) for start, end in clusters]
        whole = len(unicodedata.normalize("NFKC", stretch.group()))
        if sum(lengths) != whole:
            # NFKC also joins Hangul letters of different clusters. The whole stretch then counts as one cluster.
            clusters = [stretch.span()]
            lengths = [whole]
        pieces.append(np.repeat(np.array(clusters), lengths, axis=0))
        place = stretch.end()
    pieces.append(_build_single_spans(place, len(text)))
    spans = np.concatenate(pieces)
    return spans[:, 0], spans[:, 1]


def _build_single_spans(start: int, end: int) -> Places:
    """Return the spans of single characters, int64 array of shape (end - start, 2)."""
    characters = np.arange(start, end)
    return np.stack([characters, characters + 1], axis=1)


_BEYOND_ASCII = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
"""Characters outside ASCII, with the ASCII letter that a mark can follow. NFKC changes no other character."""


@cache
def _compile_cluster_pattern() -> re.Pattern[str]:
    joined: list[str] = []
    for point in range(sys.maxunicode + 1):
        is_mark = unicodedata.category(chr(point))[0] == "M"
        # Hangul syllables are composed of these vowels and final consonants.
        is_hangul_part = 0x1161 <= point <= 0x11FF
        is_half_width_mark = point in (0xFF9E, 0xFF9F)
        if is_mark or is_hangul_part or is_half_width_mark:
            joined.append(re.escape(chr(point)))
    return re.compile(f".[{''.join(joined)}]*", re.DOTALL)


@cache
def _build_character_tables() -> tuple[npt.NDArray[np.uint8], Hashes, Mapping[int, str]]:
    """Build the kind and the random value of each code point, and the case foldings of the code points of kind 3.

    The last entry of kinds and values stands for all larger code points.
    """
    characters = list(map(chr, range(_LAST_LETTER + 1)))
    categories = list(map(unicodedata.category, characters))
    kinds = np.array([category[0] in "LMN" for category in categories], np.uint8)
    kinds[_KEYCAP] = _SEPARATOR
    # Case folding splits ΐ into ι and two marks. Its capital is Ϊ and an accent, because NFKC has no joint character.
    # The replacements make both equal.
    folded = [character.casefold().replace("ι\u0308", "ϊ").replace("υ\u0308", "ϋ") for character in characters]
    for point, category in enumerate(categories):
        if category == "Cf" or point in _DROPPED_MARKS:
            folded[point] = ""
    folded[ord("ı")] = folded[ord("İ")] = "i"
    foldings = {point: folding for point, folding in enumerate(folded) if len(folding) != 1}
    for begin, end in _SPACELESS_RANGES:
        kinds[begin:end] = np.where(kinds[begin:end] == _SEPARATOR, _SEPARATOR, _WHOLE)
    kinds[list(foldings)] = _REFOLDED
    singles = list(range(len(folded)))
    for point, folding in enumerate(folded):
        if len(folding) == 1:
            singles[point] = ord(folding)
    return kinds, _mix(np.array(singles, np.uint64) + np.uint64(1)), foldings


@cache
def _build_ascii_tables() -> tuple[bytes, Hashes]:
    """Build the kind of each byte, for ``bytes.translate``, and the random values of the ASCII characters."""
    kinds, values, _ = _build_character_tables()
    return bytes(kinds[:128].tolist()) + bytes(128), values[:128].copy()


@cache
def _compute_powers(size: int) -> tuple[Hashes, Hashes]:
    """Compute the powers of an odd number and of its inverse modulo 2**64, two uint64 arrays of shape (size,)."""
    base = np.full(size, _CHARACTER_BASE)
    inverse = np.full(size, np.uint64(pow(int(_CHARACTER_BASE), -1, 1 << 64)))
    base[0] = inverse[0] = 1
    return np.multiply.accumulate(base), np.multiply.accumulate(inverse)


def _mix(values: Hashes) -> Hashes:
    """Mix the bits of each value (splitmix64). Each bit of the result depends on every bit of the value."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
