"""The four most frequent answers, each in a small made-up data folder."""

from __future__ import annotations

from pathlib import Path

from made_data_folder import DAY, Folder, make_family, write_config

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.report.files import ReportSummary, build_reports
from audit_pipeline.store.paths import DataPaths

from .made_findings import LATER, MODEL, NOTES_PAIR, SHELF, evaluation, write_shelf, write_shelf_search

MODEL_TITLE = "Tiny 125M"
NOTES_TITLE = "Release notes of three projects"
SHELF_TITLE = "The shelf of a publisher"
NOTES = NOTES_PAIR.benchmark
CASES = ("nothing_found", "separable", "books_stand_out", "passages_reproduced")


def written_case(case: str, root: Path) -> ReportSummary:
    """Write the data folder, the configuration and the reports of a case."""
    folder = Folder(DataPaths(root / "data"))
    folder.write_card(MODEL)
    if case == "nothing_found":
        _write_notes(folder, detector=0.51, blind=0.53, verdict="mild shift")
    elif case == "separable":
        _write_notes(folder, detector=0.83, blind=0.93, verdict="separable without a model")
    else:
        write_shelf(folder)
    if case == "passages_reproduced":
        write_shelf_search(folder)
    shelf = {"builder": "labelled", "title": SHELF_TITLE, "description": "twenty books", "path": "rows", "words": "any"}
    config = write_config(
        root / "config",
        [MODEL],
        {MODEL: {"title": MODEL_TITLE}},
        notes=make_family("notes", 32, title=NOTES_TITLE),
        **{SHELF: {**shelf, "design": "selected", "calibration_fraction": 0, "seed": 1}},
    )
    build_warehouse(folder.paths, config=config)
    return build_reports(folder.paths.warehouse, folder.paths.reports)


def _write_notes(folder: Folder, *, detector: float, blind: float, verdict: str) -> None:
    """Write an evaluation of two detectors on two sides that words alone separate with the AUROC ``blind``."""
    folder.write_documents("notes")
    folder.write_examples(NOTES)
    folder.write_split_quality(NOTES, {"words": blind, "characters": blind - 0.02, "length": 0.52, "dates": None})
    folder.write_audit(NOTES, MODEL, "run-scores", DAY)
    rows = []
    for name, auroc in (("min_k_plus_plus", detector), ("loss", detector - 0.02), ("blind_control", blind)):
        metrics = {"auroc": auroc, "tpr_at_5_fpr": auroc - 0.44}
        if name != "blind_control":
            metrics["auroc_margin"] = auroc - blind
        rows += [evaluation(name, metric, value, verdict=verdict) for metric, value in metrics.items()]
    folder.write_rows("evaluations", NOTES_PAIR, "run-evaluations", LATER, rows)
