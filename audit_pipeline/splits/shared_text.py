"""Shared text: equal and nearly equal texts, and n-grams that occur on both sides.

Near-duplicates are candidate pairs of MinHash and locality-sensitive hashing (Broder 1997; Leskovec, Rajaraman and
Ullman, Mining of Massive Datasets, sections 3.3 and 3.4). Each text has a set of hash values, divided into b bands of
r values. A pair of similarity s agrees in at least one band with probability 1 - (1 - s^r)^b. Bands are chosen so that
a pair at the threshold is missed with a probability of at most 1e-6. Every candidate is then compared exactly. So every
reported pair and its similarity are exact. Hashing only reduces the number of comparisons.

A text that is labelled both as member and as non-member has one wrong label, and it is unknown which one. So both
copies are excluded.

Overlap of n-grams follows MIMIR (Duan et al. 2024). Its splits keep non-members with at most 20% or 80% of their
7-grams or 13-grams among the members. In MIMIR the members are the whole training corpus. Here they are the members of
the benchmark. So a small overlap here does not imply a small overlap with the training data.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from audit_pipeline.statistics.roc import Floats

SHINGLE_WORDS = 5
MAX_MISSED_SHARE = 1e-6
_MAX_HASH_VALUES = 256
_MAX_BAND_LENGTH = 32
_SEED = 20240101

Shingles = frozenset[tuple[str, ...]]


class NearPair(NamedTuple):
    """A pair of similar texts.

    Attributes:
        first: The position of the first text.
        second: The position of the second text, greater than ``first``.
        similarity: The Jaccard similarity of the texts' shingles.
    """

    first: int
    second: int
    similarity: float


def find_near_duplicates(
    texts: Sequence[str], threshold: float, *, split: Callable[[str], list[str]] = str.split
) -> list[NearPair]:
    """Return the pairs of texts with a similarity of at least ``threshold``.

    The similarity is the exact Jaccard index |A ∩ B| / |A ∪ B| of the sets of 5-word sequences of both texts. Case does
    not matter. A text with fewer than five words is one sequence.

    Returns:
        Pairs in order of position.

    Raises:
        ValueError: If the threshold is outside (0, 1].
    """
    return find_near_duplicates_from_words([split(text.lower()) for text in texts], threshold)


def find_near_duplicates_from_words(texts: Sequence[Sequence[str]], threshold: float) -> list[NearPair]:
    """Return the pairs of near-duplicates among texts that are already split into words.

    In contrast to :func:`find_near_duplicates`, case matters. Shingles are cached only for compared texts, so memory
    holds the words and 256 numbers per text.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    if len(texts) < 2:
        return []
    # datasketch imports parts of scipy, which takes time. Only this function needs it.
    from datasketch import MinHash, MinHashLSH  # noqa: PLC0415

    @cache
    def get_shingles(place: int) -> Shingles:
        return list_shingles(texts[place])

    n_bands, length = choose_bands(threshold)
    encoded = map(_encode_shingles, texts)
    index = MinHashLSH(num_perm=n_bands * length, params=(n_bands, length))
    pairs = []
    for second, sketch in enumerate(MinHash.generator(encoded, num_perm=n_bands * length, seed=_SEED)):
        for first in index.query(sketch):
            shared = len(get_shingles(first) & get_shingles(second))
            similarity = shared / (len(get_shingles(first)) + len(get_shingles(second)) - shared)
            if similarity >= threshold:
                pairs.append(NearPair(first, second, similarity))
        index.insert(second, sketch, check_duplication=False)
    return sorted(pairs)


def _encode_shingles(words: Sequence[str]) -> list[bytes]:
    return ["\x1f".join(sequence).encode() for sequence in list_shingles(words)]


def list_shingles(words: Sequence[str], size: int = SHINGLE_WORDS) -> Shingles:
    """Return the set of ``size``-word sequences, or one sequence of all words if there are fewer than ``size``."""
    return frozenset(_list_ngrams(words, size) or [tuple(words)])


def choose_bands(threshold: float) -> tuple[int, int]:
    """Return the number of bands and their length in hash values.

    The bands are the longest for which 256 hash values suffice, because longer bands yield fewer candidates. They miss
    a pair at the threshold with a probability of at most 1e-6. Thresholds below 0.053 need more than 256 hash values.
    """
    if threshold >= 1:
        # Equal sets agree in every band. The library requires two bands.
        return 2, 16
    for length in range(_MAX_BAND_LENGTH, 0, -1):
        n_bands = math.ceil(math.log(MAX_MISSED_SHARE) / math.log1p(-(threshold**length)))
        if n_bands * length <= _MAX_HASH_VALUES or length == 1:
            break
    return max(2, n_bands), length


MAX_COMPARED = 10_000
"""Maximum number of texts for which near-duplicates are searched. 10,000 texts take about ten seconds."""


