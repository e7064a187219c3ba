"""Report sections for a court: attempts, plans, other explanations, settings, error rates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from made_data_folder import (
    DAY,
    MODELS,
    SEARCHED,
    Folder,
    Row,
    make_grid_row,
    make_rate,
    make_searched,
    make_window,
)

from audit_pipeline.report.document_answers import compare_words
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.page_data import read_conclusions
from audit_pipeline.report.sentences import describe_attempts, describe_dose, describe_error_rates, describe_plan
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair

from .written import Written, written

pytestmark = pytest.mark.usefixtures("quick_audits")

TINY, SMALL = MODELS
PAIR = Pair("notes_32", TINY)
HOUR = timedelta(hours=1)
DOCUMENT = "notes:project0:0"
PASSAGE = make_window(
    *(200, 400, 0.25),
    strength=1,
    prefix_excerpt="the end of its prefix",
    suffix_pieces=(" query", " the", " old", " parser"),
    first_choice_pieces=(" query", " the", " new", " parser"),
    given_text="query the new parser twice",
    place="page 12",
    suffix_words=4,
    words_in_common=2,
    prior=1e-9,
)
VAIN = make_window(200, 400, 1e-9, strength=1)
GRID_P = {"grid_settings": 3, "grid_p_value": 0.25, "grid_q_bh": 0.25}
BOOKS = (
    make_searched(
        DOCUMENT,
        PASSAGE,
        make_window(500, 600, 0.5, set_apart="likely anyway", prior=0.4),
        covered=(0.1, 0.1, 0.1, 0, 0),
        **{"title": "The Lighthouse", "q_bh": 0.3, **GRID_P},
    ),
    make_searched("notes:project1:1", VAIN, title="Another", **GRID_P),
)
HELD_OUT = [make_searched(f"notes:new:{name}", VAIN, side="held_out", title=f"New {name}") for name in "ab"]


def make_grid() -> list[Row]:
    """Return a grid of three prefixes and two suffixes for an audited and a held-out document, and other draws."""
    grid = [
        make_grid_row(DOCUMENT, "audited", 50, 50, 1e-30, temperature=0, drawn_from="all"),
        make_grid_row(DOCUMENT, "audited", 50, 50, 0.9, temperature=0.2),
        make_grid_row(DOCUMENT, "audited", 50, 50, 1e-5, drawn_from="top-p 0.9"),
    ]
    for prefix, suffix, p in (
        (50, 20, 0.3),
        (50, 50, 0.3),
        (200, 20, 0.9),
        (200, 50, 0.9),
        (0, 20, 0.9),
        (0, 50, 9e-4),
    ):
        is_named = (prefix, suffix) == (50, 50)
        grid.append(make_grid_row(DOCUMENT, "audited", prefix, suffix, p, is_named=is_named))
        grid.append(make_grid_row("notes:new:a", "held_out", prefix, suffix, p / 1000, is_named=is_named))
    return grid


def write_exhibit(folder: Folder, *, planned: bool = True) -> None:
    """Write detectors, a search without findings, a plan and a planned search with a grid, and a control."""
    folder.write_documents("notes")
    folder.write_examples("notes_32")
    folder.change_manifest("notes_32", spec={"builder": "temporal"})
    folder.write_card(TINY)
    folder.write_card(SMALL, resolved_from="control check, exposed: version abc")
    folder.write_audit("notes_32", TINY, "run-scores", DAY)
    vain = [make_searched(DOCUMENT, VAIN), *HELD_OUT]
    folder.write_search(PAIR, "run-vain", DAY + HOUR, vain, settings={**SEARCHED, "suffix": 100})
    settings = {**SEARCHED, "price_per_million": 2.0}
    if planned:
        sealed = DAY + 2 * HOUR
        packages = {"torch": "2.12.0", "transformers": "5.23.0", "corpus-audit": "0.1.0"}
        changes = {"texts_in_cache": 3, "package_versions": packages, "extraction": settings}
        folder.write_plan(PAIR, "run-plan", sealed, authority="Made-up Time", timestamped_at=sealed, **changes)
    found = [*BOOKS, *HELD_OUT]
    folder.write_search(PAIR, "run-search", DAY + 5 * HOUR, found, grid=make_grid(), settings=settings)
    doses: list[Row] = []
    for times, n in {1: 0, 16: 8, 32: 18, 64: 20}.items():
        doses += [make_rate("occurrences", str(times), "audited", threshold, n, 20) for threshold in (0.001, None)]
    folder.write_search(Pair("notes_32", SMALL), "run-control", DAY + 3 * HOUR, [BOOKS[1]], doses)


@pytest.fixture(scope="module")
def found(quick_audits: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = Folder(DataPaths(tmp_path_factory.mktemp("exhibit") / "data"))
    write_exhibit(folder)
    return written(folder)


TRIED = (
    "1 of 3 windows of audited documents is given word for word (settings tried: 2, and 3 of a grid); 2 other runs on"
    " these texts, 1 with a finding."
)
PLANNED = (
    "Not planned beforehand. A plan was sealed on 2026-03-01 11:00 UTC (timestamp in the name of Made-up Time, whose"
    " signature corpus-audit verify checks); 2 passes over these texts came before in this data folder; 1 deviation"
    " from the plan. By then the model’s cache had 3 texts of the plan."
)


def section(found: Written, name: str) -> str:
    """Return the text of a folded section of the model's page."""
    return " ".join(re.sub(r"<[^>]+>", " ", found.section(TINY, name)).split())


