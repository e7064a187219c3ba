"""The steps of the tutorials: files to write, commands to run, and their output.

As a script, it runs tutorials: `python tests/docs/tutorial_pages.py publisher`.

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
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorials"
NAMES = ("model-team", "publisher", "compliance", "researcher", "recited")

_MARK = re.compile(
    r"^<!-- (?P<what>run|shows|file|append)(?:: (?P<name>\S+))? -->\n```\w*\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARKED = re.compile(r"^<!-- \w", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A mark: its kind, its file, and the block below it."""

    what: str
    name: str
    content: str


def steps(page: str) -> list[Step]:
    """Return the steps of a page in order.

    Raises:
        ValueError: If no block follows a mark.
    """
    found = [Step(one["what"], one["name"] or "", one["block"]) for one in _MARK.finditer(page)]
    if len(found) != len(_MARKED.findall(page)):
        raise ValueError("a mark stands on the line before a fenced block")
    return found


def missing_lines(told: str, printed: str) -> list[str]:
    """Return the lines of ``told`` that ``printed`` does not contain in this order. An … matches any text of a line."""
    rest = [" ".join(line.split()) for line in printed.splitlines()]
    missing = []
    for line in filter(None, (" ".join(one.split()) for one in told.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        place = next((place for place, one in enumerate(rest) if pattern.fullmatch(one)), None)
        if place is None:
            missing.append(line)
        else:
            rest = rest[place + 1 :]
    return missing


def do(page: str, folder: Path) -> None:
    """Run the steps of a page in a folder.

    Raises:
        AssertionError: If a command fails or prints something else.
    """
    printed = ""
    for step in steps(page):
        if step.what == "run":
            printed = _typed(step.content, folder)
        elif step.what == "shows":
            missing = missing_lines(step.content, printed)
            assert not missing, f"not shown: {missing}\n{printed}"
        elif step.what in ("file", "append"):
            file = folder / step.name
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text(encoding="utf-8") if step.what == "append" else ""
            file.write_text(before + step.content, encoding="utf-8")


def _typed(commands: str, folder: Path) -> str:
    """Run commands and return their output and their errors."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("CORPUS_AUDIT_")}
    # What a tutorial installs comes into its folder, and is seen by its commands alone.
    packages = str(folder / ".packages")
    surroundings |= {
        "PIP_TARGET": packages,
        "PYTHONPATH": os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH")))),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "OMP_NUM_THREADS": "1",
        # Wide enough for every table; the commands fit theirs to the terminal.
        "COLUMNS": "160",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        told = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as made:
            do(told, Path(made))
