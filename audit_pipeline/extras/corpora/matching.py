"""The search for passages of the audited texts in the documents of a corpus.

Documents are processed in blocks. Short documents share a block, and a long document is hashed in pieces. The words and
runs of a block are processed as arrays. If word p of a document and word q of the texts start the same run, the run is
on the diagonal p - q. Consecutive runs on one diagonal form one passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora import word_hashes
from audit_pipeline.extras.corpora.alignment import Alignment, Seeds, align_copies
from audit_pipeline.extras.corpora.evidence_rule import MAX_ANSWER_DISTANCE, EvidenceIndex
from audit_pipeline.extras.corpora.text_index import MAX_POSITIONS, FoundPassage, Matches, TextIndex, TextPosition
from audit_pipeline.extras.corpora.word_hashes import Hashes, Places, Words

_HELD_CHARACTERS = 1 << 17
"""Minimum number of characters of the short documents in a block. The arrays of such a block fit into a processor's
cache. A document outside ASCII, which takes longer, shares its block with few documents."""
_CONTEXT = 120
"""Characters that are read before and after a passage for its context."""
_CONTEXT_WORDS = 12
_WORDS_PER_SEED = 20
"""A document needs one seed of a text per this many words of the text, before the text is aligned with the document. A
single phrase is thus not enough to align a long text."""
_MAX_SEEDS = 9
"""Maximum number of required seeds. Nine seeds of five words are a run of thirteen words."""
_BREAK = re.compile(r"[.!?:;…\n。！？：；؟؛։۔।॥။።፧‽⁇⁈⁉]")


@dataclass(frozen=True)
class CorpusDocument:
    """A document of a corpus.

    Attributes:
        row: Row of the document in its shard.
        document: Name of the document.
    """

    row: int
    document: str
    url: str | None
    text: str


class Matcher:
    """A matcher that finds passages of the audited texts in the documents of a shard, block by block.

    Passages are alignments if ``evidence`` is passed. Otherwise they are equal word for word.
    """

    def __init__(self, index: TextIndex, shard: int, evidence: EvidenceIndex | None = None) -> None:
        self._index = index
        self._shard = shard
        self._evidence = evidence
        # Documents of the current block, with their normalised texts.
        self._held: list[tuple[CorpusDocument, str]] = []
        self._characters = 0
        self._min_seeds = np.clip(np.diff(index.first_word) // _WORDS_PER_SEED, 1, _MAX_SEEDS)

    def add(self, document: CorpusDocument) -> Iterator[Matches]:
        """Add a document, and yield the matches of each block that is full."""
        normal = word_hashes.normalise(document.text)
        if len(normal) > word_hashes.BLOCK:
            yield from self.flush()
            words = _hash_in_pieces(normal)
            yield self._match([(document, normal)], words, np.array([0, len(words)]))
            return
        self._held.append((document, normal))
        self._characters += len(normal) + 1
        if self._characters >= _HELD_CHARACTERS:
            yield from self.flush()

    def flush(self) -> Iterator[Matches]:
        """Yield the matches of the current block."""
        if self._held:
            held = self._held
            self._held = []
            self._characters = 0
            words, first_word = word_hashes.hash_words_of_normals([normal for _, normal in held])
            yield self._match(held, words, first_word)

    def _match(self, held: list[tuple[CorpusDocument, str]], words: Words, first_word: Places) -> Matches:
        """Return the matches of the documents with the texts.

        Args:
            held: The documents with their normalised texts.
            words: The words of all documents.
            first_word: Index of each document's first word, int64 array of shape (n_documents + 1,).
        """
        index = self._index
        parts = []
        for length in index.lengths:
            places, runs = index.runs.find(word_hashes.hash_runs(words.hashes, length))
            document = np.searchsorted(first_word, places, side="right") - 1
            within = places + length <= first_word[document + 1]
            parts.append(np.stack([places, runs, document])[:, within])
        places, runs, document = np.concatenate(parts, axis=1)
        pairs = np.unique(runs * len(held) + document)
        distinct_runs, documents = np.unique(pairs // len(held), return_counts=True)
        if self._evidence is None:
            passages = self._find_passages(held, places, runs, document, words)
            return Matches(passages, [], distinct_runs, documents)
        copies = self._align(words, first_word, places, runs, document)
        passages, answered = self._describe_copies(held, words, first_word, copies)
        return Matches(passages, answered, distinct_runs, documents, self._count_words(words, first_word))

    def _find_passages(
        self,
        held: list[tuple[CorpusDocument, str]],
        places: Places,
        runs: Places,
        document: Places,
        words: Words,
    ) -> list[FoundPassage]:
        """Find the passages that are equal word for word.

        Args:
            held: The documents with their normalised texts.
            places: Index of the first word of each run that the index contains, int64 array of shape (n_hits,).
            runs: Number of each of these runs in the index, int64 array of shape (n_hits,).
            document: Index of each run's document, int64 array of shape (n_hits,).
            words: The words of all documents.
        """
        hit, at = self._expand(runs)
        word = self._index.places[at]
        order = np.lexsort((word, places[hit] - word))
        hit = hit[order]
        word = word[order]
        diagonal = places[hit] - word
        is_continued = (diagonal[1:] == diagonal[:-1]) & (word[1:] == word[:-1] + 1)
        # Consecutive runs on one diagonal form one passage.
        begins = np.flatnonzero(np.append(True, ~is_continued)[: len(word)])
        lasts = np.flatnonzero(np.append(~is_continued, True)[: len(word)])
        starts = words.starts[places[hit[begins]]]
        ends = words.ends[places[hit[lasts]] + self._index.n - 1]
        lengths = word[lasts] - word[begins] + self._index.n
        rows = np.stack([word[begins], lengths, document[hit[begins]], starts, ends], axis=1)
        return list(_group_passages(rows, held, self._shard))

    def _expand(self, runs: Places) -> tuple[Places, Places]:
        """Return all pairs of a hit and a word of the texts at which the same run begins.

        Returns:
            The indices of the hits in ``runs``, and the indices of the words in ``places`` of the index. They are two
            int64 arrays of shape (n_pairs,).
        """
        copies = self._index.first[runs + 1] - self._index.first[runs]
        hit = np.repeat(np.arange(len(runs)), copies)
        within = np.arange(len(hit)) - np.repeat(np.cumsum(copies) - copies, copies)
        return hit, self._index.first[runs][hit] + within

    def _align(
        self,
        words: Words,
        first_word: Places,
        places: Places,
        runs: Places,
        document: Places,
    ) -> dict[tuple[int, int], list[Alignment]]:
        """Align each text with its copies in each document that contains enough seeds of the text.

        The arguments are as in ``_find_passages``.

        Returns:
            The alignments by the indices of document and text.
        """
        assert self._evidence is not None
        index = self._index
        n_texts = len(index.first_word) - 1
        hit, at = self._keep_candidates(runs, document)
        key = document[hit] * n_texts + index.texts_of_places[at]
        word = index.places[at]
        order = np.lexsort((word, key))
        key = key[order]
        word = word[order]
        place = places[hit][order]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        ends = np.append(begins[1:], len(key))[: len(begins)]
        copies: dict[tuple[int, int], list[Alignment]] = {}
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            document_index, text_index = divmod(int(key[begin]), n_texts)
            text_begin, text_end = index.first_word[text_index : text_index + 2].tolist()
            document_begin = int(first_word[document_index])
            length = min(index.n, text_end - text_begin)
            copies[document_index, text_index] = align_copies(
                self._evidence.take_hashes(text_begin, text_end),
                words.hashes[document_begin : first_word[document_index + 1]],
                Seeds(place[begin:end] - document_begin, word[begin:end] - text_begin, length),
                self._evidence.share,
                int(self._min_seeds[text_index]),
            )
        return copies

    def _keep_candidates(self, runs: Places, document: Places) -> tuple[Places, Places]:
        """Return the pairs of a hit and a word for those pairs of document and text that have enough seeds.

        The arguments are as in ``_find_passages``, and the result is as in ``_expand``. A run can occur often in a
        document. So seeds are counted over the distinct runs of each document first.
        """
        index = self._index
        n_texts = len(index.first_word) - 1
        n_runs = len(index.runs)
        n_documents = int(document.max(initial=0)) + 1
        pair_document, pair_run = np.divmod(np.unique(document * n_runs + runs), n_runs)
        number, at = self._expand(pair_run)
        # A word begins a single run. So each position of a distinct run is another seed.
        keys, seeds = np.unique(pair_document[number] * n_texts + index.texts_of_places[at], return_counts=True)
        keys = keys[seeds >= self._min_seeds[keys % n_texts]]
        has_candidate = np.zeros(n_documents, np.bool_)
        has_candidate[keys // n_texts] = True
        remaining = np.flatnonzero(has_candidate[document])
        hit, at = self._expand(runs[remaining])
        hit = remaining[hit]
        is_candidate = np.isin(document[hit] * n_texts + index.texts_of_places[at], keys)
        return hit[is_candidate], at[is_candidate]

    def _describe_copies(
        self,
        held: list[tuple[CorpusDocument, str]],
        words: Words,
        first_word: Places,
        copies: Mapping[tuple[int, int], list[Alignment]],
    ) -> tuple[list[FoundPassage], list[FoundPassage]]:
        """Describe copies as passages.

        Returns:
            The passages of all texts, and the passages of those questions whose answer is near in the document.
        """
        assert self._evidence is not None
        passages: list[FoundPassage] = []
        answered: list[FoundPassage] = []
        originals = OriginalTexts(held)
        for (document_index, text_index), alignments in copies.items():
            bounds = first_word[document_index : document_index + 2]
            describe = partial(self._describe_copy, originals, words, bounds, document_index, text_index)
            passages += map(describe, self._choose_copies(alignments))
            answer = int(self._evidence.answer_of[text_index])
            if answer >= 0:
                answers = copies.get((document_index, answer), [])
                document = words.hashes[bounds[0] : bounds[1]]
                near = [copy for copy in alignments if self._has_answer_near(copy, answers, answer, document)]
                answered += map(describe, self._choose_copies(near))
        return passages, answered

    def _describe_copy(
        self,
        originals: OriginalTexts,
        words: Words,
        bounds: Places,
        document_index: int,
        text_index: int,
        copy: Alignment,
    ) -> FoundPassage:
        """Return a copy as a passage. ``bounds`` are the indices of the document's first word and after its last."""
        text_begin = int(self._index.first_word[text_index])
        start = int(words.starts[bounds[0] + copy.begin])
        end = int(words.ends[bounds[0] + copy.stop - 1])
        return FoundPassage(
            text_begin + copy.first,
            text_begin + copy.end,
            1,
            [originals.locate(self._shard, document_index, start, end)],
            (copy.matched + np.uint8(ord("0"))).tobytes().decode("ascii"),
            _is_sentence(originals.get_normal(document_index), words, bounds, copy),
        )

    def _choose_copies(self, copies: list[Alignment]) -> list[Alignment]:
        """Return the copies in a document without those whose part of the text is also in a larger copy.

        The document thus counts only once for each part of the text.
        """
        assert self._evidence is not None
        if len(copies) < 2:
            return copies
        chosen: list[Alignment] = []
        for copy in sorted(copies, key=lambda copy: (-np.count_nonzero(copy.matched), copy.begin)):
            min_words = self._evidence.share * (copy.end - copy.first) - 1e-9
            if not any(_count_matched(larger, copy.first, copy.end) >= min_words for larger in chosen):
                chosen.append(copy)
        return chosen

    def _has_answer_near(self, question: Alignment, answers: list[Alignment], answer: int, document: Hashes) -> bool:
        """Return True if the answer is near the copy of its question, but outside the copy."""
        assert self._evidence is not None
        for copy in answers:
            n_inside = min(copy.stop, question.stop) - max(copy.begin, question.begin)
            is_outside = n_inside < (copy.stop - copy.begin) / 2
            distance = max(copy.begin - question.stop, question.begin - copy.stop)
            if is_outside and distance <= MAX_ANSWER_DISTANCE:
                return True
        begin, end = self._index.first_word[answer : answer + 2].tolist()
        answer_words = self._evidence.take_hashes(begin, end)
        length = len(answer_words)
        if not length:
            return False
        answer_run = word_hashes.hash_runs(answer_words, length)
        before = document[max(0, question.begin - MAX_ANSWER_DISTANCE) : question.begin]
        after = document[question.stop : question.stop + MAX_ANSWER_DISTANCE]
        is_before = np.isin(answer_run, word_hashes.hash_runs(before, length)).any()
        return bool(is_before or np.isin(answer_run, word_hashes.hash_runs(after, length)).any())

    def _count_words(self, words: Words, first_word: Places) -> Places:
        """Count the documents that contain each distinct word of the texts.

        Returns:
            Number of documents per word, int64 array of shape (n_distinct_words,).
        """
        assert self._evidence is not None
        # The texts contain most words of a corpus, so the filter of ``find`` would not exclude many.
        places, numbers = self._evidence.words.find_frequent(words.hashes)
        counts = np.zeros(len(self._evidence.words), np.int64)
        for begin, end in pairwise(np.searchsorted(places, first_word).tolist()):
            # numpy adds 1 once per distinct number, so a repeated word of a document counts once.
            counts[numbers[begin:end]] += 1
        return counts


