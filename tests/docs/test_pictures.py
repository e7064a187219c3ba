"""The pictures of the documentation record the version of their subject."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from audit_pipeline.store.files import read_json, write_json
from docs import make_pictures
from docs.make_pictures import DOCS, MANIFEST, PICTURES, ROOT, compute_report_version, list_stale_pictures


def test_every_picture_of_the_documentation_is_made_by_one_command() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    named = {
        (page.parent / link).resolve().relative_to(DOCS).as_posix()
        for page in pages
        for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+\.png)\)", page.read_text(encoding="utf-8"))
    }
    # Figures are drawn by make docs.
    assert {link for link in named if not link.startswith("figures/")} <= {picture.file for picture in PICTURES}


def test_no_picture_was_replaced_by_hand() -> None:
    # Whether a picture shows today's version is on the list of a release: `python -m docs.make_pictures --check`.
    assert [line for line in list_stale_pictures() if "earlier version" not in line] == []


@pytest.mark.parametrize(
    ("edited", "is_another"),
    [("templates/style.css.j2", True), ("answers.yaml", True), ("sections/72_sheets.sql", True), ("files.py", False)],
)
def test_the_version_of_the_report_is_that_of_what_makes_its_pages(
    tmp_path: Path, edited: str, is_another: bool
) -> None:
    package = tmp_path / "audit_pipeline"
    shutil.copytree(ROOT / "audit_pipeline" / "report", package / "report")
    before = compute_report_version(package)
    file = package / "report" / edited
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert (compute_report_version(package) != before) == is_another


def test_stale_pictures_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_pictures, "VERSIONS", {"report": lambda: "1", "ui": lambda: "1"})
    recorded = {name: {**stamp, "version": "1"} for name, stamp in read_json(MANIFEST).items()}
    for picture in PICTURES:
        (tmp_path / picture.file).parent.mkdir(exist_ok=True)
        shutil.copyfile(DOCS / picture.file, tmp_path / picture.file)
    write_json(tmp_path / MANIFEST.name, recorded)
    assert list_stale_pictures(tmp_path) == []
    recorded["report.png"]["version"] = "0"
    write_json(tmp_path / MANIFEST.name, recorded)
    (tmp_path / "ui_grid.png").write_bytes(b"another")
    (tmp_path / "ui_weekly.png").unlink()
    assert list_stale_pictures(tmp_path) == [
        "report.png shows an earlier version of the report",
        "ui_grid.png was not made by make pictures",
        "ui_weekly.png is missing",
    ]
