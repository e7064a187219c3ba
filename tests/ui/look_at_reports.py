"""Reports in a real browser, as on a laptop, a tablet, a phone and on paper: nothing is cut or scrolls sideways.

    python tests/ui/look_at_reports.py [FOLDER …] [--shots FOLDER]

Looks at every page in the folders of reports that are named; without any, at made-up ones: two models and a shelf of
books with hostile names, the four cases of the first screen, and tables of scores that are handed over. Needs what
drive_ui.py needs. Prints a line a page and width, and ends with exit code 1 and what sticks out. --shots writes a
picture of the top of every page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq
from browser import Browser, NotSeenError, browser

from audit_pipeline.pipeline.evaluate_file import evaluate_file
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from tests.report.four_cases import CASES, written_case
from tests.report.made_findings import make

WIDTHS = (1280, 1024, 390)
ON_PAPER = 673
"""A4 less the margins that the page asks for, in pixels of CSS (96 an inch)."""
WIDE_ENOUGH = 1024
"""From this width on the tables that everybody reads are shown whole."""
READ_BY_ALL = ("All answers", "Detectors on", "All detectors on")

# What lies right of the window, but for what scrolls in its own frame and what is hidden on purpose; and the frames
# that have more in them than they show.
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


def wrong_on_paper(measured: dict[str, Any]) -> list[str]:
    """What a printed page would cut off."""
    return [f"cut off on paper: {one}" for one in measured["out"][:3]]


def wrong_with(measured: dict[str, Any], width: int) -> list[str]:
    """What is not as it should be of a page that was measured at a width."""
    wrong = [f"sticks out: {one}" for one in measured["out"][:3]]
    if measured["page"] > measured["width"]:
        wrong.append(f"the page is {measured['page']} px wide")
    if measured["bare"]:
        wrong.append(f"{measured['bare']} tables have no frame of their own")
    if width >= WIDE_ENOUGH:
        wrong += [f"cut: {name}" for name in measured["cut"] if name.startswith(READ_BY_ALL)]
    return wrong


def look(page: Browser, folders: Sequence[Path], shots: Path | None) -> list[str]:
    """Every page at every width; what is wrong with any."""
    wrong = []
    for file in (file for folder in folders for file in sorted(folder.glob("*.html"))):
        for width in WIDTHS:
            page.as_wide_as(width)
            page.open(file.resolve().as_uri().removeprefix("file://"))
            found = wrong_with(page.asked(_MEASURED), width)
            wrong += [f"{_case(file)}/{file.name} at {width} px: {one}" for one in found]
            print(f"{width:5} px  {_case(file)}/{file.name}  {'; '.join(found) or 'ok'}", flush=True)
            if shots is not None:
                page.asked("window.scrollTo(0, 0)")
                page.snapshot(shots / f"{_case(file)}_{file.stem.replace('%', '_')}_{width}.png")
        page.as_printed(ON_PAPER)
        found = wrong_on_paper(page.asked(_MEASURED, True))
        wrong += [f"{_case(file)}/{file.name}: {one}" for one in found]
        print(f"on paper  {_case(file)}/{file.name}  {'; '.join(found) or 'ok'}", flush=True)
        page.as_shown()
    return wrong


def _case(file: Path) -> str:
    """Which folder of reports a page is of."""
    return file.parent.parent.parent.name if file.parent.parent.name == "data" else file.parent.parent.name


def made_up(folder: Path) -> Iterator[Path]:
    """Folders of reports made for looking at."""
    yield make(folder / "made")
    for case in CASES:
        yield written_case(case, folder / case).path.parent
    rows = [
        {
            **{"example_id": f"{text}", "group": f"Collected letters, a volume with a long title, {text // 3}"},
            **{"label": text // 3 % 2, "detector": name, "score": float((text * 7919) % 101 - 40 * (text // 3 % 2))},
            "text": " ".join(f"word{(text * place) % 83}" for place in range(40)),
        }
        for text in range(300)
        for name in ("a_detector_with_a_rather_long_name", "another", "third")
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "handed over.parquet")
    for model, headline in (("nobody named one", None), ("named", "third")):
        asked = EvaluateOptions(folder / "handed over.parquet", model=model, design="randomised", headline=headline)
        yield evaluate_file(asked).paths.reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--shots", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, browser(Path(made) / "profile", "file://") as page:
        folders = asked.folders or list(dict.fromkeys(made_up(Path(made))))
        try:
            wrong = look(page, folders, asked.shots)
        except NotSeenError as error:
            wrong = [str(error)]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