def _group_passages(rows: Places, held: list[tuple[CorpusDocument, str]], shard: int) -> Iterator[FoundPassage]:
    """Group rows of (word, length, document, start, end) into one passage per pair of word and length.

    If a document contains a passage twice, the document counts once, with the first position of the passage.
    """
    rows = rows[np.lexsort(rows.T[::-1])]
    rows = rows[_mark_changes(rows[:, :3])]
    begins = np.flatnonzero(_mark_changes(rows[:, :2]))
    originals = OriginalTexts(held)
    ends = np.append(begins[1:], len(rows))[: len(begins)]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        positions = [
            originals.locate(shard, number, start, stop)
            for _, _, number, start, stop in rows[begin : min(end, begin + MAX_POSITIONS)].tolist()
        ]
        word, length = rows[begin, :2].tolist()
        yield FoundPassage(word, word + length, end - begin, positions)


class OriginalTexts:
    """The documents of a block, with maps from positions in their normalised texts to positions in their originals."""

    def __init__(self, held: list[tuple[CorpusDocument, str]]) -> None:
        self._held = held
        self._maps: dict[int, tuple[Places, Places]] = {}

    def get_normal(self, number: int) -> str:
        """Return the normalised text of a document."""
        return self._held[number][1]

    def locate(self, shard: int, number: int, start: int, end: int) -> TextPosition:
        """Return the position in the original document of the characters [start, end) of its normalised text."""
        document, normal = self._held[number]
        if normal is not document.text:
            if number not in self._maps:
                self._maps[number] = word_hashes.map_to_original(document.text)
            starts, ends = self._maps[number]
            start = int(starts[start])
            end = int(ends[end - 1])
        before, after = extract_context(document.text, start, end)
        return TextPosition(shard, document.row, document.document, document.url, start, end, before, after)


