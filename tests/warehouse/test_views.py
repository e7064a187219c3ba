"""Views of findings, releases, lineage and costs, compared with values computed by hand."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from made_data_folder import BENCHMARKS, DAY, MODELS, Folder, write_config

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.tables import Pair, canonical_json, digest, text_sha256
from audit_pipeline.warehouse.query import open_read_only, query_warehouse

from .decided import DETECTORS, NEW_MODEL, OF_PAIR, OLD_MODEL, write_decided

PAIR = Pair("notes_32", OLD_MODEL)
DECIDED = (
    *("decisions", "group_tests", "contamination_rates", "comparisons", "calibration_checks", "corpus_tests"),
    "highlights",
)


def with_dates(folder: Path, **released: date) -> Path:
    """Write the configuration with the models' dates of release, ``old`` and ``new``."""
    models = {"old": OLD_MODEL, "new": NEW_MODEL}
    return write_config(folder, fields={models[name]: {"release_date": day} for name, day in released.items()})


def test_findings_have_lineage_and_the_latest_run_is_current(decided: Folder) -> None:
    report = build_warehouse(decided.paths)
    assert all(report.rows[name] > 0 for name in DECIDED)
    assert report.doubled == {}
    with open_read_only(decided.paths.warehouse) as connection:
        assert len(connection.table("lineage_gaps")) == 0
    for name in DECIDED:
        assert decided.query(f"SELECT DISTINCT run_id FROM current_{name} {OF_PAIR}") == [("again-notes",)]
        assert decided.query(f"SELECT count(DISTINCT run_id) FROM {name} {OF_PAIR}") == [(2,)]


def test_a_later_run_without_rows_replaces_earlier_rows(decided: Folder) -> None:
    later = DAY + timedelta(days=2)
    for name in DECIDED:
        decided.write_rows(name, PAIR, "nothing-left", later, [])
    build_warehouse(decided.paths)
    for name in DECIDED:
        assert decided.query(f"SELECT * FROM current_{name} {OF_PAIR}") == []
    assert decided.query(f"SELECT count(*) FROM book_contamination {OF_PAIR}") == [(0,)]
    with open_read_only(decided.paths.warehouse) as connection:
        assert len(connection.table("lineage_gaps")) == 0


def test_tests_of_different_commands_stay_current(decided: Folder) -> None:
    first = {"test": "twins", "p_value": 0.01, "claim_level": "sound test"}
    later = DAY + timedelta(days=2)
    decided.write_rows("corpus_tests", PAIR, "secret", later, [first], asset_key="corpus_test")
    build_warehouse(decided.paths)
    sql = f"SELECT test, run_id FROM current_corpus_tests {OF_PAIR} ORDER BY test"
    assert decided.query(sql) == [("dataset_inference", "again-notes"), ("twins", "secret")]
    # The evaluation was run again and had nothing to test; the twins are another asset's.
    decided.write_rows("corpus_tests", PAIR, "empty", later + timedelta(days=1), [])
    build_warehouse(decided.paths)
    assert decided.query(sql) == [("twins", "secret")]


def test_a_warehouse_without_text_has_no_pieces(built: Folder, decided: Folder) -> None:
    sql = f"SELECT pieces, token_scores, counted FROM current_highlights {OF_PAIR}"
    assert built.query(sql) == [(["=made", " up"], [-1.0, 2.5], [True, False])]
    build_warehouse(decided.paths, include_text=False)
    assert decided.query(sql) == [([], [-1.0, 2.5], [True, False])]
    assert b"=made" not in decided.paths.warehouse.read_bytes()


def test_a_comparison_in_the_form_of_the_paper(built: Folder) -> None:
    board = dict(built.query(f"SELECT detector, auroc FROM leaderboard {OF_PAIR}"))
    rows = query_warehouse(built.paths.warehouse, f"FROM detector_comparison {OF_PAIR} ORDER BY other").to_pylist()
    assert [(row["detector"], row["other"]) for row in rows] == [
        ("loss", name) for name in ("blind_control", "min_k", "zlib")
    ]
    assert [(row["auroc"], row["other_auroc"]) for row in rows] == [
        (board["loss"], 0.55),
        (board["loss"], board["min_k"]),
        (board["loss"], board["zlib"]),
    ]
    assert [row["difference_in_percent"] for row in rows] == ["+4.000", "+4.000 ± 1.130", "+4.000"]
    assert [row["p_value_with_stars"] for row in rows] == ["none", "0.004**", "none"]
    assert [row["stars"] for row in rows] == ["", "**", ""]


