"""The rule of evidence: whether a corpus holds so much of a text that chance does not explain it.

**The statistic.** ``by_chance`` is the number of documents that are expected to hold the found words of a text if words
fell independently: D × Π (d(w) + 1) / (D + 1) over the *distinct* found words w. Of the D documents, d(w) hold the word
w. The audited text is counted as one document more that holds all of its words: of D + 1 documents, d(w) + 1 hold w.
That is the share among the corpus and the text together, and the one share that exchangeable documents justify. Without
the one more, a word that no document holds would be infinite evidence. D of these documents could hold the words by
chance. A text is found if ``by_chance`` is at most ``CHANCE``.

Words are not independent: a document on a text's subject holds its words together. The statistic leaves out what works
against that: the words are in one place, in the text's order. A copy of all of a text that is a sentence or a line by
itself counts for more. About one word in ten begins a sentence, and one in ten ends one; and its k distinct words could
stand in k! orders (k up to seven). For a script without spaces D is the number of documents that hold its most common
character, as a document in another language holds none. Repeated words, numbers and single letters count for nothing,
as other words predict them.

**What documents share.** A run of words that is in several items of a test set, or in as many documents as
``compute_shared_threshold`` returns, is a quotation, a licence or a template. It says nothing about the text, unless a
document also holds a run across its border.

**Answers.** An answer near its question raises the verdict only if it is evidence by itself: the share of documents
that hold its words has to be at most ``CHANCE``. Labels of a choice (yes, true, a letter, a number) never are, nor are
up to three words that the question holds, too.

The rule assumes that a leak is in fewer documents than the threshold, that the items of a test set differ, and that the
order of words outweighs the dependence of words. None of this can be shown for a corpus;
bench/bench_overlap_evidence.py measures how often the rule is right.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.alignment import Flags, flag_run_starts
from audit_pipeline.extras.corpora.rules import MIN_WORDS
from audit_pipeline.extras.corpora.text_index import FoundPassage, HashTable, PassageSet, TextIndex, build_hash_table
from audit_pipeline.extras.corpora.word_hashes import Hashes, Places, Words, is_by_character, normalise
from audit_pipeline.tables import OverlapPart, OverlapVerdict

CHANCE = 0.01
"""A text is found where at most so many documents are expected to hold what was found of it by chance."""
_SENTENCE = 0.01
"""How often words begin and end where a sentence does: one in ten each."""
_MOST_ORDERED = 7
"""Words whose order counts, at most."""
_LABEL_WORDS = (
    "yes no true false none all both neither either any correct incorrect right wrong positive negative neutral maybe "
    "unknown other entailment contradiction option answer choice zero one two three four five six seven eight nine "
    "ten ja nein oui non vrai faux wahr falsch sí si verdadero falso да нет نعم لا はい いいえ 是 否 对 錯 错 正 确 不"
)
_LABELS = frozenset(_LABEL_WORDS.split())
"""Words by which an answer only names a choice: they are near any question."""
LEAST_SHARE = 0.6
"""It counts as contaminated where what was found is at least this share of what is its own, in bits."""
NEAR = 50
"""Words between a question and its answer, at most."""


def compute_shared_threshold(documents: int) -> int:
    """Return how many documents hold a shared run, at least: 3 of 400, 10 of a million, 32 of 10^9."""
    return max(3, round(math.pow(documents, 1 / 6)))


@dataclass(frozen=True, eq=False)
class EvidenceIndex:
    """What the rule of evidence knows of texts before any document is read.

    ``words`` (v of them): the distinct words; ``word_at`` (int32 [w]) which one each word is; ``is_plain`` (bool [v])
    whether it is a number or a single letter; ``is_label`` (bool [v]) whether it may only name a choice;
    ``is_character`` (bool [v]) of a script without spaces. ``is_repeated`` (bool [r]): runs of several items of one
    test set. ``answer_of`` (int64 [t]): of a question's text the answer's; -1.
    ``share``: the least share of equal words in an alignment.
    """

    words: HashTable
    word_at: npt.NDArray[np.int32]
    is_plain: Flags
    is_label: Flags
    is_character: Flags
    is_repeated: Flags
    answer_of: Places
    share: float

    def take_hashes(self, first: int, end: int) -> Hashes:
        """Return the hashes of the words [first, end) of the texts."""
        return self.words.values[self.word_at[first:end]]


def build_evidence_index(
    texts: Sequence[str],
    words: Words,
    index: TextIndex,
    item_of: Places,
    set_of: Places,
    answer_of: Places,
    share: float,
) -> EvidenceIndex:
    """Build the index of ``texts``, which were split; ``item_of`` and ``set_of`` [t]: the item and test set of each."""
    distinct, firsts, word_at = np.unique(words.hashes, return_index=True, return_inverse=True)
    # A half-width kana is of a script without spaces only in NFKC.
    found = [
        normalise(texts[text][words.starts[word] : words.ends[word]])
        for text, word in zip(index.find_texts(firsts).tolist(), firsts.tolist(), strict=True)
    ]
    is_character = np.array([is_by_character(word[0]) for word in found], np.bool_)
    is_plain = np.array([not any(map(str.isalpha, word)) or len(word) == 1 for word in found], np.bool_) & ~is_character
    is_label = np.array([word.casefold() in _LABELS for word in found], np.bool_)
    text_at = index.find_texts(index.places)
    run = np.repeat(np.arange(len(index.runs)), np.diff(index.first))
    sets = np.unique(np.stack([run, set_of[text_at], item_of[text_at]]), axis=1)
    again = (sets[:2, 1:] == sets[:2, :-1]).all(axis=0)
    is_repeated = np.zeros(len(index.runs), np.bool_)
    is_repeated[sets[0, 1:][again]] = True
    return EvidenceIndex(
        build_hash_table(distinct),
        word_at.astype(np.int32),
        is_plain,
        is_label,
        is_character,
        is_repeated,
        answer_of,
        share,
    )


def _cover_runs(begins: Flags, length: int) -> Flags:
    """Return which words (bool [w]) lie in the runs of ``length`` words that begin at these."""
    return np.convolve(begins, np.ones(length))[: len(begins)] > 0


@dataclass(frozen=True)
class TextEvidence:
    """What a corpus shows of one item.

    ``by_chance``: documents that are expected to hold what was found of it. ``part``: what of it was found; None:
    nothing that is its own.
    """

    verdict: OverlapVerdict
    by_chance: float | None = None
    part: OverlapPart | None = None

    @property
    def is_contaminated(self) -> bool | None:
        """Whether it counts; None where it is too short to tell."""
        return None if self.verdict == "too short to tell" else self.part in ("question and answer", "text")


class EvidenceJudge:
    """Weighs what was found in ``documents`` documents of the texts of an index."""

    def __init__(self, index: TextIndex, evidence: EvidenceIndex, found: PassageSet, documents: int) -> None:
        self._index, self._evidence = index, evidence
        held = found.documents_of_word
        of_script = np.array([documents, held[evidence.is_character].max(initial=0)])
        self._documents = np.maximum(of_script, 1)
        rates = (held + 1) / (self._documents[evidence.is_character.astype(np.int64)] + 1)
        self._bits = np.where(evidence.is_plain, 0.0, -np.log2(np.minimum(rates, 1.0)))
        is_shared = (found.documents_of_run >= compute_shared_threshold(documents)) | evidence.is_repeated
        # The last is that of words at which no run begins.
        self._is_shared = np.append(is_shared, False)
        self._is_held = np.append(found.documents_of_run > 0, False)
        self._passages, self._answered = (
            group_by_text(index, some.choose()) for some in (found.passages, found.answered)
        )

    def flag_own_words(self, text: int, matched: Flags) -> Flags:
        """Return which words of a text (bool [its words]) are ``matched`` and no part of what is shared.

        A run across the border of what is shared counts if some document holds it. In an alignment its words may be
        matched although the document has others between them.
        """
        begin, end = self._index.first_word[text : text + 2].tolist()
        length = min(self._index.n, end - begin)
        runs = self._index.run_at[begin:end]
        is_own = (runs >= 0) & ~self._is_shared[runs] & self._is_held[runs] & flag_run_starts(matched, length)
        return matched & (~self._flag_shared_words(text) | _cover_runs(is_own, length))

    def _flag_shared_words(self, text: int) -> Flags:
        begin, end = self._index.first_word[text : text + 2].tolist()
        is_shared = self._index.templates[begin:end] | self._is_shared[self._index.run_at[begin:end]]
        return _cover_runs(is_shared, min(self._index.n, end - begin))

    def flag_passage_words(self, text: int, kept: FoundPassage) -> Flags:
        """Return which words of a text (bool [its words]) a passage holds."""
        begin, end = self._index.first_word[text : text + 2].tolist()
        matched = np.zeros(end - begin, np.bool_)
        matched[kept.first - begin : kept.end - begin] = kept.flags
        return matched

    def is_explained_by_chance(self, text: int, kept: FoundPassage) -> bool:
        """Return whether chance may explain what a passage holds of a text's own."""
        return self._compute_own_chance(text, kept) > CHANCE

    def _compute_own_chance(self, text: int, kept: FoundPassage) -> float:
        """Return how many documents are expected to hold what a passage has of a text's own."""
        matched = self.flag_passage_words(text, kept)
        words = self._list_words(text, self.flag_own_words(text, matched))
        is_whole = kept.is_sentence and bool(matched.all())
        return self._expect_documents(words) * (self._compute_sentence_share(words) if is_whole else 1.0)

    def _is_evidence(self, answer: int, question: int) -> bool:
        """Return whether an answer near the question is more than chance puts there."""
        words = self._list_words(answer, None)
        begin, end = self._index.first_word[answer : answer + 2].tolist()
        if end - begin < MIN_WORDS:
            words = np.setdiff1d(words, self._list_words(question, None))
        words = words[~self._evidence.is_label[words]]
        return bool(2.0 ** -self._bits[words].sum() <= CHANCE)

    def classify_text(self, texts: Sequence[str], question: int) -> TextEvidence:
        """Return what was found of the text ``question`` of ``texts`` and of its answer, where it has one."""
        answer = int(self._evidence.answer_of[question])
        parts = [question] if answer < 0 else [question, answer]
        first, *_, end = self._index.first_word[question : question + len(parts) + 1].tolist()
        everything = np.unique(self._evidence.word_at[first:end]).astype(np.int64)
        least = self._compute_sentence_share(everything) * self._expect_documents(everything)
        if least > CHANCE or end - first < MIN_WORDS:
            return TextEvidence("too short to tell")
        candidates: list[tuple[float, OverlapPart]] = []
        has_evidence = answer >= 0 and self._is_evidence(answer, question)
        for kept in self._answered.get(question, []) if has_evidence else []:
            own = self._list_words(question, self.flag_own_words(question, self.flag_passage_words(question, kept)))
            chance = self._expect_documents(np.unique(np.concatenate([own, self._list_words(answer, None)])))
            part = self._classify_part(texts[question], question, kept)
            if len(own) and chance <= CHANCE:
                candidates.append((chance, "question and answer" if part == "text" else part))
        for text in parts:
            for kept in self._passages.get(text, []):
                chance = self._compute_own_chance(text, kept)
                if chance <= CHANCE:
                    part = self._classify_part(texts[text], text, kept)
                    whole: OverlapPart = "text" if answer < 0 else "question" if text == question else "answer"
                    candidates.append((chance, whole if part == "text" else part))
        if candidates:
            chance, part = min(candidates, key=lambda found: (_PARTS.index(found[1]), found[0]))
            return TextEvidence("shared text" if part == "context" else "found", chance, part)
        chances = [
            self._expect_documents(self._list_words(text, self.flag_passage_words(text, kept)))
            for text in parts
            for kept in self._passages.get(text, [])
        ]
        return TextEvidence("shared text" if min(chances, default=1.0) <= CHANCE else "not found")

    def _classify_part(self, characters: str, text: int, kept: FoundPassage) -> OverlapPart:
        """Return whether a passage is a text's context without its question, a part of it, or as good as all of it."""
        matched = self.flag_passage_words(text, kept)
        asked = find_question(characters)
        if asked is not None:
            begin, end = self._index.first_word[text : text + 2].tolist()
            starts = self._index.starts[begin:end]
            sentence = (starts >= asked[0]) & (starts < asked[1])
            if self._sum_bits(text, matched & sentence) < LEAST_SHARE * self._sum_bits(text, sentence):
                return "context"
        # Words within what is shared count only if the text has no others.
        everything = ~self._flag_shared_words(text)
        if not self._sum_bits(text, everything):
            everything[:] = True
        own = self.flag_own_words(text, matched) & everything
        is_part = self._sum_bits(text, own) < LEAST_SHARE * self._sum_bits(text, everything)
        return "part" if is_part else "text"

    def _list_words(self, text: int, flags: Flags | None) -> Places:
        """Return the distinct words of a text, of those that ``flags`` names."""
        begin, end = self._index.first_word[text : text + 2].tolist()
        words = self._evidence.word_at[begin:end]
        return np.unique(words if flags is None else words[flags]).astype(np.int64)

    def _compute_sentence_share(self, words: Places) -> float:
        """Return how often these distinct words stand in a given order as a sentence by themselves."""
        ordered = min(int(np.count_nonzero(self._bits[words])), _MOST_ORDERED)
        return _SENTENCE / math.factorial(ordered)

    def _sum_bits(self, text: int, flags: Flags) -> float:
        return float(self._bits[self._list_words(text, flags)].sum())

    def _expect_documents(self, words: Places) -> float:
        """Return how many documents are expected to hold these words (int64 [k], distinct) if each fell by itself."""
        is_character = np.count_nonzero(self._evidence.is_character[words]) > len(words) / 2
        return float(self._documents[int(is_character)] * 2.0 ** -self._bits[words].sum())


