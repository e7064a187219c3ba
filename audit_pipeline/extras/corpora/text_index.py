"""The index of the audited texts by their runs of n words, and the passages found in a corpus.

A run at more than 100 positions of the audited texts is a *template* of the test set. An instruction that every item
repeats is an example. A template is no evidence about a text, so the search ignores it.

The result is the longest passages of each text and the number of documents that contain them. A published rule keeps a
passage if no document contains a longer passage around it. The rule of evidence keeps a passage if it is the largest
one that contains a certain word of the text. The result therefore depends on the corpus, but not on the order of its
documents or on its shards. It has at most as many passages as the texts have words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.word_hashes import Hashes, Offsets, Places, Words, hash_runs

MAX_POSITIONS = 5
"""Maximum number of positions that are stored per passage, one per document."""


@dataclass(frozen=True, order=True)
class TextPosition:
    """The position of a passage in a corpus.

    Attributes:
        shard: Number of the shard.
        row: Row of the document in the shard.
        document: Name of the document.
        start: First character of the passage in the document.
        end: Character of the document after the passage.
        before: Words before the passage.
        after: Words after the passage.
    """

    shard: int
    row: int
    document: str
    url: str | None
    start: int
    end: int
    before: str
    after: str


@dataclass
class FoundPassage:
    """A passage of an audited text in a corpus. Checkpoints contain its fields.

    Attributes:
        first: Index of the passage's first word among the words of all texts.
        end: Index after the passage's last word among the words of all texts.
        documents: Number of documents that contain the passage.
        places: Positions in the first ``MAX_POSITIONS`` documents.
        matched: A character per word: 1 if the documents contain the word, else 0. Empty if they contain all words.
        is_sentence: The passage is a whole sentence or line in some document.
    """

    first: int
    end: int
    documents: int
    places: list[TextPosition]
    matched: str = ""
    is_sentence: bool = False

    @property
    def flags(self) -> npt.NDArray[np.bool_]:
        """Return whether each word is matched, bool array of shape (end - first,)."""
        if not self.matched:
            return np.ones(self.end - self.first, np.bool_)
        return np.array([flag == "1" for flag in self.matched])


@dataclass
class Matches:
    """The matches of some documents with the texts.

    Attributes:
        passages: Passages of the texts.
        answered: Passages of those questions whose answer is near in the document.
        runs: Numbers of the runs that the documents contain, int64 array of shape (n_found_runs,).
        documents: Number of documents that contain each of these runs, int64 array of shape (n_found_runs,).
        documents_of_word: Number of documents that contain each distinct word of the texts, int64 array of shape
            (n_distinct_words,), or None if words are not counted.
    """

    passages: Iterable[FoundPassage]
    answered: Iterable[FoundPassage]
    runs: Places
    documents: Places
    documents_of_word: Places | None = None


class LongestPassages:
    """Passages that are not part of a longer passage."""

    def __init__(self) -> None:
        # No passage is part of another, so both the first words and the ends are in ascending order.
        self._starts: list[int] = []
        self._passages: list[FoundPassage] = []

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self._passages)

    def choose(self) -> list[FoundPassage]:
        """Return the passages in the order of their first words."""
        return self._passages

    def merge(self, passages: Iterable[FoundPassage]) -> None:
        """Add the passages of other documents."""
        for passage in passages:
            entry = self._insert_or_extend(passage.first, passage.end, passage.documents)
            if entry is not None:
                entry.places = sorted([*entry.places, *passage.places])[:MAX_POSITIONS]

    def _insert_or_extend(self, start: int, end: int, documents: int) -> FoundPassage | None:
        """Add documents to a stored passage, or store a new passage and remove those that are part of it.

        Returns:
            The stored passage, or None if it is part of a longer one and is thus not stored.
        """
        at = bisect_left(self._starts, start)
        if at < len(self._passages) and self._starts[at] == start:
            if self._passages[at].end == end:
                self._passages[at].documents += documents
                return self._passages[at]
            if self._passages[at].end > end:
                return None
        elif at and self._passages[at - 1].end >= end:
            return None
        after = at
        while after < len(self._passages) and self._passages[after].end <= end:
            after += 1
        entry = FoundPassage(start, end, documents, [])
        self._passages[at:after] = [entry]
        self._starts[at:after] = [start]
        return entry


class AlignedPassages:
    """Passages by the rule of evidence: all forms in which documents contain a stretch of a text.

    A form is a stretch with its matched words. All forms stay in memory until the whole corpus is read, because only
    then the largest forms are known. Their number is the number of ways in which documents change a text.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._forms: dict[tuple[int, int, str], FoundPassage] = {}

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter([self._forms[form] for form in sorted(self._forms)])

    def merge(self, passages: Iterable[FoundPassage]) -> None:
        """Add the passages of other documents. A document has one passage per form."""
        for passage in passages:
            form = (passage.first, passage.end, passage.matched)
            entry = self._forms.get(form)
            if entry is None:
                self._forms[form] = replace(passage, places=list(passage.places))
            else:
                entry.documents += passage.documents
                entry.places = sorted([*entry.places, *passage.places])[:MAX_POSITIONS]
                entry.is_sentence |= passage.is_sentence

    def choose(self) -> list[FoundPassage]:
        """Return each form that is the largest one with a certain word of a text, in the order of first words.

        The size of a form is its number of matched words. Of two forms with the same size, the first counts as larger.
        The number of documents of a chosen form includes the documents of other forms. It includes all forms that match
        at least ``share`` of the words in the chosen form's stretch.
        """
        chosen: list[FoundPassage] = []
        for forms in _group_overlapping(iter(self)):
            base = forms[0].first
            # Bit i of a mask is set if the form contains word base + i.
            masks = [int(form.matched[::-1], 2) << (form.first - base) for form in forms]
            for at in _select_largest(masks):
                n_words = forms[at].end - forms[at].first
                stretch = ((1 << n_words) - 1) << (forms[at].first - base)
                min_words = self._share * n_words - 1e-9
                documents = 0
                positions: list[TextPosition] = []
                for form, mask in zip(forms, masks, strict=True):
                    if (mask & stretch).bit_count() >= min_words:
                        documents += form.documents
                        positions += form.places
                chosen.append(replace(forms[at], documents=documents, places=sorted(positions)[:MAX_POSITIONS]))
        return chosen


