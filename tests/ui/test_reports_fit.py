"""Reports in a real browser, as on a laptop, a tablet, a phone and on paper: nothing is cut or scrolls sideways."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from made_data_folder import Folder
from made_files import write_rows

from audit_pipeline.pipeline.evaluate_file import evaluate_file
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.paths import DataPaths
from tests.report.four_cases import CASES, written_case
from tests.report.made_findings import write_everything
from tests.report.written import written

pytest.importorskip("selenium")
from browser import Browser, browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="there is no chromedriver on PATH"),
]

WIDTHS = (1280, 1024, 390)
ON_PAPER = 673
"""Width of A4 without the margins of the page, in pixels of CSS (96 an inch)."""
WIDE_ENOUGH = 1024
"""From this width on, the tables that everybody reads are shown whole."""
READ_BY_ALL = ("All answers", "Detectors on", "All detectors on")

# Elements to the right of the window, except in scrolling frames and hidden ones, and frames with a wider content.
_MEASURED = """
document.querySelectorAll('details').forEach(one => { one.open = true; });
const width = document.documentElement.clientWidth, out = [];
for (const one of document.querySelectorAll('body *')) {
  const box = one.getBoundingClientRect();
  if (box.width && box.right > width + 1 && !one.closest(arguments[0] ? '.skip' : '.scroll, nav, .skip'))
    out.push(`${one.tagName} ${one.getAttribute('class') || ''} to ${Math.round(box.right)} px`);
}
const frames = [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth);
return {
  page: document.documentElement.scrollWidth, width, out,
  cut: frames.map(one => one.getAttribute('aria-label') || ''),
  bare: [...document.querySelectorAll('table:not(.two)')].filter(one => !one.closest('.scroll')).length,
};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser") / "profile", "file://") as opened:
        yield opened


@pytest.mark.parametrize("case", [*CASES, "everything", "external scores", "external scores of a named model"])
def test_reports_fit_every_width(case: str, page: Browser, tmp_path: Path) -> None:
    """Check made-up reports: two models, a shelf of books with hostile names, and external scores."""
    if case in CASES:
        reports = written_case(case, tmp_path).path.parent
    elif case == "everything":
        folder = Folder(DataPaths(tmp_path))
        write_everything(folder)
        reports = written(folder).summary.path.parent
    else:
        rows: list[dict[str, object]] = []
        for text, name in product(range(300), ("a_detector_with_a_rather_long_name", "another", "third")):
            label = text // 3 % 2
            row = {"example_id": f"{text}", "group": f"Collected letters, a volume with a long title, {text // 3}"}
            row |= {"label": label, "detector": name, "score": (text * 7919) % 101 - 40.0 * label}
            rows.append({**row, "text": " ".join(f"word{(text * place) % 83}" for place in range(40))})
        model, headline = ("named", "third") if "named" in case else ("nobody named one", None)
        file = write_rows(tmp_path / "external.parquet", rows)
        asked = EvaluateOptions(file, model=model, design="randomised", headline=headline)
        reports = evaluate_file(asked).paths.reports
    files = sorted(reports.glob("*.html"))
    assert files
    for file in files:
        for width in WIDTHS:
            page.as_wide_as(width)
            page.open(file.resolve().as_uri().removeprefix("file://"))
            measured = page.asked(_MEASURED)
            assert measured["out"] == [], f"{file.name} at {width} px: elements stick out"
            assert measured["page"] <= measured["width"], f"{file.name} at {width} px scrolls sideways"
            # The narrow tables of the glossary need no frame.
            assert measured["bare"] == 0 or file.name == "glossary.html", f"{file.name}: tables without a frame"
            if width >= WIDE_ENOUGH:
                assert [name for name in measured["cut"] if name.startswith(READ_BY_ALL)] == [], file.name
        page.as_printed(ON_PAPER)
        assert page.asked(_MEASURED, True)["out"] == [], f"{file.name} on paper: elements are cut off"
        page.as_shown()
