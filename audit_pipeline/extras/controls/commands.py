"""Commands on models with known training data: control, study, demo."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from typing import Any

import click

from audit_pipeline.cli import audit_output, run_setup
from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, print_next_commands
from audit_pipeline.cli.shared_options import (
    GO_ON,
    PASSES_KEPT,
    ListedCommand,
    Section,
    device_option,
    table_output_options,
)
from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.audit_requests import AuditOutcome, AuditRequest
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.report.number_format import DASH, format_probability, format_thousands, format_yes_or_no
from audit_pipeline.store.paths import INSTRUMENT_CHECK, DataPaths

MEMORISATION_CHECK = "memorisation_check"
_BY_OCCURRENCES = """
SELECT model, name::INTEGER AS times, reached FROM current_extraction_rates
WHERE benchmark = $benchmark AND unit = 'occurrences' AND rule = 'probability' AND threshold = $threshold
    AND side = 'audited'
ORDER BY times
"""
_CHECKED = ("min_k", "min_k_plus_plus", "infilling")
_STUDY: Columns = (
    ("setting", "setting"),
    ("value", "value"),
    ("seed", "seed"),
    ("detector", format_detector_cell),
    ("AUROC [95% interval]", build_estimate_formatter("auroc")),
)


@click.command(
    cls=ListedCommand,
    section=Section.AUDIT,
    position=70,
    keeps=f"Finished trainings and finished texts are kept. {GO_ON}",
)
@click.argument("name", default=INSTRUMENT_CHECK)
@device_option
@table_output_options
def control(name: str, device: str | None) -> None:
    """Train and audit models whose training data is known.

    NAME is an entry of config/controls.yaml. One model is trained on the members, the control model on other texts.
    Both models are audited. A detector works if it finds the members in the first model but not in the control model.
    """
    audited = audit_control(name, device)
    audit_output.publish_outcomes(audited)
    for audit in audited:
        audit_output.show_audit_outcome(audit)
    show_instrument_checks(audited)
    show_memorisation(audited)


def audit_control(name: str, device: str | None) -> list[AuditOutcome]:
    """Audit both models of a control on its texts. The warehouse and the report are not rebuilt.

    Raises:
        ConfigError: If the configuration has no such control, or no model or benchmark of the control.
    """
    from audit_pipeline.extras.controls.config import FILE

    config = run_setup.load_whole_configuration()
    config.entries_of(FILE).get_entry(name)
    pairs = config.pairs_of_control(name)
    if not pairs:
        raise ConfigError(
            f"The control {name} has no model or no benchmark. Add its models to config/models.yaml (with control: "
            f"{{name: {name}, role: exposed}}), and a benchmark to config/benchmarks.yaml (with builder: controlled)."
        )
    options = AuditOptions(device=device, publish=False)
    return [audit_output.audit_pairs(pair.model, pair.benchmark, options) for pair in pairs]


@click.command(
    cls=ListedCommand,
    section=Section.AUDIT,
    position=80,
    keeps="An unfinished study is not kept. The same command starts it from the beginning.",
)
@click.argument("name")
@table_output_options
def study(name: str) -> None:
    """Measure what makes members detectable.

    NAME is an entry of config/studies.yaml. A control is trained for each value of each setting and for each seed.
    Detectors are measured on each trained model.
    """
    from audit_pipeline.extras.controls.config import FILE, STUDIES_FILE

    config = run_setup.load_whole_configuration()
    control = config.entries_of(FILE).get_entry(config.entries_of(STUDIES_FILE).get_entry(name).control)
    run_setup.print_problems(config.problems)
    paths = run_setup.get_writable_paths()

    definitions = run_setup.load_dagster_definitions()
    from audit_pipeline.pipeline.dagster import audit, runs
    from audit_pipeline.pipeline.workspace_state import Scope

    with audit.open_runner(definitions, paths, console.print_step) as (runner, _):
        audit.prepare_scope(Scope(sources=control.sources), runner)
        runner.run("run_studies", "corpus-audit study", partition_key=name)
        runs.publish(runner)
    rows: list[Row] = []
    for result in _query_warehouse("SELECT * FROM control_studies WHERE study = $study", study=name):
        row = {
            "setting": result["setting"],
            "value": result["value"],
            "seed": result["seed"],
            "detector": result["detector"],
            "auroc": result["auroc"],
            "auroc_low": result["ci_low"],
            "auroc_high": result["ci_high"],
            "parameters": json.loads(result["parameters"]),
        }
        rows.append(row)
    console.show_table("study", rows, _STUDY)
    console.print_result(f"\nReport: {paths.report}", report=paths.report)


def show_instrument_checks(outcomes: Sequence[AuditOutcome]) -> None:
    """Print how well some detectors separate members from held-out texts, one line per benchmark of the control.

    Raises:
        PairsFailedError: If an audit failed.
    """
    for benchmark, models in _list_benchmarks_with_roles(outcomes):
        rows = _query_warehouse(
            "SELECT * FROM leaderboard_history WHERE is_latest AND benchmark = $name", name=benchmark
        )
        aurocs_by_role: dict[str, dict[str, float]] = {"exposed": {}, "twin": {}}
        for row in rows:
            if row["model"] in models and row["detector"] in _CHECKED and row["auroc"] is not None:
                aurocs_by_role[models[row["model"]]][row["detector"]] = row["auroc"]
        blind = next((row["blind_auroc"] for row in rows if row["blind_auroc"] is not None), None)
        blind_text = "not computed" if blind is None else f"{blind:.2f}"
        console.print_result(
            f"\nInstrument check: AUROC of members against held-out texts: "
            f"{_format_aurocs(aurocs_by_role['exposed'])}; "
            f"in the control model, which was trained on neither: {_format_aurocs(aurocs_by_role['twin'])}; "
            f"without any model: {blind_text}",
            checks=[{"benchmark": benchmark, **aurocs_by_role, "blind_auroc": blind}],
        )


def _format_aurocs(aurocs: Mapping[str, float]) -> str:
    shown = [f"{name} {aurocs[name]:.2f}" for name in _CHECKED if name in aurocs]
    return ", ".join(shown) or "not audited"


def show_memorisation(outcomes: Sequence[AuditOutcome]) -> None:
    """Print the share of texts that are reproduced word for word, by their number of occurrences in training."""
    from audit_pipeline.statistics.claims import REPRODUCED_FROM

    for benchmark, models in _list_benchmarks_with_roles(outcomes):
        shares_by_role: dict[str, dict[int, float]] = {"exposed": {}, "twin": {}}
        for row in _query_warehouse(_BY_OCCURRENCES, benchmark=benchmark, threshold=REPRODUCED_FROM):
            if row["model"] in models:
                shares_by_role[models[row["model"]]][row["times"]] = row["reached"]
        if not any(shares_by_role.values()):
            continue
        occurrences = ", ".join(map(str, shares_by_role["exposed"]))
        console.print_result(
            f"\nMemorisation check: share of texts that the model reproduces word for word (p ≥ {REPRODUCED_FROM}), "
            f"with {occurrences} occurrences in training: {_format_shares(shares_by_role['exposed'])}; in the control "
            f"model, which was trained on none of them: {_format_shares(shares_by_role['twin'])}",
            memorisation=[{"benchmark": benchmark, **shares_by_role}],
        )


def _format_shares(shares: Mapping[int, float]) -> str:
    return ", ".join(f"{share:.0%}" for share in shares.values()) or "not searched"


def _list_benchmarks_with_roles(outcomes: Sequence[AuditOutcome]) -> list[tuple[str, Mapping[str, str]]]:
    """Return each audited benchmark with the role of each model by name.

    Raises:
        PairsFailedError: If an audit failed.
    """
    for audit in outcomes:
        if audit.failed is not None:
            raise audit.failed
    models: dict[str, str] = {}
    benchmarks: dict[str, Mapping[str, str]] = {}
    for audit in outcomes:
        model = audit.models[0]
        if model.control is not None:
            models[model.name] = model.control.role
        for spec in audit.benchmarks:
            benchmarks[spec.name] = models
    return list(benchmarks.items())


def _query_warehouse(statement: str, **parameters: object) -> list[dict[str, Any]]:
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(DataPaths.from_environment().warehouse) as connection:
        rows: list[dict[str, Any]] = connection.sql(statement, params=parameters).to_arrow_table().to_pylist()
    return rows


FAMOUS_TEXTS = "famous_texts"
_LICENCES = ("licen", "copying", "notice")
_RECITED_PASSAGES = """
SELECT title, p_value, q_bh, document.reproduced > 0 AS is_reproduced, strongest.log_p, log_p_near_verbatim,
    first_choices, strongest.tokens, document.document_id, suffix_begin, suffix_end
