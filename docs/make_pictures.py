"""The pictures of the documentation that show the report and the Dagster UI: `make pictures` takes them.

    python -m docs.make_pictures [report|ui …] [--patience TIMES]
    python -m docs.make_pictures --check

The pictures of the report, and of a partition in the UI, show the data of the demo. Run ``make demo`` first, or set
CORPUS_AUDIT_DATA to another data folder. The test that drives the UI (tests/ui/drive_ui.py) takes its other pictures.
Both need Chromium and chromedriver. docs/pictures.json records the version of each picture. The figures of
docs/statistics-explained.md are drawn by ``make docs``.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from audit_pipeline.pipeline.registry import OBSERVED, STAGES
from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.store.paths import DataPaths, config_dir, model_page_path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MANIFEST = DOCS / "pictures.json"
Subject = Literal["report", "ui"]
DEMO_PAIR = ("demo_64", "smollm2-135m")
EXPOSED = "instrument_check_exposed"
_DRAWN = (".css.j2", ".html.j2", ".sql", ".yaml")
"""The files of the report that decide what its pages look like and say."""


@dataclass(frozen=True)
class Picture:
    """A picture of the documentation.

    Attributes:
        file: Its path below docs/.
        shows: What it is a picture of.
    """

    file: str
    shows: Subject


PICTURES = (
    Picture("report.png", "report"),
    Picture("controls.png", "report"),
    Picture("tutorials/researcher-report.png", "report"),
    Picture("evaluations.png", "ui"),
    *(
        Picture(f"{name}.png", "ui")
        for name in (
            *("asset_graph", "ui_automation", "ui_backfill", "ui_failed_check", "ui_grid", "ui_groups"),
            *("ui_stale", "ui_condition", "ui_tick_error", "ui_weekly"),
        )
    ),
)


def compute_report_version(package: Path = ROOT / "audit_pipeline") -> str:
    """Return a digest of the templates, queries, sentences and plots that make the report's pages."""
    folders = [package / "report", *(path.parent for path in sorted((package / "extras").glob("*/*section.py")))]
    files = {file for folder in folders for file in folder.rglob("*") if file.name.endswith(_DRAWN)}
    files |= {package / "report" / "plots.py", package / "report" / "pictures.py"}
    return _digest((file.relative_to(package).as_posix(), file.read_bytes()) for file in sorted(files))


def compute_ui_version() -> str:
    """Return a digest of Dagster's version and of what the assets show in its UI.

    It covers the declarations and descriptions of assets and checks, but not the labels of metadata.
    """
    shown = []
    for stage in STAGES:
        checks = {name: check.description for name, check in stage.checks.items()}
        shown.append((stage.name, f"{stage.group} {stage.dimensions} {sorted(stage.kinds)} {checks}"))
        shown.append((f"description of {stage.name}", stage.description))
    shown += [(observed.name, f"{observed.group} {observed.dimension}") for observed in OBSERVED.values()]
    return _digest((name, text.encode()) for name, text in [("dagster", version("dagster")), *sorted(shown)])


# The modules of tests import each other so.
sys.path.append(str(ROOT / "tests"))

VERSIONS: Mapping[Subject, Callable[[], str]] = {"report": compute_report_version, "ui": compute_ui_version}


