"""Reports of the data folders of tests/warehouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.report.files import build_reports

# Imported fixtures.
from tests.warehouse.conftest import audited, audited_once, config, folder, warehouse  # noqa: F401

from .written import Written


@pytest.fixture(scope="package")
def reports(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:  # noqa: F811
    """Reports of the audited folder, for tests that only read them."""
    return Written(build_reports(warehouse, tmp_path_factory.mktemp("reports")))
