"""Parts that `make test` skips: pictures, reports and detectors that a test does not need, and most architectures."""

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
"""The detectors of :func:`few_detectors`."""


@contextmanager
def empty_pictures() -> Iterator[None]:
    """Draw empty pictures. Drawing is half of a tiny audit's time, and has its own tests."""

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
    """Collect no garbage after runs, which would take longer than the runs of tiny models."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (adapters, backends):
            patch.setattr(module, "release_unused_memory", lambda: None)
        yield


@contextmanager
def empty_reports() -> Iterator[None]:
    """Write empty pages. Their queries take most of a tiny audit's time, and have their own tests."""

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
    """Score with two detectors, one of which has decisions."""

    def select(overrides: Overrides) -> session.Selection:
        return [one for one in audit_selection(overrides) if one[0].name in FEW_DETECTORS]

    audit_selection = session.build_audit_selection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "build_audit_selection", select)
        yield


def slow_but(quick: Collection[str], cases: Iterable[str]) -> list[Any]:
    """Return the cases of a parametrized test. All cases except ``quick`` are marked slow."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]
