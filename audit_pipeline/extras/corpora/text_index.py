"""The audited texts as an index of their runs of n words, and what has been found of them while a corpus streams by.

A run that is at more than 100 places of the audited texts is a *template* of the test set (its instructions, the
same sentence in every item): it says nothing about any text, and is not looked for.

Found are the longest passages of every text, and how many documents hold them. By a published rule a passage is kept
if no document holds a longer one around it. By the rule of evidence a passage is kept if it is the largest one that
holds some word of the text. So what is kept depends on the corpus alone, not on the order of its documents or on how
they are divided; and there are at most as many as the texts have words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.word_hashes import Hashes, Offsets, Places, Words, hash_runs

FIRST = 5
"""Of so many documents that hold a passage the places are kept."""


@dataclass(frozen=True, order=True)
class TextPosition:
    """Where a passage is: the shard's number, the row, what the document calls itself, the characters there."""

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
    """A passage of a text: its words [first, end) among all words, the documents that hold it, the first five.

    ``matched``: of each word 1 or 0, whether the documents have it; empty: they have all.
    ``is_sentence``: whether it begins and ends in some document where a sentence or a line does.
    """

    first: int
    end: int
    documents: int
    places: list[TextPosition]
    matched: str = ""
    is_sentence: bool = False

    @property
    def flags(self) -> npt.NDArray[np.bool_]:
        """Whether each of its words is matched (bool [end - first])."""
        return np.array([flag == "1" for flag in self.matched or "1" * (self.end - self.first)])


@dataclass
class Matches:
    """What documents hold: passages, those of questions with the answer near, and how many documents hold each of
    ``runs`` [k] and each of all words of the texts (int64 [v]).
    """

    passages: Iterable[FoundPassage]
    answered: Iterable[FoundPassage]
    runs: Places
    documents: Places
    documents_of_word: Places | None = None


class LongestPassages:
    """Passages that lie within no other."""

    def __init__(self) -> None:
        # In ascending order, by first word and so by last: none lies within another.
        self._firsts: list[int] = []
        self._kept: list[FoundPassage] = []

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self._kept)

    def choose(self) -> list[FoundPassage]:
        """Return the passages in order."""
        return self._kept

    def merge(self, passages: Iterable[FoundPassage]) -> None:
        """Add what other documents hold."""
        for passage in passages:
            kept = self._insert_or_extend(passage.first, passage.end, passage.documents)
            if kept is not None:
                kept.places = sorted([*kept.places, *passage.places])[:FIRST]

    def _insert_or_extend(self, first: int, end: int, documents: int) -> FoundPassage | None:
        """The entry of this passage, with so many documents more; None where it lies within a longer one. A new one
        takes the place of those that lie within it.
        """
        at = bisect_left(self._firsts, first)
        if at < len(self._kept) and self._firsts[at] == first:
            if self._kept[at].end == end:
                self._kept[at].documents += documents
                return self._kept[at]
            if self._kept[at].end > end:
                return None
        elif at and self._kept[at - 1].end >= end:
            return None
        last = at
        while last < len(self._kept) and self._kept[last].end <= end:
            last += 1
        kept = FoundPassage(first, end, documents, [])
        self._kept[at:last], self._firsts[at:last] = [kept], [first]
        return kept