def find_texts_on_both_sides(
    texts: Sequence[str],
    digests: Sequence[str],
    labels: Sequence[int | None],
    threshold: float,
    split: Callable[[str], list[str]] = str.split,
    build_key: Callable[[str], str] | None = None,
) -> list[int]:
    """Return the positions of labelled texts that also occur on the other side, in order.

    Two texts count as one if they have the same key or if they are near-duplicates. If there are more than
    MAX_COMPARED distinct texts, only keys are compared. Empty texts are compared by their digests.

    Args:
        texts: The texts, of length n.
        digests: The digest of each text, of length n.
        labels: 1 or 0 for each text, or None if its label is unknown, of length n.
        threshold: Minimum Jaccard similarity of the 5-word sequences of near-duplicates.
        split: A function that splits a text into words.
        build_key: A function that returns the key of a text. The default is :func:`build_comparison_key`.
    """
    compute_key = build_key or build_comparison_key
    keys = []
    for text, digest in zip(texts, digests, strict=True):
        keys.append(compute_key(text) or digest)
    first_places: dict[str, int] = {}
    contradicting: set[str] = set()
    for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
        if key and label is not None and labels[first_places.setdefault(key, place)] != label:
            contradicting.add(key)
    # Near-duplicates of one text are near-duplicates of all equal texts. So only the first of equal texts is compared.
    chosen: list[int] = []
    compared: list[str] = []
    for key, place in first_places.items():
        normalised = "" if key in contradicting else normalise_text(texts[place])
        if normalised:
            chosen.append(place)
            compared.append(normalised)
        if len(chosen) > MAX_COMPARED:
            chosen = []
            compared = []
            break
    for pair in find_near_duplicates(compared, threshold, split=split):
        place = chosen[pair.first]
        other_place = chosen[pair.second]
        if labels[place] != labels[other_place]:
            contradicting |= {keys[place], keys[other_place]}
    return [place for place, key in enumerate(keys) if key in contradicting and labels[place] is not None]


def normalise_text(text: str) -> str:
    """Return a text without differences that readers cannot see.

    The result is in lower case, has single blanks, no zero-width characters, and the NFKC form of each character.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        # A text has few distinct characters, so each category is looked up once per distinct character.
        for character in set(text):
            if unicodedata.category(character) == "Cf":
                text = text.replace(character, "")
    return " ".join(text.casefold().split())


def normalise_words(text: str) -> str:
    """Return the words of a text in their comparison form, separated by single blanks.

    A word is a run of letters, marks, digits and symbols such as + and €. The comparison ignores case, the form of a
    character (NFKC), zero-width characters and punctuation. A text without words is returned in the form of
    :func:`normalise_text`.
    """
    normalised = normalise_text(text)
    return " ".join(_replace_punctuation_by_blanks(normalised).split()) or normalised


def build_comparison_key(text: str) -> str:
    """Return a string that is equal for different spellings of one text.

    The key consists of the words of :func:`normalise_words` without blanks, because line wrapping can cut words and
    Chinese has no blanks. Separators between two digits and minus signs remain, so that 1.5 is not 15.
    """
    normalised = normalise_text(text)
    # The simpler patterns exclude most texts in less time.
    if _DASH_AND_DIGIT.search(normalised) is not None:
        normalised = _SIGN.sub("−", normalised)
    parts = [normalised]
    if _SEPARATED_DIGITS.search(normalised) is not None:
        parts = _BETWEEN_DIGITS.split(normalised)
    pieces = []
    for position, part in enumerate(parts):
        # The pattern has one group, so every second part is a separator.
        if position % 2:
            pieces.append(_normalise_separator(part))
        else:
            pieces += _replace_punctuation_by_blanks(part).split()
    return "".join(pieces) or normalised


_SIGN = re.compile(r"(?<!\w)[-‐‑–](?=\d)")
_DASH_AND_DIGIT = re.compile(r"[-‐‑–]\d")
_SEPARATED_DIGITS = re.compile(r"\d[^\w]+\d")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)([^\w]+)(?=\d)")
_COUNTED = ("L", "M", "N", "Sm", "Sc", "So")
"""Prefixes of the Unicode categories of word characters. Accents alone (Sk) are excluded: they serve as quotes."""


class _BlankTable(dict[int, str | int]):
    """A table for ``str.translate`` that looks up the category of each character once per process."""

    def __missing__(self, point: int) -> str | int:
        is_counted = unicodedata.category(chr(point)).startswith(_COUNTED)
        self[point] = point if is_counted else " "
        return self[point]


_BLANKS = _BlankTable()


def _replace_punctuation_by_blanks(text: str) -> str:
    return text.translate(_BLANKS)


def _normalise_separator(separator: str) -> str:
    dashes = {ord(letter): "-" for letter in separator if unicodedata.category(letter) == "Pd" or letter == "−"}
    return "".join(separator.translate(dashes).split()) or " "


SIZES = (7, 13)
"""The n of the n-grams, in words, as in MIMIR."""
LIMITS = (0.2, 0.8)
"""The limits of the share of n-grams: split_quality counts the texts above each limit, as in MIMIR."""


def compute_word_overlap(
    texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], size: int
) -> tuple[Floats, int]:
    """Compute the share of each text's n-grams that also occur in other texts.

    Args:
        texts: The texts, split into words in lower case.
        others: The other texts, split in the same way.
        size: The number of words of an n-gram.

    Returns:
        The share per text, of shape (n_texts with at least one n-gram,), and the number of texts without an n-gram.
        An n-gram that occurs twice in a text counts twice.
    """
    grams_of_others = {gram for words in others for gram in _list_ngrams(words, size)}
    shares = []
    for words in texts:
        grams = _list_ngrams(words, size)
        if grams:
            shares.append(sum(gram in grams_of_others for gram in grams) / len(grams))
    return np.asarray(shares, dtype=np.float64), len(texts) - len(shares)


def _list_ngrams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
