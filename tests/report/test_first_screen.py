"""The first screen of a report: its sentences in four cases, its shapes, and its contrast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

import pytest

from audit_pipeline.pipeline.evaluate_pair import write_missing_answers
from audit_pipeline.report.html import SIGN_SHAPES
from audit_pipeline.report.sentences import SIGNS, find_kind
from audit_pipeline.store import store
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import PAIR_ANSWERS, Pair

from .four_cases import CASES, MODEL_TITLE, NOTES, NOTES_TITLE, SHELF_TITLE, written_case
from .made_findings import MODEL, SHELF
from .written import Page, Written

pytestmark = pytest.mark.usefixtures("quick_audits")
SEPARABLE = "separable without a model"


@pytest.fixture(scope="module")
def cases(quick_audits: None, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Written]:
    return {case: Written(written_case(case, tmp_path_factory.mktemp(case))) for case in CASES}


def first_screen(page: Page) -> str:
    """Return the text above the first section."""
    text = said(page)
    return text[text.index("Corpus Audit · contamination report") : text.index("Instrument check.")]


def said(page: Page) -> str:
    """Return the text of a page without blanks before punctuation."""
    return re.sub(r" (?=[.,;:?!])", "", page.text)


def test_nothing_found(cases: Mapping[str, Written]) -> None:
    told = first_screen(cases["nothing_found"].pages[MODEL])
    assert (
        f"We asked whether {MODEL_TITLE} was trained on those texts of “{NOTES_TITLE}” that are from before 2022-01-01."
    ) in told
    # Its interval is 0.12 wide: 0.5 + 2.80 * 0.12 / 3.92.
    found = "This comparison would have found an AUROC of 0.586 (0.5 is chance) four times in five."
    assert f"The answer: Nothing found: members do not score clearly higher than non-members. {found}" in told
    assert "How sure Not sure that the texts were not used." in told
    assert "in 45 to 57 of 100 pairs; 50 is a coin toss" in told
    assert "What would change it More texts make the range narrower" in told


def test_the_texts_give_themselves_away(cases: Mapping[str, Written]) -> None:
    told = first_screen(cases["separable"].pages[MODEL])
    answer = "No conclusion: the two sides can be separated without the model."
    assert f"The answer: {answer} This comparison could not have found anything." in told
    assert "How sure Not sure at all, in either direction." in told
    assert "picks the right text of two 93 times in 100" in told
    assert "More texts of the same kind, or another detector, change nothing." in told


def test_books_stand_out(cases: Mapping[str, Written]) -> None:
    page = cases["books_stand_out"].pages[MODEL]
    told = first_screen(page)
    assert f"We asked whether {MODEL_TITLE} was trained on the 20 documents of “{SHELF_TITLE}”." in told
    assert "The answer: 4 of 20 documents score high: worth a closer look." in told
    assert "How sure Not sure. Of the documents with high scores, about 5% are expected to have them" in told
    assert "chosen at random from the same shelf, would confirm or refute it" in told
    assert "refute it. A search for passages that the model gives word for word" in told
    assert squares(page.html) == [(4, 20)]


def test_passages_are_reproduced(cases: Mapping[str, Written]) -> None:
    page = cases["passages_reproduced"].pages[MODEL]
    told = first_screen(page)
    headline = "Found word for word: the model gives passages of 5 of 20 documents."
    assert f"The answer: {headline} Scores: 4 of 20 documents score high" in told, "one verdict"
    assert "Of held-out documents it gives passages of 0 of 15." in told
    assert "this is seen directly, and anybody who has the model can repeat it" in told
    assert re.search(r"It does so with none of 15 documents that [^.]*(named as not read|were held out)\.", told)
    assert squares(page.html) == [(5, 20), (0, 15), (4, 20)]
    assert "search for passages" not in told, "what was done is no advice"


@pytest.mark.parametrize(
    ("case", "benchmark", "run"),
    [
        ("nothing_found", NOTES, "run-evaluations"),
        ("separable", NOTES, "run-evaluations"),
        ("books_stand_out", SHELF, "run-shelf"),
    ],
)
def test_findings_without_an_answer_get_the_one_that_the_report_shows(
    case: str, benchmark: str, run: str, cases: Mapping[str, Written]
) -> None:
    """The Dagster UI shows the one that is stored."""
    (shown,) = cases[case].reports[MODEL].answers
    root = cases[case].summary.path.parent.parent
    paths, pair = DataPaths(root), Pair(benchmark, MODEL)
    (stored,) = store.read(paths, PAIR_ANSWERS, pair, run_id=f"answer-{run}", label="the answer").to_pylist()
    for column in ("outcome", "sign", "headline", "explanation", "question", "how_sure"):
        assert stored[column] == shown[column]
    assert shown["what_would_change"].startswith(stored["what_would_change"]), "the report knows what else was done"
    assert MODEL_TITLE in stored["question"]
    assert stored["sign"] == find_kind(stored["outcome"]).sign
    before = read_latest_run(paths, PAIR_ANSWERS.name, pair.partition)
    write_missing_answers(paths, root.with_name("config"))
    assert read_latest_run(paths, PAIR_ANSWERS.name, pair.partition) == before, "what has an answer keeps it"


def squares(html: str) -> list[tuple[int, int]]:
    """Return the number of filled squares and of all squares of each row of documents."""
    rows = re.findall(r'<span class="units">(.*?)</span>', html, re.DOTALL)
    return [(row.count('class="hit"'), row.count("<i")) for row in rows]


def before_sections(html: str) -> str:
    """Return the HTML above the sections."""
    return html[html.index("<main") : html.index('<details class="section">')]


def test_documents_stand_under_the_answer(cases: Mapping[str, Written]) -> None:
    for name in (MODEL, "across"):
        seen = Page(before_sections(cases["passages_reproduced"].pages[name].html).replace('<main id="main">', "")).text
        assert seen.index("The answer:") < seen.index("Document by document")
        assert "The Sea and the Lighthouse stands out 9 285 0.003 0.007 300 held-out" in seen
    seen = Page(before_sections(cases["books_stand_out"].pages["across"].html).replace('<main id="main">', "")).text
    assert "The Sea and the Lighthouse stands out – – 0.003 0.007 300 held-out" in seen
    assert seen.count("No passages and no runs: the model was not asked to continue") == 1


def test_a_kind_of_answer_has_a_shape_a_word_and_a_colour(cases: Mapping[str, Written]) -> None:
    assert set(SIGN_SHAPES) == set(SIGNS)
    assert len({*SIGN_SHAPES.values()}) == len(SIGNS)
    css = resources.files("audit_pipeline.report").joinpath("templates", "style.css.j2").read_text()
    assert all(css.count(f"--{sign.replace(' ', '-')}: #") == 3 for sign in SIGNS)
    for case, sign in (
        *(("nothing_found", "nothing found"), ("separable", "no conclusion")),
        *(("books_stand_out", "stands out"), ("passages_reproduced", "found")),
    ):
        seen = before_sections(cases[case].pages["across"].html)
        assert f'<span aria-hidden="true">{SIGN_SHAPES[sign]}</span> {sign.capitalize()}</span>' in seen


@pytest.mark.parametrize("case", CASES)
def test_sections_are_folded_and_links_lead_into_them(case: str, cases: Mapping[str, Written]) -> None:
    """Browsers open the details that hold a link's target, not those that are it."""
    for page in cases[case].pages.values():
        listed = page.html[page.html.index("<nav") : page.html.index("</nav>")]
        folded = re.findall(
            r'<details class="section"><summary><h2>[^<]+</h2></summary>\n<span class="anchor" id="([\w-]+)"></span>',
            page.html,
        )
        assert {"limits", "models", "lineage"} <= set(folded)
        linked = re.findall(r'href="#([\w-]+)"', listed)
        assert linked[0] == "answer"
        assert set(linked[1:]) <= {*folded, "documents", "answers"}
        assert len(Page(f"{listed}</nav>").text.split()) <= 12, "one row"
        assert page.html.count('<details class="section">') == len(folded)


