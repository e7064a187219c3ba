"""Commands on models with known training data: control, study, demo."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from typing import Any

import click

from audit_pipeline.cli.audit_output import (
    audit_pairs,
    print_conclusions,
    publish_outcomes,
    show_audit_outcome,
)
from audit_pipeline.cli.listed_command import GO_ON, PASSES_KEPT, ListedCommand, Section
from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, print_next_commands
from audit_pipeline.cli.run_setup import (
    get_writable_paths,
    load_dagster_definitions,
    load_whole_configuration,
    print_problems,
)
from audit_pipeline.cli.shared_options import device_option, table_output_options
from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.audit_requests import AuditOutcome, AuditRequest
from audit_pipeline.pipeline.console import Columns, print_message, print_result, print_step, show_table
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.report.number_format import DASH, format_probability, format_thousands, format_yes_or_no
from audit_pipeline.store.control_names import INSTRUMENT_CHECK
from audit_pipeline.store.paths import DataPaths

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
    """Audit both models of a control on its texts; warehouse and report do not follow yet."""
    from audit_pipeline.extras.controls.config import FILE

    config = load_whole_configuration()
    config.entries_of(FILE).get_entry(name)
    pairs = config.pairs_of_control(name)
    if not pairs:
        raise ConfigError(
            f"the control {name} has no model or no benchmark: name it in config/models.yaml "
            f"(control: {{name: {name}, role: exposed}}) and in config/benchmarks.yaml (builder: controlled)"
        )
    asked = AuditOptions(device=device, publish=False)
    return [audit_pairs(pair.model, pair.benchmark, asked) for pair in pairs]


@click.command(
    cls=ListedCommand,
    section=Section.AUDIT,
    position=80,
    keeps="An unfinished study is not kept: the same command starts from the beginning.",
)
@click.argument("name")
@table_output_options
def study(name: str) -> None:
    """Measure what makes members detectable.

    NAME is an entry of config/studies.yaml. A control is trained and audited at each value of a setting.
    """
    from audit_pipeline.extras.controls.config import FILE, STUDIES_FILE

    config = load_whole_configuration()
    control = config.entries_of(FILE).get_entry(config.entries_of(STUDIES_FILE).get_entry(name).control)
    print_problems(config.problems)
    paths = get_writable_paths()

    definitions = load_dagster_definitions()
    from audit_pipeline.pipeline.dagster import audit, runs
    from audit_pipeline.pipeline.workspace_state import Scope

    with audit.open_runner(definitions, paths, print_step) as (runner, _):
        audit.prepare_scope(Scope(sources=control.sources), runner)
        runner.run("run_studies", "corpus-audit study", partition_key=name)
        runs.publish(runner)
    rows_shown = [
        {
            **{name: row[name] for name in ("setting", "value", "seed", "detector", "auroc")},
            **{"auroc_low": row["ci_low"], "auroc_high": row["ci_high"], "parameters": json.loads(row["parameters"])},
        }
        for row in _query("SELECT * FROM control_studies WHERE study = $study", study=name)
    ]
    show_table("study", rows_shown, _STUDY)
    print_result(f"\nReport: {paths.report}", report=paths.report)


def show_instrument_checks(outcomes: Sequence[AuditOutcome]) -> None:
    """Say what the detectors make of texts that a model was trained on, and was not, a line a benchmark of the control;
    raises the error where a pair met a fault.
    """
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
        print_result(
            f"\nInstrument check: AUROC of members against held-out texts: {words['exposed']}; "
            f"in the control model, which saw neither: {words['twin']}; "
            f"without any model: {'not computed' if blind is None else f'{blind:.2f}'}",
            checks=[{"benchmark": benchmark, **found, "blind_auroc": blind}],
        )


def show_memorisation(outcomes: Sequence[AuditOutcome]) -> None:
    """Say how often a text is trained on until the model gives it word for word, where documents were searched."""
    from audit_pipeline.statistics.claims import REPRODUCED_FROM

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
        print_result(
            f"\nMemorisation check: of texts that were {', '.join(map(str, found['exposed']))} times in training, the "
            f"model gives word for word (p ≥ {REPRODUCED_FROM}): {words['exposed']}; the control model, which saw none "
            f"of them: {words['twin']}",
            memorisation=[{"benchmark": benchmark, **found}],
        )


def _find_benchmarks(outcomes: Sequence[AuditOutcome]) -> list[tuple[str, Mapping[str, str]]]:
    """Find each benchmark of a control with the roles of its models; raises the error where a pair met a fault."""
    for audit in outcomes:
        if audit.failed is not None:
            raise audit.failed
    models = {audit.models[0].name: audit.models[0].control.role for audit in outcomes if audit.models[0].control}
    return [(name, models) for name in dict.fromkeys(spec.name for audit in outcomes for spec in audit.benchmarks)]


def _query(statement: str, **parameters: object) -> list[dict[str, Any]]:
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
    """Search the famous texts for what the model recites, where that is not done; warehouse and report do not follow
    yet. Nothing where the configuration has no such benchmark.
    """
    config = load_whole_configuration()
    specs = [spec for spec in config.benchmarks.values() if spec.family == FAMOUS_TEXTS]
    if not specs:
        print_message(f"config/benchmarks.yaml has no benchmark '{FAMOUS_TEXTS}': it is left out")
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.extras.extraction.commands import run_extraction
    from audit_pipeline.models.config import resolve_model
    from audit_pipeline.pipeline.run_audit import plan_quickly

    stages = ("documents", "benchmark", "extraction")
    entry, paths = resolve_model(model, config.models), DataPaths.from_environment()
    for spec in specs:
        request = AuditRequest([entry], [spec], AuditOptions(publish=False))
        plan = plan_quickly(request, paths)
        if plan is not None and not plan.problems and not plan.select_steps(stages):
            print_step(request.completion_message)
            continue
        run_extraction(request, spec.settings.extraction or ExtractionSettings(), paths)
    return [AuditOutcome([entry], [spec]) for spec in specs]


def show_famous_texts(outcome: AuditOutcome) -> None:
    """Show the answer, each text with its p-value, and how often its passage is in what is installed."""
    from audit_pipeline.store.store import read_documents

    [spec], paths = outcome.benchmarks, DataPaths.from_environment()
    differing = (spec.settings.extraction and spec.settings.extraction.near_verbatim) or 0
    print_result(f"\n{spec.settings.description}", famous_texts=spec.name)
    print_conclusions(paths, outcome.models[0].name, spec.name)
    rows = _query(_RECITED_PASSAGES, model=outcome.models[0].name, benchmark=spec.name)
    texts: dict[str, str] = {}
    for source in spec.sources:
        table = read_documents(paths, source).select(["document_id", "text"])
        texts |= {row["document_id"]: row["text"] for row in table.to_pylist()}
    passages = [texts[row["document_id"]][row["suffix_begin"] : row["suffix_end"]] for row in rows]
    copies = count_installed_copies(passages)
    show_table(
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
    print_result(
        "First choices, probability (and where so many tokens may differ) and copies are of the strongest passage; "
        "copies: the licence files of installed packages that hold it, an estimate of how often the model has read it."
    )


def count_installed_copies(passages: Sequence[str]) -> list[int]:
    """Count the licence files of installed packages that hold each passage, case and white space levelled."""
    from audit_pipeline.splits.shared_text import normalise_text

    files = [normalise_text(text) for text in _iterate_installed_licences()]
    return [sum(normalise_text(passage) in text for text in files) for passage in passages]


def _iterate_installed_licences() -> Iterable[str]:
    for distribution in distributions():
        for file in distribution.files or ():
            if file.name.lower().startswith(_LICENCES):
                try:
                    yield file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    # Removed since, or in another encoding: not counted.
                    continue


def _format_lower_bound(log_p: float | None) -> str:
    return DASH if log_p is None else f"≥ {math.exp(log_p):.2g}"


@click.command(cls=ListedCommand, section=Section.BEGIN, position=20, keeps=PASSES_KEPT)
@click.option("--model", default="smollm2-135m", show_default=True, help="The model to audit.")
@table_output_options
def demo(model: str) -> None:
    """Check the instrument, audit a model, and let it recite.

    The texts are real. The demo takes a few minutes on two cores.
    """
    checked = _audit_control_if_configured(INSTRUMENT_CHECK)
    memorised = _audit_control_if_configured(MEMORISATION_CHECK)
    audited = audit_pairs(model, "demo", AuditOptions(publish=False))
    recited = search_famous_texts(model)
    publish_outcomes([*checked, *memorised, audited, *recited])
    show_instrument_checks(checked)
    show_memorisation(memorised)
    show_audit_outcome(audited)
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
    print_result(f"\nEverything lies under {DataPaths.from_environment().root}")


def _audit_control_if_configured(name: str) -> list[AuditOutcome]:
    """Audit both models of a control; none where the configuration has no such control."""
    from audit_pipeline.extras.controls.config import FILE

    if name in load_whole_configuration().entries_of(FILE).names:
        return audit_control(name, None)
    print_message(f"config/controls.yaml has no control '{name}': its check is left out")
    return []