class AlignedPassages:
    """Passages by the rule of evidence: every form in which documents hold a stretch of a text.

    A form is a stretch and which of its words are matched. All forms are kept while the corpus is read, as only in the
    end it is known which of them count. They are as many as the ways in which documents change a text.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._forms: dict[tuple[int, int, str], FoundPassage] = {}

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter([self._forms[form] for form in sorted(self._forms)])

    def merge(self, passages: Iterable[FoundPassage]) -> None:
        """Add what other documents hold. A document has one passage per form."""
        for passage in passages:
            form = passage.first, passage.end, passage.matched
            known = self._forms.get(form)
            if known is None:
                self._forms[form] = replace(passage, places=list(passage.places))
            else:
                known.documents += passage.documents
                known.places = sorted([*known.places, *passage.places])[:FIRST]
                known.is_sentence |= passage.is_sentence

    def choose(self) -> list[FoundPassage]:
        """Return the forms that are the largest ones with some word of a text, in order.

        Of two forms with equally many matched words the first one is larger. ``documents`` of the result counts the
        documents of all forms that hold at least ``share`` of the words of the stretch.
        """
        chosen: list[FoundPassage] = []
        for forms in _group_overlapping(iter(self)):
            base = forms[0].first
            masks = [int(form.matched[::-1], 2) << (form.first - base) for form in forms]
            ranked = sorted(range(len(forms)), key=lambda at: -masks[at].bit_count())
            covered = 0
            largest: list[int] = []
            for at in ranked:
                if masks[at] & ~covered:
                    largest.append(at)
                    covered |= masks[at]
            for at in sorted(largest):
                stretch = ((1 << (forms[at].end - forms[at].first)) - 1) << (forms[at].first - base)
                least = self._share * (forms[at].end - forms[at].first) - 1e-9
                holders = [
                    other for other, mask in zip(forms, masks, strict=True) if (mask & stretch).bit_count() >= least
                ]
                places = sorted(place for holder in holders for place in holder.places)
                documents = sum(holder.documents for holder in holders)
                chosen.append(replace(forms[at], documents=documents, places=places[:FIRST]))
        return chosen


def _group_overlapping(passages: Iterator[FoundPassage]) -> Iterator[list[FoundPassage]]:
    """Yield groups of passages, which are sorted by their first words, that overlap one after the other."""
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
    """What has been found of all texts.

    Attributes:
        documents_of_run: Documents that hold each run of the index, int64 array of shape (n_runs,).
        documents_of_word: Documents that hold each distinct word of the texts, int64 array of shape (n_words,).
        passages: The passages of all texts.
        answered: The passages of questions that have the answer near.
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
        """Add what other documents hold."""
        self.documents_of_run[matches.runs] += matches.documents
        if matches.documents_of_word is not None:
            self.documents_of_word += matches.documents_of_word
        self.passages.merge(matches.passages)
        self.answered.merge(matches.answered)

    def to_record(self) -> Mapping[str, Any]:
        """Return all of it as values that JSON can hold."""
        runs = np.flatnonzero(self.documents_of_run)
        return {
            "passages": [_to_record(kept) for kept in self.passages],
            "answered": [_to_record(kept) for kept in self.answered],
            "runs": runs.tolist(),
            "documents": self.documents_of_run[runs].tolist(),
            "words": self.documents_of_word.tolist(),
        }

    def merge_record(self, record: Mapping[str, Any]) -> None:
        """Add what :meth:`to_record` gave of other shards."""
        self.merge(
            Matches(
                [_passage_from_record(fields) for fields in record["passages"]],
                [_passage_from_record(fields) for fields in record["answered"]],
                np.array(record["runs"], np.int64),
                np.array(record["documents"], np.int64),
                np.array(record["words"], np.int64),
            )
        )


def _to_record(kept: FoundPassage) -> Mapping[str, Any]:
    return {**vars(kept), "places": [list(vars(place).values()) for place in kept.places]}


def _passage_from_record(fields: Mapping[str, Any]) -> FoundPassage:
    return FoundPassage(**{**fields, "places": [TextPosition(*place) for place in fields["places"]]})


MOST_PLACES = 100
_TEMPLATE = -1
_BITS_PER_HASH = 16
_MOST_BITS = 33


