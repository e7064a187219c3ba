"""The rule of evidence: a text is found if a corpus contains more of it than chance explains.

**The statistic.** ``by_chance`` is the expected number of documents with the found words of a text if words are
independent. It is D × Π (d(w) + 1) / (D + 1) over the *distinct* found words w. D is the number of documents, and d(w)
is the number of documents that contain w. A text is found if ``by_chance`` is at most ``CHANCE``.

The audited text counts as one more document, which contains all of its words. Each factor is thus the share of
documents with w among the corpus and the text together. This is right if the text and the documents are exchangeable.
Without the added document, a word that no document contains would be infinite evidence.

Words are not independent, because a document on the subject of a text contains several of its words. This dependence is
offset by facts that the statistic ignores: the words are at one position and in the order of the text.

A copy of a whole text counts for more if it is a sentence or a line by itself. About one word in ten begins a sentence,
and one in ten ends a sentence. The k distinct words of the sentence have k! possible orders (k is at most seven).

For scripts without spaces, D is the number of documents with the most common of the texts' characters from such
scripts. Documents in other languages thus do not count. Repeated words, numbers and single letters are ignored, because
other words predict them.

**Shared text.** A run of words in several items of a test set counts as a template. A run in at least as many documents
as ``compute_shared_threshold`` returns counts as a quotation or a licence. Such shared runs are no evidence about the
text. A run that overlaps them but also has other words is evidence if a document contains it.

**Answers.** An answer near its question raises the verdict only if it is evidence by itself. This means that the
expected share of documents with its words is at most ``CHANCE``. Labels of a choice (yes, true, a letter, a number) are
no evidence. In answers of up to three words, words of the question are no evidence, either.

**Assumptions.** A leaked text is in fewer documents than the threshold of shared text. The items of a test set differ.
The order of words outweighs their dependence. No corpus can prove these assumptions. bench/bench_overlap_evidence.py
measures how often the rule is right.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.alignment import Flags, flag_run_starts
from audit_pipeline.extras.corpora.config import MIN_WORDS
from audit_pipeline.extras.corpora.text_index import FoundPassage, HashTable, PassageSet, TextIndex, build_hash_table
from audit_pipeline.extras.corpora.word_hashes import Hashes, Places, Words, is_by_character, normalise
from audit_pipeline.tables import OverlapPart, OverlapVerdict

CHANCE = 0.01
"""Maximum number of documents that are expected to contain the found words of a text by chance."""
_SENTENCE = 0.01
"""Probability that a passage begins and ends together with a sentence: one in ten for the beginning and the end."""
_MAX_ORDERED = 7
"""Maximum number k of words in the k! possible orders of a sentence."""
_LABEL_WORDS = (
    "yes no true false none all both neither either any correct incorrect right wrong positive negative neutral maybe "
    "unknown other entailment contradiction option answer choice zero one two three four five six seven eight nine "
    "ten ja nein oui non vrai faux wahr falsch sí si verdadero falso да нет نعم لا はい いいえ 是 否 对 錯 错 正 确 不"
)
_LABELS = frozenset(_LABEL_WORDS.split())
"""Words of answers that only name a choice. They occur near any question."""
MIN_SHARE = 0.6
"""Minimum found share of a text's unshared words at which the text counts as contaminated. Each word is weighted by its
information in bits."""
MAX_ANSWER_DISTANCE = 50
"""Maximum number of words between a question and its answer in a document."""


def compute_shared_threshold(documents: int) -> int:
    """Return the number of documents from which a run counts as shared: 3 of 400, 10 of a million, 32 of 10^9."""
    return max(3, round(math.pow(documents, 1 / 6)))


@dataclass(frozen=True, eq=False)
class EvidenceIndex:
    """The properties of the texts' words and runs, which are known before the search.

    Attributes:
        words: The hashes of the distinct words of all texts.
        word_at: Index of each word among the distinct words, int32 array of shape (n_words,).
        is_plain: Whether each distinct word is a number or a single letter, bool array of shape (n_distinct_words,).
        is_label: Whether each distinct word can name a choice, bool array of shape (n_distinct_words,).
        is_character: Whether each distinct word is a character of a script without spaces, bool array of shape
            (n_distinct_words,).
        is_repeated: Whether each run is in several items of one test set, bool array of shape (n_runs,).
        answer_of: Index of each text's answer, or -1, int64 array of shape (n_texts,).
        share: Minimum share of equal words in an alignment.
    """

    words: HashTable
    word_at: npt.NDArray[np.int32]
    is_plain: Flags
    is_label: Flags
    is_character: Flags
    is_repeated: Flags
    answer_of: Places
    share: float

    def take_hashes(self, begin: int, end: int) -> Hashes:
        """Return the hashes of the words [begin, end) of the texts."""
        return self.words.values[self.word_at[begin:end]]


def build_evidence_index(
    texts: Sequence[str],
    words: Words,
    index: TextIndex,
    item_of: Places,
    set_of: Places,
    answer_of: Places,
    share: float,
) -> EvidenceIndex:
    """Determine the properties of the audited texts' words and runs.

    Args:
        texts: The parts of the audited texts.
        words: The words of all texts.
        index: The index of the texts by their runs.
        item_of: Item of each text, int64 array of shape (n_texts,).
        set_of: Test set of each text, int64 array of shape (n_texts,).
        answer_of: Index of each text's answer, or -1, int64 array of shape (n_texts,).
        share: Minimum share of equal words in an alignment.
    """
    distinct, example_at, word_at = np.unique(words.hashes, return_index=True, return_inverse=True)
    # The words are normalised, because a half-width kana is recognised as a word by itself only in NFKC.
    spellings = [
        normalise(texts[text][words.starts[word] : words.ends[word]])
        for text, word in zip(index.find_texts(example_at).tolist(), example_at.tolist(), strict=True)
    ]
    is_character = np.array([is_by_character(word[0]) for word in spellings], np.bool_)
    is_short_or_number = [len(word) == 1 or not any(map(str.isalpha, word)) for word in spellings]
    is_label = np.array([word.casefold() in _LABELS for word in spellings], np.bool_)
    return EvidenceIndex(
        build_hash_table(distinct),
        word_at.astype(np.int32),
        np.array(is_short_or_number, np.bool_) & ~is_character,
        is_label,
        is_character,
        _flag_repeated_runs(index, item_of, set_of),
        answer_of,
        share,
    )


def _flag_repeated_runs(index: TextIndex, item_of: Places, set_of: Places) -> Flags:
    """Return whether each run of words occurs in several items of one test set, as a bool array of shape (n_runs,)."""
    text_at = index.find_texts(index.places)
    run = np.repeat(np.arange(len(index.runs)), np.diff(index.first))
    items_of_runs = np.unique(np.stack([run, set_of[text_at], item_of[text_at]]), axis=1)
    # The columns (run, test set, item) are distinct and sorted. If a column has the same run and test set as the column
    # before, the run is in two items of the test set.
    is_further_item = (items_of_runs[:2, 1:] == items_of_runs[:2, :-1]).all(axis=0)
    is_repeated = np.zeros(len(index.runs), np.bool_)
    is_repeated[items_of_runs[0, 1:][is_further_item]] = True
    return is_repeated


def _cover_runs(begins: Flags, length: int) -> Flags:
    """Return whether each word is in a run of ``length`` words that starts at a flagged word, with shape (n_words,)."""
    return np.convolve(begins, np.ones(length))[: len(begins)] > 0


@dataclass(frozen=True)
class TextEvidence:
    """The evidence of a corpus about an item.

    Attributes:
        by_chance: Number of documents that are expected to contain the found words by chance, or None if no part counts
            as found.
        part: The part of the item that was found, or None if only shared text or nothing was found.
    """

    verdict: OverlapVerdict
    by_chance: float | None = None
    part: OverlapPart | None = None

    @property
    def is_contaminated(self) -> bool | None:
        """Return True if the item counts as contaminated, or None if it is too short for a verdict."""
        if self.verdict == "too short to tell":
            return None
        return self.part in ("question and answer", "text")


class EvidenceJudge:
    """A judge that applies the rule of evidence to the found passages of the audited texts.

    In its methods, ``text`` is the index of a text, and arrays of flags have one entry per word of this text.

    Args:
        index: The index of the texts by their runs.
        evidence: The properties of the texts' words and runs.
        corpus_passages: The passages that were found in the corpus.
        documents: Number of documents in the corpus.
    """

    def __init__(self, index: TextIndex, evidence: EvidenceIndex, corpus_passages: PassageSet, documents: int) -> None:
        self._index = index
        self._evidence = evidence
        n_containing = corpus_passages.documents_of_word
        # The number D of the module's docstring: first for scripts with spaces, then for scripts without spaces.
        n_documents = np.array([documents, n_containing[evidence.is_character].max(initial=0)])
        self._documents = np.maximum(n_documents, 1)
        rates = (n_containing + 1) / (self._documents[evidence.is_character.astype(np.int64)] + 1)
        self._bits = np.where(evidence.is_plain, 0.0, -np.log2(np.minimum(rates, 1.0)))
        is_shared = (corpus_passages.documents_of_run >= compute_shared_threshold(documents)) | evidence.is_repeated
        # If no run begins at a word, its run number is -1. This index selects the last entry, which is appended here.
        self._is_shared = np.append(is_shared, False)
        self._is_found = np.append(corpus_passages.documents_of_run > 0, False)
        self._passages = group_by_text(index, corpus_passages.passages.choose())
        self._answered = group_by_text(index, corpus_passages.answered.choose())

    def flag_own_words(self, text: int, matched: Flags) -> Flags:
        """Flag the matched words of a text that count as evidence: all except those of shared text.

        A matched word of shared text is flagged, too, if it belongs to an unshared run that some document contains. The
        number of documents is checked, because an alignment can match all words of a run although the document has
        other words between them.
        """
        begin, end = self._index.first_word[text : text + 2].tolist()
        length = min(self._index.n, end - begin)
        runs = self._index.run_at[begin:end]
        is_own = (runs >= 0) & ~self._is_shared[runs] & self._is_found[runs] & flag_run_starts(matched, length)
        return matched & (~self._flag_shared_words(text) | _cover_runs(is_own, length))

    def _flag_shared_words(self, text: int) -> Flags:
        begin, end = self._index.first_word[text : text + 2].tolist()
        is_shared = self._index.templates[begin:end] | self._is_shared[self._index.run_at[begin:end]]
        return _cover_runs(is_shared, min(self._index.n, end - begin))

    def flag_passage_words(self, text: int, passage: FoundPassage) -> Flags:
        """Flag the words of a text that a passage contains."""
        begin, end = self._index.first_word[text : text + 2].tolist()
        matched = np.zeros(end - begin, np.bool_)
        matched[passage.first - begin : passage.end - begin] = passage.flags
        return matched

    def is_explained_by_chance(self, text: int, passage: FoundPassage) -> bool:
        """Return True if chance can explain the unshared words of a passage."""
        return self._compute_own_chance(text, passage) > CHANCE

    def _compute_own_chance(self, text: int, passage: FoundPassage) -> float:
        """Compute the expected number of documents with the unshared words of a passage."""
        matched = self.flag_passage_words(text, passage)
        words = self._list_words(text, self.flag_own_words(text, matched))
        chance = self._expect_documents(words)
        if passage.is_sentence and matched.all():
            chance *= self._compute_sentence_share(words)
        return chance

    def _is_evidence(self, answer: int, question: int) -> bool:
        """Return True if chance does not explain that the words of an answer are near its question.

        Labels do not count. In a short answer, words of the question do not count, either.
        """
        words = self._list_words(answer)
        begin, end = self._index.first_word[answer : answer + 2].tolist()
        if end - begin < MIN_WORDS:
            words = np.setdiff1d(words, self._list_words(question))
        words = words[~self._evidence.is_label[words]]
        return bool(2.0 ** -self._bits[words].sum() <= CHANCE)

    def classify_text(self, texts: Sequence[str], question: int) -> TextEvidence:
        """Determine the evidence about a text, together with its answer if it has one.

        Args:
            texts: All texts of the index.
            question: Index of the text. It is the question of an item if it has an answer.
        """
        answer = int(self._evidence.answer_of[question])
        # The name of the item's part that each text is, if the text is found as a whole.
        parts: dict[int, OverlapPart] = {question: "text"}
        if answer >= 0:
            parts = {question: "question", answer: "answer"}
        begin, *_, end = self._index.first_word[question : question + len(parts) + 1].tolist()
        all_words = np.unique(self._evidence.word_at[begin:end]).astype(np.int64)
        min_chance = self._compute_sentence_share(all_words) * self._expect_documents(all_words)
        if min_chance > CHANCE or end - begin < MIN_WORDS:
            return TextEvidence("too short to tell")
        candidates: list[tuple[float, OverlapPart]] = []
        if answer >= 0 and self._is_evidence(answer, question):
            candidates += self._rate_answered_passages(texts[question], question, answer)
        for text, whole in parts.items():
            for passage in self._passages.get(text, []):
                chance = self._compute_own_chance(text, passage)
                if chance <= CHANCE:
                    candidates.append((chance, self._classify_part(texts[text], text, passage, whole)))
        if candidates:
            chance, part = min(candidates, key=lambda candidate: (_PARTS.index(candidate[1]), candidate[0]))
            verdict: OverlapVerdict = "shared text" if part == "context" else "found"
            return TextEvidence(verdict, chance, part)
        for text in parts:
            for passage in self._passages.get(text, []):
                words = self._list_words(text, self.flag_passage_words(text, passage))
                if self._expect_documents(words) <= CHANCE:
                    return TextEvidence("shared text")
        return TextEvidence("not found")

    def _rate_answered_passages(
        self, characters: str, question: int, answer: int
    ) -> Iterator[tuple[float, OverlapPart]]:
        """Yield the passages of a question that are near its answer and that chance does not explain.

        Each is yielded as the number of documents expected by chance, and the found part of the item.
        """
        for passage in self._answered.get(question, []):
            matched = self.flag_passage_words(question, passage)
            own_words = self._list_words(question, self.flag_own_words(question, matched))
            words = np.unique(np.concatenate([own_words, self._list_words(answer)]))
            chance = self._expect_documents(words)
            if len(own_words) and chance <= CHANCE:
                yield chance, self._classify_part(characters, question, passage, "question and answer")

    def _classify_part(self, characters: str, text: int, passage: FoundPassage, whole: OverlapPart) -> OverlapPart:
        """Return ``whole`` if a passage has most of a text, "context" if it lacks most of the question, else "part"."""
        matched = self.flag_passage_words(text, passage)
        question = find_question(characters)
        if question is not None:
            begin, end = self._index.first_word[text : text + 2].tolist()
            starts = self._index.starts[begin:end]
            is_asked = (starts >= question[0]) & (starts < question[1])
            if self._sum_bits(text, matched & is_asked) < MIN_SHARE * self._sum_bits(text, is_asked):
                return "context"
        # Words of shared text count only if the text has no other words.
        is_counted = ~self._flag_shared_words(text)
        if not self._sum_bits(text, is_counted):
            is_counted[:] = True
        is_own = self.flag_own_words(text, matched) & is_counted
        if self._sum_bits(text, is_own) < MIN_SHARE * self._sum_bits(text, is_counted):
            return "part"
        return whole

    def _list_words(self, text: int, flags: Flags | None = None) -> Places:
        """Return the distinct words of a text, or the distinct words among the flagged ones."""
        begin, end = self._index.first_word[text : text + 2].tolist()
        words = self._evidence.word_at[begin:end]
        if flags is not None:
            words = words[flags]
        return np.unique(words).astype(np.int64)

    def _compute_sentence_share(self, words: Places) -> float:
        """Compute the probability that distinct words form a sentence in one certain order."""
        n_ordered = min(int(np.count_nonzero(self._bits[words])), _MAX_ORDERED)
        return _SENTENCE / math.factorial(n_ordered)

    def _sum_bits(self, text: int, flags: Flags) -> float:
        return float(self._bits[self._list_words(text, flags)].sum())

    def _expect_documents(self, words: Places) -> float:
        """Compute the number of documents that would contain all of these distinct words if words were independent."""
        is_character = np.count_nonzero(self._evidence.is_character[words]) > len(words) / 2
        return float(self._documents[int(is_character)] * 2.0 ** -self._bits[words].sum())


_PARTS: Sequence[OverlapPart] = ("question and answer", "text", "question", "answer", "part", "context")

_GREEK = r"[\u0300-\u03ff\u1f00-\u1fff]"
_GREEK_MARK = rf"(?:(?<={_GREEK})|(?<={_GREEK}[»”\"')]));"
"""The Greek question mark is a semicolon. NFKC also converts U+037E to a semicolon, so original texts are searched."""
_MARKS = r"\u037e؟፧᥅‽⁇⁈⁉❓❔⳺⳻⸮⹔꘏꛷︖﹖？𑅃"
"""Marks that always end a question. ``?`` ends a question only if no word follows directly, as in an address."""
_QUESTION_MARK = re.compile(rf"\?(?![\w=&])|[{_MARKS}՞]|{_GREEK_MARK}")
_SENTENCE_END = re.compile(rf"[.!?…](?=\s)|[{_MARKS}。！．｡։۔।॥။።\n]|{_GREEK_MARK}")


def find_question(text: str) -> tuple[int, int] | None:
    """Return the characters [start, end) of the last question in a text, or None if the text has no question."""
    cuts = [0, *(mark.end() for mark in _SENTENCE_END.finditer(text)), len(text)]
    for start, end in reversed([*pairwise(cuts)]):
        marks = [*_QUESTION_MARK.finditer(text, start, end)]
        if not marks or not any(map(str.isalnum, text[start : marks[-1].start()])):
            continue
        # The Armenian mark is inside the sentence, so the question ends with the sentence.
        if marks[-1].group() == "՞":
            return start, end
        return start, marks[-1].end()
    return None


def group_by_text(index: TextIndex, passages: Iterable[FoundPassage]) -> dict[int, list[FoundPassage]]:
    """Group passages by the index of their text. Texts without passages are omitted."""
    grouped: dict[int, list[FoundPassage]] = defaultdict(list)
    for passage in passages:
        grouped[int(index.find_texts(np.array([passage.first]))[0])].append(passage)
    return grouped
