"""Commands on models whose training data is known: control, study; and the check of the instrument on them.

What belongs here: options, their order of calls, and what is printed of controls and studies. What does not: bringing
pairs up to date and showing the findings (audit_output.py), any work. Heavy packages are imported by the command that
needs them, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.control_roles import INSTRUMENT_CHECK
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.audit_output import audit_pairs, parse_row_parameters, publish_outcomes, show_audit_outcome
from audit_pipeline.cli.options import DEVICE, GO_ON, json_option, keeps
from audit_pipeline.cli.shared import (
    build_estimate_formatter,
    format_detector_setting,
    get_writable_paths,
    load_dagster_definitions,
    load_whole_configuration,
    tell_problems,
)
from audit_pipeline.errors import ConfigError
from audit_pipeline.operate.audit_request import AuditOutcome
from audit_pipeline.operate.console import say, show_table, tell_step
from audit_pipeline.operate.options import AuditOptions

if TYPE_CHECKING:
    from audit_pipeline.catalogue.contracts import Pair
    from audit_pipeline.operate.whole_configuration import Configuration

MEMORISATION_CHECK = "memorisation_check"
_BY_OCCURRENCES = """
SELECT model, name::INTEGER AS times, reached FROM current_extraction_rates
WHERE benchmark = $benchmark AND unit = 'occurrences' AND rule = 'probability' AND threshold = $threshold
    AND side = 'audited'
ORDER BY times
"""
_CHECKED = ("min_k", "min_k_plus_plus", "infilling")


@keeps(f"A control whose training was finished, and all that its models were run on, are kept. {GO_ON}")
@click.command()
@click.argument("name", default=INSTRUMENT_CHECK)
@DEVICE
@json_option
def control(name: str, device: str | None) -> None:
    """Train and audit models whose training data is known.

    NAME is an entry of config/controls.yaml. One model is trained on the members, the control model on other texts, and
    both are audited: a detector works if it finds the members in the first and none in the second.
    """
    audited = audit_control(name, device)
    publish_outcomes(audited)
    for audit in audited:
        show_audit_outcome(audit)
    show_instrument_checks(audited)
    show_memorisation(audited)


def audit_control(name: str, device: str | None) -> list[AuditOutcome]:
    """Both models of a control on its texts; warehouse and report do not follow yet."""
    config = load_whole_configuration()
    config.controls.named(name)
    pairs = pairs_of_control(config, name)
    if not pairs:
        raise ConfigError(
            f"the control {name} has no model or no benchmark: name it in config/models.yaml "
            f"(control: {{name: {name}, role: exposed}}) and in config/benchmarks.yaml (builder: controlled)"
        )
    asked = AuditOptions(device=device, publish=False)
    return [audit_pairs(pair.model, pair.benchmark, asked) for pair in pairs]


def pairs_of_control(config: Configuration, name: str) -> list[Pair]:
    """Each model of a control on each benchmark of it, as the configuration has them."""
    from audit_pipeline.catalogue.contracts import Pair

    models = [model.name for model in config.models.values() if model.control and model.control.name == name]
    benchmarks = [spec.name for spec in config.benchmarks.values() if spec.control == name]
    return [Pair(benchmark, model) for model in models for benchmark in benchmarks]


@keeps("Of a study that is not finished nothing is kept: the same command begins anew.")
@click.command()
@click.argument("name")
@json_option
def study(name: str) -> None:
    """Measure what makes members detectable.

    NAME is an entry of config/studies.yaml: a control is trained again at each value of a setting, and audited.
    """
    config = load_whole_configuration()
    config.studies.named(name)
    tell_problems(config.problems)
    paths = get_writable_paths()

    definitions = load_dagster_definitions()
    from audit_pipeline.operate.dagster.audit import run_study_job as run_study
    from audit_pipeline.warehouse.query import open_read_only

    run_study(name, definitions, paths, tell_step)
    with open_read_only(paths.warehouse) as connection:
        rows = connection.sql("SELECT * FROM control_studies WHERE study = $study", params={"study": name})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    rows_shown = [
        {
            **{name: row[name] for name in ("setting", "value", "seed", "detector", "auroc")},
            **{"auroc_low": row["ci_low"], "auroc_high": row["ci_high"], **parse_row_parameters(row)},
        }
        for row in found
    ]
    interval = ("AUROC [95% interval]", build_estimate_formatter("auroc"))
    plain = [(name, name) for name in ("setting", "value", "seed")]
    show_table("study", rows_shown, [*plain, ("detector", format_detector_setting), interval])
    say(f"\nReport: {paths.report}", report=paths.report)


def show_instrument_checks(outcomes: Sequence[AuditOutcome]) -> None:
    """The check of the instrument on each of the control's benchmarks; raises the error where a pair met a fault."""
    _require_done(outcomes)
    models: dict[str, str] = {audit.model.control.role: audit.model.name for audit in outcomes if audit.model.control}
    for benchmark in dict.fromkeys(spec.name for audit in outcomes for spec in audit.benchmarks):
        _show_instrument_check(DataPaths.from_environment(), benchmark, models)