FROM current_document_memorisation AS document
JOIN current_extraction_windows AS strongest USING (model, benchmark, document_id)
WHERE model = $model AND benchmark = $benchmark AND side = 'audited' AND strength = 1
ORDER BY strongest.log_p DESC
"""


def search_famous_texts(model: str) -> list[AuditOutcome]:
    """Search the famous texts for passages that the model recites, and store the results.

    Benchmarks whose results are up to date are not searched again. The warehouse and the report are not rebuilt.

    Returns:
        One outcome per benchmark of the family ``famous_texts``. Empty if the configuration has no such benchmark.
    """
    config = run_setup.load_whole_configuration()
    specs = [spec for spec in config.benchmarks.values() if spec.family == FAMOUS_TEXTS]
    if not specs:
        console.print_message(
            f"config/benchmarks.yaml has no benchmark '{FAMOUS_TEXTS}', so famous texts are not searched"
        )
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.extras.extraction.commands import run_extraction
    from audit_pipeline.models.config import resolve_model
    from audit_pipeline.pipeline.run_audit import plan_quickly

    stages = ("documents", "benchmark", "extraction")
    entry = resolve_model(model, config.models)
    paths = DataPaths.from_environment()
    for spec in specs:
        request = AuditRequest([entry], [spec], AuditOptions(publish=False))
        plan = plan_quickly(request, paths)
        if plan is not None and not plan.problems and not plan.select_steps(stages):
            console.print_step(request.completion_message)
            continue
        run_extraction(request, spec.settings.extraction or ExtractionSettings(), paths)
    return [AuditOutcome([entry], [spec]) for spec in specs]


def show_famous_texts(outcome: AuditOutcome) -> None:
    """Print the conclusion about the famous texts, and per text its p-value and the installed copies of its passage."""
    from audit_pipeline.store.store import read_documents

    [spec] = outcome.benchmarks
    paths = DataPaths.from_environment()
    differing = (spec.settings.extraction and spec.settings.extraction.near_verbatim) or 0
    console.print_result(f"\n{spec.settings.description}", famous_texts=spec.name)
    audit_output.print_conclusions(paths, outcome.models[0].name, spec.name)
    rows = _query_warehouse(_RECITED_PASSAGES, model=outcome.models[0].name, benchmark=spec.name)
    texts: dict[str, str] = {}
    for source in spec.sources:
        table = read_documents(paths, source).select(["document_id", "text"])
        texts |= {row["document_id"]: row["text"] for row in table.to_pylist()}
    passages = [texts[row["document_id"]][row["suffix_begin"] : row["suffix_end"]] for row in rows]
    copies = count_installed_copies(passages)
    console.show_table(
        "recited",
        [{**row, "installed_copies": count} for row, count in zip(rows, copies, strict=True)],
        [
            ("text", "title"),
            ("p-value", "p_value", format_probability),
            ("q-value", "q_bh", format_probability),
            ("word for word", "is_reproduced", format_yes_or_no),
            ("first choices", lambda row: f"{row['first_choices']} of {row['tokens']}"),
            ("probability", "log_p", lambda log_p: f"{math.exp(log_p):.2g}"),
            (f"{differing} may differ", "log_p_near_verbatim", _format_lower_bound),
            ("copies", "installed_copies", format_thousands),
        ],
    )
    console.print_result(
        "First choices, probabilities and copies belong to the strongest passage. Copies: the number of licence files "
        "of installed packages that contain the passage, an estimate of how often the model has read it."
    )


def count_installed_copies(passages: Sequence[str]) -> list[int]:
    """Count for each passage how many licence files of installed packages contain it, ignoring case and white space."""
    from audit_pipeline.splits.shared_text import normalise_text

    licences = [normalise_text(text) for text in _iterate_installed_licences()]
    counts: list[int] = []
    for passage in passages:
        normalised = normalise_text(passage)
        counts.append(sum(normalised in licence for licence in licences))
    return counts


def _iterate_installed_licences() -> Iterable[str]:
    for distribution in distributions():
        for file in distribution.files or ():
            if file.name.lower().startswith(_LICENCES):
                try:
                    yield file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    # The file was removed, or has another encoding. It is not counted.
                    continue


def _format_lower_bound(log_p: float | None) -> str:
    return DASH if log_p is None else f"≥ {math.exp(log_p):.2g}"


@click.command(cls=ListedCommand, section=Section.BEGIN, position=20, keeps=PASSES_KEPT)
@click.option(
    "--model",
    default="smollm2-135m",
    show_default=True,
    help="Model to audit: a name in config/models.yaml, a hub id, or a path.",
)
@table_output_options
def demo(model: str) -> None:
    """Check the detectors, audit a model, and find recited texts.

    The texts are real. The demo takes a few minutes on two cores.
    """
    checked = _audit_control_if_configured(INSTRUMENT_CHECK)
    memorised = _audit_control_if_configured(MEMORISATION_CHECK)
    audited = audit_output.audit_pairs(model, "demo", AuditOptions(publish=False))
    recited = search_famous_texts(model)
    audit_output.publish_outcomes([*checked, *memorised, audited, *recited])
    show_instrument_checks(checked)
    show_memorisation(memorised)
    audit_output.show_audit_outcome(audited)
    for result in recited:
        show_famous_texts(result)
    print_next_commands(
        {
            "dev": "the same in the Dagster UI",
            "report --open": "the report in a browser",
            'sql "SELECT * FROM leaderboard"': "the findings in SQL",
            f"audit --model {model} --benchmark release_notes": "the whole benchmark",
            f"score --model {model} --texts FILE --out scores.parquet": "texts of your own",
        }
    )
    console.print_result(f"\nAll files are in {DataPaths.from_environment().root}")


def _audit_control_if_configured(name: str) -> list[AuditOutcome]:
    """Audit both models of a control. The list is empty if the configuration has no such control."""
    from audit_pipeline.extras.controls.config import FILE

    if name in run_setup.load_whole_configuration().entries_of(FILE).names:
        return audit_control(name, None)
    console.print_message(f"config/controls.yaml has no control '{name}', so this check is skipped")
    return []
