"""From the documents of a corpus to the passages of the audited texts that stand in them.

What belongs here: runs of n words that a document and a text have in common, joined to passages. What does not: the
index (index.py), keeping what was found (passages.py), where documents come from (shards.py).

Documents are taken in blocks, several short ones together, a long one in pieces. All work on a block is done on arrays:
words, runs, the few runs that the index holds. A run of the document at word p that is the run of the texts at word q
lies on the diagonal p - q; runs that follow each other on one diagonal are one passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.overlap.index import TextIndex
from audit_pipeline.overlap.words import (
    BLOCK,
    Offsets,
    Places,
    Words,
    find_word_end,
    hash_runs,
    hash_texts,
    hash_words,
    map_to_original,
    normalise,
    split_texts,
)

_CONTEXT = 120
"""Characters before and after a passage that are looked at for its context."""
_CONTEXT_WORDS = 12
_MOST_PAIRS = 1 << 22
"""Pairs of a place in a document and a place in the texts that are in memory at once."""


@dataclass(frozen=True)
class CorpusDocument:
    """A document: which row of its shard it is, what it calls itself, and its text."""

    row: int
    document: str
    url: str | None
    text: str


@dataclass(frozen=True)
class Passage:
    """A passage of the audited texts in ``documents`` documents: its first word among all words, and its length.

    ``where``: the first five of these documents, each with the characters that it takes there.
    """

    word: int
    length: int
    documents: int
    where: tuple[tuple[CorpusDocument, int, int], ...]


@dataclass(frozen=True)
class Holder:
    """A document that holds passages: its row and names, the words of the longest, of how many texts it holds some."""

    row: int
    document: str
    url: str | None
    longest: int
    texts: int


@dataclass(frozen=True)
class Matches:
    """What the documents of a block hold: passages, and how many documents hold each run (of those that any holds).

    ``holders``: these documents; None where they are not asked for.
    """

    passages: list[Passage]
    runs: Places
    documents: Places
    holders: list[Holder] | None


FIRST = 5


class Matcher:
    """Takes documents in their order and gives what they have in common with the texts, block by block.

    With ``lists_holders`` it also names every document that holds something.
    """

    def __init__(self, index: TextIndex, *, lists_holders: bool = False) -> None:
        self._index, self._lists_holders = index, lists_holders
        self._held: list[tuple[CorpusDocument, str]] = []
        self._characters = 0

    def add(self, document: CorpusDocument) -> Iterator[Matches]:
        """What is known once this document has been taken; for a short one, nothing until a block is full."""
        normal = document.text if self._index.exact else normalise(document.text)
        if len(normal) > BLOCK:
            yield from self.flush()
            yield self._match([(document, normal)], *self._hash_in_pieces(normal))
            return
        self._held.append((document, normal))
        self._characters += len(normal) + 1
        if self._characters >= BLOCK:
            yield from self.flush()

    def flush(self) -> Iterator[Matches]:
        """What is known of the documents that are held."""
        if self._held:
            held, self._held, self._characters = self._held, [], 0
            words, first_word = hash_texts([normal for _, normal in held], exact=self._index.exact)
            found, runs = self._index.find(hash_runs(words.hashes, self._index.n))
            document = np.searchsorted(first_word, found, side="right") - 1
            within = found + self._index.n <= first_word[document + 1]
            found, runs, document = found[within], runs[within], document[within]
            ends = words.ends[found + self._index.n - 1]
            yield self._match(held, found, runs, document, words.starts[found], ends)

    def _hash_in_pieces(self, normal: str) -> tuple[Places, Places, Places, Offsets, Offsets]:
        """Of a long document: where runs of the texts begin, by word, which they are, and their characters."""
        n, place, first = self._index.n, 0, 0
        parts: list[tuple[Places, Places, Offsets, Offsets]] = []
        words, _ = split_texts([])
        while place < len(normal):
            end = min(place + BLOCK, len(normal))
            if end < len(normal):
                end = find_word_end(normal, place, end, exact=self._index.exact)
            piece = hash_words(normal[place:end], exact=self._index.exact)
            # The last words of the piece before: a run may begin in one piece and end in the next.
            words = Words(
                np.concatenate([words.hashes, piece.hashes]),
                np.concatenate([words.starts, piece.starts + place]),
                np.concatenate([words.ends, piece.ends + place]),
            )
            found, runs = self._index.find(hash_runs(words.hashes, n))
            parts.append((found + first, runs, words.starts[found], words.ends[found + n - 1]))
            gone = max(len(words) - n + 1, 0)
            words = Words(words.hashes[gone:], words.starts[gone:], words.ends[gone:])
            first, place = first + gone, end
        found, runs, starts, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
        return found, runs, np.zeros(len(found), np.int64), starts, ends

    def _match(
        self,
        held: list[tuple[CorpusDocument, str]],
        found: Places,
        runs: Places,
        document: Places,
        starts: Offsets,
        ends: Offsets,
    ) -> Matches:
        """``found`` [k]: words of the block at which runs begin that the index holds; ``runs`` [k] which they are,
        ``document`` [k] whose, ``starts`` and ``ends`` [k] the characters of the document that they take."""
        index = self._index
        pairs = np.unique(runs * len(held) + document)
        of_runs, documents = np.unique(pairs // len(held), return_counts=True)
        # Every place of the texts at which the run stands, so many at a time as there is room for.
        copies = index.first[runs + 1] - index.first[runs]
        sums = np.cumsum(copies)
        cuts = np.searchsorted(sums, np.arange(_MOST_PAIRS, int(sums[-1]) if len(sums) else 0, _MOST_PAIRS))
        parts = [
            self._find_stretches(found[part], runs[part], copies[part], part[0])
            for part in np.split(np.arange(len(runs)), cuts)
            if len(part)
        ]
        stretches = np.concatenate([*parts, np.empty((0, 4), np.int64)])
        if len(parts) > 1:
            stretches = _join_stretches(stretches, found)
        words, lasts, first_hits, last_hits = stretches.T
        found_at = np.stack(
            [words, lasts - words + index.n, document[first_hits], starts[first_hits], ends[last_hits]], axis=1
        )
        holders = self._list_holders(found_at, held) if self._lists_holders else None
        return Matches(list(_group(found_at, held)), of_runs, documents, holders)

    def _find_stretches(self, found: Places, runs: Places, copies: Places, first_hit: int) -> Places:
        """Runs that follow each other on one diagonal, as rows of (first word, last word at which a run begins, first
        hit, last hit)."""
        hit = np.repeat(np.arange(len(runs)), copies)
        within = np.arange(len(hit)) - np.repeat(np.cumsum(copies) - copies, copies)
        word = self._index.places[self._index.first[runs][hit] + within]
        order = np.lexsort((word, found[hit] - word))
        hit, word = hit[order], word[order]
        diagonal = found[hit] - word
        goes_on = (diagonal[1:] == diagonal[:-1]) & (word[1:] == word[:-1] + 1)
        begins = np.flatnonzero(np.append(True, ~goes_on)[: len(word)])
        lasts = np.flatnonzero(np.append(~goes_on, True)[: len(word)])
        return np.stack([word[begins], word[lasts], hit[begins] + first_hit, hit[lasts] + first_hit], axis=1)

    def _list_holders(self, found: Places, held: list[tuple[CorpusDocument, str]]) -> list[Holder]:
        """The documents in rows of (word, length, document, start, end)."""
        longest = np.zeros(len(held), np.int64)
        np.maximum.at(longest, found[:, 2], found[:, 1])
        pairs = np.unique(found[:, 2] * len(self._index.first_word) + self._index.text_of(found[:, 0]))
        texts = np.bincount(pairs // len(self._index.first_word), minlength=len(held))
        return [
            Holder(document.row, document.document, document.url, int(longest[at]), int(texts[at]))
            for at in np.flatnonzero(longest).tolist()
            for document in [held[at][0]]
        ]


def _join_stretches(stretches: Places, found: Places) -> Places:
    """The same rows, with those joined that were found apart and follow each other on one diagonal."""
    diagonal = found[stretches[:, 2]] - stretches[:, 0]
    order = np.lexsort((stretches[:, 0], diagonal))
    rows, diagonal = stretches[order], diagonal[order]
    goes_on = (diagonal[1:] == diagonal[:-1]) & (rows[1:, 0] == rows[:-1, 1] + 1)
    begins = np.flatnonzero(np.append(True, ~goes_on))
    lasts = np.flatnonzero(np.append(~goes_on, True))
    return np.stack([rows[begins, 0], rows[lasts, 1], rows[begins, 2], rows[lasts, 3]], axis=1)


def _group(found: Places, held: list[tuple[CorpusDocument, str]]) -> Iterator[Passage]:
    """Passages from rows of (word, length, document, start, end), each with its documents; one that a document holds
    twice counts once, at its first place."""
    rows = found[np.lexsort(found.T[::-1])]
    rows = rows[_differs(rows[:, :3])]
    begins = np.flatnonzero(_differs(rows[:, :2]))
    origins: dict[int, tuple[Places, Places]] = {}
    ends = np.append(begins[1:], len(rows))[: len(begins)]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        where = []
        for _, _, number, start, stop in rows[begin : min(end, begin + FIRST)].tolist():
            document, normal = held[number]
            if normal is not document.text:
                if number not in origins:
                    origins[number] = map_to_original(document.text)
                starts, stops = origins[number]
                where.append((document, int(starts[start]), int(stops[stop - 1])))
            else:
                where.append((document, start, stop))
        yield Passage(int(rows[begin, 0]), int(rows[begin, 1]), end - begin, tuple(where))


def _differs(rows: Places) -> npt.NDArray[np.bool_]:
    """Whether each row is another one than the row before."""
    return np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]


def context_of(text: str, start: int, end: int) -> tuple[str, str]:
    """The last words before a passage and the first ones after it, white space as one blank."""
    before = " ".join(text[max(0, start - _CONTEXT) : start].split()[-_CONTEXT_WORDS:])
    after = " ".join(text[end : end + _CONTEXT].split()[:_CONTEXT_WORDS])
    return before, after