def test_stars(audited: Folder) -> None:
    stars = {0.0009: "***", 0.001: "**", 0.01: "*", 0.049: "*", 0.05: "", 0.9: ""}
    rows = [
        {
            **{"detector": "loss", "parameters": "{}", "difference": -0.01, "standard_error": 0.5, "p_value": p_value},
            **{"other": "min_k", "other_parameters": canonical_json({"k": place / 10})},
        }
        for place, p_value in enumerate(stars, start=1)
    ]
    audited.write_rows("comparisons", PAIR, "again-notes", DAY, rows)
    build_warehouse(audited.paths)
    found = audited.query("SELECT p_value, stars, difference_in_percent FROM detector_comparison ORDER BY 1")
    assert found == [(p_value, one, "-1.000 ± 50.000") for p_value, one in stars.items()]


def test_books_have_rates_p_values_and_a_claim_level(built: Folder) -> None:
    rows = query_warehouse(
        built.paths.warehouse,
        f"FROM book_contamination {OF_PAIR} AND detector = 'loss' ORDER BY unit, name",
    ).to_pylist()
    by_unit: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_unit.setdefault(row["unit"], []).append(row)
    assert {unit: len(found) for unit, found in by_unit.items()} == {"benchmark": 1, "collection": 3, "group": 12}
    groups = sorted(by_unit["group"], key=lambda row: row["name"])
    # notes-0 is the first in the order of names: p = 1/13, q_bh = 0.03; the second: 2/13, 0.06.
    assert [(row["name"], row["p_value"], row["q_bh"], row["groups_found"]) for row in groups[:2]] == [
        ("notes-0", pytest.approx(1 / 13), pytest.approx(0.03), 1),
        ("notes-1", pytest.approx(2 / 13), pytest.approx(0.06), 0),
    ]
    assert [(row["title"], row["collection"]) for row in groups[:2]] == [
        ("notes 0", "project0"),
        ("notes 1", "project1"),
    ]
    assert {(row["flagged"], row["flagged_low"], row["flagged_high"]) for row in rows} == {(0.2, 0.05, 0.5)}
    assert {(row["rule"], row["alpha"], row["claim_level"]) for row in rows} == {("marginal", 0.05, "screening only")}
    found = {row["name"]: (row["groups_tested"], row["groups_found"]) for row in by_unit["collection"]}
    assert found == {"project0": (4, 1), "project1": (4, 0), "project2": (4, 0)}
    assert [(row["groups_tested"], row["groups_found"], row["p_value"]) for row in by_unit["benchmark"]] == [
        (12, 1, None)
    ]


def test_a_group_without_a_rate_keeps_its_p_value(decided: Folder) -> None:
    decided.write_rows("contamination_rates", PAIR, "rates-none", DAY + timedelta(days=3), [])
    build_warehouse(decided.paths)
    sql = f"SELECT count(*), count(p_value), count(rule), count(claim_level) FROM book_contamination {OF_PAIR}"
    assert decided.query(f"{sql} AND unit = 'group'") == [(36, 36, 0, 36)]


def test_a_benchmark_across_releases(decided: Folder, tmp_path: Path) -> None:
    config = with_dates(tmp_path / "config", old=date(2024, 5, 1), new=date(2025, 5, 1))
    build_warehouse(decided.paths, config=config)
    sql = (
        "SELECT model, release_date, previous_model, auroc, previous_auroc, change_in_auroc, same_build"
        " FROM model_timeline WHERE benchmark = 'notes_32' AND detector = 'loss'"
    )
    first, second = decided.query(sql)
    assert first[:3] == (OLD_MODEL, date(2024, 5, 1), None)
    assert first[4:] == (None, None, None)
    assert second[:3] == (NEW_MODEL, date(2025, 5, 1), OLD_MODEL)
    assert second[4] == first[3]
    assert second[5] == pytest.approx(second[3] - first[3])
    assert second[6] is True


