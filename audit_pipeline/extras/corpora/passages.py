"""What has been found so far: the longest passages of every text, and how many documents hold them.

A passage is kept where no document holds a longer one around it. So what is kept depends on the corpus alone, not on
the order of its documents or on how they are divided; and there are at most as many as the texts have words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.words import Places

FIRST = 5
"""Of so many documents that hold a passage the places are kept."""


@dataclass(frozen=True, order=True)
class Place:
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
class Passage:
    """A passage of a text: its words [first, end) among all words, the documents that hold it, the first five.

    ``matched``: of each word 1 or 0, whether the document that holds most of them has it; empty: it has all.
    ``is_sentence``: whether it begins and ends in some document where a sentence or a line does.
    """

    first: int
    end: int
    documents: int
    places: list[Place]
    matched: str = ""
    is_sentence: bool = False

    @property
    def flags(self) -> npt.NDArray[np.bool_]:
        """Whether each of its words is matched (bool [end - first])."""
        return np.array([flag == "1" for flag in self.matched or "1" * (self.end - self.first)])


@dataclass
class Matches:
    """What documents hold: passages, those of questions with the answer near, and how many documents hold each of
    ``runs`` [k] and each of all words of the texts (int64 [v])."""

    passages: Iterable[Passage]
    answered: Iterable[Passage]
    runs: Places
    documents: Places
    documents_of_word: Places | None = None


class LongestPassages:
    """Passages that lie within no other."""

    def __init__(self) -> None:
        # In ascending order, by first word and so by last: none lies within another.
        self._firsts: list[int] = []
        self._kept: list[Passage] = []

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._kept)

    def merge(self, passages: Iterable[Passage]) -> None:
        """Add what other documents hold."""
        for passage in passages:
            kept = self._find(passage.first, passage.end, passage.documents)
            if kept is not None:
                kept.places = sorted([*kept.places, *passage.places])[:FIRST]
                kept.is_sentence |= passage.is_sentence
                kept.matched = max(kept.matched, passage.matched, key=lambda matched: (matched.count("1"), matched))

    def _find(self, first: int, end: int, documents: int) -> Passage | None:
        """The entry of this passage, with so many documents more; None where it lies within a longer one. A new one
        takes the place of those that lie within it."""
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
        kept = Passage(first, end, documents, [])
        self._kept[at:last], self._firsts[at:last] = [kept], [first]
        return kept


class PassageSet:
    """The longest passages of all texts (``answered``: those of questions near whose copy the answer is), and how many
    documents hold each run of the index (int64 [r]) and each word of the texts (int64 [v])."""

    def __init__(self, runs: int, words: int = 0) -> None:
        self.documents_of_run: npt.NDArray[np.int64] = np.zeros(runs, np.int64)
        self.documents_of_word: npt.NDArray[np.int64] = np.zeros(words, np.int64)
        self.passages, self.answered = LongestPassages(), LongestPassages()

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

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


def _to_record(kept: Passage) -> Mapping[str, Any]:
    return {**vars(kept), "places": [list(vars(place).values()) for place in kept.places]}


def _passage_from_record(fields: Mapping[str, Any]) -> Passage:
    return Passage(**{**fields, "places": [Place(*place) for place in fields["places"]]})
