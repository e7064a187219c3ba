"""What texts have in common: those that are or nearly are each other, and n-grams found on the other side.

Near-duplicates are candidate pairs of MinHash and locality-sensitive hashing (Broder 1997; Leskovec, Rajaraman and
Ullman, Mining of Massive Datasets, 3.3 and 3.4), confirmed exactly. Of a text's sets of hash values, bands of r are
compared; a pair of similarity s agrees in one of b bands with probability 1 - (1 - s^r)^b. Bands are chosen so that
a pair just at the threshold is missed with probability 1e-6 at most, a more similar one with less. Every candidate is
then compared exactly, so no pair is wrong, and the similarity is the exact one: hashing only decides which pairs are
compared.

A text that is labelled as member and as non-member is one of the two, and nothing says which. Whatever separates its
two copies is no membership, so both are left out.

Overlap of n-grams is after MIMIR (Duan et al. 2024), whose splits keep non-members of which at most 20% or 80% of the
7- or 13-grams are found among the members. There the members are the whole training corpus; here they are those of the
benchmark, which is less: a small overlap here does not say that the overlap with what the model has read is small.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from audit_pipeline.statistics.roc import Floats

SHINGLE_WORDS = 5
MOST_MISSED = 1e-6
_PERMUTATIONS = 256
_MOST_LONG = 33
_SEED = 20240101

Shingles = frozenset[tuple[str, ...]]


class NearPair(NamedTuple):
    """Two texts by their positions among those that were given, ``first`` < ``second``, and their similarity."""

    first: int
    second: int
    similarity: float


def find_near_duplicates(
    texts: Sequence[str], threshold: float, *, split: Callable[[str], list[str]] = str.split
) -> list[NearPair]:
    """Return the pairs of ``texts`` whose sets of 5-word sequences overlap by at least ``threshold``.

    Similarity is Jaccard's, |A and B| / |A or B|, exact; case does not matter; a text shorter than a shingle is one
    shingle. Pairs are in order of position. Raises ValueError for a threshold outside (0, 1].
    """
    return find_near_duplicates_from_words([split(text.lower()) for text in texts], threshold)


def find_near_duplicates_from_words(texts: Sequence[Sequence[str]], threshold: float) -> list[NearPair]:
    """As :func:`find_near_duplicates`, of texts that are words already, case as given.

    Shingles are kept of such texts only as are compared, so memory is that of the words and of 256 numbers per text.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0, 1], not {threshold}")
    if len(texts) < 2:
        return []
    # Imported where pairs are looked for: it brings pieces of scipy that take a while.
    from datasketch import MinHash, MinHashLSH  # noqa: PLC0415

    @cache
    def shingles_at(place: int) -> Shingles:
        return list_shingles(texts[place])

    number, length = choose_bands(threshold)
    values = (["\x1f".join(sequence).encode() for sequence in list_shingles(words)] for words in texts)
    index = MinHashLSH(num_perm=number * length, params=(number, length))
    pairs = []
    for second, sketch in enumerate(MinHash.generator(values, num_perm=number * length, seed=_SEED)):
        for first in index.query(sketch):
            shared = len(shingles_at(first) & shingles_at(second))
            similarity = shared / (len(shingles_at(first)) + len(shingles_at(second)) - shared)
            if similarity >= threshold:
                pairs.append(NearPair(first, second, similarity))
        index.insert(second, sketch, check_duplication=False)
    return sorted(pairs)


def list_shingles(words: Sequence[str], size: int = SHINGLE_WORDS) -> Shingles:
    """Return the set of ``size``-word sequences; all words together where there are fewer."""
    return frozenset(tuple(words[start : start + size]) for start in range(max(1, len(words) - size + 1)))


def choose_bands(threshold: float) -> tuple[int, int]:
    """How many bands of how many hash values: the longest bands, within 256 hash values, of which there are enough for
    a pair at the threshold to be missed with probability 1e-6 at most.

    Longer bands make fewer candidates. For thresholds below 0.053 more than 256 hash values are taken.
    """
    if threshold >= 1:
        return 2, 16  # equal sets agree everywhere; two bands are the library's least
    enough = {
        length: math.ceil(math.log(MOST_MISSED) / math.log1p(-(threshold**length))) for length in range(1, _MOST_LONG)
    }
    length = max((length for length, number in enough.items() if number * length <= _PERMUTATIONS), default=1)
    return max(2, enough[length]), length


