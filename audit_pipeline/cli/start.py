"""What `corpus-audit` says without a command: what to do first, or next.

What belongs here: looking at what is there, and the commands that are worth trying then. What does not: any command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError, one_line
from audit_pipeline.operate.console import say, visible

Suggestions = Sequence[tuple[str, str]]
"""Commands to try, each with what it does in a few words."""

_FIRST: Suggestions = (
    ("check FILES --model smollm2-135m", "asks of documents of your own whether a model read them"),
    ("demo", "audits a small real model on real texts, in a few minutes"),
    ("score --model smollm2-135m --texts FILE --out scores.parquet", "scores the texts of a file of your own"),
    ("init my-audits", "makes a folder for audits of your own, with its configuration"),
)
_BEGUN: Suggestions = (
    ("report --open", "shows what is finished"),
    ("demo", "goes on with the demo; any audit goes on with the command that began it"),
)
_NEXT: Suggestions = (
    ("report --open", "opens the report in a browser"),
    ('sql "SELECT * FROM leaderboard"', "shows the findings as a table"),
    ("models", "lists the models that can be audited"),
    ("benchmarks", "lists what they can be audited on"),
    ("audit --model M --benchmark B", "audits one of them"),
    ("dev", "starts the Dagster UI: audits on a schedule"),
)
_SHORT = 40
_PAIRS_LEFT = ('sql "FROM not_audited"', "names what is not done yet, and why")


@dataclass(frozen=True)
class _Results:
    """How much the warehouse shows: audited models and benchmarks, and pairs that are not done."""

    models: int
    benchmarks: int
    pairs_left: int


def say_what_next() -> None:
    """What is here, and which commands to try; nothing is run, and nothing is changed."""
    paths = DataPaths.from_environment()
    say("Corpus Audit finds out whether texts were in a language model's pretraining\ndata, and how sure we can be.\n")
    if not paths.warehouse.exists():
        begun = paths.dagster_home.is_dir()
        say(f"{'An audit was begun' if begun else 'There are no results yet'} in {_shown(paths.root)}")
        say_commands(
            "Next:" if begun else "First:", [*_BEGUN, *(one for one in _FIRST if one[0] != "demo")] if begun else _FIRST
        )
    else:
        _say_of_results(paths)
    say(f"\nAll commands: {program()}corpus-audit --help")


def say_commands(head: str, commands: Suggestions) -> None:
    """Commands to try, each in a line of its own with what it does below it: two columns would not fit a terminal."""
    say(f"\n{head}")
    for command, what in commands:
        say(f"  {program()}corpus-audit {command}\n      {what}")


def program() -> str:
    """What to type before the command's name where its folder is not on the PATH."""
    folder = Path(sys.argv[0]).resolve().parent
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep):
        return ""
    return f"{os.path.relpath(folder)}/" if folder.is_relative_to(Path.cwd()) else f"{folder}/"


def _say_of_results(paths: DataPaths) -> None:
    try:
        found = _results(paths)
    except AuditError as error:
        say(f"The results cannot be read: {one_line(error)}")
        say_commands("Next:", [("doctor --deep", "says what is damaged"), ("report", "builds them again")])
        return
    counted = f"{_number(found.models, 'model')} audited on {_number(found.benchmarks, 'benchmark')}"
    say(f"{counted}, in {_shown(paths.root)}")
    if paths.report.exists():
        say(f"Report: {_shown(paths.report)}")
    first, *others = _NEXT
    say_commands("Next:", [first, *([_PAIRS_LEFT] if found.pairs_left else []), *others])


def _results(paths: DataPaths) -> _Results:
    from audit_pipeline.warehouse.query import query

    [row] = query(
        paths.warehouse,
        "SELECT count(DISTINCT model) AS models, count(DISTINCT benchmark) AS benchmarks, "
        "(SELECT count(*) FROM not_audited) AS pairs_left FROM leaderboard",
    ).to_pylist()
    return _Results(**row)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _shown(path: Path) -> str:
    """The path, from the current folder where it lies in it, on a line of its own where it is long."""
    inside = path.is_relative_to(Path.cwd()) and path != Path.cwd()
    words = visible(str(path.relative_to(Path.cwd()) if inside else path))
    return words if len(words) <= _SHORT else f"\n  {words}"
