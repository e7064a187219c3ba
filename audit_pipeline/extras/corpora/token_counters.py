"""Counting the tokens of texts with a fast tokenizer, in two ways that give the same counts.

The plain way encodes every text. The quick way cuts texts at blanks, counts the distinct pieces, and encodes each
piece once: a natural text repeats its words. It is exact where no token spans such a cut and the tokens after a cut
do not depend on the text before it. That holds for byte-level BPE with the usual pre-tokenizers, cut before a
blank (U+0020) that follows a character which is not white space: their patterns look at most one character ahead,
never behind, and no alternative goes on over such a blank. :func:`can_split_at_blanks` decides from the tokenizer's own
description; the first documents are counted both ways all the same (:class:`CheckedCounter`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from audit_pipeline.models.tokenized_model import TokenizedModel

Counts = npt.NDArray[np.int64]

PROBE_CHARACTERS = 500_000
_BATCH_CHARACTERS = 2_000_000
_SLICE_CHARACTERS = 16_000
_HELD_CHARACTERS = 64_000_000
_HELD_UNCUT_CHARACTERS = 16_000_000
_HELD_PIECES = 1_000_000
_MOST_UNCUT = 0.5

# Python's white space holds all that a pre-tokenizer takes for such (the property White_Space), and U+001C to U+001F.
_CUT = re.compile(r"(?<=\S) ")
_SPACE_THEN_BLANK = re.compile(r"\s ")

_SAFE_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD")
_SAFE_ALTERNATIVES = frozenset(
    {
        *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"),
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        "'(?i:[sdmt]|ll|ve|re)",
        *(r"\s+(?!\S)", r"\s+", r"\s*[\r\n]+", r"\s*[\r\n]"),
        *(r" ?\p{L}+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),
        *(r" ?\p{N}+", r"\p{N}+", r"\p{N}", r"\p{N}{1,3}"),
        *(r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),
    }
)


class TextCounter(Protocol):
    """Counts texts one by one; ``counts`` [V] are complete after ``count_held_texts`` (at any time)."""

    counts: Counts

    def add(self, text: str) -> None: ...

    def count_held_texts(self) -> None: ...


def vocabulary_size_of(model: TokenizedModel) -> int:
    """How many ids a table has to hold: added tokens can have ids above the model's vocabulary size."""
    return max(model.vocab_size, len(model.tokenizer))


def build_counting_tokenizer(model: TokenizedModel, max_tokens: int | None = None) -> Tokenizer:
    """The model's fast tokenizer, a copy that pads nothing and cuts only at ``max_tokens``."""
    copy = Tokenizer.from_str(model.tokenizer.backend.to_str())
    if max_tokens is not None:
        copy.enable_truncation(max_tokens)
    return copy


class PlainCounter:
    """Encodes every text, many in one call, in the tokenizer's own threads, while the next texts are read."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self.counts = np.zeros(vocabulary, dtype=np.int64)
        self._tokenizer = tokenizer
        self._texts: list[str] = []
        self._characters = 0
        self._worker = ThreadPoolExecutor(1)
        self._running: Future[Counts] | None = None

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._characters += len(text)
        if self._characters >= _BATCH_CHARACTERS:
            self._submit_batch()

    def count_held_texts(self) -> None:
        self._submit_batch()
        self._collect()

    def _submit_batch(self) -> None:
        self._collect()
        texts, self._texts, self._characters = self._texts, [], 0
        self._running = self._worker.submit(
            _count_tokens, self._tokenizer, [(text, 1) for text in texts], len(self.counts)
        )

    def _collect(self) -> None:
        if self._running is not None:
            self.counts += self._running.result()
            self._running = None


class DistinctCounter:
    """Encodes each distinct piece between cuts once; memory is bounded by encoding what is held from time to time."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self.counts = np.zeros(vocabulary, dtype=np.int64)
        self._tokenizer = tokenizer
        # Pieces without the blank that they begin with; and those that do not begin with one, or end in white space.
        self._pieces: Counter[str] = Counter()
        self._uncut: Counter[str] = Counter()
        self._characters = self._uncut_characters = 0

    def add(self, text: str) -> None:
        pieces = text.split(" ") if _SPACE_THEN_BLANK.search(text) is None else _CUT.split(text)
        first = pieces[0]
        if first or len(pieces) == 1:
            self._uncut[first] += 1
            self._uncut_characters += len(first)
        if len(pieces) > 1:
            last = pieces.pop()
            if not last or last[-1].isspace():
                self._uncut[f" {last}"] += 1
                self._uncut_characters += len(last) + 1
            else:
                self._pieces[last] += 1
            del pieces[0]
            self._pieces.update(pieces)
        self._characters += len(text)
        if (
            self._characters >= _HELD_CHARACTERS
            or self._uncut_characters >= _HELD_UNCUT_CHARACTERS
            or len(self._pieces) >= _HELD_PIECES
        ):
            self.count_held_texts()

    @property
    def uncut_characters(self) -> int:
        """Characters held in pieces that are encoded one by one: all of them where a language has no blanks."""
        return self._uncut_characters

    def count_held_texts(self) -> None:
        by_count: dict[int, list[str]] = defaultdict(list)
        for piece, count in self._pieces.items():
            by_count[count].append(piece)
        # Pieces that occur equally often are strung together again: a blank after a piece cuts as it did in the text.
        strung = ((text, count) for count, pieces in by_count.items() for text in _join_pieces(pieces))
        self.counts += _count_tokens(self._tokenizer, itertools.chain(strung, self._uncut.items()), len(self.counts))
        self._pieces, self._uncut = Counter(), Counter()
        self._characters = self._uncut_characters = 0


