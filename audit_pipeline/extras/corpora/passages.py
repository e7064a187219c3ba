"""What has been found so far: the longest passages of every text, and in how many documents they stand.

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
class Kept:
    """A passage of a text: its words [first, end) among all words, the documents that hold it, the first five."""

    first: int
    end: int
    documents: int
    places: list[Place]


class PassageSet:
    """The longest passages of all texts, and of every run of the index how many documents hold it (int64 [r])."""

    def __init__(self, runs: int) -> None:
        self.documents_of_run: npt.NDArray[np.int64] = np.zeros(runs, np.int64)
        # In ascending order, by first word and so by last: none lies within another.
        self._firsts: list[int] = []
        self._kept: list[Kept] = []

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept)

    def merge(self, passages: Iterable[Kept], runs: Places, documents: Places) -> None:
        """Add what other documents hold; ``documents`` hold the ``runs``."""
        self.documents_of_run[runs] += documents
        for passage in passages:
            kept = self._find(passage.first, passage.end, passage.documents)
            if kept is not None:
                kept.places = sorted([*kept.places, *passage.places])[:FIRST]

    def _find(self, first: int, end: int, documents: int) -> Kept | None:
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
        kept = Kept(first, end, documents, [])
        self._kept[at:last], self._firsts[at:last] = [kept], [first]
        return kept

    def to_record(self) -> Mapping[str, Any]:
        """Return all of it as values that JSON can hold."""
        runs = np.flatnonzero(self.documents_of_run)
        passages = [
            [kept.first, kept.end, kept.documents, [list(vars(place).values()) for place in kept.places]]
            for kept in self
        ]
        return {"passages": passages, "runs": runs.tolist(), "documents": self.documents_of_run[runs].tolist()}

    def merge_record(self, record: Mapping[str, Any]) -> None:
        """Add what :meth:`to_record` gave of other shards."""
        passages = (
            Kept(first, end, documents, [Place(*place) for place in places])
            for first, end, documents, places in record["passages"]
        )
        self.merge(passages, np.array(record["runs"], np.int64), np.array(record["documents"], np.int64))
