"""Views and report sections about controls, their studies, and groups of unlabelled texts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from ledger_lines import rewrite_lines
from made_data_folder import DAY, MODELS, Folder
from made_rows import make_table

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import build_reports, json_copy_path
from audit_pipeline.report.picture_data import build_study_panels
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CONTROL_STUDIES, canonical_json
from audit_pipeline.warehouse.query import open_read_only

from .conftest import copy_folder

EXPOSED, TWIN = MODELS


def study_rows(setting: str, values: list[object], aurocs: list[float], seed: int = 1) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for value, auroc in zip(values, aurocs, strict=True):
        for detector, difference in (("min_k", 0.0), ("loss", 0.1)):
            row = {"study": "how_often", "control": "check", "setting": setting, "value": canonical_json(value)}
            row |= {"detector": detector, "parameters": "{}", "seed": seed, "run_id": "run-study"}
            interval = {"ci_low": auroc - 0.15, "ci_high": min(1.0, auroc + 0.05)}
            rows.append({**row, **interval, "auroc": auroc - difference})
    return rows


@pytest.fixture(scope="module")
def checked_once(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Two models of a control, audited on one benchmark, and a study, with its warehouse: for tests that only read."""
    made = Folder(DataPaths(tmp_path_factory.mktemp("checked") / "data"))
    made.write_documents("notes")
    made.write_examples("notes_32")
    for place, (model, signal) in enumerate(((EXPOSED, 3.0), (TWIN, 0.0))):
        made.write_audit("notes_32", model, f"run-{place}", DAY + timedelta(hours=place), signal=signal, blind=0.51)
        role = ("exposed", "twin")[place]
        made.write_card(model, resolved_from=f"control check, {role}: version abc")
    rows = study_rows("occurrences", [1, 2, 10], [0.6, 0.7, 0.99]) + study_rows("learning_rate", [0.001], [0.8])
    made.write_file("control_studies", "how_often", "run-study", rows)
    build_warehouse(made.paths)
    return made


@pytest.fixture
def checked(checked_once: Folder, tmp_path: Path) -> Folder:
    """A copy of its own for every test, not built yet."""
    return copy_folder(checked_once, tmp_path / "data")


def test_the_instrument_check_compares_exposed_and_twin(checked_once: Folder) -> None:
    rows = checked_once.query("SELECT control, detector, exposed_auroc, twin_auroc, blind_auroc FROM instrument_check")
    leaderboard = {
        (model, detector): auroc
        for model, detector, auroc in checked_once.query(
            "SELECT model, detector, auroc FROM leaderboard_history WHERE is_latest"
        )
    }
    assert checked_once.query("FROM leaderboard") == [], "controls are no audited models"
    assert {row[1] for row in rows} == {"loss", "zlib", "min_k", "min_k_plus_plus"}
    for control, detector, exposed, unexposed, blind in rows:
        assert (control, blind) == ("check", 0.51)
        assert exposed == leaderboard[EXPOSED, detector]
        assert unexposed == leaderboard[TWIN, detector]
        assert exposed > 0.9 > unexposed  # type: ignore[operator]


def test_studies_join_to_their_lineage(checked_once: Folder, checked: Folder) -> None:
    [(count,)] = checked_once.query("SELECT count(*) FROM control_studies JOIN lineage USING (run_id)")
    assert count == 8
    with open_read_only(checked_once.paths.warehouse) as connection:
        assert len(connection.table("lineage_gaps")) == 0
    rewrite_lines(checked.paths, lambda fields: None if fields["table"] == "control_studies" else fields)
    assert build_warehouse(checked.paths).unexplained == (checked.paths.study("how_often"),)


def test_groups_by_their_mean_against_a_twin_in_python(checked_once: Folder) -> None:
    statement = """SELECT "group", texts, mean_score, rank_in_benchmark FROM group_scores
        WHERE model = $$tiny-125m$$ AND detector = 'loss' ORDER BY rank_in_benchmark"""
    rows = checked_once.query(statement)
    scores = checked_once.query(
        """SELECT "group", score FROM scores_with_examples
        WHERE model = $$tiny-125m$$ AND detector = 'loss' AND status = 'ok'""",
    )
    by_group: dict[object, list[float]] = {}
    for group, score in scores:
        by_group.setdefault(group, []).append(float(str(score)))
    twin = sorted(by_group, key=lambda group: -sum(by_group[group]) / len(by_group[group]))
    assert [row[0] for row in rows] == twin
    assert [row[1] for row in rows] == [len(by_group[group]) for group in twin]
    assert [row[2] for row in rows] == [pytest.approx(sum(by_group[group]) / len(by_group[group])) for group in twin]
    assert [row[3] for row in rows] == list(range(1, len(twin) + 1))


