"""The data folders of the warehouse's tests, and pages without the pictures, which take most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_pipeline.report import html
from audit_pipeline.report.files import build_reports
from audit_pipeline.report.pictures import draw_roc_pictures, draw_spread_pictures

# Fixtures, by their names.
from tests.warehouse.conftest import _audited_once, audited, config, folder, warehouse  # noqa: F401

from .written import Written

_PICTURES = {"roc_pictures": draw_roc_pictures, "spread_pictures": draw_spread_pictures}


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Pages without their pictures, its fixtures' as well, from where a module first asks for it to its end."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _PICTURES:
            patch.setitem(html._build_jinja_environment().globals, name, lambda finding: ())
        yield


@pytest.fixture(scope="package")
def reports(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:  # noqa: F811
    """Reports of the audited folder, for tests that only read them; with their pictures, whoever asks first."""
    with pytest.MonkeyPatch.context() as patch:
        for name, draw in _PICTURES.items():
            patch.setitem(html._build_jinja_environment().globals, name, draw)
        return Written(build_reports(warehouse, tmp_path_factory.mktemp("reports")))