def test_the_number_of_attempts_is_on_the_first_screen_in_the_section_and_in_json(found: Written) -> None:
    text = found.pages[TINY].text
    first_screen = text[: text.index("Instrument check.")]
    assert f"{TRIED} {PLANNED}" in first_screen
    assert "24 texts at 22 settings of detectors; 2 other runs on these texts, 1 with a finding." in first_screen
    assert f"{TRIED} {PLANNED}" in section(found, "extraction")
    report = found.reports[TINY]
    (search,), (answer,) = report.first_screen[0].word_for_word, report.answers
    assert (search.tried, search.planned) == (TRIED, PLANNED)
    assert answer.planned == "Not planned beforehand. 1 plan was sealed after the run began."
    assert read_conclusions(found.warehouse, TINY).word_for_word["notes_32"]["tried"] == TRIED


def test_every_run_and_every_deviation_is_listed(found: Written) -> None:
    (extraction,) = found.reports[TINY].extraction
    assert [(row.run_id, row.kind, row.is_current) for row in extraction.attempts] == [
        ("run-search", "grid", True),
        ("run-search", "search", True),
        ("run-vain", "search", False),
        ("run-scores", "detectors", True),
    ]
    assert [(row.item, row.planned, row.found) for row in extraction.deviations] == [
        ("package torch", "2.12.0", "2.13.0")
    ]
    assert "search package torch 2.12.0 2.13.0" in section(found, "extraction")


def test_the_grid_in_two_tables(found: Written) -> None:
    text = section(found, "extraction")
    assert "3 settings, one of them (framed) named in the entry of the benchmark." in text, "the plan came late"
    lengths = text.partition("each token drawn from the 40 likeliest Prefix 20 tokens 50 tokens ")[2]
    first, all_before, last = "50 tokens 1 of 1", "200 tokens 1 of 1", "all before it 1 of 1"
    assert lengths.startswith(first)
    assert all_before in lengths
    # 0.9 of the suffix of 20 tokens, 0.0009 of that of 50; both are below 0.001 in the held-out document.
    assert f"{last} held-out: 0 of 1 0 of 1 held-out: 0 of 1" in lengths
    draws = text.partition("at the lengths that were named Temperature all top-k 40 top-p 0.9 ")[2]
    assert draws.startswith("0 (first choices) 0 of 1 – – 0.2 – 1 of 1 – 1.0 – 1 of 1 held-out: 0 of 1 0 of 1")
    assert 'class="n named"' in found.pages[TINY].html
    assert "p of the grid q of the grid" in text


