"""Token counts of texts with a fast tokenizer, computed in two ways with equal results.

The plain way encodes every text. The quick way cuts texts at blanks, counts the distinct pieces and encodes each
distinct piece once. It is faster because natural texts repeat their words.

The quick way is exact if no token spans a cut and the tokens after a cut do not depend on the text before it. Both hold
for byte-level BPE with the usual pre-tokenizers. A cut has to be before a blank (U+0020) that follows a character other
than white space. The patterns of these pre-tokenizers look at most one character ahead and never behind. None of their
alternatives matches across such a blank. :func:`can_split_at_blanks` checks the tokenizer's description.
:class:`CheckedCounter` also counts the first texts in both ways and compares the counts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from audit_pipeline.extras.corpora.word_hashes import iterate_batches_by_size
from audit_pipeline.models.tokenized_model import TokenizedModel

Counts = npt.NDArray[np.int64]

PROBE_CHARACTERS = 500_000
"""Number of characters that are counted both ways before the faster way is chosen."""
_BATCH_CHARACTERS = 2_000_000
_SLICE_CHARACTERS = 16_000
_MAX_HELD_CHARACTERS = 64_000_000
_MAX_HELD_UNCUT_CHARACTERS = 16_000_000
_MAX_HELD_PIECES = 1_000_000
_MAX_UNCUT_SHARE = 0.5
"""Maximum share of characters that are encoded without a cut. Above it, the quick way saves no time."""

# Python's white space includes the white space of pre-tokenizers (the property White_Space), and U+001C to U+001F.
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
    """Return the number of token ids. Added tokens can have ids above the model's vocabulary size."""
    return max(model.vocab_size, len(model.tokenizer))


def build_counting_tokenizer(model: TokenizedModel, max_tokens: int | None = None) -> Tokenizer:
    """Copy the model's fast tokenizer without padding, and truncate only at ``max_tokens``."""
    copy = Tokenizer.from_str(model.tokenizer.backend.to_str())
    if max_tokens is not None:
        copy.enable_truncation(max_tokens)
    return copy


