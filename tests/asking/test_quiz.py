"""The quiz: questions from files, prompts in all orders, letters of answers, and what follows of them by document."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.asking.quiz import (
    ORDERS,
    Question,
    QuizAnswer,
    build_paraphrase_prompt,
    build_quiz_prompt,
    conclude_quiz,
    parse_choice,
    parse_paraphrases,
    read_paraphrases,
)
from audit_pipeline.asking.style import choose_by_style
from audit_pipeline.catalogue.contracts import CHAT_QUIZ, Side
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.metrics.roc import Floats

MILL = SearchedDocument("mill", "The mill turned all day. “Don’t stop,” she said. It\nnever did 🙂.", "The Old Mill")
LAKE = SearchedDocument("lake", "A lake lay there, and nobody swam.")
GOOD = {
    "document": "The Old Mill",
    "passage": '"Don\'t stop", she said. It never did',
    "paraphrase_1": "She asked for no halt. There was none",
    "paraphrase_2": "“Go on,” said she; it did",
    "paraphrase_3": "On it went at her word",
}
EARLIER = {**GOOD, "passage": "The mill turned all day.", "paraphrase_1": "All day long the mill went round."}
GIVEN_AWAY = "the options give themselves away"


def write_rows(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_questions_are_numbered_by_their_places_whatever_the_order_of_rows(tmp_path: Path) -> None:
    rows = [GOOD, EARLIER, {**GOOD, "document": "lake", "passage": "nobody swam"}]
    questions, skipped = read_paraphrases(write_rows(tmp_path / "p.jsonl", rows), [MILL, LAKE])
    again, _ = read_paraphrases(write_rows(tmp_path / "p.jsonl", rows[::-1]), [MILL, LAKE])
    assert questions == again
    places = [("lake", LAKE.text.index("nobody")), ("mill", 0), ("mill", MILL.text.index("Don"))]
    assert [(question.document, question.number) for question in questions] == places
    # A row that comes before others renumbers none.
    fewer, _ = read_paraphrases(write_rows(tmp_path / "p.jsonl", rows[:1]), [MILL, LAKE])
    assert fewer == questions[2:]
    assert [MILL.text[slice(*question.span)] for question in questions[1:]] == [
        "The mill turned all day",
        "Don’t stop,” she said. It\nnever did",
    ]
    assert skipped.count == 0


def test_formats_give_the_same_questions(tmp_path: Path) -> None:
    columns = ("paraphrase_1", "paraphrase_2", "paraphrase_3")
    listed = {"document": "mill", "passage": GOOD["passage"], "paraphrases": [GOOD[column] for column in columns]}
    expected, _ = read_paraphrases(write_rows(tmp_path / "p.jsonl", [GOOD]), [MILL])
    pq.write_table(pa.Table.from_pylist([listed]), tmp_path / "p.parquet")
    quoted = ('"' + value.replace('"', '""') + '"' for value in GOOD.values())
    (tmp_path / "p.csv").write_text(f"{','.join(GOOD)}\n{','.join(quoted)}\n")
    assert [read_paraphrases(tmp_path / name, [MILL])[0] for name in ("p.parquet", "p.csv")] == [expected] * 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**GOOD, "document": "sea"}, "there is no document 'sea'"),
        ({**GOOD, "passage": "the mill never turned"}, "the passage is not in the document mill"),
        ({**GOOD, "passage": None}, "column 'passage' holds no words"),
        ({**GOOD, "passage": 7}, "column 'passage' is not a string but int"),
        ({**GOOD, "paraphrase_2": " 🙂 "}, "column 'paraphrase_2' holds no words"),
        ({**GOOD, "paraphrase_2": GOOD["paraphrase_3"].upper()}, "do not all differ"),
        ({**GOOD, "paraphrase_2": "Don’t stop — she said: it never did"}, "do not all differ"),
        ({**GOOD, "paraphrases": ["one", "two"]}, "not a list of three"),
        ({**GOOD, "paraphrases": ["one", "two", 3]}, "column 'paraphrase_3' is not a string but int"),
        (EARLIER, "a passage that begins there has a row already"),
        ({**EARLIER, "passage": "The mill turned"}, "a passage that begins there has a row already"),
        ([], "not a JSON object but list"),
    ],
)
def test_a_row_that_is_no_question_is_counted_and_named(tmp_path: Path, row: object, reason: str) -> None:
    questions, skipped = read_paraphrases(write_rows(tmp_path / "p.jsonl", [EARLIER, row]), [MILL])
    assert len(questions) == skipped.count == 1
    assert skipped.first[0].location == "p.jsonl:2"
    assert reason in skipped.first[0].reason


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff\xfe\n"])
def test_a_file_without_a_question_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"p\.jsonl"):
        read_paraphrases(tmp_path / "p.jsonl", [MILL])


def test_the_prompt_has_the_verbatim_option_at_each_letter_equally_often() -> None:
    question = Question("mill", (0, 1), "It\n  never did 🙂", ("one", "two", "three"))
    letters: Counter[str] = Counter()
    for order, options in enumerate(ORDERS):
        prompt = build_quiz_prompt(question, order, "The Old Mill")
        assert 'in "The Old Mill"' in prompt
        shown = [line for line in prompt.split("\n") if line[1:2] == "."]
        assert [line[3:] for line in shown] == [question.options[option] for option in options]
        [letter] = [line[0] for line in shown if line.endswith("It never did 🙂")]
        assert letter == "ABCD"[options.index(0)]
        letters[letter] += 1
    assert letters == dict.fromkeys("ABCD", 6)
    assert "None" not in build_quiz_prompt(question, 0, None)


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("B", 1),
        ("b", 1),
        ("(B)", 1),
        ("**c**", 2),
        (" D.\n", 3),
        ("The answer is B.", 1),
        ("The answer is A because the others differ.", 0),
        ("Answer: **A**", 0),
        ("B. A mill stood there. C was its name.", 1),
        ("C) text", 2),
        ("I pick D", 3),
        ("\\boxed{C}", 2),
        ("B\n\nOnly B has the words of the book.", 1),
        ("Passage A", 0),
        ("A is the passage", 0),
        ("", None),
        ("🙂", None),
        ("e", None),
        ("A or B", None),
        ("Not A but B", None),
        ("A. one\nB. two", None),
        ("A man walked by.", None),
        ("None of them; it is a paraphrase.", None),
        ("ABCD", None),
        ("D'Artagnan", None),
        ("I cannot help with that.", None),
    ],
)
def test_the_letter_of_an_answer(answer: str, choice: int | None) -> None:
    assert parse_choice(answer) == choice


@max_examples(100)
@given(st.text())
def test_any_answer_is_a_choice_or_none(answer: str) -> None:
    assert parse_choice(answer) in (None, 0, 1, 2, 3)
    assert parse_paraphrases(answer) is None


def test_paraphrases_of_a_model() -> None:
    assert "turned all day" in build_paraphrase_prompt("It turned\nall day")
    expected = ("It went round.", "Round it\u2019went.", "It did turn 🙂.")
    assert (
        parse_paraphrases("Sure!\n\n1. It went round.\n2) Round\n it\u2019went.\n\n**3.** It did turn 🙂.\n")
        == expected
    )
    assert parse_paraphrases("1. one\n2. two") is None
    assert parse_paraphrases("1. one\n2. two\n3. ONE!") is None
    assert parse_paraphrases("1. one\n2. two\n3. three\n4. four") is None
    assert parse_paraphrases("1. one\n3. two\n2. three") is None


def build_documents(audited: int, held_out: int) -> list[SearchedDocument]:
    sides: list[tuple[Side, int]] = [("audited", audited), ("held_out", held_out)]
    return [SearchedDocument(f"{side}-{number:02}", "x", side=side) for side, count in sides for number in range(count)]


def build_question(document: str, number: int, options: Sequence[str] = ("a", "b", "c", "d")) -> Question:
    return Question(document, (number, number + 1), options[0], (options[1], options[2], options[3]))


def answer_question(question: Question, right: int, of: int = 24) -> Iterator[QuizAnswer]:
    """The first ``right`` of ``of`` orders are answered rightly; no other one is answered with a letter."""
    for order in range(24):
        is_right = order < right if order < of else None
        yield QuizAnswer(question.document, question.number, order, is_right, "answered" if order < of else "refused")


def conclude(
    documents: Sequence[SearchedDocument], rights: Mapping[str, Sequence[int]], style: float | None = 0.25, of: int = 24
) -> dict[str, dict[str, Any]]:
    """The rows by document, where so many orders of each question are right and the classifier is right so far."""
    questions = [build_question(name, number) for name, own in rights.items() for number in range(len(own))]
    answers = [answer for one in questions for answer in answer_question(one, rights[one.document][one.number], of)]
    by_style = None if style is None else np.full(len(questions), style)
    return {row["document_id"]: row for row in conclude_quiz(answers, questions, documents, by_style)}


def test_a_row_by_hand() -> None:
    """24 and 18 of 24 against 19 held-out documents of 6 and 12."""
    documents = build_documents(1, 19)
    rights = {document.name: (24, 18) if document.side == "audited" else (6, 12) for document in documents}
    rows = conclude(documents, rights)
    assert rows["audited-00"] == {
        "document_id": "audited-00",
        "title": None,
        "side": "audited",
        "questions": 2,
        "answered": 48,
        "accuracy": 0.875,
        "style_accuracy": 0.25,
        "n_held_out": 19,
        "p_value": 0.05,
        "lead_p_value": 0.05,
        "q_bh": 0.05,
        "auroc": 1.0,
        "style_auroc": 0.5,
        "claim": "recognised",
    }
    assert {*rows["audited-00"], "model", "benchmark", "run_id"} == {*CHAT_QUIZ.names}
    held_out = rows["held_out-03"]
    assert (held_out["accuracy"], held_out["p_value"], held_out["claim"]) == (0.375, None, "not recognised")


def test_with_fewer_than_19_held_out_documents_nothing_is_calibrated() -> None:
    documents = build_documents(4, 18)
    rights = {one.name: [12] * 5 if one.side == "audited" else [6] for one in documents}
    rows = conclude(documents, rights)
    assert rows["audited-00"]["p_value"] == pytest.approx(1 / 19)
    assert {row["claim"] for row in rows.values() if row["side"] == "audited"} == {"not calibrated"}
    assert conclude(documents, rights, style=1.0)["audited-00"]["claim"] == GIVEN_AWAY
    # Of 19 held-out documents 18 have as many questions as are compared, 3.
    documents = build_documents(1, 23)
    rights = {one.name: [6, 6, 6] if number < 19 else [6] for number, one in enumerate(documents)}
    assert conclude(documents, rights)["audited-00"]["claim"] == "not recognised"


def test_a_model_that_leads_by_no_more_than_the_classifier_recognises_nothing() -> None:
    documents = build_documents(2, 30)
    questions = [build_question(one.name, number) for one in documents for number in range(4)]
    is_audited = [question.document.startswith("audited") for question in questions]
    answers = [
        answer
        for question, here in zip(questions, is_audited, strict=True)
        for answer in answer_question(question, 20 if here else 6)
    ]
    claims = [
        {row["claim"] for row in conclude_quiz(answers, questions, documents, style) if row["side"] == "audited"}
        for style in (np.where(is_audited, 1.0, 0.25), np.where(is_audited, 0.5, 0.25), np.where(is_audited, 0.25, 0))
    ]
    # Leads of -1/6 and 0 apart; 1/3 against 0; 7/12 against 1/4.
    assert claims == [{GIVEN_AWAY}, {"recognised"}, {"recognised"}]


def test_chance_beside_chance_is_not_recognised() -> None:
    documents = build_documents(3, 30)
    rows = conclude(documents, {one.name: [6, 6, 6] for one in documents})
    assert {row["claim"] for row in rows.values()} == {"not recognised"}
    assert rows["audited-00"]["auroc"] == 0.5


def test_the_four_places_of_the_verbatim_option_weigh_alike() -> None:
    """Whichever orders are answered: always A is right in a quarter."""
    [document], rng = build_documents(1, 0), random.Random(7)
    question = build_question(document.name, 0)

    def share(answered: Sequence[int], right_places: Sequence[int]) -> float | None:
        answers = [
            QuizAnswer(document.name, 0, order, ORDERS[order].index(0) in right_places, "answered")
            if order in answered
            else QuizAnswer(document.name, 0, order, None, "refused")
            for order in range(24)
        ]
        [row] = conclude_quiz(answers, [question], [document], None)
        assert row["answered"] == len(answered)
        assert row["claim"] == ("refused" if row["accuracy"] is None else "not calibrated")
        accuracy: float | None = row["accuracy"]
        return accuracy

    at = [[order for order in range(24) if ORDERS[order].index(0) == place] for place in range(4)]
    for _ in range(20):
        answered = [order for own in at for order in rng.sample(own, rng.randint(1, 6))]
        assert share(answered, [0]) == 0.25
        assert share(answered, [1, 2]) == 0.5
    assert share([*at[0], *at[1], *at[2]], [0]) is None
    # Two of six, one of one, none of two and one, and so 1/4 of 4/3.
    answers = [QuizAnswer(document.name, 0, order, number < 2, "answered") for number, order in enumerate(at[0])]
    answers += [QuizAnswer(document.name, 0, at[1][0], True, "answered")]
    answers += [QuizAnswer(document.name, 0, order, False, "answered") for order in (at[2][0], at[2][1], at[3][0])]
    assert conclude_quiz(answers, [question], [document], None)[0]["accuracy"] == 1 / 3


def test_a_model_that_refuses_everything_is_refused() -> None:
    documents = build_documents(1, 2)
    rows = conclude(documents, {one.name: [0, 0] for one in documents}, of=0)
    assert {row["claim"] for row in rows.values()} == {"refused"}
    assert rows["audited-00"]["auroc"] is rows["audited-00"]["style_accuracy"] is None


def test_without_held_out_documents_style_alone_can_be_told() -> None:
    documents = build_documents(4, 0)
    rights = {one.name: [12] * 5 for one in documents}
    claims = [conclude(documents, rights, style)["audited-00"]["claim"] for style in (None, 0.25, 0.45, 0.5, 1.0)]
    # Of 20 questions 9 or more are right by chance in 4.1%; the model has half right.
    assert claims == ["not calibrated"] * 3 + [GIVEN_AWAY] * 2
    # The classifier leads, but 5 of 20 are chance.
    assert conclude(documents, {one.name: [0] * 5 for one in documents})["audited-00"]["claim"] == "not calibrated"


def test_one_document_and_none() -> None:
    assert conclude_quiz([], [], [], None) == []
    assert conclude_quiz([], [], [MILL], None) == []
    [row] = conclude_quiz([], [build_question("mill", 0)], [MILL], None)
    assert (row["claim"], row["answered"], row["title"]) == ("refused", 0, "The Old Mill")


def simulate(
    counts: Mapping[str, int], chances: Mapping[str, float], rng: random.Random
) -> tuple[list[Question], list[QuizAnswer]]:
    """Questions that look alike, and a model that answers each order rightly with a probability that scatters around
    that of its document."""
    questions, answers = [], []
    for name, count in counts.items():
        for number in range(count):
            options = [
                " ".join(rng.choices(("fen", "dale", "brook", "moor", "heath", "copse"), k=12)) for _ in range(4)
            ]
            question = build_question(name, number, options)
            questions.append(question)
            chance = min(max(rng.gauss(chances[name], 0.15), 0), 1)
            answers += [QuizAnswer(name, number, order, rng.random() < chance, "answered") for order in range(24)]
    return questions, answers


def look_at_style(questions: Sequence[Question]) -> Floats:
    found = choose_by_style([one.options for one in questions], [one.document for one in questions])
    assert found is not None
    return found


def test_a_model_that_knows_the_audited_documents_recognises_them() -> None:
    documents = build_documents(5, 30)
    questions, answers = simulate(
        {one.name: 12 for one in documents},
        {one.name: 0.9 if one.side == "audited" else 0.35 for one in documents},
        random.Random(3),
    )
    rows = conclude_quiz(answers, questions, documents, look_at_style(questions))
    assert [row["claim"] for row in rows] == ["recognised"] * 5 + ["not recognised"] * 30
    assert rows[0]["auroc"] == 1
    assert rows[0]["style_auroc"] < 0.8


def test_a_model_that_chooses_by_style_recognises_nothing() -> None:
    """The audited passages have more capitals than their paraphrases, the held-out ones have not."""
    rng = random.Random(4)
    documents = build_documents(10, 30)
    questions, answers = [], []
    for document in documents:
        for number in range(8):
            capitals = [0.4 if document.side == "audited" else 0.15, 0.15, 0.15, 0.15]
            options = [
                " ".join(
                    word.upper() if rng.random() < share else word
                    for word in rng.choices(("fen", "dale", "moor"), k=30)
                )
                for share in capitals
            ]
            question = build_question(document.name, number, options)
            questions.append(question)
            for order in range(24):
                seen = [sum(map(str.isupper, option)) + rng.gauss(0, 3) for option in options]
                answers.append(QuizAnswer(document.name, number, order, seen[0] == max(seen), "answered"))
    rows = conclude_quiz(answers, questions, documents, look_at_style(questions))
    claims = Counter(row["claim"] for row in rows if row["side"] == "audited")
    assert rows[0]["auroc"] > 0.95
    assert claims == {GIVEN_AWAY: 10}


def test_the_order_of_rows_is_irrelevant() -> None:
    rng = random.Random(5)
    documents = build_documents(4, 25)
    counts = {one.name: rng.randint(1, 6) for one in documents}
    questions, answers = simulate(counts, dict.fromkeys(counts, 0.4), rng)
    rows = conclude_quiz(answers, questions, documents, look_at_style(questions))
    rng.shuffle(questions)
    rng.shuffle(answers)
    rng.shuffle(documents)
    again = conclude_quiz(answers, questions, documents, look_at_style(questions))
    assert sorted(again, key=lambda row: str(row["document_id"])) == sorted(
        rows, key=lambda row: str(row["document_id"])
    )


def test_p_values_hold_where_documents_have_differing_numbers_of_questions() -> None:
    rng = random.Random(6)
    documents = build_documents(1, 24)
    n_quizzes = 200
    small = 0
    for _ in range(n_quizzes):
        chances = {one.name: rng.gauss(0.35, 0.1) for one in documents}
        counts = {one.name: rng.randint(1, 9) for one in documents}
        counts["audited-00"] = rng.choice((1, 20))
        questions, answers = simulate(counts, chances, rng)
        [row, *_] = conclude_quiz(answers, questions, documents, np.full(len(questions), 0.25))
        small += row["p_value"] <= 0.05
    assert small <= scipy.stats.binom.isf(0.01, n_quizzes, 0.05)