def test_a_passage_side_by_side_with_what_it_costs(found: Written) -> None:
    (passage, _) = found.reports[TINY].extraction[0].passages
    assert passage.location == "page 12"
    assert [(one.text, one.is_common) for one in passage.original] == [
        ("query the", True),
        ("old", False),
        ("parser", True),
    ]
    assert [(one.text, one.is_common) for one in passage.given] == [
        ("query the", True), ("new", False), ("parser", True), ("twice", False)
    ]  # fmt: skip
    text = section(found, "extraction")
    # ln .5 / ln .75 = 2.409 draws of 100 tokens at 2 a million; 4 of the 300 words of the document.
    assert "page 12, characters 200 to 400 · 4 words, 1.33% of the work · longest run of words in common: 2" in text
    assert "these draws cost 0.00048 at 2.0 a million tokens" in text


def test_a_report_without_text_quotes_no_continuation(found: Written, tmp_path: Path) -> None:
    plain = Written(build_reports(found.warehouse, tmp_path, include_text=False))
    (passage, _) = plain.reports[TINY].extraction[0].passages
    assert (passage.original, passage.given, passage.words_in_common) == ([], [], 2)
    assert "twice" in section(found, "extraction")
    assert "twice" not in json.dumps(plain.reports[TINY].extraction) + section(plain, "extraction")


def test_other_explanations_have_a_result_or_are_marked_untested(found: Written) -> None:
    (extraction,) = found.reports[TINY].extraction
    verdicts = {row.explanation: row.verdict for row in extraction.rivals}
    assert verdicts["It stands in a corpus that was searched."] == "not tested"
    assert verdicts["It is likely after any words."] == "applies in part"
    assert "windows: 1 of 2; they are set apart and count nowhere" in section(found, "extraction")


DOSE = (
    "A text that was read 32 times would have been found in 90.0% of cases (95% interval 80.0% to 100.0%), a text that"
    " was read 1 time in 0.0%: in the control check, trained here. Other models need other doses."
)


def test_dose_and_response_in_a_sentence(found: Written) -> None:
    assert DOSE in section(found, "extraction")
    points = [point(4, 0.0), point(8, 0.25), point(16, 0.5)]
    assert describe_dose(points[:1]) == (
        "A text that was read 4 times would have been found in 0.0% of cases (95% interval 0.0% to 0.0%): in the"
        " control check, trained here. Other models need other doses."
    )
    assert (describe_dose(points) or "").startswith("A text that was read 16 times would have been found in 50.0%")
    assert (describe_dose(points, 0) or "").endswith("So that nothing was found says little.")
    enough = [*points, point(32, 0.95), point(64, 0.8), point(128, 0.9)]
    assert "read 128 times would have been found in 90.0%" in (describe_dose(enough, 0) or "")
    assert "speaks against many readings" in (describe_dose(enough, 0) or "")
    assert "speaks against" not in (describe_dose(enough, 1) or "")
    assert describe_dose([], 0) is None


def point(occurrences: int, share: float) -> dict[str, Any]:
    return {
        **{"control": "check", "benchmark": "texts", "role": "exposed", "occurrences": occurrences, "documents": 20},
        **{"n_reached": round(20 * share), "reached": {"value": share, "low": share, "high": share}},
        "finished_at": DAY,
    }


def test_the_page_on_error_rates(found: Written) -> None:
    (page,) = found.reports[TINY].error_rates
    parts = {part.heading: part.sentences for part in page.parts}
    assert list(parts) == [
        *("What was done, and with what", "Whether the method was tested here", "Known error rates"),
        *("Standards and settings", "What the literature says against it", "What this does not show"),
    ]
    assert TRIED in parts["What was done, and with what"]
    assert (
        f"Checked on 2026-03-01, by the record of this data folder. {DOSE}"
        in parts["Whether the method was tested here"]
    )
    rates = "\n".join(parts["Known error rates"])
    assert (
        "False positives of the search on “notes_32”: 0 of 2 held-out documents have a passage with a probability of at"
        " least 0.001 (0.0%, 95% interval 0.0% to 10.0%, Clopper and Pearson)."
    ) in rates
    assert "False positives of a detector on “notes_32”: not known" in rates
    assert "1 time: 0 of 20 (95% interval 0.0% to 10.0%); 16 times: 8 of 20" in rates
    assert f"Plan of the search of “notes_32”: {PLANNED}" in parts["Standards and settings"]
    deviation = "Deviation, “notes_32”, package torch: planned 2.12.0, found 2.13.0."
    assert deviation in parts["Standards and settings"]
    assert 'class="sheet error-rates" id="error-rates-sheet"' in found.pages[TINY].html
    assert found.reports["across"].error_rates == []


