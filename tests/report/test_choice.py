"""Large reports show the most important results and count the omitted results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_data_folder import MODELS, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report import pair_results
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pair_results import max_sections_per_model, sort_by_importance
from audit_pipeline.report.sentences import read_kinds

from .written import Written

pytestmark = pytest.mark.usefixtures("quick_audits")

TINY = next(iter(MODELS))


def answer(name: str, outcome: str, low: float | None = 0.5, *, is_current: bool = True) -> dict[str, Any]:
    """Return the columns of an answer that decide its order."""
    auroc = {"value": low, "low": low, "high": low, "method": None}
    return {
        **{"model": name, "benchmark": "b", "outcome": outcome, "is_current": is_current},
        **{"auroc": auroc, "documents": None},
    }


def test_order_of_importance() -> None:
    answers = [
        answer("g", "not_evaluated"),
        answer("f", "evidence_of_training", 0.99, is_current=False),
        answer("e", "no_difference", 0.45),
        answer("d", "no_difference", 0.49),
        answer("c", "difference_to_look_at", 0.7),
        answer("b", "evidence_of_training", 0.6),
        answer("a", "sound_evidence_of_training", 0.9),
    ]
    assert [one["model"] for one in sort_by_importance(answers)] == list("abcdegf")


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(read_kinds())), st.none() | st.floats(0, 1), st.booleans()), max_size=12
    ).flatmap(lambda made: st.permutations(list(enumerate(made))))
)
def test_the_order_of_answers_does_not_depend_on_the_input_order(
    made: list[tuple[int, tuple[str, float | None, bool]]],
) -> None:
    answers = [answer(f"m{name}", outcome, low, is_current=current) for name, (outcome, low, current) in made]
    ordered = sort_by_importance(answers)
    assert ordered == sort_by_importance(answers[::-1])
    assert [one["is_current"] for one in ordered] == sorted((one["is_current"] for one in ordered), reverse=True)


def test_every_model_has_a_section_and_few_models_have_more() -> None:
    assert [max_sections_per_model(models) for models in (0, 1, 3, 10, 40, 41, 5000)] == [12, 12, 12, 4, 1, 1, 1]


def test_a_report_of_too_many_pairs(audited: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One benchmark was built again since: its two pairs matter least.
    audited.change_manifest("speeches_64", digest="of another build")
    build_warehouse(audited.paths)
    whole = Written(build_reports(audited.paths.warehouse, tmp_path / "whole"))
    assert "matter most" not in whole.pages["across"].text

    monkeypatch.setattr(pair_results, "MAX_ANSWERS", 3)
    monkeypatch.setattr(pair_results, "MAX_SECTIONS", 1)
    cut = Written(build_reports(audited.paths.warehouse, tmp_path / "cut"))
    assert (cut.summary.pairs, cut.summary.models, cut.summary.findings) == (4, 2, 16)
    across = cut.reports["across"]
    assert [one.is_current for one in across.answers] == [True, True, False]
    assert across.left_out.answers == 1
    assert "The 3 of 4 pairs of model and benchmark that matter most are shown" in cut.pages["across"].text
    assert "of an earlier build: audit again" in cut.pages["across"].text
    assert len(across.lineage) == len(whole.reports["across"].lineage) - 3, (
        "scores, findings and answer of the one left out"
    )
    mine = cut.reports[TINY]
    assert [(one.benchmark, one.section) for one in mine.answers] == [("notes_32", 1), ("speeches_64", None)]
    assert "Of the 2 benchmarks the 1 that matter most have a section" in cut.pages[TINY].text
    assert cut.pages[TINY].html.count('<article id="finding-') == 1