def _select_largest(masks: Sequence[int]) -> list[int]:
    """Return the indices of the masks that are the largest one with a certain bit, in ascending order."""
    ranked = sorted(range(len(masks)), key=lambda at: -masks[at].bit_count())
    covered = 0
    largest: list[int] = []
    for at in ranked:
        if masks[at] & ~covered:
            largest.append(at)
            covered |= masks[at]
    return sorted(largest)


def _group_overlapping(passages: Iterator[FoundPassage]) -> Iterator[list[FoundPassage]]:
    """Group passages that overlap in a chain. The passages are sorted by their first words."""
    group: list[FoundPassage] = []
    end = 0
    for passage in passages:
        if group and passage.first >= end:
            yield group
            group = []
        group.append(passage)
        end = max(end, passage.end)
    if group:
        yield group


class PassageSet:
    """The passages of all texts that a corpus contains.

    Attributes:
        documents_of_run: Number of documents that contain each run of the index, int64 array of shape (n_runs,).
        documents_of_word: Number of documents that contain each distinct word of the texts, int64 array of shape
            (n_distinct_words,).
        passages: The passages of all texts.
        answered: The passages of those questions whose answer is near in the document.
    """

    def __init__(self, runs: int, words: int = 0, share: float | None = None) -> None:
        self.documents_of_run: npt.NDArray[np.int64] = np.zeros(runs, np.int64)
        self.documents_of_word: npt.NDArray[np.int64] = np.zeros(words, np.int64)
        self.passages: LongestPassages | AlignedPassages = LongestPassages()
        self.answered: LongestPassages | AlignedPassages = LongestPassages()
        if share is not None:
            self.passages = AlignedPassages(share)
            self.answered = AlignedPassages(share)

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self.passages.choose())

    def merge(self, matches: Matches) -> None:
        """Add the matches of other documents."""
        self.documents_of_run[matches.runs] += matches.documents
        if matches.documents_of_word is not None:
            self.documents_of_word += matches.documents_of_word
        self.passages.merge(matches.passages)
        self.answered.merge(matches.answered)

    def to_record(self) -> Mapping[str, Any]:
        """Return the content as JSON values."""
        runs = np.flatnonzero(self.documents_of_run)
        return {
            "passages": list(map(_to_record, self.passages)),
            "answered": list(map(_to_record, self.answered)),
            "runs": runs.tolist(),
            "documents": self.documents_of_run[runs].tolist(),
            "words": self.documents_of_word.tolist(),
        }

    def merge_record(self, record: Mapping[str, Any]) -> None:
        """Add the content of another set, as :meth:`to_record` returns it."""
        self.merge(
            Matches(
                list(map(_passage_from_record, record["passages"])),
                list(map(_passage_from_record, record["answered"])),
                np.array(record["runs"], np.int64),
                np.array(record["documents"], np.int64),
                np.array(record["words"], np.int64),
            )
        )