MOST_COMPARED = 10_000
"""Texts. Among more, only equal ones are looked for: near-duplicates of 10,000 take some ten seconds."""


def find_texts_on_both_sides(
    texts: Sequence[str],
    digests: Sequence[str],
    labels: Sequence[int | None],
    threshold: float,
    split: Callable[[str], list[str]] = str.split,
    build_key: Callable[[str], str] | None = None,
) -> list[int]:
    """Return the places of the texts that are on the other side, too, in order.

    Two texts are one if ``build_key`` gives one key for both, or if they are near-duplicates: the
    Jaccard similarity of their 5-word sequences is at least ``threshold``. Near-duplicates are looked for among at
    most MOST_COMPARED texts. Empty texts are compared by their digests.

    Args:
        texts: The texts [n].
        digests: The digest of each text [n].
        labels: 1 or 0 for each text, or None if it is unknown [n].
        build_key: The form in which texts are compared; :func:`build_comparison_key` if it is None.
    """
    level = list(map(normalise_text, texts))
    compare = build_key or build_comparison_key
    keys = [compare(text) or digest for text, digest in zip(texts, digests, strict=True)]
    first_places: dict[str, int] = {}
    contradicting: set[str] = set()
    for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
        if key and label is not None and labels[first_places.setdefault(key, place)] != label:
            contradicting.add(key)
    # Of equal texts the first represents all: near-duplicates of one are near-duplicates of each.
    chosen = [place for key, place in first_places.items() if key not in contradicting and level[place]]
    compared = [level[place] for place in chosen] if len(chosen) <= MOST_COMPARED else []
    for pair in find_near_duplicates(compared, threshold, split=split):
        first, second = chosen[pair.first], chosen[pair.second]
        if labels[first] != labels[second]:
            contradicting |= {keys[first], keys[second]}
    return [place for place, key in enumerate(keys) if key in contradicting and labels[place] is not None]


def normalise_text(text: str) -> str:
    """A text without what a reader does not see: case, white space beyond a blank, characters of no width, the form of
    a character that has several (NFKC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        # A text has few distinct characters: each is looked up once.
        for character in set(text):
            if unicodedata.category(character) == "Cf":
                text = text.replace(character, "")
    return " ".join(text.casefold().split())


def level_words(text: str) -> str:
    """Return the words of a text, separated by single blanks, in the form in which texts are compared.

    A word is a run of letters, marks, digits and symbols such as + and €. Case, the form of a character (NFKC),
    characters of no width and punctuation do not count. A text without any word is returned as
    :func:`normalise_text` has it.
    """
    level = normalise_text(text)
    return " ".join(_blank_punctuation(level).split()) or level


def build_comparison_key(text: str) -> str:
    """Return a string that two texts share if they are one text in two spellings.

    The key holds the words of :func:`level_words` without the blanks between them, because another wrapping cuts
    words, and Chinese has no blanks. What separates two digits stays, and so does a minus sign: 1.5 is not 15.
    """
    level = _SIGN.sub("−", normalise_text(text))
    parts = _BETWEEN_DIGITS.split(level)
    words = ["".join(_blank_punctuation(part).split()) for part in parts[::2]]
    separators = [_level_separator(part) for part in parts[1::2]] + [""]
    key = "".join(itertools.chain.from_iterable(zip(words, separators, strict=True)))
    return key or level


_SIGN = re.compile(r"(?<!\w)[-‐‑–](?=\d)")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)([^\w]+)(?=\d)")
_COUNTED = ("L", "M", "N", "Sm", "Sc", "So")
"""Unicode categories of the characters that words are made of, by their beginnings. Accents alone (Sk) are quotes."""


def _blank_punctuation(level: str) -> str:
    # A text has few distinct characters: each is looked up once.
    others = {ord(letter): " " for letter in set(level) if not unicodedata.category(letter).startswith(_COUNTED)}
    return level.translate(others)


def _level_separator(separator: str) -> str:
    dashes = {ord(letter): "-" for letter in separator if unicodedata.category(letter) == "Pd" or letter == "−"}
    return "".join(separator.translate(dashes).split()) or " "


SIZES = (7, 13)
LIMITS = (0.2, 0.8)


def compute_word_overlap(
    texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], size: int
) -> tuple[Floats, int]:
    """Return what of ``texts`` is found in ``others``, both as words in lower case, by sequences of ``size`` words.

    The share of each text's sequences that is found [n texts that have one], and how many texts are too short for one.
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
