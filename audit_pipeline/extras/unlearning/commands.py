"""The command compare, which compares a model before and after unlearning of texts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.run_setup import get_writable_paths, publish, resolve_built_benchmark, resolve_model_option
from audit_pipeline.cli.shared_options import PASSES_KEPT, ListedCommand, Section, table_output_options
from audit_pipeline.pipeline.console import Columns, Row, print_message, print_result, show_table
from audit_pipeline.report.number_format import DASH, format_estimate

if TYPE_CHECKING:
    from audit_pipeline.extras.unlearning.comparison_rows import ComparisonFinding


def _format_unlearning_metric(metric: str) -> str:
    from audit_pipeline.tables import UNLEARNING_METRICS

    return UNLEARNING_METRICS[metric]


def _format_side_estimate(side: str, row: Row) -> str:
    found = row.get(side)
    return format_estimate(found["value"], found["ci_low"], found["ci_high"], "z.3g", DASH) if found else ""


_UNLEARNING: Columns = (
    ("metric", "metric", _format_unlearning_metric),
    ("model", "role"),
    ("to be forgotten", partial(_format_side_estimate, "forget")),
    ("held out", partial(_format_side_estimate, "holdout")),
    ("both sides compared", partial(_format_side_estimate, "both")),
)


@click.command(cls=ListedCommand, section=Section.AUDIT, position=60, keeps=PASSES_KEPT)
@click.option(
    "--before", required=True, help="Model before unlearning: a name in config/models.yaml, a hub id, or a path."
)
@click.option(
    "--after", required=True, help="Model after unlearning: a name in config/models.yaml, a hub id, or a path."
)
@click.option(
    "--forget",
    required=True,
    help="Benchmark of the texts to be forgotten. Without --holdout, the members of this benchmark are compared with "
    "its non-members.",
)
@click.option(
    "--holdout",
    help="Benchmark of texts that neither model was trained on. All texts of --forget are compared with all texts of "
    "this benchmark. Default: the non-members of --forget.",
)
@click.option(
    "--retrained",
    help="Model that was trained without the texts to be forgotten: a name, a hub id, or a path. Default: PrivLeak "
    "assumes a model that cannot separate the two sides, and forget quality is not computed.",
)
@table_output_options
def compare(before: str, after: str, forget: str, holdout: str | None, retrained: str | None) -> None:
    """Compare a model before and after it was made to forget texts.

    Show what was forgotten and what only looks forgotten. Each number is next to the number for held-out texts. No
    model is run: audit every model on the texts first (corpus-audit audit). docs/unlearning.md explains the numbers.
    """
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.extras.unlearning import comparison as unlearning
    from audit_pipeline.extras.unlearning.conclusion_section import conclude_unlearning
    from audit_pipeline.models.tokenized_model import load_tokenized

    paths = get_writable_paths()
    entries = [resolve_model_option(name) for name in (before, after, retrained) if name is not None]
    own = read_built(paths, resolve_built_benchmark(forget, paths))
    held_out = own if holdout is None else read_built(paths, resolve_built_benchmark(holdout, paths))
    first, second, *others = (load_tokenized(entry, paths) for entry in entries)
    third = others[0] if others else None
    request = unlearning.UnlearningRequest(first, second, third, own, held_out)
    findings, left_out = unlearning.compare_models(request, paths)
    if left_out:
        print_message(
            f"{left_out} text(s) are skipped, because a model scored no token of the text or returned no number (NaN) "
            "as a log-probability."
        )
    unlearning.write_comparison(request, findings, paths, run_id=f"compare-{uuid.uuid4()}")
    publish(paths)
    _show_unlearning(findings)
    rows = [asdict(finding) for finding in findings]
    found = conclude_unlearning(rows, before=first.entry.name, after=second.entry.name)
    words = "\n".join(["", found.headline, *found.explanation])
    print_result(words, outcome=found.outcome, headline=found.headline, explanation=list(found.explanation))
    print_result(f"Report: {paths.report}", report=paths.report)


def _show_unlearning(findings: Sequence[ComparisonFinding]) -> None:
    """Print all findings, with both sides of a metric in one row."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for finding in findings:
        values = asdict(finding)
        metric, role, side = (values.pop(name) for name in ("metric", "role", "side"))
        rows.setdefault((metric, role), {"metric": metric, "role": role})[side] = values
        if finding.reason is not None:
            reasons.setdefault(finding.reason, {})[_format_unlearning_metric(metric)] = None
    show_table("unlearning", list(rows.values()), _UNLEARNING)
    for reason, metrics in reasons.items():
        print_result(f"No value for {', '.join(metrics)}: {reason}")