def test_a_model_without_a_release_date_has_no_change(decided: Folder, tmp_path: Path) -> None:
    config = with_dates(tmp_path / "config", new=date(2025, 5, 1))
    decided.write_card(OLD_MODEL, release_date="spring")
    build_warehouse(decided.paths, config=config)
    sql = "SELECT model, release_date, previous_model, change_in_auroc FROM model_timeline WHERE detector = 'zlib'"
    assert decided.query(f"{sql} AND benchmark = 'notes_32'") == [
        (NEW_MODEL, date(2025, 5, 1), None, None),
        (OLD_MODEL, None, None, None),
    ]


def test_a_model_older_than_every_text_is_a_control(decided: Folder, tmp_path: Path) -> None:
    """The texts are of 2019-01-01 and 2025-06-01."""
    build_warehouse(decided.paths, config=with_dates(tmp_path / "old", old=date(2018, 12, 31)))
    board = {
        (model, benchmark, detector): auroc
        for model, benchmark, detector, auroc in decided.query(
            "SELECT model, benchmark, detector, auroc FROM leaderboard"
        )
    }
    rows = query_warehouse(decided.paths.warehouse, "FROM older_model_control").to_pylist()
    assert len(rows) == 2 * 4, "two benchmarks, four detectors, beside the one other model"
    for row in rows:
        benchmark, detector = row["benchmark"], row["detector"]
        assert (row["model"], row["older_model"], row["first_text"]) == (NEW_MODEL, OLD_MODEL, date(2019, 1, 1))
        assert row["auroc"] == board[NEW_MODEL, benchmark, detector]
        assert row["older_auroc"] == board[OLD_MODEL, benchmark, detector]
        assert row["above_older"] == pytest.approx(row["auroc"] - row["older_auroc"])
    build_warehouse(decided.paths, config=with_dates(tmp_path / "same", old=date(2019, 1, 1)))
    assert decided.query("FROM older_model_control") == [], "released the day the first text came out"


def test_a_text_without_a_date_excludes_older_models(decided: Folder, tmp_path: Path) -> None:
    decided.examples["notes_32"][0]["published"] = None
    decided.rewrite_examples("notes_32")
    build_warehouse(decided.paths, config=with_dates(tmp_path / "config", old=date(2000, 1, 1)))
    assert {row[0] for row in decided.query("SELECT benchmark FROM older_model_control")} == {"speeches_64"}
    # The configured date of release comes before the card's.
    assert decided.query("SELECT model, release_date FROM model_releases ORDER BY release_date") == [
        (OLD_MODEL, date(2000, 1, 1)),
        (NEW_MODEL, date(2024, 11, 1)),
    ]


def test_the_multiplicity_ledger_counts_all_attempts(decided: Folder) -> None:
    write_decided(decided, "notes_32", OLD_MODEL, "third", DAY + timedelta(days=3))
    build_warehouse(decided.paths)
    (row,) = query_warehouse(decided.paths.warehouse, f"FROM multiplicity_ledger {OF_PAIR}").to_pylist()
    groups, detectors = 12, len(DETECTORS)
    assert row["detectors"] == 4
    assert row["settings"] == row["settings_so_far"] == 22
    assert row["groups_tested"] == groups
    assert row["group_p_values"] == groups * detectors
    assert (row["comparison_p_values"], row["corpus_p_values"]) == (1, 1), "of three comparisons one has a p-value"
    assert row["p_values_so_far"] == 3 * (groups * detectors + 1 + 1)
    assert (row["runs_so_far"], row["evaluations_so_far"]) == (2, 2)
    assert row["models_on_benchmark"] == len(MODELS)