class TokenCounter:
    """A counter that encodes each distinct text once, or each distinct piece if it splits texts at blanks.

    The counter holds texts and encodes them in batches, which bounds its memory.

    Attributes:
        counts: Count of each token id, int64 array of shape (vocabulary,). Complete after ``count_held_texts``.
        uncut_characters: Number of characters in held texts and pieces that are encoded without a cut. A Chinese text
            has no blanks, so all of its characters count.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, *, splits: bool) -> None:
        self.counts = np.zeros(vocabulary, dtype=np.int64)
        self._tokenizer = tokenizer
        self._splits = splits
        # Pieces start with a blank, which is not stored.
        self._pieces: Counter[str] = Counter()
        # Texts and pieces that do not start with a blank or that end in white space.
        self._uncut: Counter[str] = Counter()
        self._characters = self.uncut_characters = 0

    def add(self, text: str) -> None:
        """Add a text to the count. It is held, and encoded later in a batch."""
        self._characters += len(text)
        pieces = [text]
        if self._splits and _SPACE_THEN_BLANK.search(text) is None:
            pieces = text.split(" ")
        elif self._splits:
            pieces = _CUT.split(text)
        head, *middle = pieces
        if head or not middle:
            self._add_uncut(head)
        if middle:
            last = middle.pop()
            if not last or last[-1].isspace():
                self._add_uncut(f" {last}")
            else:
                self._pieces[last] += 1
            self._pieces.update(middle)
        if (
            self._characters >= _MAX_HELD_CHARACTERS
            or self.uncut_characters >= _MAX_HELD_UNCUT_CHARACTERS
            or len(self._pieces) >= _MAX_HELD_PIECES
        ):
            self.count_held_texts()

    def _add_uncut(self, text: str) -> None:
        self._uncut[text] += 1
        self.uncut_characters += len(text)

    def count_held_texts(self) -> None:
        """Encode the held texts and add their tokens to ``counts``."""
        held = itertools.chain(self._join_pieces(), self._uncut.items())
        for batch in iterate_batches_by_size(held, lambda text_and_count: len(text_and_count[0]), _BATCH_CHARACTERS):
            self.counts += _count_tokens(self._tokenizer, batch, len(self.counts))
        self._pieces = Counter()
        self._uncut = Counter()
        self._characters = self.uncut_characters = 0

    def _join_pieces(self) -> Iterator[tuple[str, int]]:
        """Yield texts of joined pieces that occur equally often, with their count.

        A blank precedes each piece. It separates the tokens of the pieces, as it does in the original text.
        """
        by_count: dict[int, list[str]] = defaultdict(list)
        for piece, count in self._pieces.items():
            by_count[count].append(piece)
        for count, pieces in by_count.items():
            for batch in iterate_batches_by_size(pieces, len, _SLICE_CHARACTERS):
                yield "".join(f" {piece}" for piece in batch), count


class CheckedCounter:
    """A counter that counts the first texts in two ways: as whole texts, and by distinct pieces between blanks.

    If the counts are equal, it continues with pieces, which is quicker. If the first texts have few blanks (Chinese),
    it continues with whole texts, because pieces save no time for them.

    Attributes:
        way: "distinct pieces" or "every text", or None before the decision.
    """

    def __init__(self, model: TokenizedModel, max_tokens: int | None = None) -> None:
        vocabulary = compute_table_size(model)
        tokenizer = build_counting_tokenizer(model, max_tokens)
        self._counter = TokenCounter(tokenizer, vocabulary, splits=False)
        self._splitting: TokenCounter | None = None
        self._probed = 0
        self.way: str | None = "every text"
        if max_tokens is None and can_split_at_blanks(json.loads(tokenizer.to_str())):
            self._splitting = TokenCounter(tokenizer, vocabulary, splits=True)
            self.way = None

    @property
    def counts(self) -> Counts:
        """Return the count of each token id in the encoded texts, int64 array of shape (vocabulary,)."""
        return self._counter.counts

    def add(self, text: str) -> None:
        """Add a text to the count. The first texts are counted both ways."""
        self._counter.add(text)
        if self._splitting is not None:
            self._splitting.add(text)
            self._probed += len(text)
            if self._probed >= PROBE_CHARACTERS:
                self._choose_counter(self._splitting)

    def count_held_texts(self) -> None:
        """Encode the held texts and add their tokens to ``counts``."""
        self._counter.count_held_texts()

    def _choose_counter(self, splitting: TokenCounter) -> None:
        has_enough_blanks = splitting.uncut_characters < _MAX_UNCUT_SHARE * self._probed
        self._counter.count_held_texts()
        splitting.count_held_texts()
        self.way = "every text"
        if has_enough_blanks and np.array_equal(self._counter.counts, splitting.counts):
            self._counter = splitting
            self.way = "distinct pieces"
        self._splitting = None


def can_split_at_blanks(description: Mapping[str, Any]) -> bool:
    """Check that a tokenizer yields the same tokens if texts are cut before a blank that follows other characters.

    Args:
        description: The content of tokenizer.json.

    Returns:
        True if all of these conditions hold:

        - The model is BPE without dropout.
        - The normaliser is missing or a Unicode normal form. A blank composes with no character before it.
        - No step of the pre-tokenizer matches across a cut, and some step splits at every cut.
        - No added token spans a cut or strips the white space around it.
    """
    model = description["model"]
    normalizer = description.get("normalizer")
    if model.get("type") != "BPE" or model.get("dropout"):
        return False
    if normalizer is not None and normalizer.get("type") not in _SAFE_NORMALIZERS:
        return False
    for token in description.get("added_tokens") or ():
        if token["lstrip"] or token["rstrip"] or token["single_word"] or _CUT.search(token["content"]):
            return False
    steps = _flatten_pre_tokenizer(description.get("pre_tokenizer"))
    return all(map(_is_safe_step, steps)) and any(map(_is_splitting_step, steps))


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
    """Return the top-level alternatives of a splitting pattern. A literal pattern is its only alternative."""
    pattern = step["pattern"]
    if "Regex" not in pattern:
        return [json.dumps(pattern)]
    parts = [""]
    depth = 0
    for character in pattern["Regex"]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _count_tokens(tokenizer: Tokenizer, texts: Sequence[tuple[str, int]], vocabulary: int) -> Counts:
    """Count each token id in texts that come with their numbers of occurrences.

    Returns:
        An int64 array of shape (vocabulary,).
    """
    encodings = tokenizer.encode_batch_fast([text for text, _ in texts], add_special_tokens=False)
    encoded = [encoding.ids for encoding in encodings]
    lengths = [len(ids) for ids in encoded]
    ids = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int64, count=sum(lengths))
    # Sums of integers in float64 are exact up to 2**53, far above the size of a batch.
    weights = np.repeat(np.array([count for _, count in texts], dtype=np.float64), lengths)
    return np.bincount(ids, weights=weights, minlength=vocabulary).astype(np.int64)