def test_the_report_shows_the_check_and_a_picture_of_the_study(checked_once: Folder, tmp_path: Path) -> None:
    path = build_reports(checked_once.paths.warehouse, tmp_path).path
    assert json.loads(json_copy_path(path).read_text(encoding="utf-8"))["answers"] == [], (
        "models of a control are no answers"
    )
    page = path.read_text(encoding="utf-8")
    (section,) = [part for part in page.split('<details class="section">') if 'id="instrument"' in part]
    assert "Instrument check" in section
    assert section.count("<tr") == 5, "a head and four detectors"
    assert '<tr class="chosen"><th scope="row">min_k_plus_plus' in section
    assert "The instrument reacts, and to more than training (AUROC 0." in page
    assert "how often" in section
    assert section.count("<svg") == 2, "one per setting that was varied"
    for value in ("occurrences", "learning rate", "10", "0.001", "min_k"):
        assert value in section
    assert '<a href="#instrument">' in page


@pytest.mark.usefixtures("quick_audits")
def test_a_model_that_is_no_longer_of_a_control_is_an_answer(checked: Folder, tmp_path: Path) -> None:
    checked.write_card(TWIN, resolved_from="a folder")
    build_warehouse(checked.paths)
    both = build_reports(checked.paths.warehouse, tmp_path)
    across = json.loads(json_copy_path(both.path).read_text(encoding="utf-8"))
    assert [answer["model"] for answer in across["answers"]] == [TWIN]
    assert set(both.pages) == {EXPOSED, TWIN}, "each has its page"


@pytest.mark.usefixtures("quick_audits")
def test_unlabelled_texts_are_reported_by_group(checked: Folder, tmp_path: Path) -> None:
    for row in checked.examples["notes_32"]:
        row["label"] = None
    checked.rewrite_examples("notes_32")
    for file in checked.paths.table("evaluations").rglob("*.parquet"):
        file.unlink()
    build_warehouse(checked.paths)
    summary = build_reports(checked.paths.warehouse, tmp_path)
    page = summary.pages[EXPOSED].read_text(encoding="utf-8")
    assert page.count("<h4>By group</h4>") == 1
    statement = """SELECT "group" FROM group_scores WHERE detector = 'min_k_plus_plus' AND model = 'tiny-125m'
        AND parameters = '{"k":0.2}' ORDER BY mean_score DESC LIMIT 1"""
    [(first,)] = checked.query(statement)
    assert f'<td class="n">1</td><th scope="row"><bdi>{first}</bdi></th>' in page


def test_panels_average_seeds_and_order_values_as_numbers() -> None:
    rows = [
        *study_rows("occurrences", [10, 2], [0.9, 0.7]),
        *study_rows("occurrences", [2], [0.5], seed=2),
        *study_rows("learning_rate", [0.001], [0.8]),
    ]
    rows[0]["auroc"] = None
    occurrences, rate = build_study_panels(make_table(CONTROL_STUDIES, rows).to_pylist())
    assert (occurrences["setting"], occurrences["places"]) == ("occurrences", ["2", "10"])
    assert [line["detector"] for line in occurrences["lines"]] == ["loss", "min_k"]
    loss, (two, ten) = ([point["auroc"] for point in line["points"]] for line in occurrences["lines"])
    assert (two["value"], two["low"], two["high"]) == (pytest.approx(0.6), 0.5, 0.7)
    assert ten["value"] is None, "the one training has no AUROC"
    assert loss[1]["value"] == pytest.approx(0.8)
    auroc = rate["lines"][0]["points"][0]["auroc"]
    assert list(auroc.values())[:3] == [pytest.approx(0.7), pytest.approx(0.65), pytest.approx(0.85)]
