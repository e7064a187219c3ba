"""The command demo: the checks of the instrument, and a first audit of a real model.

What belongs here: their order, and what to do next in words. What does not: either of them (controls.py, audited.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.audited import Audited, AuditOptions, audit_pairs, publish_audited, show_audited
from audit_pipeline.cli.controls import (
    INSTRUMENT_CHECK,
    MEMORISATION_CHECK,
    audit_control,
    show_checks,
    show_memorisation,
)
from audit_pipeline.cli.shared import json_option, whole_configuration
from audit_pipeline.operate.console import say, tell


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The model to audit.")
@json_option
def demo(model: str) -> None:
    """Check the instrument, then audit a first real model.

    The texts are real and dated; all of it takes a few minutes on two cores.
    """
    checked, memorised = _controlled(INSTRUMENT_CHECK), _controlled(MEMORISATION_CHECK)
    audited = audit_pairs(model, "demo", AuditOptions(publish=False))
    publish_audited([*checked, *memorised, audited])
    show_checks(checked)
    show_memorisation(memorised)
    show_audited(audited)
    paths = DataPaths.from_environment()
    say("\nNext:")
    for command, what in (
        ("corpus-audit dev", "the same in the Dagster UI"),
        ("corpus-audit report --open", "the report in a browser"),
        ('corpus-audit sql "SELECT * FROM leaderboard"', "the findings in SQL"),
        (f"corpus-audit audit --model {model} --benchmark release_notes", "the whole benchmark"),
        (f"corpus-audit score --model {model} --texts FILE --out scores.parquet", "texts of your own"),
    ):
        say(f"  {_program()}{command:<72} {what}")
    say(f"\nEverything lies under {paths.root}")


def _controlled(name: str) -> list[Audited]:
    """Both models of a control, audited; none where the configuration has no such control."""
    if name in whole_configuration().controls.names:
        return audit_control(name, None)
    tell(f"config/controls.yaml has no control '{name}': its check is left out")
    return []


def _program() -> str:
    """What to type before the command's name where its folder is not on the PATH."""
    folder = Path(sys.argv[0]).resolve().parent
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep):
        return ""
    return f"{os.path.relpath(folder)}/" if folder.is_relative_to(Path.cwd()) else f"{folder}/"
