"""What `make test` leaves out: pictures, reports and detectors where they do not matter, and most architectures."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from audit_pipeline.detectors.registry import Overrides
from audit_pipeline.models import adapters
from audit_pipeline.pipeline import evaluate_file
from audit_pipeline.report import files, pictures, plots
from audit_pipeline.report.files import ReportSummary
from audit_pipeline.scoring import backends, session
from audit_pipeline.store.paths import model_page_path
from audit_pipeline.warehouse.query import query_warehouse

_PLOTS = {"draw_score_histogram", "draw_roc_curves", "draw_low_fpr_roc"}
FEW_DETECTORS = ("loss", "min_k_plus_plus")
"""Those of :func:`few_detectors`."""


@contextmanager
def empty_pictures() -> Iterator[None]:
    """Pictures without anything in them: drawing is half of a tiny audit's time, and has tests of its own."""

    def save(figure: Figure, file: io.BytesIO | io.StringIO, *, format: str, **how: object) -> None:
        if isinstance(file, io.StringIO):
            file.write('<svg width="1pt" height="1pt"></svg>')
        else:
            Image.new("RGB", (1, 1)).save(file, format=format)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        for module in (pictures, plots):
            for name in _PLOTS & vars(module).keys():
                patch.setattr(module, name, lambda *drawn, **how: Figure())
        yield


@contextmanager
def kept_garbage() -> Iterator[None]:
    """Runs that leave tiny models to Python: looking for their memory through all that is imported takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (adapters, backends):
            patch.setattr(module, "release_unused_memory", lambda: None)
        yield


@contextmanager
def empty_reports() -> Iterator[None]:
    """Empty pages: their queries take most of a tiny audit's time, and have tests of their own."""

    def build(warehouse: Path, folder: Path, *, include_text: bool = True) -> ReportSummary:
        rows = query_warehouse(warehouse, "SELECT DISTINCT model FROM runs WHERE model <> ''").to_pylist()
        pages = {row["model"]: model_page_path(folder, row["model"]) for row in rows}
        folder.mkdir(exist_ok=True)
        for page in (folder / files.ACROSS, *pages.values()):
            page.touch()
        return ReportSummary(folder / files.ACROSS, pages, *[0] * 7)

    with pytest.MonkeyPatch.context() as patch:
        for module in (files, evaluate_file):
            patch.setattr(module, "build_reports", build)
        yield


@contextmanager
def few_detectors() -> Iterator[None]:
    """Audits that score by few detectors, that of the decisions among them: every further one takes its time."""

    def select(overrides: Overrides) -> session.Selection:
        return [one for one in audit_selection(overrides) if one[0].name in FEW_DETECTORS]

    audit_selection = session.build_audit_selection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build_audit_selection", select)
        yield


def slow_but(quick: Collection[str], cases: Iterable[str]) -> list[Any]:
    """The cases of a parametrized test, of which all but ``quick`` are slow: they are the same, once more."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]
