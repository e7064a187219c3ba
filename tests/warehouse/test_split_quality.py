"""The quality of splits in the warehouse: one row per benchmark, and columns of every finding."""

from __future__ import annotations

from pathlib import Path

from ledger_lines import rewrite_lines
from made_data_folder import CONTROLS, Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.warehouse.query import query_warehouse


def test_the_summary_has_one_row_per_benchmark(warehouse: Path) -> None:
    notes, speeches = query_warehouse(warehouse, "FROM split_summary").to_pylist()
    assert (notes["benchmark"], notes["split_verdict"]) == ("notes_32", "undetermined")
    assert {name: notes[f"{name}_auroc"] for name in CONTROLS["notes_32"]} == CONTROLS["notes_32"]
    assert (notes["worst_control"], notes["worst_control_auroc"]) == ("dates", 0.876)
    assert notes["worst_control_auroc_low"] < 0.876 < notes["worst_control_auroc_high"]
    assert (notes["overlap_7"], notes["overlap_13"], notes["near_duplicate_pairs"]) == (0.111, 0.022, 3)
    assert (notes["other_language_members"], notes["other_language_nonmembers"]) == (0.055, 0.066)
    assert (notes["groups_members"], notes["groups_nonmembers"], notes["uneven_collections"]) == (6, 5, 1)
    assert speeches["worst_control"] is speeches["worst_control_auroc"] is speeches["words_auroc"] is None
    assert speeches["words_method"] == "not read: 48 texts, 200 needed"
    assert notes["is_current"]


BESIDE_FINDINGS = "SELECT DISTINCT benchmark, worst_control, worst_control_auroc FROM leaderboard ORDER BY 1"


def test_the_strongest_control_stands_beside_every_finding(warehouse: Path) -> None:
    of_build = [("notes_32", "dates", 0.876), ("speeches_64", None, None)]
    assert [tuple(row.values()) for row in query_warehouse(warehouse, BESIDE_FINDINGS).to_pylist()] == of_build
    assert query_warehouse(warehouse, "SELECT count(*) AS n FROM split_quality").to_pylist() == [{"n": 16 + 15}]


def test_an_assessment_of_another_build_is_not_current(audited: Folder) -> None:
    audited.write_split_quality("notes_32", CONTROLS["notes_32"], "run-later", benchmark_digest="another")
    of_speeches = ("split_quality", "speeches_64")
    rewrite_lines(audited.paths, lambda line: None if (line["table"], line["partition"]) == of_speeches else line)
    build_warehouse(audited.paths)
    found = [tuple(row.values()) for row in query_warehouse(audited.paths.warehouse, BESIDE_FINDINGS).to_pylist()]
    assert found == [("notes_32", None, None), ("speeches_64", None, None)]
    (row,) = query_warehouse(audited.paths.warehouse, "FROM split_summary WHERE benchmark = 'notes_32'").to_pylist()
    assert (row["is_current"], row["run_id"]) == (False, "run-later")
    findings = query_warehouse(audited.paths.warehouse, "SELECT count(*) AS n FROM leaderboard").to_pylist()
    assert findings == [{"n": 16}], "no row is doubled"
