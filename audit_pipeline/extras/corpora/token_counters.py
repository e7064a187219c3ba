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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from audit_pipeline.extras.corpora.word_hashes import iterate_batches_by_size
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


def compute_table_size(model: TokenizedModel) -> int:
    """How many ids a table has to hold: added tokens can have ids above the model's vocabulary size."""
    return max(model.vocab_size, len(model.tokenizer))


def build_counting_tokenizer(model: TokenizedModel, max_tokens: int | None = None) -> Tokenizer:
    """The model's fast tokenizer, a copy that pads nothing and cuts only at ``max_tokens``."""
    copy = Tokenizer.from_str(model.tokenizer.backend.to_str())
    if max_tokens is not None:
        copy.enable_truncation(max_tokens)
    return copy


class TokenCounter:
    """Counts the tokens of texts: ``counts`` [V] are complete after ``count_held_texts`` (at any time).

    Each distinct text or, where it ``splits`` at blanks, each distinct piece is encoded once. Memory is bounded by
    encoding what is held from time to time.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, *, splits: bool) -> None:
        self.counts = np.zeros(vocabulary, dtype=np.int64)
        self._tokenizer, self._splits = tokenizer, splits
        # Pieces without the blank that they begin with; and those that do not begin with one, or end in white space.
        self._pieces: Counter[str] = Counter()
        self._uncut: Counter[str] = Counter()
        # Characters that are held, and those of them in texts that are encoded one by one: of Chinese all.
        self._characters = self.uncut_characters = 0

    def add(self, text: str) -> None:
        self._characters += len(text)
        pieces = [text]
        if self._splits:
            pieces = text.split(" ") if _SPACE_THEN_BLANK.search(text) is None else _CUT.split(text)
        first, *middle = pieces
        if first or not middle:
            self._add_uncut(first)
        if middle:
            last = middle.pop()
            if not last or last[-1].isspace():
                self._add_uncut(f" {last}")
            else:
                self._pieces[last] += 1
            self._pieces.update(middle)
        if (
            self._characters >= _HELD_CHARACTERS
            or self.uncut_characters >= _HELD_UNCUT_CHARACTERS
            or len(self._pieces) >= _HELD_PIECES
        ):
            self.count_held_texts()

    def _add_uncut(self, text: str) -> None:
        self._uncut[text] += 1
        self.uncut_characters += len(text)

    def count_held_texts(self) -> None:
        """Bring ``counts`` up to date."""
        by_count: dict[int, list[str]] = defaultdict(list)
        for piece, count in self._pieces.items():
            by_count[count].append(piece)
        # Pieces that occur equally often are strung together again: a blank after a piece cuts as it did in the text.
        strung = (
            ("".join(f" {piece}" for piece in some), count)
            for count, pieces in by_count.items()
            for some in iterate_batches_by_size(pieces, len, _SLICE_CHARACTERS)
        )
        held = itertools.chain(strung, self._uncut.items())
        for batch in iterate_batches_by_size(held, lambda text_and_count: len(text_and_count[0]), _BATCH_CHARACTERS):
            self.counts += _count_tokens(self._tokenizer, batch, len(self.counts))
        self._pieces, self._uncut = Counter(), Counter()
        self._characters = self.uncut_characters = 0


class CheckedCounter:
    """Counts the first documents both ways, and goes on in the quick way where the counts are the same.

    Texts that hardly have blanks (Chinese) are not split: there is nothing to gain. ``way`` is "distinct pieces" or
    "every text", and None as long as it is not decided.
    """

    def __init__(self, model: TokenizedModel, max_tokens: int | None = None) -> None:
        vocabulary, tokenizer = compute_table_size(model), build_counting_tokenizer(model, max_tokens)
        self._counter = TokenCounter(tokenizer, vocabulary, splits=False)
        self._splitting: TokenCounter | None = None
        self._probed = 0
        self.way: str | None = "every text"
        if max_tokens is None and can_split_at_blanks(json.loads(tokenizer.to_str())):
            self._splitting, self.way = TokenCounter(tokenizer, vocabulary, splits=True), None

    @property
    def counts(self) -> Counts:
        """Occurrences of every token id in the texts counted so far: [V]."""
        return self._counter.counts

    def add(self, text: str) -> None:
        self._counter.add(text)
        if self._splitting is not None:
            self._splitting.add(text)
            self._probed += len(text)
            if self._probed >= PROBE_CHARACTERS:
                self._choose_counter(self._splitting)

    def count_held_texts(self) -> None:
        """Bring ``counts`` up to date."""
        self._counter.count_held_texts()

    def _choose_counter(self, splitting: TokenCounter) -> None:
        is_worth_it = splitting.uncut_characters < _MOST_UNCUT * self._probed
        self._counter.count_held_texts()
        splitting.count_held_texts()
        self.way = "every text"
        if is_worth_it and np.array_equal(self._counter.counts, splitting.counts):
            self._counter, self.way = splitting, "distinct pieces"
        self._splitting = None


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


def _count_tokens(tokenizer: Tokenizer, texts: Sequence[tuple[str, int]], vocabulary: int) -> Counts:
    """Occurrences of every token id in ``texts``, each text counted as often as it says: [V]."""
    encodings = tokenizer.encode_batch_fast([text for text, _ in texts], add_special_tokens=False)
    encoded = [encoding.ids for encoding in encodings]
    lengths = [len(ids) for ids in encoded]
    ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int64, count=sum(lengths))
    # Sums of whole numbers in float64 are exact up to 2**53, far beyond what is held at a time.
    weights = np.repeat(np.array([count for _, count in texts], dtype=np.float64), lengths)
    return np.bincount(ids, weights=weights, minlength=vocabulary).astype(np.int64)