def _digest(parts: Iterator[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def list_stale_pictures(docs: Path = DOCS) -> list[str]:
    """Return a line for every picture that is missing, was replaced by hand, or shows an earlier version."""
    recorded = read_json_if_whole(docs / MANIFEST.name) or {}
    now = {subject: compute() for subject, compute in VERSIONS.items()}
    lines = []
    for picture in PICTURES:
        file, stamp = docs / picture.file, recorded.get(picture.file, {})
        if not file.is_file():
            lines.append(f"{picture.file} is missing")
        elif stamp.get("sha256") != hashlib.sha256(file.read_bytes()).hexdigest():
            lines.append(f"{picture.file} was not made by make pictures")
        elif stamp.get("version") != now[picture.shows]:
            lines.append(f"{picture.file} shows an earlier version of the {picture.shows}")
    return lines


def _stamp_pictures(made: Sequence[Picture]) -> None:
    recorded = read_json_if_whole(MANIFEST) or {}
    for picture in made:
        content = (DOCS / picture.file).read_bytes()
        recorded[picture.file] = {
            "shows": picture.shows,
            "version": VERSIONS[picture.shows](),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    write_json(MANIFEST, dict(sorted(recorded.items())))


def make_report_pictures(paths: DataPaths, patience: float) -> None:
    """Rewrite the report of the data folder, and take pictures of its pages."""
    from tests.ui.browser import browser  # noqa: PLC0415 - it needs selenium

    _run_command("report")
    reports = paths.reports
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile), "file://", patience) as page:
        page.as_large_as(1280, 950)
        page.open(quote(str(paths.report)), "The answer")
        page.snapshot(DOCS / "report.png")
        page.as_large_as(1000, 1100)
        page.open(quote(str(model_page_path(reports, EXPOSED))), "The answer")
        page.snapshot(DOCS / "tutorials" / "researcher-report.png")
        page.as_large_as(1112, 950)
        page.open(f"{quote(str(paths.report))}#instrument", "Instrument check")
        page.style("nav, footer, main > :not(:has(#instrument)) { display: none !important }")
        # A page is at least as high as its window.
        page.as_large_as(1112, 100)
        page.as_large_as(1112, int(page.asked("return document.documentElement.scrollHeight")))
        page.snapshot(DOCS / "controls.png")


def make_ui_pictures(paths: DataPaths, patience: float) -> None:
    """Take a picture of the demo's partition in the UI, then have the UI driven, which takes the others."""
    from live_workspace import LiveWorkspace  # noqa: PLC0415 - it needs torch

    from tests.ui.browser import browser  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "config").symlink_to(config_dir().resolve())
        (root / "data").symlink_to(paths.root.resolve())
        with LiveWorkspace(root).services() as address, browser(root / "profile", address, patience) as page:
            page.open("/assets/evaluations?view=partitions")
            for name in DEMO_PAIR:
                page.click(f"//*[text()='{name}']")
            page.see("|".join(DEMO_PAIR))
            page.see("claim level")
            # The UI loads what draws Markdown after the rest.
            page.until(lambda: page.all("//img[@alt='ROC curve']"), "the ROC curve in its row")
            page.picture(DOCS / "evaluations.png")
        drive = [sys.executable, str(ROOT / "tests" / "ui" / "drive_ui.py"), "--shots", str(root / "shots")]
        subprocess.run([*drive, "--patience", str(patience)], check=True)
        for picture in PICTURES:
            if picture.shows == "ui" and (made := root / "shots" / picture.file).is_file():
                shutil.copyfile(made, DOCS / picture.file)


def _run_command(*arguments: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("corpus-audit")), *arguments], check=True)


MAKERS: Mapping[Subject, Callable[[DataPaths, float], None]] = {
    "report": make_report_pictures,
    "ui": make_ui_pictures,
}


def main() -> int:
    """Make the pictures of the named subjects, or name those that are stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "subjects", nargs="*", choices=[*MAKERS, []], help="Subjects of the pictures. Default: all subjects."
    )
    parser.add_argument("--patience", type=float, default=4.0, help="Factor for all waiting times.")
    parser.add_argument("--check", action="store_true", help="List the pictures that show an earlier version.")
    arguments = parser.parse_args()
    if arguments.check:
        stale = list_stale_pictures()
        print(
            "\n".join([*stale, "Take them again: make pictures"] if stale else ["Every picture shows today's version."])
        )
        return 1 if stale else 0
    paths = DataPaths.from_environment()
    if not paths.warehouse.exists():
        print(f"{paths.root} contains no audit. Run make demo first, or set CORPUS_AUDIT_DATA to its data folder.")
        return 2
    for subject in arguments.subjects or MAKERS:
        MAKERS[subject](paths, arguments.patience)
        _stamp_pictures([picture for picture in PICTURES if picture.shows == subject])
    return 0


if __name__ == "__main__":
    sys.exit(main())