@pytest.mark.parametrize("case", CASES)
def test_one_page_to_print_has_answer_limits_and_digests(case: str, cases: Mapping[str, Written]) -> None:
    found = cases[case]
    for name, page in found.pages.items():
        (row,) = found.reports[name].sheets
        html = page.html[page.html.index('id="sheet-1"') :]
        sheet = Page(f"<article {html[: html.index('</article>')]}</article>").text
        report, (answer,) = found.reports[name], found.reports[name].answers
        assert sheet.startswith(f"Corpus Audit · {row.last_at[:10]} {answer.question} The answer ")
        assert answer.headline in sheet
        assert row.not_shown
        assert all(sentence in sheet for sentence in row.not_shown)
        digests = [row.fingerprint, row.tokenizer, row.digest, report.whole_sha256]
        assert all(digest and digest in sheet for digest in (*digests, *(run.data_version for run in row.runs)))
        assert MODEL in sheet
        assert answer.benchmark in sheet


@pytest.mark.parametrize("case", CASES)
def test_titles_stand_in_front_and_keys_behind(case: str, cases: Mapping[str, Written]) -> None:
    found = cases[case]
    (answer,) = found.reports[MODEL].answers
    assert (answer.model_title, answer.model) == (MODEL_TITLE, MODEL)
    sentences = (answer.question, answer.headline, answer.explanation, answer.how_sure, answer.what_would_change)
    assert not [one for one in sentences if answer.model in one or f" {answer.benchmark} on" in one]
    for page in found.pages.values():
        assert f"In commands: model {answer.model}, benchmark {answer.benchmark}." in said(page)


def test_the_glossary_is_a_page_beside_the_others(cases: Mapping[str, Written]) -> None:
    found = cases["nothing_found"]
    assert 'href="glossary.html"' in found.pages[MODEL].html
    glossary = Page((found.summary.path.parent / "glossary.html").read_text(encoding="utf-8"))
    assert "AUROC The probability that a member scores higher than a non-member" in glossary.text
    assert "](" not in glossary.text
    assert glossary.having("href") == []


def test_every_colour_of_words_has_enough_contrast() -> None:

    def luminance(colour: str) -> float:
        """Compute the relative luminance (WCAG 2)."""
        full = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = (int(full[place : place + 2], 16) / 255 for place in (0, 2, 4))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    css = resources.files("audit_pipeline.report").joinpath("templates", "style.css.j2").read_text()
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)
    ]
    assert len(schemes) == 3, "by day, by night, on paper"
    for scheme in schemes:
        for words, behind in (
            *((name, "page") for name in ("ink", "quiet", "accent", "fault")),
            *((sign.replace(" ", "-"), "page") for sign in SIGNS),
            *(("ink", "panel"), ("accent", "wash"), ("fault", "fault-wash"), ("ink", "heat-4")),
        ):
            light, dark = sorted((luminance(scheme[words]), luminance(scheme[behind])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, behind, scheme)
