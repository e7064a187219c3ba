"""The data folders of the warehouse's tests, and pages without the pictures, which take most of the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.report import html
from audit_pipeline.report.files import build_reports

# Fixtures, by their names.
from tests.warehouse.conftest import _audited_once, audited, config, folder, warehouse  # noqa: F401

from .written import Written


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures."""
    for name in ("roc_pictures", "spread_pictures"):
        monkeypatch.setitem(html._environment().globals, name, lambda finding: ())


@pytest.fixture(scope="package")
def reports(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:  # noqa: F811
    """Reports of the audited folder, with their pictures, for tests that only read them."""
    return Written(build_reports(warehouse, tmp_path_factory.mktemp("reports")))
