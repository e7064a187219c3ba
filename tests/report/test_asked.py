"""Answers of chat models in the report: the section, the first screen and the sheet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from made_data_folder import DAY, MODELS, Folder

from audit_pipeline.report.files import build_reports, json_copy_path
from audit_pipeline.report.page_data import read_conclusions
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from tests.warehouse.chats import (
    CHAT,
    CHAT_PAIR,
    Row,
    answer_row,
    document_row,
    refused_row,
    write_asking,
)

from .written import Written, written

pytestmark = pytest.mark.usefixtures("quick_audits")

HTML = "<script>alert('answer')</script>"
RUNGS = ("title", "first line", "prefix", "instruction")
KNOWN = {"longest_run": 90, "near_span": 120, "words_out": 110, "claim": "reproduced", "near_verbatim": 1}
TESTED = {"n_held_out": 3, "p_value": 0.25, "q_bh": 0.5}
"""Of an audited document beside three that are held out."""


def ladder(document: str, **changes: object) -> list[Row]:
    """Return rows of a document for every prompt style. ``changes`` apply to the headline style."""
    return [document_row(document, rung, **(changes if rung == "instruction" else {})) for rung in RUNGS]


def report(folder: Folder, answers: Sequence[Row], documents: Sequence[Row]) -> Written:
    write_asking(folder, answers, documents)
    return written(folder)


@pytest.fixture(scope="module")
def calibrated(quick_audits: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two audited documents beside three held-out ones, every rung, and answers of two runs."""
    folder = Folder(DataPaths(tmp_path_factory.mktemp("asked") / "data"))
    held_out = [f"new {number}" for number in range(3)]
    documents = [
        *ladder("known", **KNOWN, **TESTED),
        *ladder("other", claim="not reproduced", n_held_out=3, p_value=0.75, q_bh=0.75),
        *(document_row(name, rung, side="held_out", longest_run=6) for name in held_out for rung in RUNGS),
    ]
    documents[2] = {**documents[2], "requests": 6, "answered": 3, "refused": 2, "cut": 1}
    answers = [
        answer_row("known", longest_run=90, near_span=120, words_out=110),
        answer_row("known", draw=1, longest_run=60),
        answer_row("known", "title", passage=1, longest_run=33),
        answer_row("other", "prefix", passage=2, longest_run=14, output_excerpt=f"the keeper {HTML} lit"),
        answer_row("known", "prefix", outcome="refused", refusal_phrase=f"I can’t {HTML}"),
        answer_row("new 0", side="held_out", longest_run=500),
    ]
    write_asking(folder, answers[:2], documents, run_id="run-first", at=DAY)
    later = [{**row, "asked_at": DAY + timedelta(hours=3)} for row in answers[2:]]
    later[0] = {**later[0], "answered_by": "talker-2026-04", "cost": None}
    write_asking(folder, later, documents, at=DAY + timedelta(days=1))
    return written(folder)


def test_a_model_with_answers_only_has_a_page(calibrated: Written) -> None:
    assert set(calibrated.summary.pages) == {CHAT}
    page, across = calibrated.pages[CHAT], calibrated.pages["across"]
    headline = "Found in its answers: long stretches of 1 of 2 documents."
    for text in (page.text, across.text):
        assert headline in text
        assert "Nothing has been audited yet" not in text
    assert page.having("href").count("#asked") == 2, "in the contents and below the answer"
    assert calibrated.paths[CHAT].name in {unquote(link) for link in across.having("href")}
    assert 'id="asked"' not in across.html
    (row,) = calibrated.reports[CHAT].asked
    assert row.lineage in {entry.number for entry in calibrated.reports[CHAT].lineage}
    assert {entry.table for entry in calibrated.reports[CHAT].lineage} == {"chat_answers", "chat_documents"}
    (sheet,) = calibrated.reports[CHAT].sheets
    assert [answer.headline for answer in sheet.answers] == [headline]


def test_first_sentences_of_the_section(calibrated: Written) -> None:
    text = calibrated.pages[CHAT].text
    assert "Sure of what the model said, for that is on record" in text
    assert "With 3 held-out documents no p-value can be as small as 0.05: that takes 19; the smallest is 0.250." in text
    # Two documents at four rungs, three more: 19 rows with 4 requests each, and one that has 6.
    assert "3 of 82 requests were refused, filtered, cut or answered with nothing: nothing follows from these." in text


