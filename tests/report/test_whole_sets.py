"""Tests of whole sets in the report, with and without an audit of the same pair."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from made_data_folder import DAY, MODELS, Folder

from audit_pipeline.tables import Pair

from .written import Page, Written, written

TINY, SMALL = MODELS
TWINS = "quiz-2026"


pytestmark = pytest.mark.usefixtures("quick_audits")


def write_test(
    folder: Folder, model: str = TINY, run_id: str = "run-c", at: datetime = DAY, benchmark: str = TWINS, **changes: Any
) -> None:
    """Write one test of a whole set: by default a sound test of twins that found training."""
    row = {"test": "twins", "p_value": 1e-6, "statistic": 0.9, "n": 100, "n_held_out": 300, "detectable_auroc": 0.6}
    row |= {"assumption": "chance drew the versions", "claim_level": "sound test", **changes}
    folder.write_rows("corpus_tests", Pair(benchmark, model), run_id, at, [row], asset_key="twins")


def first_screen(page: Page) -> str:
    """Return the text above all sections."""
    html = page.html
    return Page(f"<div>{html[html.index('<header id=') : html.index('<details class=')]}</div>").text


def test_twins_alone_are_an_answer(folder: Folder) -> None:
    write_test(folder)
    found: Written = written(folder)
    assert set(found.summary.pages) == {TINY}
    for name in (TINY, "across"):
        report, page = found.reports[name], found.pages[name]
        (asked,) = report.first_screen
        assert asked.summary == "The whole set differs: a sound test finds training."
        assert f"The answer: {asked.summary}" in first_screen(page)
        assert report.corpus_tests[0].explanation == (
            "It scores the published versions above those that were kept secret (test: rank of the published"
            " versions; p = 1.0×10⁻⁶)."
        )
        assert "sound test" in first_screen(page)
        assert "Nothing has been audited yet" not in page.text
        assert (asked.pairs, asked.tests, asked.models) == (1, 1, 1)
        assert datetime.fromisoformat(asked.last_audited) == DAY
        (entry,) = report.lineage
        assert (entry.table, entry.run_id, entry.number) == ("corpus_tests", "run-c", report.corpus_tests[0].lineage)
        links = {link.removeprefix("#") for link in page.having("href") if link.startswith("#")}
        assert links <= set(page.having("id"))


def test_twins_come_before_audits_without_findings(audited: Folder) -> None:
    write_test(audited)
    found = written(audited)
    summary = found.reports["across"].first_screen[0].summary
    assert summary == "Evidence of training in 1 of 5 audits."
    assert "tiny-125m on quiz-2026: The whole set differs: a sound" in first_screen(found.pages["across"])
    assert found.reports[SMALL].first_screen[0].summary.startswith("No evidence of training"), "the other model"


INFERENCE = {"test": "dataset_inference", "detectable_auroc": 0.69}
REFUSED = {"status": "refused", "reason": "x", "p_value": None}
NOTHING = "Nothing found: the model does not clearly prefer the published versions."
REVERSED = "No conclusion: together the held-out texts score higher than the audited texts."


@pytest.mark.parametrize(
    "of_models",
    [
        {TINY: ({"p_value": 0.4}, NOTHING), SMALL: (REFUSED, None)},
        {
            TINY: ({**INFERENCE, "p_value": 1.0, "direction": "opposite"}, REVERSED),
            SMALL: ({**INFERENCE, **REFUSED, "benchmark": "notes_32"}, None),
        },
    ],
)
def test_sentences_of_tests_without_findings(
    audited: Folder, of_models: Mapping[str, tuple[Mapping[str, Any], str | None]]
) -> None:
    for model, (changes, _) in of_models.items():
        write_test(audited, model, **changes)
    found = written(audited)
    for model, (_, told) in of_models.items():
        page, (asked,) = found.pages[model], found.reports[model].first_screen
        assert asked.explanation.startswith("None of 2 answers from scores is evidence of training")
        if told is None:
            assert "Tests of whole sets Evidence" not in page.text
            assert "No p-value: x" in page.text
        else:
            assert told in page.text


def test_every_test_of_a_set_is_counted(folder: Folder) -> None:
    for place in range(3):
        write_test(folder, run_id=f"run-{place}", at=DAY + timedelta(hours=place), p_value=0.3 - place / 10 - 0.08)
    write_test(folder, run_id="other-set", benchmark="another")
    write_test(folder, SMALL, test="sharded_permutation", detectable_auroc=0.69, assumption="every order was as likely")
    found = written(folder)
    tests = {test.benchmark: test for test in found.reports[TINY].corpus_tests}
    assert (tests[TWINS].p_values_so_far, tests["another"].p_values_so_far) == (3, 1)
    assert tests[TWINS].p_value == pytest.approx(0.02)
    assert tests[TWINS].outcome == "not_found", "0.02 is one of three"
    assert "0.060 with all 3 p-values allowed for" in tests[TWINS].explanation
    assert (
        "It would have found an AUROC of 0.619 (0.5 is chance) four times in five, with 3" in tests[TWINS].explanation
    )
    text = found.pages[TINY].text
    assert "One of 3 p-values of this set and model so far; only the latest of each test is shown." in text
    assert " 0.020 3 " in text
    (asked,) = found.reports[TINY].first_screen
    assert asked.explanation == ("Of 2 tests of whole sets: 1 where a sound test shows training, 1 with nothing found.")
    # An order that somebody says was drawn by chance is told as such.
    (test,) = found.reports[SMALL].corpus_tests
    assert (test.claim_level, test.claim_stated_by) == ("sound test", "whoever ran this")
    assert "sound test, as stated by whoever ran this" in first_screen(found.pages[SMALL])
    assert "a sound test finds training, if what was stated is so." in first_screen(found.pages[SMALL])
