"""The four answers that people who decide get most often, each in a small made-up data folder of its own.

python -m tests.report.four_cases FOLDER    writes the four folders and their reports, for looking at
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from audit_pipeline.pipeline.registry import build_warehouse
from audit_pipeline.report.files import ReportSummary, build_reports
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from tests.warehouse.conftest import DAY, Folder, temporal, write_config

from .made_findings import MODEL, SHELF, evaluation, write_rows, write_shelf, write_shelf_extraction

MODEL_TITLE = "Tiny 125M"
NOTES_TITLE = "Release notes of three projects"
SHELF_TITLE = "The shelf of a publisher"
NOTES = "notes_32"


def nothing_found(folder: Folder) -> None:
    """A detector at chance, on two sides that words alone hardly tell apart."""
    _write_notes(folder, detector=0.51, blind=0.53, verdict="mild shift")


def separable(folder: Folder) -> None:
    """A detector far above chance, on two sides that words alone tell apart even better."""
    _write_notes(folder, detector=0.83, blind=0.93, verdict="separable without a model")


def books_stand_out(folder: Folder) -> None:
    """Four of twenty books with scores that are unusually high."""
    folder.write_card(MODEL)
    write_shelf(folder)


def passages_reproduced(folder: Folder) -> None:
    """The same books, and passages of some of them that the model gives word for word."""
    books_stand_out(folder)
    write_shelf_extraction(folder)


CASES: Mapping[str, Callable[[Folder], None]] = {
    "nothing_found": nothing_found,
    "separable": separable,
    "books_stand_out": books_stand_out,
    "passages_reproduced": passages_reproduced,
}


def written_case(case: str, root: Path) -> ReportSummary:
    """The reports of a case, from a data folder and a configuration that are made below ``root``."""
    folder = Folder(DataPaths(root / "data"))
    CASES[case](folder)
    build_warehouse(folder.paths, config=_write_titles(root / "config"))
    return build_reports(folder.paths.warehouse, folder.paths.reports)


def _write_notes(folder: Folder, *, detector: float, blind: float, verdict: str) -> None:
    folder.write_card(MODEL)
    folder.write_documents("notes")
    folder.write_examples(NOTES)
    folder.write_split_quality(NOTES, {"words": blind, "characters": blind - 0.02, "length": 0.52, "dates": None})
    folder.write_audit(NOTES, MODEL, "run-scores", DAY)
    run = "run-evaluations"
    write_rows(
        folder,
        "evaluations",
        Pair(NOTES, MODEL),
        run,
        [
            evaluation(NOTES, run, name, metric, value, 24, 24, verdict=verdict)
            for name, auroc in (("min_k_plus_plus", detector), ("loss", detector - 0.02), ("blind_control", blind))
            for metric, value in (("auroc", auroc), ("tpr_at_5_fpr", auroc - 0.44), ("auroc_margin", auroc - blind))
            if name != "blind_control" or metric != "auroc_margin"
        ],
    )


def _write_titles(folder: Path) -> Path:
    shelf = {"builder": "labelled", "title": SHELF_TITLE, "description": "twenty books", "path": "rows", "words": "any"}
    write_config(
        folder,
        notes=temporal("notes", 32, title=NOTES_TITLE),
        **{SHELF: {**shelf, "design": "selected", "calibration_fraction": 0, "seed": 1}},
    )
    models = {MODEL: {"path": "weights", "title": MODEL_TITLE}}
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": models}), encoding="utf-8")
    return folder


if __name__ == "__main__":
    for name in CASES:
        print(written_case(name, Path(sys.argv[1]) / name).path)