def _to_record(passage: FoundPassage) -> Mapping[str, Any]:
    return {**vars(passage), "places": [list(vars(place).values()) for place in passage.places]}


def _passage_from_record(fields: Mapping[str, Any]) -> FoundPassage:
    return FoundPassage(**{**fields, "places": [TextPosition(*place) for place in fields["places"]]})


MAX_PLACES = 100
"""Maximum number of positions of a run in the texts. A run with more positions is a template."""
_NO_RUN = -1
_BITS_PER_HASH = 16
_MAX_BITS = 33
_MAX_SPARSE_BITS = 22
"""Maximum number of a bucket's bits in a table with more buckets than hashes."""


@dataclass(frozen=True, eq=False)
class HashTable:
    """A lookup table of distinct hashes.

    The table is hand-written because it looks up all hashes of a block at once. ``np.isin`` would sort them first.

    Attributes:
        values: The hashes in ascending order, uint64 array of shape (n_hashes,).
        bits: Number of a hash's leading bits that the filter ``seen`` tests.
        seen: A filter that excludes most hashes of a corpus, uint8 array. It has one bit per value of the leading bits.
            The bit is set if a hash of the table has this value.
        buckets: Index of the first hash per value of fewer leading bits, int32 array (see ``_count_bucket_bits``).
    """

    values: Hashes
    bits: int
    seen: npt.NDArray[np.uint8]
    buckets: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.values)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Look up hashes in the table.

        Returns:
            The indices of those ``hashes`` that the table contains, and the index of each in ``values``.
        """
        # Shifted hashes are below 2**63, so they are indices without a conversion.
        top = (hashes >> np.uint64(64 - self.bits)).view(np.int64)
        likely = np.flatnonzero(self.seen.take(top >> 3) >> (top & 7).astype(np.uint8) & 1)
        found, numbers = self.find_frequent(hashes[likely])
        return likely[found], numbers

    def find_frequent(self, hashes: Hashes) -> tuple[Places, Places]:
        """Look up hashes that the table probably contains. The result is that of ``find``, without its filter."""
        # The linear search starts at the bucket. A binary search would miss the processor's cache ten times per hash.
        n_bits = len(self.buckets).bit_length() - 1
        number = self.buckets.take((hashes >> np.uint64(64 - n_bits)).view(np.int64)).astype(np.int64)
        values = self.values.take(number)
        lower = np.flatnonzero((values < hashes) & (number < len(self.values) - 1))
        while len(lower):
            further = number[lower] + 1
            number[lower] = further
            values[lower] = self.values[further]
            lower = lower[(values[lower] < hashes[lower]) & (further < len(self.values) - 1)]
        found = np.flatnonzero(values == hashes)
        return found, number[found]


def build_hash_table(values: Hashes) -> HashTable:
    """Build the table of one or more ascending hashes, uint64 array of shape (n_hashes,)."""
    bits = min(max(int(len(values) * _BITS_PER_HASH - 1).bit_length(), 3), _MAX_BITS)
    top = values >> np.uint64(64 - bits)
    seen = np.zeros(1 << (bits - 3), np.uint8)
    np.bitwise_or.at(seen, top >> np.uint64(3), np.uint8(1) << (top & np.uint64(7)).astype(np.uint8))
    bits_of_buckets = _count_bucket_bits(len(values))
    begin_of_bucket = np.arange(1 << bits_of_buckets, dtype=np.uint64) << np.uint64(64 - bits_of_buckets)
    buckets = np.minimum(np.searchsorted(values, begin_of_bucket), len(values) - 1).astype(np.int32)
    return HashTable(values, bits, seen, buckets)


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The runs of n words of the audited texts. A shorter text is one run as a whole.

    Attributes:
        n: Words per run.
        lengths: The lengths of the runs in words: n, and the lengths of shorter texts.
        runs: The distinct runs that are searched for.
        first: Index in ``places`` of each run's first position, int64 array of shape (n_runs + 1,). Run i is at the
            words ``places[first[i] : first[i + 1]]``.
        places: First words of all runs, grouped by run, int64 array.
        run_at: Index of the run that begins at each word, int64 array of shape (n_words,). It is -1 if no run or a
            template begins there.
        templates: Whether a template begins at each word, bool array of shape (n_words,).
        first_word: Index of each text's first word, int64 array of shape (n_texts + 1,).
        starts: First character of each word in its text, int32 array of shape (n_words,).
        ends: Character after each word in its text, int32 array of shape (n_words,).
    """

    n: int
    lengths: tuple[int, ...]
    runs: HashTable
    first: Places
    places: Places
    run_at: Places
    templates: npt.NDArray[np.bool_]
    first_word: Places
    starts: Offsets
    ends: Offsets

    @cached_property
    def texts_of_places(self) -> npt.NDArray[np.int32]:
        """Return the index of each position's text, int32 array with the shape of ``places``."""
        return self.find_texts(self.places).astype(np.int32)

    def find_texts(self, words: Places) -> Places:
        """Return the index of each word's text."""
        return np.searchsorted(self.first_word, words, side="right") - 1