def test_the_chain_of_a_finding_goes_back_to_the_documents(built: Folder) -> None:
    sql = f'SELECT step, "table", "partition", data_version, written_by FROM lineage_of_finding {OF_PAIR}'
    pair = PAIR.partition
    assert built.query(f"{sql} AND is_current") == [
        (0, "evaluations", pair, "v-again-notes", "again-notes"),
        (1, "scores", pair, "s-again-notes", "again-notes"),
        (2, "reference_model", "tiny", "r1", None),
        (2, "token_statistics", pair, "t1", "again-notes"),
        (3, "examples", "notes_32", "e1", "run-examples"),
        (4, "documents", "notes", "d1", "run-docs"),
        (4, "input", "file.csv", "f1", None),
    ]
    # The token statistics of the run before have the same data version: the finding of then names the run of then.
    earlier = built.query(f"{sql} AND NOT is_current AND \"table\" = 'token_statistics'")
    assert earlier == [(2, "token_statistics", pair, "t1", "run-0-notes_32")]
    pairs = built.query("SELECT count(DISTINCT (model, benchmark)) FROM lineage_of_finding WHERE is_current")
    assert pairs == [(len(MODELS) * len(BENCHMARKS),)]
    joined = "SELECT count(*) FROM leaderboard JOIN lineage_of_finding USING (model, benchmark, run_id)"
    assert built.query(f"{joined} {OF_PAIR} AND detector = 'loss'") == [(7,)]


def test_costs_of_a_corpus_name_models_instead_of_fingerprints(decided: Folder) -> None:
    for table, partition in (("token_frequencies", f"wiki|{'t' * 40}"), ("token_frequencies", f"wiki|{'u' * 40}")):
        decided.write_lineage(table, partition, "counted", DAY, started_at=DAY - timedelta(seconds=7))
    decided.write_lineage("corpus_overlap", "notes_32|wiki", "searched", DAY, started_at=DAY - timedelta(seconds=8))
    build_warehouse(decided.paths)
    sql = "SELECT benchmark, model, corpus, stage, seconds FROM cost WHERE corpus IS NOT NULL ORDER BY seconds, model"
    assert decided.query(sql) == [
        (None, ", ".join(sorted(MODELS)), "wiki", "token_frequencies", 7.0),
        (None, None, "wiki", "token_frequencies", 7.0),
        ("notes_32", None, "wiki", "corpus_overlap", 8.0),
    ]


def test_the_headline_is_the_first_row_of_a_pair(decided: Folder) -> None:
    build_warehouse(decided.paths)
    sql = f"SELECT detector, parameters, is_headline FROM leaderboard {OF_PAIR}"
    found = decided.query(sql)
    answer = f"SELECT detector, parameters, TRUE FROM current_pair_answers {OF_PAIR}"
    assert [found[0]] == decided.query(answer)
    assert [is_headline for *_, is_headline in found] == [True, *[False] * (len(found) - 1)]
    assert len(found) > 1
    moment = f"leaderboard_as_of('{DAY + timedelta(days=9)}')"
    assert decided.query(sql.replace("leaderboard", moment)) == found


def test_costs_of_an_audit(decided: Folder) -> None:
    pair, started = PAIR.partition, DAY + timedelta(days=4)
    texts = [str(row["text"]) for row in decided.examples["notes_32"]]
    decided.write_token_statistics(OLD_MODEL, texts[:2], part="part-of-notes")
    for table, seconds in (("evaluations", 30), ("decisions", 45)):
        finished = started + timedelta(seconds=seconds)
        columns = {"asset_key": "evaluations", "benchmark_digest": digest("notes_32")}
        decided.write_lineage(
            table, pair, "timed", finished, started_at=started, model_fingerprint=MODELS[OLD_MODEL], **columns
        )
    build_warehouse(decided.paths)
    sql = f"SELECT run_id, seconds, texts, tokens FROM cost {OF_PAIR} AND stage = 'evaluations' AND is_latest"
    # One step wrote both tables; of 60 texts two have been run, of 32 tokens each.
    assert decided.query(sql) == [("timed", 45.0, 60, 64)]
    assert len({text_sha256(text) for text in texts[:2]}) == 2
    decided.change_manifest("notes_32", digest="of another build")
    build_warehouse(decided.paths)
    assert decided.query(sql) == [("timed", 45.0, None, None)]
