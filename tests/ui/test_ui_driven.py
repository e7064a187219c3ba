"""The Dagster UI in a real browser, from nothing to the weekly audit: tests/ui/drive_ui.py as a test."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVE = Path(__file__).with_name("drive_ui.py")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = "10"
"""The factor of every timeout. The machine may be slow, and .ci/run runs the demo and the tutorials beside it."""


@pytest.mark.browser
def test_the_ui_is_driven_from_nothing_to_the_weekly_audit(tmp_path: Path) -> None:
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("the package selenium is not installed (pip install --constraint constraints.txt --group ui)")
    if not any(map(shutil.which, BROWSERS)):
        pytest.skip(f"there is no browser: none of {', '.join(BROWSERS)} is on PATH")
    if not shutil.which("chromedriver"):
        pytest.skip("there is no chromedriver on PATH")
    done = subprocess.run(
        [sys.executable, str(DRIVE), "--shots", str(tmp_path), "--patience", PATIENCE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pictures = {"ui_automation", "ui_groups", "asset_graph", "ui_grid", "ui_backfill", "ui_failed_check"}
    assert {path.stem for path in tmp_path.glob("*.png")} >= pictures | {"ui_tick_error", "ui_weekly"}
