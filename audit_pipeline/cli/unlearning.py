"""The command compare: a model before and after it was made to forget texts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.options import PASSES_KEPT, json_option, keeps
from audit_pipeline.cli.shared import (
    get_writable_paths,
    load_dagster_definitions,
    resolve_model_option,
)
from audit_pipeline.operate.console import Columns, Row, say, show_table, tell, tell_step
from audit_pipeline.report.number_format import DASH, estimate

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
    from audit_pipeline.unlearning.measures import Finding


@keeps(PASSES_KEPT)
@click.command()
@click.option("--before", required=True, help="The model before forgetting: a name in config/models.yaml, or a path.")
@click.option("--after", required=True, help="The model after forgetting.")
@click.option(
    "--forget",
    required=True,
    help="The benchmark of the texts to be forgotten. Without --holdout: its members against its non-members.",
)
@click.option(
    "--holdout",
    help="The benchmark of texts that neither model was trained on: all texts of --forget against all of this one.",
)
@click.option("--retrained", help="A model that was trained without the texts to be forgotten, to compare with.")
@json_option
def compare(before: str, after: str, forget: str, holdout: str | None, retrained: str | None) -> None:
    """Compare a model before and after it was made to forget texts.

    Says what was forgotten, and what only looks forgotten, each number beside the same for held-out texts. No model is
    run: audit every model on the texts first (corpus-audit audit). docs/unlearning.md explains the numbers.
    """
    from audit_pipeline.models.tokenized_model import load_tokenizer

    paths = get_writable_paths()
    named = [resolve_model_option(name) for name in (before, after)]
    other = None if retrained is None else resolve_model_option(retrained)
    own = _read_benchmark(forget, paths)
    held_out = own if holdout is None else _read_benchmark(holdout, paths)

    definitions = load_dagster_definitions()
    from audit_pipeline.operate.dagster.audit import publish
    from audit_pipeline.unlearning import comparison as unlearning
    from audit_pipeline.unlearning.conclusion import conclude_unlearning

    first, second = (load_tokenizer(entry, paths) for entry in named)
    third = None if other is None else load_tokenizer(other, paths)
    done = unlearning.compare_models(unlearning.UnlearningRequest(first, second, third, own, held_out), paths)
    if done.left_out:
        tell(f"{done.left_out} text(s) without a scored token, or with a probability that is no number, are left out")
    unlearning.write_comparison(done, paths, run_id=f"compare-{uuid.uuid4()}")
    publish(definitions, paths, tell_step, include_text=texts_are_quoted())
    _show_findings(done.findings)
    rows = [asdict(finding) for finding in done.findings]
    found = conclude_unlearning(rows, before=first.entry.name, after=second.entry.name)
    words = "\n".join(["", found.headline, *found.explanation])
    say(words, outcome=found.outcome, headline=found.headline, explanation=list(found.explanation))
    say(f"Report: {paths.report}", report=paths.report)


def _read_benchmark(benchmark: str, paths: DataPaths) -> BuiltBenchmark:
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.catalogue.contracts import EXAMPLES
    from audit_pipeline.catalogue.store import iterate_partitions
    from audit_pipeline.config.hints import resolve_partition

    return read_built(paths, resolve_partition(benchmark, [name for name, _ in iterate_partitions(paths, EXAMPLES)]))


def _show_findings(findings: Sequence[Finding]) -> None:
    """Every number, both sides in one row."""
    from audit_pipeline.unlearning.measures import METRIC_IN_WORDS

    rows: dict[tuple[str, str], dict[str, object]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for finding in findings:
        values = asdict(finding)
        metric, role, side = (values.pop(name) for name in ("metric", "role", "side"))
        rows.setdefault((metric, role), {"metric": metric, "role": role})[side] = values
        if finding.reason is not None:
            reasons.setdefault(finding.reason, {})[METRIC_IN_WORDS[metric]] = None
    heads = (("to be forgotten", "forget"), ("held out", "holdout"), ("one against the other", "both"))
    sides = [(head, partial(_format_side_cell, side)) for head, side in heads]
    columns: Columns = [("metric", "metric", METRIC_IN_WORDS.__getitem__), ("model", "role"), *sides]
    show_table("unlearning", list(rows.values()), columns)
    for reason, metrics in reasons.items():
        say(f"Without a value: {', '.join(metrics)}: {reason}")


def _format_side_cell(side: str, row: Row) -> str:
    found = row.get(side)
    return estimate(found["value"], found["ci_low"], found["ci_high"], "z.3g", DASH) if found else ""
