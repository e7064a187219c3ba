"""Reproduced passages in the report: the section, its map and its curve, with numbers checked by hand."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from made_data_folder import DAY, MODELS, Folder, Searched, make_rate, make_searched, make_window

from audit_pipeline.report.document_answers import compute_log10_draws
from audit_pipeline.report.files import build_reports, json_copy_path
from audit_pipeline.report.number_format import format_draws
from audit_pipeline.report.pictures import build_strip_shapes
from audit_pipeline.statistics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    SET_APART_IN_WORDS,
)
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair

from .written import Written, written

pytestmark = pytest.mark.usefixtures("quick_audits")

TINY, SMALL = MODELS
SCRIPT = "<script>alert('piece')</script>"
BOOK = make_searched(
    "source:shelf:1",
    make_window(200, 400, 1e-6),
    make_window(350, 450, 0.25, strength=1, prefix_excerpt="the end of its prefix", first_choices=48,
                suffix_pieces=(" one", " two", "\n", " three"), first_choice_pieces=(" one", " too", " four", "three")),
    make_window(500, 600, 0.75, set_apart="predictable"),
    covered=(0.1, 0.1, 0.1, 0.0, 0.00004),
    title="The Lighthouse",
    longest_run=100,
    q_bh=0.333,
)  # fmt: skip
HOSTILE = make_window(200, 400, 1e-60, strength=1, prefix_excerpt=SCRIPT,
                      suffix_pieces=(SCRIPT, " x"), first_choice_pieces=("</ins>", SCRIPT))  # fmt: skip
OTHER = make_searched(f"source:shelf:2{SCRIPT}", HOSTILE, title=f"A book that it does not know {SCRIPT}")
SHORT = make_searched("source:shelf:3", characters=90, title="A short one")
HELD_OUT = make_searched(
    "source:new:1",
    make_window(200, 400, 0.002, strength=1),
    covered=(0.2, 0, 0, 0, 0),
    side="held_out",
    title="A new one",
)
NEVER = make_searched(
    "source:new:2", make_window(200, 400, 1e-30, strength=1), side="held_out", title="Another new one"
)

VAIN = (
    "Nothing found word for word in 1 document. The search would have found a passage that the model gives with a"
    " probability of at least 0.001, at the places where it looked."
)


def audited(folder: Folder) -> Folder:
    for benchmark in ("notes_32", "speeches_64"):
        folder.write_documents(benchmark.partition("_")[0])
        folder.write_examples(benchmark)
    for position, model in enumerate(MODELS):
        folder.write_card(model)
        folder.write_audit("notes_32", model, f"run-{position}", DAY)
    return folder


def extract(folder: Folder, *found: Searched, model: str = TINY, benchmark: str = "notes_32") -> None:
    collections = [make_rate("collection", f"rates {SCRIPT}", "audited", 0.001, 1, 2)]
    folder.write_search(Pair(benchmark, model), "run-extraction", DAY + timedelta(days=1), found, collections)


@pytest.fixture(scope="module")
def calibrated(quick_audits: None, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = Folder(DataPaths(tmp_path_factory.mktemp("calibrated") / "data"))
    extract(audited(folder), BOOK, OTHER, SHORT, HELD_OUT, NEVER)
    return written(folder)


def test_first_sentences(calibrated: Written) -> None:
    text = calibrated.pages[TINY].text
    headline = "Found word for word: the model gives passages of 1 of 2 documents."
    assert text.count(headline) == 3, "on the first screen, in its section and on the sheet"
    assert "Of held-out documents it gives passages of 1 of 2." in text
    assert EXTRACTION_IN_WORDS["reproduced"] in text
    assert f"{CALIBRATED_IN_WORDS} With 2 held-out documents no p-value is below 0.333." in text
    assert f"1 window is set apart. {SET_APART_IN_WORDS}" in text
    assert "6 windows of 50 + 50 tokens, coarse-to-fine." in text
    assert "1 document was not searched, so nothing is known of it: it is shorter than a window." in text


def test_a_document_in_numbers(calibrated: Written) -> None:
    (found,) = calibrated.reports[TINY].extraction
    assert [row.title for row in found.reproduced_documents] == [one.row["title"] for one in (BOOK, OTHER, SHORT)]
    html = calibrated.section(TINY, "extraction")
    (row,) = re.findall(r"<tr[^>]*><th[^>]*><bdi[^>]*>The Lighthouse.*?</tr>", html, re.DOTALL)
    cells = [
        [word for word in re.sub(r"<[^>]+>", " ", cell).split(" ") if word]
        for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
    ]
    # n = ln .5 / ln .75 = 2.4 draws, so 3 are enough.
    assert cells == [
        *(["1\u202f000", "3", "windows"], ["10.00%"], ["10.00%"], ["10.00%"], ["0.00%"], ["&lt;0.01%"]),
        *(["2.00%", "1", "predictable"], ["100"], ["3"], ["0.333", "3", "compared"], ["0.333"]),
    ]
    short = html.partition("A short one")[2].partition("</tr>")[0]
    assert "not searched: it is shorter than a window" in short
    assert short.count("–") == 10, "no number where there is no window, but how long it is"


def test_rates_of_held_out_documents(calibrated: Written) -> None:
    (found,) = calibrated.reports[TINY].extraction
    rates = {(row.unit, row.side): row for row in found.rates}
    held_out = rates["benchmark", "held_out"].rates[0]
    assert (held_out.threshold, held_out.n_reached, held_out.reached.value) == (0.001, 1, 0.5)
    cell = re.search(
        r"held-out<small><bdi>all.*?<td.*?<td[^>]*>(.*?)</td>", calibrated.section(TINY, "extraction"), re.DOTALL
    )
    assert cell is not None
    assert re.sub(r"<[^>]+>", " ", cell[1]).split() == ["5.00%", "[2.5,", "10.0]", "1", "of", "2", "[40.0,", "60.0]"]
    assert ("collection", "audited") in rates


def test_the_map_shows_the_likeliest_suffix_of_every_bin(calibrated: Written) -> None:
    (found,) = calibrated.reports[TINY].extraction
    strips = {row.title: row for row in found.map}
    assert set(strips) == {one.row["title"] for one in (BOOK, OTHER, HELD_OUT, NEVER)}, "none of what has no window"
    assert [row.side for row in found.map] == ["audited", "audited", "held_out", "held_out"]
    book = strips[BOOK.row["title"]]
    # 240 bins of 1,000 characters: character 200 stands in bin 48, 349 in 83, 350 in 84, 449 in 107.
    quarter = round(math.log10(0.25), 4)
    assert book.log10_p == [None] * 48 + [-6.0] * 36 + [quarter] * 24 + [None] * 132
    assert book.set_apart == list(range(500 * 240 // 1000, 599 * 240 // 1000 + 1))
    assert build_strip_shapes(book) == [
        ("apart", "M360 0h72v14h-72z"),
        ("m4", "M144 0h108v14h-108z"),
        ("m6", "M252 0h72v14h-72z"),
    ]
    html = calibrated.section(TINY, "extraction")
    assert html.count("<title>") == 4
    assert html.count("<desc>") == 4
    assert "10.00% of 1\u202f000 characters are in suffixes with a probability of at least 0.001" in html
    assert 'fill="url(#hatch-1)" d="M360' in html
    assert 'id="hatch-1"' in html
    assert "Hatched: only windows that are set apart" in html


def test_passages_beside_the_first_choices(calibrated: Written) -> None:
    (found,) = calibrated.reports[TINY].extraction
    best = found.passages[0]
    assert [row.title for row in found.passages] == [BOOK.row["title"], OTHER.row["title"]], "not of held-out documents"
    # A blank less before the word is no other token's fault: tokenizers of words drop it.
    assert [piece.differs for piece in best.pieces] == [False, True, True, False]
    quoted = calibrated.section(TINY, "extraction").partition("<blockquote")[2].partition("</blockquote>")[0]
    assert quoted == (
        ' dir="auto"><span class="before">… the end of its prefix</span> →  one <u>two</u><ins> too</ins>'
        "<u>↵</u><ins> four</ins> three …"
    )
    assert "48 of 50 tokens are its first choice" in calibrated.section(TINY, "extraction")
    assert "characters 350 to 450" in calibrated.section(TINY, "extraction")


def test_a_search_without_held_out_documents_is_not_calibrated(folder: Folder) -> None:
    extract(audited(folder), OTHER)
    found = written(folder)
    text = found.pages[TINY].text
    assert VAIN in text
    assert EXTRACTION_IN_WORDS["not reproduced"] in text
    assert NOT_CALIBRATED_IN_WORDS in text
    assert "p-value" not in found.section(TINY, "extraction")
    assert not re.search('aria-label="set apart"|hatch', found.section(TINY, "extraction"), re.IGNORECASE), (
        "the map has no such place"
    )
    assert SET_APART_IN_WORDS not in text


def test_a_model_with_a_search_only_has_a_page(folder: Folder) -> None:
    folder.write_documents("notes")
    folder.write_examples("notes_32")
    extract(folder, BOOK)
    found = written(folder)
    assert set(found.summary.pages) == {TINY}
    assert "Found word for word: the model gives passages of 1 of 1 document." in found.pages[TINY].text
    for name in (TINY, "across"):
        assert "Nothing has been audited yet" not in found.pages[name].text
    assert found.paths[TINY].name in {unquote(link) for link in found.pages["across"].having("href")}
    (row,) = found.reports[TINY].extraction
    assert row.lineage in {entry.number for entry in found.reports[TINY].lineage}
    tables = {entry.table for entry in found.reports[TINY].lineage}
    assert {"document_memorisation", "extraction_rates", "extraction_windows"} <= tables


def test_a_report_without_text_keeps_offsets(calibrated: Written, tmp_path: Path) -> None:
    found = Written(build_reports(calibrated.warehouse, tmp_path, include_text=False))
    assert "<blockquote" not in found.section(TINY, "extraction")
    assert "characters 350 to 450" in found.section(TINY, "extraction")
    assert not any(row.pieces or row.prefix_excerpt for row in found.reports[TINY].extraction[0].passages)
    copy = json_copy_path(found.paths[TINY]).read_text(encoding="utf-8")
    assert "the end of its prefix" not in copy + found.pages[TINY].html


def test_hostile_titles_and_pieces_are_text(calibrated: Written) -> None:
    page = calibrated.pages[TINY]
    assert "<script" not in page.html
    assert OTHER.row["title"] in page.text
    assert any(SCRIPT in label for label in page.having("aria-label"))
    quoted = calibrated.section(TINY, "extraction").rpartition("<blockquote")[2].partition("</blockquote>")[0]
    assert "&lt;script&gt;" in quoted
    assert "&lt;/ins&gt;" in quoted


def test_how_many_draws_give_a_passage() -> None:
    draws = {0.9: "1", 0.5: "1", 0.4: "2", 0.25: "3", 0.2: "4"}
    assert {p: format_draws(compute_log10_draws(math.log(p))) for p in draws} == draws
    assert compute_log10_draws(None) is None
    # ln .5 / ln .75, and of a tiny probability ln 2 / p.
    assert compute_log10_draws(math.log(0.25)) == pytest.approx(math.log10(math.log(0.5) / math.log(0.75)))
    assert compute_log10_draws(-2000.0) == pytest.approx(math.log10(math.log(2)) + 2000 / math.log(10))


def test_readings_against_reproduction(folder: Folder) -> None:
    audited(folder)
    for model, role, reached in ((TINY, "exposed", {1: 0, 8: 5, 64: 20}), (SMALL, "twin", {1: 0, 8: 0, 64: 1})):
        folder.write_card(model, resolved_from=f"control check, {role}: version abc")
        rates = [make_rate("occurrences", str(times), "audited", 0.001, n, 20) for times, n in reached.items()]
        folder.write_search(Pair("notes_32", model), f"run-{role}", DAY + timedelta(days=1), [OTHER], rates)
    found = written(folder)
    (instrument,) = found.reports["across"].instrument
    (control,) = instrument.memorised
    assert (control.control, control.benchmark) == ("check", "notes_32")
    points = [
        [(one.occurrences, one.n_reached, one.documents) for one in control[role]] for role in ("exposed", "twin")
    ]
    assert points == [[(1, 0, 20), (8, 5, 20), (64, 20, 20)], [(1, 0, 20), (8, 0, 20), (64, 1, 20)]]
    assert control.exposed[2].reached == {"value": 1.0, "low": 0.9, "high": 1.0, "method": None}
    assert control.exposed[2].log10_p == pytest.approx(-3.0)
    page = found.pages["across"]
    drawn = [label for label in page.having("aria-label") if "control check on notes_32" in label]
    assert len(drawn) == 2
    assert "control model 64 20 1 5.0% [0.0, 15.0]" in page.text