def test_prompt_styles_side_by_side(calibrated: Written) -> None:
    rows = {(row.rung, row.side): row for row in calibrated.reports[CHAT].asked[0].rungs}
    assert [rung for rung, side in rows if side == "audited"] == [*RUNGS], "the least that is given first"
    named = rows["instruction", "audited"]
    assert (named.is_headline, named.documents, named.reproduced, named.words_out) == (True, 2, 1, 110)
    assert (named.longest_mean, named.longest_run, named.near_span) == ((90 + 12) / 2, 90, 120)
    assert (rows["prefix", "audited"].refused, rows["prefix", "audited"].cut) == (2, 1)
    assert rows["title", "held_out"].longest_mean == 6
    assert (named.answer_coverage_mean, named.answer_coverage_best) == (pytest.approx(0.3), pytest.approx(0.4))
    html = calibrated.section(CHAT, "asked")
    assert html.count("<svg") == 1
    assert "instruction, audited: 51.0 words" in html
    assert '<td class="n">30.0%<small>best: 40.0%</small></td>' in html


def test_audited_and_held_out_documents_are_listed(calibrated: Written) -> None:
    rows = calibrated.reports[CHAT].asked[0].asked_documents
    assert [(row.document_id, row.side, row.longest_run) for row in rows] == [
        ("known", "audited", 90),
        ("other", "audited", 12),
        *((f"new {number}", "held_out", 6) for number in range(3)),
    ]
    assert (rows[0].p_value, rows[0].q_bh, rows[0].near_verbatim, rows[0].claim) == (0.25, 0.5, 1, "reproduced")
    assert '<td class="n">50 → 110</td>' in calibrated.section(CHAT, "asked")


def test_the_strongest_answers_side_by_side(calibrated: Written) -> None:
    rows = calibrated.reports[CHAT].asked[0].strongest_answers
    assert [(row.document_id, row.rung, row.longest_run) for row in rows] == [
        ("known", "instruction", 90),
        ("known", "title", 33),
        ("other", "prefix", 14),
    ], "of each passage one, and none of held-out documents"
    assert sum(len(stretch.text.split()) for stretch in rows[0].given) <= 25
    assert [(stretch.text, stretch.is_common) for stretch in rows[2].given] == [
        ("the keeper", True),
        (HTML.split(maxsplit=1)[0], False),
        ("lit", True),
    ]
    text = calibrated.pages[CHAT].text
    assert "90 words on end · Known , characters 200 to 260 · 120 with at most 5 that differ" in text
    assert "50 words in → 110 out · talker-2026-03 , 2026-03-01 09:00:00 UTC · ended: stop" in text


def test_answers_and_phrases_are_text(calibrated: Written) -> None:
    html = calibrated.section(CHAT, "asked")
    assert "<script" not in calibrated.pages[CHAT].html
    assert "&lt;script&gt;" in html
    assert f"“I can’t {HTML}”: 1 answer" in calibrated.pages[CHAT].text


def test_several_versions_and_what_it_cost(calibrated: Written) -> None:
    (row,) = calibrated.reports[CHAT].asked
    assert [(version.name, version.requests) for version in row.versions] == [
        ("talker-2026-03", 5),
        ("talker-2026-04", 1),
    ]
    assert (row.sent, row.runs, row.prompt_tokens, row.output_tokens) == (6, 2, 600, 300)
    assert row.cost == pytest.approx(0.0025)
    text = calibrated.pages[CHAT].text
    assert "2 versions answered: the model changed meanwhile" in text
    assert "0.0025 by the prices that were stated; of 1 request no price is known" in text
    assert "from 2026-03-01 09:00:00 UTC to 2026-03-01 12:00:00 UTC" in text


def test_a_report_without_text_keeps_the_numbers(calibrated: Written, tmp_path: Path) -> None:
    found = Written(build_reports(calibrated.warehouse, tmp_path, include_text=False))
    said = found.pages[CHAT].html + json_copy_path(found.paths[CHAT]).read_text(encoding="utf-8")
    assert "the keeper" not in said
    assert "This report quotes no text." in said
    assert "90 words" in found.pages[CHAT].text


def test_conclusions_contain_the_claim(calibrated: Written) -> None:
    found = read_conclusions(calibrated.warehouse, CHAT)
    assert (found.answers, found.tests, found.word_for_word) == ({}, [], {})
    said = found.in_answers[CHAT_PAIR.benchmark]
    assert (said["claim"], said["sign"]) == ("reproduced", "found")


def test_without_held_out_documents_nothing_is_calibrated(folder: Folder) -> None:
    found = report(folder, [answer_row("one")], [document_row("one"), document_row("one", "title")])
    text = found.pages[CHAT].text
    assert (
        "At the rung named beforehand (instruction) its answers hold no long stretch of 1 document;"
        " with no held-out document to compare with, a run of 12 words means nothing." in text
    )
    assert "nothing says what shorter runs mean. No document is cleared." in text
    assert "Name such documents with --held-out." in text
    assert "p-value" not in found.section(CHAT, "asked")
    assert "? No conclusion" in text