def _require_done(outcomes: Sequence[AuditOutcome]) -> None:
    """Raise the error where a pair met a fault."""
    for audit in outcomes:
        if audit.failed is not None:
            raise audit.failed


def show_memorisation(outcomes: Sequence[AuditOutcome]) -> None:
    """How often texts had to be trained on until the model gives them word for word, where documents were searched."""
    _require_done(outcomes)
    searched = dict.fromkeys(spec.name for audit in outcomes for spec in audit.benchmarks if spec.settings.extraction)
    models: dict[str, str] = {audit.model.control.role: audit.model.name for audit in outcomes if audit.model.control}
    for benchmark in searched:
        _show_memorised_shares(DataPaths.from_environment(), benchmark, models)


def _show_memorised_shares(paths: DataPaths, benchmark: str, models: Mapping[str, str]) -> None:
    from audit_pipeline.metrics.claims import REPRODUCED_FROM
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        relation = connection.sql(_BY_OCCURRENCES, params={"benchmark": benchmark, "threshold": REPRODUCED_FROM})
        rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()

    if not rows:
        return

    def found(role: str) -> dict[int, float]:
        return {row["times"]: row["reached"] for row in rows if row["model"] == models.get(role)}

    def told(role: str) -> str:
        return ", ".join(f"{share:.0%}" for share in found(role).values()) or "not searched"

    times = ", ".join(map(str, found("exposed")))
    say(
        f"\nMemorisation check: of texts that were {times} times in training, the model gives word for word "
        f"(p ≥ {REPRODUCED_FROM}): {told('exposed')}; the control model, which saw none of them: {told('twin')}",
        memorisation=[{"benchmark": benchmark, "exposed": found("exposed"), "twin": found("twin")}],
    )


def _show_instrument_check(paths: DataPaths, benchmark: str, models: Mapping[str, str]) -> None:
    """One line: what the detectors made of texts of which it is known whether the model was trained on them."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        statement = "SELECT * FROM leaderboard_history WHERE is_latest AND benchmark = $name"
        relation = connection.sql(statement, params={"name": benchmark})
        rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()

    def found(role: str) -> dict[str, float]:
        aurocs = {row["detector"]: row["auroc"] for row in rows if row["model"] == models.get(role)}
        return {name: aurocs[name] for name in _CHECKED if aurocs.get(name) is not None}

    def told(role: str) -> str:
        return ", ".join(f"{name} {auroc:.2f}" for name, auroc in found(role).items()) or "not audited"

    blind = next((row["blind_auroc"] for row in rows if row["blind_auroc"] is not None), None)
    say(
        f"\nInstrument check: AUROC of members against held-out texts: {told('exposed')}; "
        f"in the control model, which saw neither: {told('twin')}; "
        f"without any model: {'not computed' if blind is None else f'{blind:.2f}'}",
        checks=[{"benchmark": benchmark, "exposed": found("exposed"), "twin": found("twin"), "blind_auroc": blind}],
    )
