"""From the documents of a corpus to the passages of the audited texts in them.

Documents are taken in blocks, several short ones together, a long one in pieces. All work on a block is done on arrays:
words, runs, the few runs that the index holds. A run of the document at word p that is the run of the texts at word q
lies on the diagonal p - q; runs that follow each other on one diagonal are one passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.index import TextIndex
from audit_pipeline.extras.corpora.passages import FIRST, Kept, Place
from audit_pipeline.extras.corpora.words import (
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


Matches = tuple[list[Kept], Places, Places]
"""What the documents of a block hold: passages, the runs that any of them holds, and how many documents hold each."""


class Matcher:
    """Takes the documents of a shard and finds what they have in common with the texts, block by block."""

    def __init__(self, index: TextIndex, shard: int) -> None:
        self._index, self._shard = index, shard
        self._held: list[tuple[CorpusDocument, str]] = []
        self._characters = 0

    def add(self, document: CorpusDocument) -> Iterator[Matches]:
        """Yield what is known once this document has been taken; for a short one, nothing until a block is full."""
        normal = normalise(document.text)
        if len(normal) > BLOCK:
            yield from self.flush()
            yield self._match([(document, normal)], *self._hash_in_pieces(normal))
            return
        self._held.append((document, normal))
        self._characters += len(normal) + 1
        if self._characters >= BLOCK:
            yield from self.flush()

    def flush(self) -> Iterator[Matches]:
        """Yield what is known of the documents that are held."""
        if self._held:
            held, self._held, self._characters = self._held, [], 0
            words, first_word = hash_texts([normal for _, normal in held])
            found, runs = self._index.find(hash_runs(words.hashes, self._index.n))
            document = np.searchsorted(first_word, found, side="right") - 1
            within = found + self._index.n <= first_word[document + 1]
            found, runs, document = found[within], runs[within], document[within]
            ends = words.ends[found + self._index.n - 1]
            yield self._match(held, found, runs, document, words.starts[found], ends)

    def _hash_in_pieces(self, normal: str) -> tuple[Places, Places, Places, Offsets, Offsets]:
        """Return of a long document: where runs of the texts begin, by word, which they are, and their characters."""
        n, place, first = self._index.n, 0, 0
        parts: list[tuple[Places, Places, Offsets, Offsets]] = []
        words, _ = split_texts([])
        while place < len(normal):
            end = min(place + BLOCK, len(normal))
            if end < len(normal):
                end = find_word_end(normal, place, end)
            piece = hash_words(normal[place:end])
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
        return list(_group(found_at, held, self._shard)), of_runs, documents

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


def _join_stretches(stretches: Places, found: Places) -> Places:
    """Return the same rows, with those joined that were found apart and follow each other on one diagonal."""
    diagonal = found[stretches[:, 2]] - stretches[:, 0]
    order = np.lexsort((stretches[:, 0], diagonal))
    rows, diagonal = stretches[order], diagonal[order]
    goes_on = (diagonal[1:] == diagonal[:-1]) & (rows[1:, 0] == rows[:-1, 1] + 1)
    begins = np.flatnonzero(np.append(True, ~goes_on))
    lasts = np.flatnonzero(np.append(~goes_on, True))
    return np.stack([rows[begins, 0], rows[lasts, 1], rows[begins, 2], rows[lasts, 3]], axis=1)


def _group(found: Places, held: list[tuple[CorpusDocument, str]], shard: int) -> Iterator[Kept]:
    """Passages from rows of (word, length, document, start, end), each with its documents; one that a document holds
    twice counts once, at its first place."""
    rows = found[np.lexsort(found.T[::-1])]
    rows = rows[_differs(rows[:, :3])]
    begins = np.flatnonzero(_differs(rows[:, :2]))
    originals: dict[int, tuple[Places, Places]] = {}
    ends = np.append(begins[1:], len(rows))[: len(begins)]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        places = []
        for _, _, number, start, stop in rows[begin : min(end, begin + FIRST)].tolist():
            document, normal = held[number]
            span = start, stop
            if normal is not document.text:
                if number not in originals:
                    originals[number] = map_to_original(document.text)
                starts, stops = originals[number]
                span = int(starts[start]), int(stops[stop - 1])
            names = document.row, document.document, document.url
            places.append(Place(shard, *names, *span, *context_of(document.text, *span)))
        word, length = rows[begin, :2].tolist()
        yield Kept(word, word + length, end - begin, places)


def _differs(rows: Places) -> npt.NDArray[np.bool_]:
    """Return whether each row is another one than the row before."""
    return np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]


def context_of(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the last words before a passage and the first ones after it, white space as one blank."""
    before = " ".join(text[max(0, start - _CONTEXT) : start].split()[-_CONTEXT_WORDS:])
    after = " ".join(text[end : end + _CONTEXT].split()[:_CONTEXT_WORDS])
    return before, after