def test_refusals_are_no_evidence_of_absence(folder: Folder) -> None:
    refusal = answer_row("one", outcome="refused", refusal_phrase="I cannot")
    found = report(folder, [refusal], [refused_row("one"), refused_row("new", side="held_out")])
    text = found.pages[CHAT].text
    assert "No conclusion: no answer about 1 document could be measured." in text
    assert "8 of 8 requests were refused, filtered, cut or answered with nothing" in text
    assert "“I cannot”: 1 answer" in text
    assert "Nothing found" not in text
    assert "Nothing follows of what the model knows." in text
    assert "<svg" not in found.section(CHAT, "asked"), "nothing to draw"
    assert found.reports[CHAT].asked[0].strongest_answers == []


def test_a_finding_in_another_prompt_style_is_no_answer(folder: Folder) -> None:
    documents = [document_row("one", "prefix", **KNOWN), document_row("new", "prefix", side="held_out")]
    found = report(folder, [answer_row("one", "prefix", longest_run=90)], documents)
    (row,) = found.reports[CHAT].asked
    assert (row.claim, row.rung, row.reproduced) == (None, None, 0)
    text = found.pages[CHAT].text
    assert "it was not asked in the way that was named beforehand" in text
    assert "At the rung prefix 1 of 1 document is reproduced; that rung was not named beforehand." in text
    assert "asked by prefix only" in text


def test_supplied_answers_without_prompts_are_not_graded(folder: Folder) -> None:
    unknown = {"words_in": None, "prompt": None, "prompt_sha256": None, "passage": None, "answered_by": None,
               "model_fingerprint": None}  # fmt: skip
    timeless = {"asked_at": None, "cost": None, "prompt_tokens": None, "output_tokens": None, "finish_reason": None}
    graded = {**KNOWN, "claim": "not graded", "near_verbatim": None}
    document = document_row("one", "handed over", is_headline=True, words_in=None, **graded)
    found = report(folder, [answer_row("one", "handed over", draw=1, **unknown, **timeless)], [document])
    html, text = found.section(CHAT, "asked"), found.pages[CHAT].text
    (row,) = found.reports[CHAT].asked
    assert (row.claim, row.reproduced, row.not_graded) == ("not graded", 0, 1)
    assert row.headline == "No conclusion: long stretches of 1 of 1 document may have been in the prompts."
    assert "This is neither a find nor an absence." in text
    assert "? No conclusion" in text
    assert "Documents that its answers reproduce" not in text
    assert "<small>1 not graded</small>" in html
    assert '<td class="n">unknown → 110</td>' in html
    assert "handed over, output 1 · words in unknown → 14 out · model as handed over, time unknown" in text
    assert "Requests 1 in 1 run" in text
    for words in ("not known: no prices were stated", "Sent not known when", "Answered by not known"):
        assert words in text


def test_a_model_with_scores_and_answers_has_one_subject(folder: Folder) -> None:
    folder.write_documents("notes")
    folder.write_examples("notes_32")
    model = next(iter(MODELS))
    folder.write_card(model)
    folder.write_audit("notes_32", model, "run-scores", DAY)
    write_asking(folder, [answer_row("one")], [document_row("one", **KNOWN)], pair=Pair("notes_32", model))
    write_asking(folder, [answer_row("one")], [document_row("one")], pair=Pair("speeches", model))
    found = written(folder)
    page = found.pages[model]
    assert page.html.count('<article class="answer">') == 2
    assert "So it is with" not in page.text
    assert "Documents that its answers reproduce" in page.text
    assert [row.benchmark for row in found.reports[model].asked] == ["notes_32", "speeches"]


def test_a_long_shelf_is_listed_in_part(folder: Folder) -> None:
    rows = [document_row(f"book {place:03}", longest_run=200 - place) for place in range(120)]
    rows += [document_row(f"new {place:03}", side="held_out", longest_run=60 - place % 60) for place in range(70)]
    found = report(folder, [answer_row("book 000", passage=place) for place in range(9)], rows)
    (row,) = found.reports[CHAT].asked
    assert (len(row.asked_documents), row.left_out.asked_documents) == (150, 40)
    assert len(row.strongest_answers) == 5
    html = found.section(CHAT, "asked")
    assert "And 40 more:" in html
    assert len(html) < 200_000