class CheckedCounter:
    """Counts the first documents both ways, and goes on in the quick way where the counts are the same.

    Texts that hardly have blanks (Chinese) go the plain way: there is nothing to gain.

    ``way`` is "distinct pieces" or "every text", and None as long as it is not decided.
    """

    def __init__(self, model: TokenizedModel, max_tokens: int | None = None) -> None:
        vocabulary = vocabulary_size_of(model)
        tokenizer = build_counting_tokenizer(model, max_tokens)
        self._plain = PlainCounter(tokenizer, vocabulary)
        self._counter: TextCounter = self._plain
        self._distinct: DistinctCounter | None = None
        self._probed = 0
        self.way: str | None = "every text"
        if max_tokens is None and can_split_at_blanks(json.loads(tokenizer.to_str())):
            self._distinct, self.way = DistinctCounter(tokenizer, vocabulary), None

    @property
    def counts(self) -> Counts:
        """Occurrences of every token id in the texts counted so far: [V]."""
        return self._counter.counts

    def add(self, text: str) -> None:
        self._counter.add(text)
        if self.way is None and self._distinct is not None:
            self._distinct.add(text)
            self._probed += len(text)
            if self._probed >= PROBE_CHARACTERS:
                self._choose_counter()

    def count_held_texts(self) -> None:
        """Bring ``counts`` up to date."""
        self._counter.count_held_texts()

    def _choose_counter(self) -> None:
        assert self._distinct is not None
        worth_it = self._distinct.uncut_characters < _MOST_UNCUT * self._probed
        self._plain.count_held_texts()
        self._distinct.count_held_texts()
        same = np.array_equal(self._plain.counts, self._distinct.counts)
        self.way = "distinct pieces" if same and worth_it else "every text"
        if same and worth_it:
            self._counter = self._distinct
        self._distinct = None


def can_split_at_blanks(description: Mapping[str, Any]) -> bool:
    """Whether texts may be cut before a blank that follows a character other than white space, by tokenizer.json.

    Yes where: BPE without dropout; no normaliser, or a Unicode normal form (a blank composes with nothing before it);
    every step of the pre-tokenizer is one that no match takes over a cut, and one of them makes a border at each; and
    no added token spans a cut or takes the white space around it along. For anything else the answer is no.
    """
    model, normalizer = description["model"], description.get("normalizer")
    if model.get("type") != "BPE" or model.get("dropout"):
        return False
    if normalizer is not None and normalizer.get("type") not in _SAFE_NORMALIZERS:
        return False
    for token in description.get("added_tokens") or ():
        if token["lstrip"] or token["rstrip"] or token["single_word"] or _CUT.search(token["content"]):
            return False
    steps = _flatten_pre_tokenizer(description.get("pre_tokenizer"))
    return all(_is_safe_step(step) for step in steps) and any(_is_splitting_step(step) for step in steps)


def _flatten_pre_tokenizer(pre_tokenizer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return [step for inner in pre_tokenizer["pretokenizers"] for step in _flatten_pre_tokenizer(inner)]
    return [pre_tokenizer]


def _is_safe_step(step: Mapping[str, Any]) -> bool:
    kind = step["type"]
    if kind == "Split":
        usual = step["behavior"] == "Isolated" and not step["invert"]
        return usual and set(_parse_alternatives(step)) <= _SAFE_ALTERNATIVES
    return kind in ("ByteLevel", "Digits")


def _is_splitting_step(step: Mapping[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True))
    return step["type"] == "Split" and r"\s+" in _parse_alternatives(step)


def _parse_alternatives(step: Mapping[str, Any]) -> list[str]:
    """The alternatives of a splitting pattern, those within brackets left together; none but itself for a literal."""
    pattern = step["pattern"]
    if "Regex" not in pattern:
        return [json.dumps(pattern)]
    parts, depth = [""], 0
    for character in pattern["Regex"]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _count_tokens(tokenizer: Tokenizer, texts: Iterable[tuple[str, int]], vocabulary: int) -> Counts:
    """Occurrences of every token id in ``texts``, each text counted as often as it says: [V]."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for batch in _iterate_batches(texts):
        encodings = tokenizer.encode_batch_fast([text for text, _ in batch], add_special_tokens=False)
        encoded = [encoding.ids for encoding in encodings]
        lengths = [len(ids) for ids in encoded]
        ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int64, count=sum(lengths))
        # Sums of whole numbers in float64 are exact up to 2**53, far beyond what is held at a time.
        weights = np.repeat(np.array([count for _, count in batch], dtype=np.float64), lengths)
        counts += np.bincount(ids, weights=weights, minlength=vocabulary).astype(np.int64)
    return counts


def _iterate_batches(texts: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    characters = 0
    for text, count in texts:
        batch.append((text, count))
        characters += len(text)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _join_pieces(pieces: Sequence[str]) -> Iterator[str]:
    held: list[str] = []
    characters = 0
    for piece in pieces:
        held.append(piece)
        characters += len(piece) + 1
        if characters >= _SLICE_CHARACTERS:
            yield f" {' '.join(held)}"
            held, characters = [], 0
    if held:
        yield f" {' '.join(held)}"
