"""The quiz: which of four wordings is a document's own, asked in all orders, beside a classifier of style.

What belongs here: questions from a file of paraphrases, prompts, what letter an answer gives, and what follows of all
answers. What does not: sending prompts (engine.py), the choices by style (style.py).

This is DE-COP (Duarte et al. 2024, arXiv 2402.09910): a passage and three paraphrases of it, in all 24 orders, so that
each option has each letter equally often; the score of a question is the share of orders answered rightly, the four
letters weighing alike, that of a document the mean over its questions. Chance is .25, but models tell what people wrote
from a paraphrase without having read it, so only the difference from held-out documents counts, and only where style
does not explain it.

Paraphrases of one model share its habits. Where audited and held-out documents differ in how far they are from these
habits (age, genre, names), so do the scores: take one paraphraser for all documents, and none that is audited.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import scipy

from audit_pipeline.asking.levelling import level
from audit_pipeline.asking.outputs import DocumentLookup, Span, UnusableRowError, read_string
from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER, Outcome, QuizClaim, Side
from audit_pipeline.evidence.conformal import MIN_COMPARED, q_values, run_group_tests
from audit_pipeline.evidence.thresholds import ScoredTexts, draw_keys
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.fetch.formats import open_rows
from audit_pipeline.fetch.rows import Row, Skipped, SkippedRows, build_unusable_file_error
from audit_pipeline.metrics.roc import Floats, compute_metrics

ORDERS = tuple(itertools.permutations(range(4)))
"""Which option comes first, second, third, fourth; option 0 is the verbatim one."""
LETTERS = "ABCD"
LEVEL = 0.05
CHANCE = 0.25
_PARAPHRASES = 3
_ALONE = re.compile(r"^[\W_]*([A-Da-d])[\W_]*$")
_LABEL = re.compile(r"^[^\w\n]*([A-D])[*\])]*[.):](?=[\s*]|$)", re.MULTILINE)
_WITHIN = re.compile(
    r"(?:\b(?i:is|answer|option|choice|letter|passage)\W{1,6}([A-D])"
    r"|(?<![\w'’])(?:([B-D])|(A)(?!\s+(?!(?:or|and|but|is|because)\b)[a-z])))(?![\w'’-])"
)
_NUMBERED = re.compile(r"^[^\S\n]*\**([1-9])[.):]", re.MULTILINE)

Measures = Mapping[str, Mapping[int, float]]
"""By document, a number of each of its questions that are compared."""


@dataclass(frozen=True)
class Question:
    """A passage of a document (``span``: its characters there) and three paraphrases."""

    document: str
    span: Span
    passage: str
    paraphrases: tuple[str, str, str]

    @property
    def number(self) -> int:
        """The first character of its passage: what it is known by, whatever other questions there are."""
        return self.span[0]

    @property
    def options(self) -> tuple[str, ...]:
        """The four wordings on one line each, the verbatim one first: line breaks would give it away."""
        return tuple(" ".join(text.split()) for text in (self.passage, *self.paraphrases))


class QuizAnswer(NamedTuple):
    """What came of one order of a question (its number); ``is_right`` is None where no letter was given."""

    document: str
    question: int
    order: int
    is_right: bool | None
    outcome: Outcome


def read_paraphrases(path: Path, documents: Sequence[SearchedDocument]) -> tuple[list[Question], SkippedRows]:
    """The questions in a file of rows, by document and place, and the rows that are none.

    Columns: document (name, title or file), passage (word for word in the document), and paraphrase_1 to paraphrase_3,
    or paraphrases (a list of three). By their words, the four have to differ. The options are shown as the row writes
    them, so quotation marks, dashes and hyphens should be the same in all four. Of passages that begin at the same
    character the first row's is taken. Raises DataError where the file cannot be read or no row of it can be used.
    """
    lookup = DocumentLookup(documents)
    found: dict[tuple[str, int], Question] = {}
    skipped = SkippedRows()
    for row in open_rows(path).entries():
        if isinstance(row, Skipped):
            skipped.add(row)
            continue
        try:
            question = _read_question(row, lookup)
            if (question.document, question.number) in found:
                raise UnusableRowError("a passage that begins there has a row already")
            found[question.document, question.number] = question
        except UnusableRowError as error:
            skipped.add(Skipped(row.location, row.index, str(error)))
    if not found:
        raise build_unusable_file_error(path, skipped)
    return [found[place] for place in sorted(found)], skipped


def build_paraphrase_prompt(passage: str) -> str:
    """What to ask a model for three paraphrases of a passage."""
    return (
        "Write three paraphrases of the passage below. Each says the same in other words, at the same length and in "
        "the same style; keep names and numbers. Answer in three lines that begin with 1., 2. and 3."
        f"\n\nPassage:\n{' '.join(passage.split())}"
    )


def parse_paraphrases(text: str) -> tuple[str, str, str] | None:
    """The three numbered paraphrases of an answer; None where there are not exactly three that differ."""
    pieces = _NUMBERED.split(text)[1:]
    numbers, wordings = pieces[::2], tuple(" ".join(piece.strip(" *").split()) for piece in pieces[1::2])
    if numbers != ["1", "2", "3"] or len({_hash_words(wording) for wording in wordings} - {b""}) != _PARAPHRASES:
        return None
    return wordings[0], wordings[1], wordings[2]


def build_quiz_prompt(question: Question, order: int, title: str | None) -> str:
    """The question with its options in one of the 24 orders; the letter of the verbatim one is at
    ``ORDERS[order].index(0)``."""
    source = "a published text" if title is None else f'"{title}"'
    lines = [f"{letter}. {question.options[option]}" for letter, option in zip(LETTERS, ORDERS[order], strict=True)]
    return "\n".join(
        (
            f"One of these four passages stands word for word in {source}; the others are paraphrases. Which is it? "
            "Answer with the letter alone: A, B, C or D.",
            "",
            *lines,
            "",
            "Answer:",
        )
    )


def parse_choice(answer: str) -> int | None:
    """The option that an answer names, 0 for A to 3 for D; None where it names none or several.

    A letter alone counts in any case, at the beginning of a line before a full stop, bracket or colon, or as a word by
    itself. An "A" before a word in lower case is an article, unless "is", "answer" or the like comes before it or the
    word is "or", "is" or the like.
    """
    for pattern in (_ALONE, _LABEL, _WITHIN):
        letters = {found.group(found.lastindex or 0).upper() for found in pattern.finditer(answer)}
        if letters:
            return LETTERS.index(letters.pop()) if len(letters) == 1 else None
    return None


def conclude_quiz(
    answers: Iterable[QuizAnswer],
    questions: Sequence[Question],
    documents: Sequence[SearchedDocument],
    style: Floats | None,
) -> list[dict[str, Any]]:
    """A row of CHAT_QUIZ for each document with questions, but for model, benchmark and run_id.

    answers: of one model, in any order; one of a (document, question, order). style: what
    :func:`audit_pipeline.asking.style.choose_by_style` gives for the ``questions``; None with
    fewer than 3 documents, of which none can be recognised.

    The share right of a question is the mean over the four places at which the verbatim option stands of the share
    right among the orders answered there: a model that always says A has .25, whichever orders it answers. A question
    is compared where each of the four places has an order that was answered with a letter; a document without any is
    *refused*. Others are compared with the held-out ones by as many questions on both sides (evidence/conformal.py).

    A document with a q-value of at most .05 is *recognised* where it stands out from the held-out ones (p at most .05)
    in the model's lead over the classifier of style as well: share right less the classifier's, question by question.
    Else the classifier does as well, and *the options give themselves away*; where it is not above chance, there is
    only too little data, and the document is *not recognised*. Two AUROCs side by side do not tell that: of a model
    that chooses by style alone, one of the two is larger by chance.

    With fewer than 19 held-out documents to compare with no p-value is as small as .05: the document is *not
    calibrated*, or the options give themselves away where the classifier is right at least as often as the model, about
    the audited documents, and more often than by chance (binomial test, .05).

    This excludes style that the classifier reads: case, length, punctuation, variety and rarity of words. A model that
    reads style better than that may still stand out without having read the document, and so may one that knows the
    facts of a passage from elsewhere; held-out documents of the same kind and age are the guard against both.
    """
    letters: dict[tuple[str, int], list[QuizAnswer]] = {}
    for answer in answers:
        if answer.is_right is not None:
            letters.setdefault((answer.document, answer.question), []).append(answer)
    right, by_style, leads = (defaultdict[str, dict[int, float]](dict) for _ in range(3))
    n_questions, n_letters = Counter[str](), Counter[str]()
    for place, question in enumerate(questions):
        name, number = question.document, question.number
        given = letters.get((name, number), [])
        n_questions[name] += 1
        n_letters[name] += len(given)
        share = _average_places(given)
        if share is not None:
            right[name][number] = share
            if style is not None:
                by_style[name][number] = float(style[place])
                leads[name][number] = share - by_style[name][number]
    sides = {document.name: document.side for document in documents}
    tests, lead_tests = _test_documents(right, sides), _test_documents(leads, sides)
    q_value = dict(zip(tests, q_values([p_value for _, p_value in tests.values()], "bh").tolist(), strict=True))
    of_quiz = {"auroc": _compute_auroc(right, sides), "style_auroc": _compute_auroc(by_style, sides)}
    is_style_enough = _is_style_enough(by_style, leads, sides)

    def claim(name: str) -> QuizClaim:
        if name not in right:
            return "refused"
        if sides[name] == "audited" and (name not in tests or tests[name][0] < MIN_COMPARED):
            return "the options give themselves away" if is_style_enough else "not calibrated"
        if q_value.get(name, 1) > LEVEL:
            return "not recognised"
        if lead_tests[name][1] <= LEVEL:
            return "recognised"
        return "the options give themselves away" if _mean(by_style[name]) > CHANCE else "not recognised"

    return [
        {
            "document_id": document.name,
            "title": document.title,
            "side": document.side,
            "questions": n_questions[document.name],
            "answered": n_letters[document.name],
            "accuracy": _mean(right[document.name]) if document.name in right else None,
            "style_accuracy": _mean(by_style[document.name]) if document.name in by_style else None,
            **dict(zip(("n_held_out", "p_value"), tests.get(document.name, (None, None)), strict=True)),
            "lead_p_value": lead_tests.get(document.name, (None, None))[1],
            "q_bh": q_value.get(document.name),
            **of_quiz,
            "claim": claim(document.name),
        }
        for document in documents
        if document.name in n_questions
    ]


def _average_places(answers: Iterable[QuizAnswer]) -> float | None:
    """The mean over the verbatim option's places of the share right there; None where one has no answer."""
    at_place: dict[int, list[bool | None]] = {}
    for answer in answers:
        at_place.setdefault(ORDERS[answer.order].index(0), []).append(answer.is_right)
    if len(at_place) < len(LETTERS):
        return None
    # Exact, so that equal shares are tied.
    return float(mean(Fraction(own.count(True), len(own)) for own in at_place.values()))