def test_the_sheet_names_sources_attempts_and_omissions(found: Written) -> None:
    (sheet,) = found.reports[TINY].sheets
    text = found.pages[TINY].text
    text = text[text.index("What was looked at") : text.index("Benchmark’s digest")]
    works = {works.side: works for works in sheet.works}
    assert {side: row.documents for side, row in works.items()} == {"audited": 6, "held_out": 6}
    assert works["audited"].titles[0] == "notes 1"
    assert re.search("Asked about 6 documents: ?notes 1 ?; ", text)
    assert re.search("Compared with 6 documents ?, by design temporal ?: ?notes 0 ?; ", text)
    assert all(title in text for side in works.values() for title in side.titles)
    assert sheet.labels_by == "dates of publication"
    assert "dates of publication. Nothing here checks it." in text
    assert sheet.tried[0] == TRIED
    assert TRIED in text
    assert PLANNED in text
    assert "The blind control separates the two sides with an AUROC of 0.550 [0.470, 0.620]." in text
    parts = {part.heading: part.sentences for part in found.reports[TINY].error_rates[0].parts}
    assert any("dates of publication" in sentence for sentence in parts["What was done, and with what"])
    assert any(sheet.words_alone in sentence for sentence in parts["Whether the method was tested here"])


def test_a_missing_plan_is_stated(folder: Folder) -> None:
    write_exhibit(folder, planned=False)
    folder.write_documents("speeches")
    folder.write_examples("speeches_64")
    folder.write_audit("speeches_64", TINY, "run-speeches", DAY)
    found = written(folder)
    assert "named in the entry of the benchmark" in section(found, "extraction")
    text = found.pages[TINY].text
    assert f"notes_32: {TRIED} Not planned beforehand." in text[: text.index("Instrument check.")], "of several results"
    assert found.reports[TINY].extraction[0].deviations == []
    assert "Deviations from the plan" not in found.pages[TINY].html
    assert {words for sheet in found.reports[TINY].sheets for words in sheet.planned} == {"Not planned beforehand."}


ATTEMPTED: Mapping[str, Any] = {
    **{"kind": "search", "tried": 412, "windows_found": 1, "settings": 1, "grid_settings": None, "other_runs": 0},
    **{"other_findings": 0, "plan_sha256": None, "started_at": DAY + HOUR, "sealed_at": DAY, "timestamped_at": None},
    **{
        "authority": None,
        "passes_before": 1,
        "deviations": 0,
        "texts_in_cache": 0,
        "plans_sealed": 1,
        "rows_forgotten": 0,
        "other_subject": None,
        "planned_beforehand": True,
    },
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "1 of 412 windows of audited documents is given word for word (settings tried: 1); this data folder"
            " knows of no other run on these texts.",
        ),
        (
            {"windows_found": 0, "other_runs": 1, "other_findings": 1},
            "0 of 412 windows of audited documents are given word for word (settings tried: 1); 1 other run on these"
            " texts, 1 with a finding.",
        ),
        (
            {"kind": "detectors", "tried": 1, "settings": 1, "other_runs": 2},
            "1 text at 1 setting of a detector; 2 other runs on these texts, none with a finding.",
        ),
        ({"tried": None}, None),
    ],
)
def test_sentences_on_attempts(changes: Mapping[str, Any], said: str | None) -> None:
    assert describe_attempts({**ATTEMPTED, **changes}) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan_sha256": None, "plans_sealed": 0}, "Not planned beforehand."),
        ({"plan_sha256": None}, "Not planned beforehand. 1 plan was sealed after the run began."),
        ({"passes_before": 0}, "Planned beforehand: sealed on 2026-03-01 09:00 UTC (no timestamp), 0 passes over these"
         " texts came before in this data folder; 0 deviations from the plan."),
        ({"passes_before": 2, "planned_beforehand": False}, "Not planned beforehand. A plan was sealed on"
         " 2026-03-01 09:00 UTC (no timestamp); 2 passes over these texts came before in this data folder;"),
        ({"other_subject": "benchmark digest"}, "The results are of another audit than the plan: benchmark digest."),
        ({"timestamped_at": DAY, "authority": "A"}, "(timestamp in the name of A, whose signature"),
        ({"timestamped_at": DAY}, "(timestamp in the name of an authority without a name, whose signature"),
        ({"timestamped_at": DAY + 2 * HOUR, "authority": "A"},
         "corpus-audit verify checks, later than the run: it does not show that the plan came first)"),
        ({"rows_forgotten": 24}, "By then 24 lineage rows had been removed with corpus-audit forget"),
        ({"plans_sealed": 2}, "deviations from the plan. 2 plans were sealed in all."),
    ],
)  # fmt: skip
def test_sentences_on_plans(changes: Mapping[str, Any], said: str) -> None:
    assert said in (describe_plan({**ATTEMPTED, "plan_sha256": "abc", **changes}) or "")
    assert describe_plan(None) is describe_attempts(None) is None


