"""The command demo: the checks of the instrument, a first audit of a real model, and texts that it knows by heart.

What belongs here: their order, and what to do next in words. What does not: any of them (controls.py, audited.py,
famous_texts.py).
"""

from __future__ import annotations

import click

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.audited import audit_pairs, publish_audited, show_audited
from audit_pipeline.cli.controls import (
    MEMORISATION_CHECK,
    audit_control,
    show_checks,
    show_memorisation,
)
from audit_pipeline.cli.famous_texts import search_famous_texts, show_famous_texts
from audit_pipeline.cli.options import json_option
from audit_pipeline.cli.shared import whole_configuration
from audit_pipeline.cli.start import say_commands
from audit_pipeline.controls.roles import INSTRUMENT_CHECK
from audit_pipeline.operate.console import say, tell
from audit_pipeline.operate.options import AuditOptions
from audit_pipeline.operate.requests import Audited


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The model to audit.")
@json_option
def demo(model: str) -> None:
    """Check the instrument, audit a model, and let it recite.

    The texts are real; all of it takes a few minutes on two cores.
    """
    checked, memorised = (
        _audit_control_if_configured(INSTRUMENT_CHECK),
        _audit_control_if_configured(MEMORISATION_CHECK),
    )
    audited = audit_pairs(model, "demo", AuditOptions(publish=False))
    recited = search_famous_texts(model)
    publish_audited([*checked, *memorised, audited, *recited])
    show_checks(checked)
    show_memorisation(memorised)
    show_audited(audited)
    for one in recited:
        show_famous_texts(one)
    paths = DataPaths.from_environment()
    say_commands(
        "Next:",
        [
            ("dev", "the same in the Dagster UI"),
            ("report --open", "the report in a browser"),
            ('sql "SELECT * FROM leaderboard"', "the findings in SQL"),
            (f"audit --model {model} --benchmark release_notes", "the whole benchmark"),
            (f"score --model {model} --texts FILE --out scores.parquet", "texts of your own"),
        ],
    )
    say(f"\nEverything lies under {paths.root}")


def _audit_control_if_configured(name: str) -> list[Audited]:
    """Both models of a control, audited; none where the configuration has no such control."""
    if name in whole_configuration().controls.names:
        return audit_control(name, None)
    tell(f"config/controls.yaml has no control '{name}': its check is left out")
    return []
