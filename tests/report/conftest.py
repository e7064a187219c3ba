"""Reports of the data folders of tests/warehouse, and pages without the pictures that take most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_pipeline.report import html
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pictures import draw_roc_pictures, draw_spread_pictures

# Imported fixtures.
from tests.warehouse.conftest import audited, audited_once, config, folder, warehouse  # noqa: F401

from .written import Written

_PICTURES = {"roc_pictures": draw_roc_pictures, "spread_pictures": draw_spread_pictures}


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Leave the pictures out of the pages of a module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _PICTURES:
            patch.setitem(html._build_jinja_environment().globals, name, lambda finding: ())
        yield


@pytest.fixture(scope="package")
def reports(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:  # noqa: F811
    """Reports of the audited folder with pictures, for tests that only read them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, draw in _PICTURES.items():
            patch.setitem(html._build_jinja_environment().globals, name, draw)
        return Written(build_reports(warehouse, tmp_path_factory.mktemp("reports")))