EMPTY: Mapping[str, Any] = {
    **{"model_title": "M", "fingerprint": None, "searches": [], "answers": [], "signs": []},
    **{"instrument": "The instrument has not been checked here.", "checked_at": None, "doses": [], "deviations": []},
}
SEARCH: Mapping[str, Any] = {
    **{"title": "B", "documents": 1, "held_out": 0, "held_out_reached": None, "prefix_tokens": 50, "suffix_tokens": 50},
    **{"held_out_rate": {"value": None}, "stride": "tiled", "grid_settings": None, "attempted": None},
    **{"finished_at": None, "code_version": None},
}
ANSWER: Mapping[str, Any] = {
    **{"title": "B", "detector": "loss", "tests": None, "decisions": [], "attempted": None, "finished_at": None},
    **{"code_version": None, "blind": None, "builder": None, "origin": None, "design_stated_by": None},
}


PAPERS = (
    *("Duan et al. 2024", "Meeus et al. 2024", "Das et al. 2024"),
    *("Tiwari et al. 2026", "Xu et al. 2025", "Cooper et al. 2025"),
)
"""What the literature says against detectors, and against searches."""


def said_of(**facts: Any) -> str:
    return "\n".join(
        str(sentence) for part in describe_error_rates({**EMPTY, **facts}) for sentence in part["sentences"]
    )


def test_no_sentence_without_its_data() -> None:
    nothing = describe_error_rates(EMPTY)
    assert [part["heading"] for part in nothing] == ["What this does not show"]
    search = said_of(searches=[SEARCH], signs=["found"])
    for unknown in ("Clopper", "Plan of", "Deviation", "instrument", "fingerprint", "ready on", "q-values"):
        assert unknown not in search
    assert "not known, for no held-out document was searched" in search
    assert "The search has not been checked here" in search
    assert not any(paper in search for paper in PAPERS[:3])
    twin = {**point(8, 0.05), "role": "twin"}
    assert "The control model of check, which read none of these texts, gives passages of 1 of 20 texts." in said_of(
        searches=[SEARCH], doses=[point(8, 0.9), twin]
    )
    answer = said_of(answers=[ANSWER], signs=["stands out"], doses=[point(8, 0.9)])
    assert "The instrument has not been checked here" in answer
    assert "8 times" not in answer, "doses are of searches"
    assert not any(paper in answer for paper in PAPERS[3:])
    decided = {"rule": "marginal", "alpha": 0.05, "n_nonmembers": 24, "fpr": {"value": 0.04, "low": 0.001, "high": 0.2}}
    assert "at a threshold for 5% (marginal): 4.0% of 24 non-members (95% interval 0.1% to 20.0%)" in said_of(
        answers=[{**ANSWER, "decisions": [decided]}]
    )


def test_every_paper_is_in_the_bibliography() -> None:
    bibliography = (Path(__file__).parents[2] / "docs" / "bibliography.md").read_text(encoding="utf-8")
    said = said_of(searches=[SEARCH], answers=[ANSWER])
    named = re.findall(r"\((\w+ et al\. \d{4})\)\.", said)
    assert sorted(named) == sorted(PAPERS)
    assert [paper for paper in PAPERS if f"**{paper}.**" not in bibliography] == []


def test_words_in_common() -> None:
    assert compare_words("a b c", "a b c") == ([{"text": "a b c", "is_common": True}],) * 2
    assert compare_words("", "a") == ([], [{"text": "a", "is_common": False}])