def _count_matched(copy: Alignment, begin: int, end: int) -> int:
    """Count the matched words of a copy among the words [begin, end) of the text."""
    within = slice(max(0, begin - copy.first), max(0, end - copy.first))
    return int(np.count_nonzero(copy.matched[within]))


def _is_sentence(normal: str, words: Words, bounds: Places, alignment: Alignment) -> bool:
    """Return True if an alignment consists of one or more whole sentences or lines of its document.

    Args:
        normal: The normalised text of the document.
        words: The words of all documents.
        bounds: The indices of the document's first word and after its last word.
        alignment: The alignment in the document.
    """
    begin = int(bounds[0]) + alignment.begin
    end = int(bounds[0]) + alignment.stop
    if begin > bounds[0] and not _BREAK.search(normal[words.ends[begin - 1] : words.starts[begin]]):
        return False
    is_at_end = end == int(bounds[1])
    return is_at_end or bool(_BREAK.search(normal[words.ends[end - 1] : words.starts[end]]))


def _hash_in_pieces(normal: str) -> Words:
    """Hash the words of a long document in pieces, which bounds the memory."""
    pieces = []
    start = 0
    while start < len(normal):
        end = min(start + word_hashes.BLOCK, len(normal))
        if end < len(normal):
            end = word_hashes.find_word_end(normal, start, end)
        piece = word_hashes.hash_words(normal[start:end])
        pieces.append(Words(piece.hashes, piece.starts + start, piece.ends + start))
        start = end
    return word_hashes.concatenate_words(pieces)


def _mark_changes(rows: Places) -> npt.NDArray[np.bool_]:
    """Return whether each row differs from the row before, bool array of shape (n_rows,). The first row is True."""
    return np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]


def extract_context(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the last words before a passage and the first words after it, separated by single blanks."""
    before = " ".join(text[max(0, start - _CONTEXT) : start].split()[-_CONTEXT_WORDS:])
    after = " ".join(text[end : end + _CONTEXT].split()[:_CONTEXT_WORDS])
    return before, after