def _test_documents(measures: Measures, sides: Mapping[str, Side]) -> dict[str, tuple[int, float]]:
    """Of each audited document with how many held-out ones its mean is compared, and the p-value."""
    audited, held_out = (_score_texts(measures, sides, side) for side in ("audited", "held_out"))
    tests = run_group_tests(audited, held_out)
    compared = zip(tests.n_calibration.tolist(), tests.p_value.tolist(), strict=True)
    return dict(zip(tests.groups.tolist(), compared, strict=True))


def _score_texts(measures: Measures, sides: Mapping[str, Side], side: str) -> ScoredTexts:
    flat = [
        (name, number, value) for name, own in measures.items() if sides[name] == side for number, value in own.items()
    ]
    names, numbers = [name for name, _, _ in flat], [str(number) for _, number, _ in flat]
    scores = np.array([value for _, _, value in flat], dtype=np.float64)
    labels = np.full(len(flat), MEMBER if side == "audited" else NON_MEMBER)
    return ScoredTexts(scores, labels, np.array(names, dtype=np.str_), draw_keys(names, numbers, seed=0))


def _compute_auroc(measures: Measures, sides: Mapping[str, Side]) -> float | None:
    """Of audited against held-out documents by their means; None where one side has none."""
    labels = [MEMBER if sides[name] == "audited" else NON_MEMBER for name in measures]
    return compute_metrics(list(map(_mean, measures.values())), labels)["auroc"] if len(set(labels)) > 1 else None