def build_index(words: Words, first_word: Places, n: int, shortest: int) -> TextIndex:
    """Index the runs of ``n`` words, and whole texts of ``shortest`` to n words.

    Args:
        words: The words of all texts.
        first_word: Index of each text's first word, int64 array of shape (n_texts + 1,).
        n: Words per run.
        shortest: Minimum number of words in a text. Shorter texts are not indexed.

    Raises:
        DataError: If every text has fewer than ``shortest`` words.
    """
    n_words = np.diff(first_word)
    # Compute the first word and the length of each run. Texts that are too short have no run.
    lengths = np.minimum(n_words, n)
    counts = np.where(n_words >= shortest, n_words - lengths + 1, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(first_word[:-1], counts) + within
    if not len(places):
        raise DataError(f"none of the {len(n_words):,} texts has at least {shortest} words: use longer texts")
    length_at = np.repeat(lengths, counts)
    hashes = np.zeros(len(places), np.uint64)
    found_lengths = tuple(np.unique(length_at).tolist())
    for length in found_lengths:
        of_length = length_at == length
        hashes[of_length] = hash_runs(words.hashes, length)[places[of_length]]
    order = np.argsort(hashes)
    hashes = hashes[order]
    places = places[order]
    begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    counts = np.diff(np.append(begins, len(hashes)))
    wanted = counts <= MAX_PLACES
    of_wanted = np.repeat(wanted, counts)
    templates = np.zeros(first_word[-1], np.bool_)
    templates[places[~of_wanted]] = True
    run_at = np.full(first_word[-1], _NO_RUN, np.int64)
    run_at[places[of_wanted]] = np.repeat(np.arange(np.count_nonzero(wanted)), counts[wanted])
    return TextIndex(
        n,
        found_lengths,
        build_hash_table(hashes[begins[wanted]]),
        np.concatenate([[0], np.cumsum(counts[wanted])]),
        places[of_wanted],
        run_at,
        templates,
        first_word,
        words.starts,
        words.ends,
    )


def _count_bucket_bits(count: int) -> int:
    """Return the number of leading bits that choose a hash's bucket in a table of ``count`` hashes.

    A small table has four to eight buckets per hash, so most searches end at once. A large table has at least one per
    two hashes, because more buckets would not fit into the processor's cache.
    """
    bits = max(count, 2).bit_length() - 1
    return max(bits, min(bits + 3, _MAX_SPARSE_BITS))
