"""Results per document: scores, p-values, claims and outcomes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.extras.chat.conclusions import conclude_documents
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.tables import CHAT_DOCUMENTS

NOTHING = {"longest_run": 0, "near_span": 0, "words_out": 0, "edits": 40, "answer_coverage": 0.0}


def answer(document: str, side: str, coverage: float | None = 0.0, **changed: Any) -> dict[str, Any]:
    """Return an answer with a coverage of its passage. None: a refusal."""
    measured = {"outcome": "answered", "passage_coverage": coverage, **NOTHING}
    unmeasured = {"outcome": "refused", "passage_coverage": None, **dict.fromkeys(NOTHING)}
    of_request = {
        "document_id": document,
        "side": side,
        "rung": "instruction",
        "passage": 0,
        "draw": 0,
        "words_in": 50,
        "passage_start": 0,
    }
    return {**of_request, **(unmeasured if coverage is None else measured), **changed}


def conclude(answers: Sequence[dict[str, Any]], **options: Any) -> dict[tuple[str, str], dict[str, Any]]:
    sides = options.pop("sides", {one["document_id"]: one["side"] for one in answers})
    documents = [SearchedDocument(name, "text", name.upper(), side=sides[name]) for name in sorted(sides)]
    rows = conclude_documents(documents, answers, **{"headline": "instruction", **options})
    return {(row["document_id"], row["rung"]): row for row in rows}


def test_the_row_of_a_document_by_hand() -> None:
    answers = [answer("a", "audited", 0.5, near_span=44, longest_run=40, words_out=44, edits=3)]
    answers += [answer("a", "audited", 0.25, draw=1), answer("a", "audited", 0.75, passage=1)]
    answers += [answer("a", "audited", 0.25, passage=1, draw=1)]
    answers += [
        answer(f"h{number}", "held_out", 0.1, passage=passage, draw=draw)
        for number in range(19)
        for passage in (0, 1)
        for draw in (0, 1)
    ]
    row = conclude(answers)["a", "instruction"]
    assert row == {
        **{"document_id": "a", "title": "A", "side": "audited", "rung": "instruction", "is_headline": True},
        **{"passages": 2, "requests": 4, "answered": 4, "refused": 0, "filtered": 0, "cut": 0, "empty": 0},
        **{"words_in": 50.0, "words_out": 44, "longest_run": 40, "near_span": 44},
        **{"coverage_mean": 0.4375, "coverage_best": 0.625, "near_verbatim": 1},
        **{"answer_coverage_mean": 0.0, "answer_coverage_best": 0.0},
        **{"score": 0.4375, "passages_compared": 2, "n_held_out": 19, "p_value": 0.05, "q_bh": 0.05},
        "claim": "reproduced",
    }
    assert {*row, "model", "benchmark", "run_id"} == set(CHAT_DOCUMENTS.names)
    held_out = conclude(answers)["h3", "instruction"]
    assert (held_out["score"], held_out["p_value"], held_out["claim"]) == (pytest.approx(0.1), None, "not reproduced")


def test_claims() -> None:
    assert conclude([answer("a", "audited", 0.2)])["a", "instruction"]["claim"] == "not calibrated"
    assert conclude([answer("a", "audited", 0.9, near_span=41)])["a", "instruction"]["claim"] == "reproduced"
    both = conclude([answer("a", "audited", 0.2), answer("h", "held_out", 0.2)])
    assert both["a", "instruction"]["claim"] == "not reproduced"
    assert both["a", "instruction"]["p_value"] == 1.0, "a tie counts against significance"
    refused = conclude([answer("a", "audited", None), answer("h", "held_out", 0.0)])["a", "instruction"]
    assert (refused["claim"], refused["p_value"], refused["refused"], refused["score"]) == ("refused", None, 1, None)


def test_outcomes_are_counted_and_refusals_do_not_lower_the_score() -> None:
    outcomes = ["answered", "refused", "filtered", "cut", "empty", "refused"]
    answers = [
        answer("a", "audited", 0.5 if outcome == "answered" else None, outcome=outcome, passage=passage)
        for passage, outcome in enumerate(outcomes)
    ]
    row = conclude(answers)["a", "instruction"]
    assert [row[name] for name in ("requests", "answered", "refused", "filtered", "cut", "empty")] == [6, 1, 2, 1, 1, 1]
    assert row["score"] == 0.5, "a refused passage does not count as a score of 0"


def test_each_prompt_style_has_its_own_results() -> None:
    answers = [answer("a", "audited"), answer("a", "audited", 0.9, rung="prefix", near_span=45)]
    found = conclude(answers)
    assert (found["a", "instruction"]["claim"], found["a", "prefix"]["claim"]) == ("not calibrated", "reproduced")
    assert [row["is_headline"] for row in found.values()] == [True, False]
    assert conclude(answers, headline="prefix")["a", "prefix"]["is_headline"]


def test_more_draws_on_one_side_are_not_compared() -> None:
    answers = [answer("a", "audited", float(draw == 5), draw=draw) for draw in range(6)]
    answers += [answer(f"h{number}", "held_out") for number in range(19)]
    row = conclude(answers)["a", "instruction"]
    assert (row["score"], row["p_value"], row["coverage_mean"]) == (0.0, 1.0, pytest.approx(1 / 6))


def test_a_beginning_is_compared_with_beginnings() -> None:
    answers = [answer("a", "audited", 0.4)]
    answers += [
        answer(f"h{number}", "held_out", 0.4 if passage == 0 else 0.0, passage=passage, passage_start=500 * passage)
        for number in range(99)
        for passage in range(5)
    ]
    row = conclude(answers)["a", "instruction"]
    assert (row["p_value"], row["passages_compared"]) == (1.0, 1)


def test_imported_outputs_are_compared_by_the_position_of_their_passage() -> None:
    def handed(name: str, side: str, coverage: float, start: int | None, **changed: Any) -> dict[str, Any]:
        return answer(name, side, coverage, rung="handed over", passage=None, passage_start=start, **changed)

    answers = [handed("a", "audited", 0.9, 100), *(handed(f"h{number}", "held_out", 0.1, 700) for number in range(19))]
    row = conclude(answers, headline="handed over")["a", "handed over"]
    assert (row["score"], row["p_value"], row["is_headline"]) == (0.9, 0.05, True)
    ungraded = conclude([handed("a", "audited", 0.9, None, near_span=50, words_in=None)])["a", "handed over"]
    assert (ungraded["claim"], ungraded["score"]) == ("not graded", None)


@given(seed=st.integers(0, 10**6))
@max_examples(20)
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    answers = [
        answer(
            name,
            "audited" if name < "d" else "held_out",
            draw.choice([None, 0.0, draw.random()]),
            passage=passage,
            draw=number,
        )
        for name in "abcdefgh"
        for passage in range(draw.randint(1, 4))
        for number in range(2)
    ]
    shuffled = draw.sample(answers, len(answers))
    assert conclude(shuffled) == conclude(answers)
