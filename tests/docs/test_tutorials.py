"""The commands of the tutorials work in an empty folder and print what the tutorials quote.

A mark is a comment on the line before a fenced block:

    <!-- run -->            the commands are run in the tutorial's folder
    <!-- shows -->          the output of the previous commands, with … for any text of a line
    <!-- file: NAME -->     the file is written
    <!-- append: NAME -->   the block is appended to the file
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = ("model-team", "publisher", "compliance", "researcher", "recited")

_MARK = re.compile(
    r"^<!-- (?P<what>run|shows|file|append)(?:: (?P<name>\S+))? -->\n```\w*\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARKED = re.compile(r"^<!-- \w", re.MULTILINE)


def run_page(page: str, folder: Path) -> None:
    """Run the steps of a page in a folder, and check the printed lines."""
    printed: list[str] = []
    for what, name, block in _MARK.findall(page):
        if what == "run":
            printed = run_commands(block, folder)
        elif what == "shows":
            for line in filter(None, (" ".join(one.split()) for one in block.splitlines())):
                pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
                place = next((place for place, one in enumerate(printed) if pattern.fullmatch(one)), None)
                assert place is not None, f"not shown: {line}\n{printed}"
                printed = printed[place + 1 :]
        else:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a" if what == "append" else "w", encoding="utf-8") as opened:
                opened.write(block)


def run_commands(commands: str, folder: Path) -> list[str]:
    """Run commands, and return the lines of their output and their errors with single blanks."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORPUS_AUDIT_")}
    # Only the commands of a tutorial can use the packages that it installs.
    packages = str(folder / ".packages")
    environment |= {
        "PIP_TARGET": packages,
        "PYTHONPATH": os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH")))),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "OMP_NUM_THREADS": "1",
        # Commands fit their tables to the terminal. Every table fits this width.
        "COLUMNS": "160",
    }
    command = ["bash", "-euo", "pipefail", "-c", commands]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, check=False, **both)
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.tutorial
@pytest.mark.parametrize("name", NAMES)
def test_the_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    run_page((PAGES / f"{name}.md").read_text(encoding="utf-8"), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_tutorial_types_commands_and_says_what_they_show(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    what = [step["what"] for step in _MARK.finditer(page)]
    assert len(what) == len(_MARKED.findall(page)), "a mark stands on the line before a fenced block"
    assert what.count("run") >= 3
    assert what.count("shows") >= 2


def test_every_tutorial_is_run() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*NAMES, "index"}


PAGE = """\
<!-- file: a.txt -->
```text
one
```
<!-- append: a.txt -->
```text
two
```
<!-- run -->
```bash
cat a.txt
echo "three  3.14 pi"
```
<!-- shows -->
```text
two
three … pi
```
"""


def test_a_page_is_done_step_by_step(tmp_path: Path) -> None:
    run_page(PAGE, tmp_path)
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("three … pi", "four", "not shown"),
        ("two\nthree …", "three …\ntwo", "not shown"),
        ("cat a", "cat b", "No such file"),
    ],
)
def test_a_page_that_says_something_else_fails(before: str, after: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=told):
        run_page(PAGE.replace(before, after), tmp_path)