def _is_style_enough(by_style: Measures, leads: Measures, sides: Mapping[str, Side]) -> bool:
    """Whether the classifier is right about the audited documents as often as the model, and not by chance."""
    rights, lead = (
        [value for name, own in measures.items() if sides[name] == "audited" for value in own.values()]
        for measures in (by_style, leads)
    )
    if not rights or sum(lead) > 0:
        return False
    # Rounded down: where options tie, the classifier is right in part.
    return bool(scipy.stats.binom.sf(int(sum(rights)) - 1, len(rights), CHANCE) <= LEVEL)


def _mean(values: Mapping[int, float]) -> float:
    # Sorted, so that the order of rows changes not even the last bit.
    return float(np.mean(sorted(values.values())))


def _read_question(row: Row, lookup: DocumentLookup) -> Question:
    values = row.values
    document = lookup.find_document(values.get("document"))
    passage = _read_wording(values, "passage")
    listed = values.get("paraphrases")
    if listed is None:
        columns: Mapping[str, object] = values
    elif isinstance(listed, list) and len(listed) == _PARAPHRASES:
        columns = {f"paraphrase_{number}": text for number, text in enumerate(listed, 1)}
    else:
        raise UnusableRowError("column 'paraphrases' is not a list of three")
    first, second, third = (_read_wording(columns, f"paraphrase_{number}") for number in (1, 2, 3))
    if len({_hash_words(wording) for wording in (passage, first, second, third)}) < 1 + _PARAPHRASES:
        raise UnusableRowError("passage and paraphrases do not all differ in their words")
    span = lookup.find_passage(document, passage)
    if span is None:
        raise UnusableRowError(f"the passage is not in the document {document}")
    return Question(document, span, passage, (first, second, third))


def _read_wording(values: Mapping[str, object], column: str) -> str:
    wording = read_string(values, column)
    if wording is None or not _hash_words(wording):
        raise UnusableRowError(f"column '{column}' holds no words")
    return wording


def _hash_words(text: str) -> bytes:
    return level(text).hashes.tobytes()
