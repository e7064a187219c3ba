"""The commands of the tutorials work in an empty folder and print what the tutorials quote."""

from __future__ import annotations

from pathlib import Path

import pytest
from tutorial_pages import NAMES, PAGES, do, steps


@pytest.mark.tutorial
@pytest.mark.parametrize("name", NAMES)
def test_the_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    do((PAGES / f"{name}.md").read_text(encoding="utf-8"), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_tutorial_types_commands_and_says_what_they_show(name: str) -> None:
    what = [step.what for step in steps((PAGES / f"{name}.md").read_text(encoding="utf-8"))]
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
    do(PAGE, tmp_path)
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
        do(PAGE.replace(before, after), tmp_path)
