"""Commands on models whose training data is known: control, study; and the check of the instrument on them."""

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
from audit_pipeline.operate.console import say, show_table, tell_step
from audit_pipeline.operate.options import AuditOptions
from audit_pipeline.operate.requests import AuditOutcome

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

    run_study(name, definitions, paths, tell_step)
    rows_shown = [
        {
            **{name: row[name] for name in ("setting", "value", "seed", "detector", "auroc")},
            **{"auroc_low": row["ci_low"], "auroc_high": row["ci_high"], **parse_row_parameters(row)},
        }
        for row in _query("SELECT * FROM control_studies WHERE study = $study", study=name)
    ]
    interval = ("AUROC [95% interval]", build_estimate_formatter("auroc"))
    plain = [(name, name) for name in ("setting", "value", "seed")]
    show_table("study", rows_shown, [*plain, ("detector", format_detector_setting), interval])
    say(f"\nReport: {paths.report}", report=paths.report)


def show_instrument_checks(outcomes: Sequence[AuditOutcome]) -> None:
    """What the detectors made of texts of which it is known whether the model was trained on them, a line for each of
    the control's benchmarks; raises the error where a pair met a fault."""
    for benchmark, models in _find_benchmarks(outcomes):
        rows = _query("SELECT * FROM leaderboard_history WHERE is_latest AND benchmark = $name", name=benchmark)
        found: dict[str, dict[str, float]] = {"exposed": {}, "twin": {}}
        for row in rows:
            if row["model"] in models and row["detector"] in _CHECKED and row["auroc"] is not None:
                found[models[row["model"]]][row["detector"]] = row["auroc"]
        words = {
            role: ", ".join(f"{name} {aurocs[name]:.2f}" for name in _CHECKED if name in aurocs) or "not audited"
            for role, aurocs in found.items()
        }
        blind = next((row["blind_auroc"] for row in rows if row["blind_auroc"] is not None), None)
        say(
            f"\nInstrument check: AUROC of members against held-out texts: {words['exposed']}; "
            f"in the control model, which saw neither: {words['twin']}; "
            f"without any model: {'not computed' if blind is None else f'{blind:.2f}'}",
            checks=[{"benchmark": benchmark, **found, "blind_auroc": blind}],
        )


def show_memorisation(outcomes: Sequence[AuditOutcome]) -> None:
    """How often texts had to be trained on until the model gives them word for word, where documents were searched."""
    from audit_pipeline.metrics.claims import REPRODUCED_FROM

    for benchmark, models in _find_benchmarks(outcomes):
        found: dict[str, dict[int, float]] = {"exposed": {}, "twin": {}}
        for row in _query(_BY_OCCURRENCES, benchmark=benchmark, threshold=REPRODUCED_FROM):
            if row["model"] in models:
                found[models[row["model"]]][row["times"]] = row["reached"]
        if not any(found.values()):
            continue
        words = {
            role: ", ".join(f"{share:.0%}" for share in shares.values()) or "not searched"
            for role, shares in found.items()
        }
        say(
            f"\nMemorisation check: of texts that were {', '.join(map(str, found['exposed']))} times in training, the "
            f"model gives word for word (p ≥ {REPRODUCED_FROM}): {words['exposed']}; the control model, which saw none "
            f"of them: {words['twin']}",
            memorisation=[{"benchmark": benchmark, **found}],
        )


def _find_benchmarks(outcomes: Sequence[AuditOutcome]) -> list[tuple[str, Mapping[str, str]]]:
    """Each benchmark of a control with the roles of its models; raises the error where a pair met a fault."""
    for audit in outcomes:
        if audit.failed is not None:
            raise audit.failed
    models = {audit.model.name: audit.model.control.role for audit in outcomes if audit.model.control}
    return [(name, models) for name in dict.fromkeys(spec.name for audit in outcomes for spec in audit.benchmarks)]


def _query(statement: str, **parameters: object) -> list[dict[str, Any]]:
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(DataPaths.from_environment().warehouse) as connection:
        rows: list[dict[str, Any]] = connection.sql(statement, params=parameters).to_arrow_table().to_pylist()
    return rows