_PARTS: Sequence[OverlapPart] = ("question and answer", "text", "question", "answer", "part", "context")

_GREEK = r"[\u0300-\u03ff\u1f00-\u1fff]"
_GREEK_MARK = rf"(?:(?<={_GREEK})|(?<={_GREEK}[»”\"')]));"
"""Greek asks with a semicolon. NFKC makes one of U+037E, too, so texts are looked at as they were given."""
_MARKS = r"\u037e؟፧᥅‽⁇⁈⁉❓❔⳺⳻⸮⹔꘏꛷︖﹖？𑅃"
"""Marks that end a question wherever they are; ? does if no word follows at once, as in an address."""
_QUESTION_MARK = re.compile(rf"\?(?![\w=&])|[{_MARKS}՞]|{_GREEK_MARK}")
_SENTENCE_END = re.compile(rf"[.!?…](?=\s)|[{_MARKS}。！．｡։۔।॥။።\n]|{_GREEK_MARK}")


def find_question(text: str) -> tuple[int, int] | None:
    """Return the characters [start, end) of the last sentence of a text that is a question; None if none is.

    Armenian sets its mark inside the sentence; there the question ends with the sentence.
    """
    cuts = [0, *(end.end() for end in _SENTENCE_END.finditer(text)), len(text)]
    for start, end in reversed([*pairwise(cuts)]):
        marks = [*_QUESTION_MARK.finditer(text, start, end)]
        if marks and any(map(str.isalnum, text[start : marks[-1].start()])):
            return start, end if marks[-1].group() == "՞" else marks[-1].end()
    return None


def group_by_text(index: TextIndex, passages: Iterable[FoundPassage]) -> dict[int, list[FoundPassage]]:
    """Return the passages of each text that has any."""
    grouped: dict[int, list[FoundPassage]] = defaultdict(list)
    for kept in passages:
        grouped[int(index.find_texts(np.array([kept.first]))[0])].append(kept)
    return grouped
