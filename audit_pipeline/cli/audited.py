"""An audit as the commands ask for it, and how they show what it came to.

What belongs here: what demo, audit and control share: bringing pairs up to date, publishing, and the table of findings.
What does not: the commands and their options (demo.py, auditing.py, controls.py), and the work itself (operate/).

Heavy packages are imported where they are needed, so that `--help` and an audit with nothing to do answer at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.answers import say_conclusions, tell_left_out
from audit_pipeline.cli.shared import (
    data_to_write,
    detector_and_setting,
    sides,
    tell_problems,
    tell_step,
    whole_configuration,
    with_interval,
)
from audit_pipeline.endpoints.limits import Limits
from audit_pipeline.operate.console import Columns, Row, say, show_table, tell

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.config import BenchmarkSpec
    from audit_pipeline.cluster.engine import Engine
    from audit_pipeline.errors import PairsFailedError
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.operate.dagster.audit import AuditOutcome

ALL = "all"
_METRICS = {
    "auroc": "AUROC [95% interval]",
    "tpr_at_5_fpr": "TPR at 5% FPR",
    "fpr_at_95_tpr": "FPR at 95% TPR",
}
_SHOWN = (
    *("benchmark", "detector"),
    *(f"{metric}{end}" for metric in _METRICS for end in ("", "_low", "_high")),
    *("n_members", "n_nonmembers"),
)


@dataclass(frozen=True)
class AuditOptions:
    """What is asked of an audit beside its model and benchmarks."""

    refresh: bool = False
    again: bool = False
    device: str | None = None
    engine: Engine | None = None
    kinds: tuple[Any, ...] = ("base",)
    logits_budget_gb: float | None = None
    limits: Limits = field(default_factory=Limits)
    publish: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked that is done whatever is there."""
        return not (self.refresh or self.again) and self.kinds == ("base",)


@dataclass(frozen=True)
class Audited:
    """What an audit came to: the benchmarks that were not left out, and the error where some pairs met a fault and the
    others are done."""

    model: ModelEntry
    benchmarks: Sequence[BenchmarkSpec]
    failed: PairsFailedError | None = None

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(spec.name, self.model.name) for spec in self.benchmarks]


def audit_pairs(model: str, benchmark: str, asked: AuditOptions) -> Audited:
    """Bring the pairs up to date; nothing is run, and no heavy package imported, where they are."""
    # Before the heavy packages: what is wrong with it is told at once.
    entry, specs = asked_for(model, benchmark)

    from audit_pipeline.operate.situation import steps_at_a_glance

    paths = DataPaths.from_environment()
    up_to_date = f"{entry.name} on {', '.join(spec.name for spec in specs)}: everything is up to date, nothing is run"
    if asked.is_plain and steps_at_a_glance(entry, specs, paths, publish=asked.publish) == ():
        tell_step(up_to_date)
        return Audited(entry, specs)
    data_to_write()

    from audit_pipeline.definitions import defs
    from audit_pipeline.operate.dagster.audit import AuditRequest
    from audit_pipeline.operate.dagster.audit import audit as run_audit

    request = AuditRequest(entry.name, specs, **vars(asked), terminal=True, leave_out=benchmark == ALL)
    outcome = run_audit(request, defs(), paths, tell_step)
    _tell_outcome(outcome)
    if not outcome.runs and not outcome.failed and not outcome.left_out:
        tell_step(up_to_date)
    return Audited(entry, [spec for spec in specs if spec.name not in outcome.left_out], outcome.failed)


def _tell_outcome(outcome: AuditOutcome) -> None:
    if outcome.dead_runs:
        tell(f"marked {len(outcome.dead_runs)} dead run(s) of this machine failed and freed their slots")
    for partition, done in outcome.passes.items():
        tell(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_applicable.items():
        tell(f"{partition} could not run: {reason}", style="red")


def asked_for(model: str, benchmark: str) -> tuple[ModelEntry, Sequence[BenchmarkSpec]]:
    """The model, and the benchmarks that a user named: one, a family, or all there are; other problems are told."""
    from audit_pipeline.benchmarks.config import standing
    from audit_pipeline.models.config import resolve_model

    config = whole_configuration()
    specs = list(standing(config.benchmarks).values()) if benchmark == ALL else config.benchmarks_named(benchmark)
    entry = resolve_model(model, config.models)
    tell_problems(config.problems)
    return entry, specs


def publish_audited(audited: Sequence[Audited]) -> None:
    """Rebuild warehouse and report once, where they do not show what these audits came to."""
    from audit_pipeline.operate.situation import steps_to_publish

    paths = DataPaths.from_environment()
    if not steps_to_publish([pair for one in audited for pair in one.pairs], paths):
        return

    from audit_pipeline.definitions import defs
    from audit_pipeline.operate.dagster.audit import publish

    tell_step("rebuilding warehouse and report")
    publish(defs(), paths, tell_step, include_text=texts_are_quoted())


def show_audited(audited: Audited) -> None:
    """The findings, the way to the report, and the error where there was one."""
    paths = DataPaths.from_environment()
    _show_findings(paths, audited.model.name, [spec.name for spec in audited.benchmarks])
    tell_left_out(paths)
    say(f"\nReport: {paths.report}", report=paths.report)
    if audited.failed is not None:
        raise audited.failed


def interval_of(metric: str) -> Callable[[Row], str]:
    """What shows a metric of a row with its interval."""
    return lambda row: with_interval(row, metric)


_FINDINGS: Columns = (
    ("benchmark", "benchmark"),
    ("detector", detector_and_setting),
    *((head, interval_of(metric)) for metric, head in _METRICS.items()),
    ("texts", sides),
)


def _show_findings(paths: DataPaths, model: str, benchmarks: Sequence[str]) -> None:
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        statement = "SELECT * FROM leaderboard WHERE model = $model AND list_contains($benchmarks, benchmark)"
        rows = connection.sql(statement, params={"model": model, "benchmarks": list(benchmarks)})
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
    say("")
    shown = [{"model": model, **{name: row[name] for name in _SHOWN}, **setting_of(row)} for row in found]
    show_table("findings", shown, _FINDINGS)
    say_conclusions(paths, model, benchmarks)


def setting_of(row: Row) -> dict[str, Any]:
    """The row's parameters as they are, not as canonical JSON."""
    return {"parameters": json.loads(row["parameters"])}
