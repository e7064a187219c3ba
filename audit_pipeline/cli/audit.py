"""The command audit, and the tables of its --dry-run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.audit_output import audit_pairs, show_audit_outcome
from audit_pipeline.cli.output import estimate_seconds, format_estimated_time, print_run_resources, print_sending_plan
from audit_pipeline.cli.run_setup import print_problems
from audit_pipeline.cli.shared_options import PASSES_KEPT, ListedCommand, Section, record_exit_state
from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.audit_requests import AuditRequest, build_audit_request
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.report.number_format import format_thousands
from audit_pipeline.store.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.plan import Step
    from audit_pipeline.token_statistics.cached_texts import CachePlan


_PLAN_COLUMNS: Columns = (
    ("benchmark", "benchmark"),
    *(
        (name.replace("_", " "), name, format_thousands)
        for name in ("texts", "cached", "to_run", "passes", "tokens", "branch_tokens", "bytes_to_write")
    ),
    ("time", "seconds", format_estimated_time),
    ("why", "because", lambda why: why or "done"),
)


def _describe_step(row: Row) -> str:
    if "description" in row:
        return f"{row['what']}: {row['description']}"
    if "sources" in row:
        return f"{row['what']}, of {row['rows_of'] or ', '.join(row['sources']) or 'the control ' + row['control']}"
    return str(row["what"])


_STEP_COLUMNS: Columns = (("first", "step"), ("what", _describe_step), ("why", "because"))


@click.command(cls=ListedCommand, section=Section.AUDIT, position=10, keeps=PASSES_KEPT)
@shared_options.model_option
@shared_options.benchmark_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the sources to fetch, the benchmarks to build, the numbers of texts, tokens, passes and bytes, and the "
    "estimated time. Nothing is fetched or run.",
)
@click.option("--refresh", is_flag=True, help="Fetch the sources again, even if their documents are stored.")
@click.option(
    "--again", is_flag=True, help="Repeat finished audits. The model is not run again on texts that are in the cache."
)
@click.option(
    "--kinds",
    default="base",
    show_default=True,
    help="Kinds of token statistics to cache from each pass, separated by commas: base (always cached), topk (the "
    "likeliest tokens), logits (all logits). Other statistics can later be computed from cached logits without a pass.",
)
@click.option(
    "--logits-budget-gb",
    type=click.FloatRange(min=0),
    help="Maximum size of the logits of a benchmark, in gigabytes. If they are larger, the audit fails before the "
    "model is run. Default: 21.5.",
)
@shared_options.run_options
@shared_options.details_option
@shared_options.fail_on_option("found", "stale")
@shared_options.table_output_options
def audit(model: str, benchmark: str, dry_run: bool, details: bool, **options: Any) -> None:
    """Audit a model, or a series of models, on benchmarks.

    Dagster runs the audit in this process. Finished audits are not repeated. The model is not run again on texts that
    are in the cache.
    """
    audit_options = AuditOptions(**options)
    if dry_run and audit_options.refresh:
        raise click.UsageError(
            "--dry-run cannot be combined with --refresh: the texts are known only after the sources are fetched. "
            "Remove one of these options."
        )
    if dry_run:
        request = build_audit_request(model, benchmark, audit_options)
        for entry in request.models:
            _show_dry_run(replace(request, models=[entry]))
    else:
        show_audit_outcome(audit_pairs(model, benchmark, audit_options), details=details)


def _show_dry_run(request: AuditRequest) -> None:
    entry = request.model
    options = request.options
    print_problems(request.problems)

    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.pipeline.dagster.audit import plan_dry_run
    from audit_pipeline.store.control_files import read_trained_version

    paths = DataPaths.from_environment()
    is_untrained = entry.control is not None and read_trained_version(entry.control.name, paths) is None
    tokenized = None if is_untrained else load_tokenized(entry, paths)
    limits = options.limits.require_usable_for(entry)
    dry = plan_dry_run(request, tokenized, paths)
    if dry.has_work:
        record_exit_state("stale")
    for name, problem in dry.problems.items():
        console.print_message(f"the benchmark {name} is skipped: {problem}")
    _show_preparation_steps(dry.preparation_steps, dry.not_built, paths)
    if tokenized is None or not dry.plans:
        console.print_result("\nNothing was fetched, built or run.", plans=[])
        return
    plans = dry.plans
    _show_plans(plans, tokenized, options)
    print_run_resources(tokenized, options)
    time_note = (
        "The passes of a reference model are not included. The time cannot be estimated, because the model does not "
        "run in this process."
    )
    if entry.host.is_here and options.chosen_engine.name == "in_process":
        time_note = (
            "The number of branch tokens is an estimate. The time is estimated from this machine's measured speed. It "
            "does not include loading the model and the passes of a reference model."
        )
    console.print_result(
        "Nothing was run. The numbers of passes and tokens include the texts, their lower-case copies, and the texts "
        "with a prefix before them. " + time_note
    )
    # Each pass is a request, and the server generates one token per request.
    n_tokens = sum(plan.tokens_to_run + plan.passes for plan, _ in plans.values())
    print_sending_plan([(tokenized, n_tokens), *_count_reference_tokens(tokenized, list(plans), paths)], limits)
    for spec in request.benchmarks:
        if spec.settings.extraction and spec.name in plans:
            console.print_result(
                f"The documents of {spec.name} are also searched for passages. To estimate this work: "
                f"corpus-audit extract --model {entry.name} --benchmark {spec.name} --dry-run"
            )


def _show_plans(plans: Mapping[str, tuple[CachePlan, str]], model: TokenizedModel, options: AuditOptions) -> None:
    """Print the texts, tokens and estimated time of each benchmark."""
    rows = [
        {
            "benchmark": name,
            "texts": plan.texts,
            "cached": plan.cached_texts,
            "to_run": plan.texts_to_run,
            "passes": plan.passes,
            "tokens": plan.tokens_to_run,
            "branch_tokens": plan.branch_tokens,
            "bytes_to_write": sum(plan.bytes_to_write.values()),
            "seconds": estimate_seconds(model, plan.tokens_to_run + plan.branch_tokens, options),
            "because": because,
        }
        for name, (plan, because) in plans.items()
    ]
    console.show_table("plans", rows, _PLAN_COLUMNS)


def _show_preparation_steps(steps: Sequence[Step], unbuilt_benchmarks: Sequence[str], paths: DataPaths) -> None:
    """Print the steps before the model is run, each with its reason."""
    if steps or console.is_json_output():
        console.show_table("first", [_build_step_row(step, paths) for step in steps], _STEP_COLUMNS)
    if unbuilt_benchmarks:
        console.print_result(
            "The numbers of texts and tokens are known only after these benchmarks are built: "
            f"{', '.join(unbuilt_benchmarks)}. "
            f"To build a benchmark without running a model: corpus-audit benchmarks --build {unbuilt_benchmarks[0]}. "
            "`corpus-audit audit` builds missing benchmarks itself.",
            not_built=list(unbuilt_benchmarks),
        )


def _build_step_row(step: Step, paths: DataPaths) -> Row:
    """Return the row of a step, with the known facts about its source or benchmark."""
    from audit_pipeline.benchmarks.config import load_benchmarks
    from audit_pipeline.benchmarks.row_settings import RowsSettings
    from audit_pipeline.benchmarks.rows_origin import describe_planned_origin
    from audit_pipeline.sources.config import all_sources

    row = {"step": step.stage.name, "what": step.partition, "because": step.reason}
    if step.stage.name == "benchmark":
        spec = load_benchmarks()[step.partition]
        rows = describe_planned_origin(spec.settings) if isinstance(spec.settings, RowsSettings) else None
        sources = {name: _count_fetched_documents(name, paths) for name in spec.sources}
        return {**row, "rows_of": rows, "sources": sources, "control": spec.control}
    if step.stage.name == "documents":
        source = all_sources()[step.partition]
        documents = _count_fetched_documents(step.partition, paths)
        return {**row, "description": source.description, "licence": source.licence, "documents_there": documents}
    return row


def _count_fetched_documents(source: str, paths: DataPaths) -> int | None:
    """Return the number of fetched documents of a source, or None if the source was not fetched."""
    from audit_pipeline.store.files import read_json

    manifest = paths.source_manifest(source)
    return read_json(manifest)["documents"] if manifest.exists() else None


def _count_reference_tokens(
    model: TokenizedModel, benchmarks: Sequence[str], paths: DataPaths
) -> list[tuple[TokenizedModel, int]]:
    """Return the reference model and its number of tokens. The list is empty if no text would be sent to a server."""
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.benchmarks.model_inputs import build_benchmark_inputs
    from audit_pipeline.models.tokenized_model import load_reference_model
    from audit_pipeline.token_statistics.cached_texts import plan

    texts: list[str] = []
    try:
        reference = load_reference_model(model, paths)
        if reference is None or reference.entry.host.is_here:
            return []
        for name in benchmarks:
            texts += build_benchmark_inputs(read_built(paths, name), model).distinct_texts
    except AuditError as error:
        console.print_message(f"the tokens of the reference model are not counted: {error}")
        return []
    planned = plan(reference, texts, paths)
    return [(reference, planned.tokens_to_run + planned.passes)]