@dataclass(frozen=True, eq=False)
class HashTable:
    """Distinct hashes that others are looked up in.

    ``values``: uint64 [r], ascending. ``seen`` (uint8): a bit for every value of the first ``bits`` bits of a hash, so
    that few of a corpus's are searched for. ``buckets`` (int32): for every value of as many first bits as there are
    about hashes, the first hash that begins with it.
    """

    values: Hashes
    bits: int
    seen: npt.NDArray[np.uint8]
    buckets: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.values)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Return which of ``hashes`` (uint64 [k]) the table holds: their positions, and each one's number in it."""
        top = hashes >> np.uint64(64 - self.bits)
        likely = np.flatnonzero(self.seen[top >> np.uint64(3)] >> (top & np.uint64(7)).astype(np.uint8) & 1)
        wanted = hashes[likely]
        # From the first run that begins with the same bits: a binary search would miss the processor's cache ten times.
        number = self.buckets[wanted >> np.uint64(64 - _count_bucket_bits(len(self.buckets)))].astype(np.int64)
        lower = np.flatnonzero((self.values[number] < wanted) & (number < len(self.values) - 1))
        while len(lower):
            number[lower] += 1
            further = number[lower]
            lower = lower[(self.values[further] < wanted[lower]) & (further < len(self.values) - 1)]
        found = self.values[number] == wanted
        return likely[found], number[found]


def build_hash_table(values: Hashes) -> HashTable:
    """Return the table of ``values`` (uint64 [r], ascending, at least one)."""
    bits = min(max(int(len(values) * _BITS_PER_HASH - 1).bit_length(), 3), _MOST_BITS)
    top = values >> np.uint64(64 - bits)
    seen = np.zeros(1 << (bits - 3), np.uint8)
    np.bitwise_or.at(seen, top >> np.uint64(3), np.uint8(1) << (top & np.uint64(7)).astype(np.uint8))
    bits_of_buckets = _count_bucket_bits(len(values))
    begin_of_bucket = np.arange(1 << bits_of_buckets, dtype=np.uint64) << np.uint64(64 - bits_of_buckets)
    buckets = np.minimum(np.searchsorted(values, begin_of_bucket), len(values) - 1).astype(np.int32)
    return HashTable(values, bits, seen, buckets)


@dataclass(frozen=True, eq=False)
class TextIndex:
    """The runs of n words of t texts with w words together.

    ``runs`` (r of them): the distinct runs that are looked for, and texts of fewer words as a whole (``lengths``: how
    many words they have). Those of run i stand at the words ``places[first[i] : first[i + 1]]``. ``run_at`` (int64
    [w]): which run begins at a word; -1: none does, or a template. ``templates`` (bool [w]): where a template begins.
    ``first_word`` (int64 [t + 1]): where each text begins among the words. ``starts``, ``ends`` (int32 [w]): each
    word's characters in its text.
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

    def find_texts(self, words: Places) -> Places:
        """Return the text that each of these words is of."""
        return np.searchsorted(self.first_word, words, side="right") - 1


def build_index(words: Words, first_word: Places, n: int, shortest: int) -> TextIndex:
    """Index the runs of ``n`` words of texts that were split, and whole texts of ``shortest`` to n words.

    Raises DataError where no text has so many.
    """
    own = np.diff(first_word)
    # Of each text that is long enough, the word that each run begins at, and the run's length.
    lengths = np.minimum(own, n)
    counts = np.where(own >= shortest, own - lengths + 1, 0)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(first_word[:-1], counts) + within
    if not len(places):
        raise DataError(f"none of the {len(own):,} texts has {shortest} words: nothing can be looked for")
    length_at = np.repeat(lengths, counts)
    hashes = np.zeros(len(places), np.uint64)
    found_lengths = tuple(np.unique(length_at).tolist())
    for length in found_lengths:
        of_length = length_at == length
        hashes[of_length] = hash_runs(words.hashes, length)[places[of_length]]
    order = np.argsort(hashes)
    hashes, places = hashes[order], places[order]
    begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    counts = np.diff(np.append(begins, len(hashes)))
    wanted = counts <= MOST_PLACES
    of_wanted = np.repeat(wanted, counts)
    templates = np.zeros(first_word[-1], np.bool_)
    templates[places[~of_wanted]] = True
    run_at = np.full(first_word[-1], _TEMPLATE, np.int64)
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
    return max(count, 2).bit_length() - 1
