"""From the documents of a corpus to the passages of the audited texts in them.

Documents are taken in blocks, several short ones together, a long one in pieces. All work on a block is done on arrays:
words, runs, the few runs that the index holds. A run of the document at word p that is the run of the texts at word q
lies on the diagonal p - q; runs that follow each other on one diagonal are one passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.alignment import Alignment, Seeds, align_copies
from audit_pipeline.extras.corpora.evidence_rule import NEAR, EvidenceIndex
from audit_pipeline.extras.corpora.text_index import FIRST, FoundPassage, Matches, TextIndex, TextPosition
from audit_pipeline.extras.corpora.word_hashes import (
    BLOCK,
    Hashes,
    Places,
    Words,
    find_word_end,
    hash_runs,
    hash_words,
    hash_words_of_normals,
    map_to_original,
    normalise,
)

_CONTEXT = 120
"""Characters before and after a passage that are looked at for its context."""
_CONTEXT_WORDS = 12
_WORDS_PER_SEED, _MOST_SEEDS = 20, 9
"""A text has a seed for every so many words, at most so many: nine seeds of five words are a run of thirteen."""
_BREAK = re.compile(r"[.!?:;…\n。！？：；؟؛։۔।॥။።፧‽⁇⁈⁉]")


@dataclass(frozen=True)
class CorpusDocument:
    """A document: which row of its shard it is, what it calls itself, and its text."""

    row: int
    document: str
    url: str | None
    text: str


class Matcher:
    """Takes the documents of a shard and finds what they have in common with the texts, block by block.

    With ``evidence`` passages are alignments, else they are equal word for word.
    """

    def __init__(self, index: TextIndex, shard: int, evidence: EvidenceIndex | None = None) -> None:
        self._index, self._shard, self._evidence = index, shard, evidence
        self._held: list[tuple[CorpusDocument, str]] = []
        self._characters = 0
        # Of a text that is long: so many seeds have to be found that a single phrase does not have it compared.
        self._least_seeds = np.clip(np.diff(index.first_word) // _WORDS_PER_SEED, 1, _MOST_SEEDS)

    def add(self, document: CorpusDocument) -> Iterator[Matches]:
        """Yield what is known once this document has been taken; for a short one, nothing until a block is full."""
        normal = normalise(document.text)
        if len(normal) > BLOCK:
            yield from self.flush()
            words = _hash_in_pieces(normal)
            yield self._match([(document, normal)], words, np.array([0, len(words)]))
            return
        self._held.append((document, normal))
        self._characters += len(normal) + 1
        if self._characters >= BLOCK:
            yield from self.flush()

    def flush(self) -> Iterator[Matches]:
        """Yield what is known of the documents that are held."""
        if self._held:
            held, self._held, self._characters = self._held, [], 0
            words, first_word = hash_words_of_normals([normal for _, normal in held])
            yield self._match(held, words, first_word)

    def _match(self, held: list[tuple[CorpusDocument, str]], words: Words, first_word: Places) -> Matches:
        """Return what the documents ``held`` have in common with the texts; ``first_word`` [held + 1]: each one's."""
        index = self._index
        parts = []
        for length in index.lengths:
            found, runs = index.runs.find(hash_runs(words.hashes, length))
            document = np.searchsorted(first_word, found, side="right") - 1
            within = found + length <= first_word[document + 1]
            parts.append(np.stack([found, runs, document])[:, within])
        found, runs, document = np.concatenate(parts, axis=1)
        pairs = np.unique(runs * len(held) + document)
        of_runs, documents = np.unique(pairs // len(held), return_counts=True)
        if self._evidence is None:
            passages = self._find_passages(held, found, runs, document, words)
            return Matches(passages, [], of_runs, documents)
        aligned = self._align(held, words, first_word, found, runs, document)
        return Matches(*aligned, of_runs, documents, self._count_words(words, first_word))

    def _find_passages(
        self, held: list[tuple[CorpusDocument, str]], found: Places, runs: Places, document: Places, words: Words
    ) -> list[FoundPassage]:
        """Return what is equal word for word. ``found`` [k]: words at which runs begin that the index holds; ``runs``
        [k] which they are, ``document`` [k] whose.
        """
        hit, word = self._expand(found, runs)
        order = np.lexsort((word, found[hit] - word))
        hit, word = hit[order], word[order]
        diagonal = found[hit] - word
        goes_on = (diagonal[1:] == diagonal[:-1]) & (word[1:] == word[:-1] + 1)
        # Runs that follow each other on one diagonal are one passage.
        begins = np.flatnonzero(np.append(True, ~goes_on)[: len(word)])
        lasts = np.flatnonzero(np.append(~goes_on, True)[: len(word)])
        starts, ends = words.starts[found[hit[begins]]], words.ends[found[hit[lasts]] + self._index.n - 1]
        lengths = word[lasts] - word[begins] + self._index.n
        found_at = np.stack([word[begins], lengths, document[hit[begins]], starts, ends], axis=1)
        return list(_group_passages(found_at, held, self._shard))

    def _expand(self, found: Places, runs: Places) -> tuple[Places, Places]:
        """Return every pair of a place in the documents (its number in ``found``) and one in the texts of a run."""
        copies = self._index.first[runs + 1] - self._index.first[runs]
        hit = np.repeat(np.arange(len(runs)), copies)
        within = np.arange(len(hit)) - np.repeat(np.cumsum(copies) - copies, copies)
        return hit, self._index.places[self._index.first[runs][hit] + within]

    def _align(
        self,
        held: list[tuple[CorpusDocument, str]],
        words: Words,
        first_word: Places,
        found: Places,
        runs: Places,
        document: Places,
    ) -> tuple[list[FoundPassage], list[FoundPassage]]:
        """Return the copies of every text that a document has enough seeds of, and those of questions with the answer
        near.
        """
        assert self._evidence is not None
        index, texts = self._index, len(self._index.first_word) - 1
        hit, word = self._expand(found, runs)
        text = index.find_texts(word)
        key = document[hit] * texts + text
        order = np.lexsort((word, key))
        key, word, place, text = key[order], word[order], found[hit][order], text[order]
        is_new = np.append(True, (key[1:] != key[:-1]) | (word[1:] != word[:-1]))[: len(key)]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        seeds = np.add.reduceat(is_new, begins) if len(begins) else begins
        ends = np.append(begins[1:], len(key))[: len(begins)]
        enough = seeds >= self._least_seeds[text[begins]]
        copies: dict[int, list[Alignment]] = {}
        for begin, end in zip(begins[enough].tolist(), ends[enough].tolist(), strict=True):
            of_document, of_text = divmod(int(key[begin]), texts)
            first, after = index.first_word[of_text : of_text + 2].tolist()
            first_of_document = int(first_word[of_document])
            length = min(index.n, after - first)
            copies[int(key[begin])] = align_copies(
                self._evidence.take_hashes(first, after),
                words.hashes[first_of_document : first_word[of_document + 1]],
                Seeds(place[begin:end] - first_of_document, word[begin:end] - first, length),
                self._evidence.share,
                int(self._least_seeds[of_text]),
            )
        passages: list[FoundPassage] = []
        answered: list[FoundPassage] = []
        originals = OriginalTexts(held)
        for number, alignments in copies.items():
            of_document, of_text = divmod(number, texts)
            bounds = first_word[of_document : of_document + 2]
            own = words.hashes[bounds[0] : bounds[1]]

            def describe(copy: Alignment, number: int = number, bounds: Places = bounds) -> FoundPassage:
                of_document, of_text = divmod(number, texts)
                first = int(index.first_word[of_text])
                start = int(words.starts[bounds[0] + copy.begin])
                stop = int(words.ends[bounds[0] + copy.stop - 1])
                return FoundPassage(
                    first + copy.first,
                    first + copy.end,
                    1,
                    [originals.locate(self._shard, of_document, start, stop)],
                    "".join("1" if flag else "0" for flag in copy.matched),
                    _is_sentence(held[of_document][1], words, bounds, copy),
                )

            passages += map(describe, self._choose_copies(alignments))
            answer = int(self._evidence.answer_of[of_text])
            if answer >= 0:
                answers = copies.get(number - of_text + answer, [])
                near = [copy for copy in alignments if self._has_answer_near(copy, answers, answer, own)]
                answered += map(describe, self._choose_copies(near))
        return passages, answered

    def _choose_copies(self, copies: list[Alignment]) -> list[Alignment]:
        """Return the copies of one document that no larger one of them holds, so that the document counts once."""
        assert self._evidence is not None
        chosen: list[Alignment] = []
        for copy in sorted(copies, key=lambda copy: (-np.count_nonzero(copy.matched), copy.begin)):
            least = self._evidence.share * (copy.end - copy.first) - 1e-9
            if not any(_count_matched(larger, copy.first, copy.end) >= least for larger in chosen):
                chosen.append(copy)
        return chosen

    def _has_answer_near(self, question: Alignment, answers: list[Alignment], answer: int, document: Hashes) -> bool:
        """Return whether a document holds an answer outside the copy of its question, within ``NEAR`` words of it."""
        assert self._evidence is not None
        for copy in answers:
            inside = min(copy.stop, question.stop) - max(copy.begin, question.begin)
            is_outside = inside < (copy.stop - copy.begin) / 2
            if is_outside and copy.begin - question.stop <= NEAR and question.begin - copy.stop <= NEAR:
                return True
        begin, end = self._index.first_word[answer : answer + 2].tolist()
        wanted = self._evidence.take_hashes(begin, end)
        if not len(wanted):
            return False
        sides = (max(0, question.begin - NEAR), question.begin), (question.stop, question.stop + NEAR)
        runs = (hash_runs(document[first:last], len(wanted)) for first, last in sides)
        return any(bool(np.isin(hash_runs(wanted, len(wanted)), run).any()) for run in runs)

    def _count_words(self, words: Words, first_word: Places) -> Places:
        """Return how many of the documents hold each word of the texts (int64 [v])."""
        assert self._evidence is not None
        found, numbers = self._evidence.words.find(words.hashes)
        counts = np.zeros(len(self._evidence.words), np.int64)
        for begin, end in pairwise(np.searchsorted(found, first_word).tolist()):
            # A word that a document holds twice is counted once: the same value is written twice.
            counts[numbers[begin:end]] += 1
        return counts


def _group_passages(found: Places, held: list[tuple[CorpusDocument, str]], shard: int) -> Iterator[FoundPassage]:
    """Passages from rows of (word, length, document, start, end), each with its documents; one that a document holds
    twice counts once, at its first place.
    """
    rows = found[np.lexsort(found.T[::-1])]
    rows = rows[_mark_changes(rows[:, :3])]
    begins = np.flatnonzero(_mark_changes(rows[:, :2]))
    originals = OriginalTexts(held)
    ends = np.append(begins[1:], len(rows))[: len(begins)]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        places = [
            originals.locate(shard, number, start, stop)
            for _, _, number, start, stop in rows[begin : min(end, begin + FIRST)].tolist()
        ]
        word, length = rows[begin, :2].tolist()
        yield FoundPassage(word, word + length, end - begin, places)


class OriginalTexts:
    """Documents as they were given, for places in them that were found in their NFKC."""

    def __init__(self, held: list[tuple[CorpusDocument, str]]) -> None:
        self._held = held
        self._maps: dict[int, tuple[Places, Places]] = {}

    def locate(self, shard: int, number: int, start: int, end: int) -> TextPosition:
        """Return the place of a document's characters [start, end)."""
        document, normal = self._held[number]
        if normal is not document.text:
            if number not in self._maps:
                self._maps[number] = map_to_original(document.text)
            starts, ends = self._maps[number]
            start, end = int(starts[start]), int(ends[end - 1])
        names = document.row, document.document, document.url
        return TextPosition(shard, *names, start, end, *extract_context(document.text, start, end))


def _count_matched(copy: Alignment, first: int, end: int) -> int:
    """Return how many words [first, end) of a text a copy holds."""
    within = slice(max(0, first - copy.first), max(0, end - copy.first))
    return int(np.count_nonzero(copy.matched[within]))


def _is_sentence(normal: str, words: Words, own: Places, alignment: Alignment) -> bool:
    """Return whether an alignment begins and ends in a document where a sentence or a line does; ``own`` [2]: the
    document's first word and the one after its last.
    """
    first, last = int(own[0]) + alignment.begin, int(own[0]) + alignment.stop - 1
    before = int(words.ends[first - 1]) if first > own[0] else 0
    after = int(words.starts[last + 1]) if last + 1 < own[1] else len(normal)
    gaps = normal[before : words.starts[first]], normal[words.ends[last] : after]
    is_at_border = first == own[0], last + 1 == own[1]
    return all(border or _BREAK.search(gap) for border, gap in zip(is_at_border, gaps, strict=True))


def _hash_in_pieces(normal: str) -> Words:
    """Return the words of a long document."""
    pieces, place = [], 0
    while place < len(normal):
        end = min(place + BLOCK, len(normal))
        if end < len(normal):
            end = find_word_end(normal, place, end)
        piece = hash_words(normal[place:end])
        pieces.append(Words(piece.hashes, piece.starts + place, piece.ends + place))
        place = end
    return Words(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("hashes", "starts", "ends")))


def _mark_changes(rows: Places) -> npt.NDArray[np.bool_]:
    """Return whether each row is another one than the row before."""
    return np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]


def extract_context(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the last words before a passage and the first ones after it, white space as one blank."""
    before = " ".join(text[max(0, start - _CONTEXT) : start].split()[-_CONTEXT_WORDS:])
    after = " ".join(text[end : end + _CONTEXT].split()[:_CONTEXT_WORDS])
    return before, after
