"""The command `corpus-audit forget`: remove a benchmark or a model, with its partition and all that came of it.

What belongs here: the unfinished runs that a removal waits for, Dagster's partitions, the order of it all. What does
not: which files there are (audit_pipeline/operate/removal.py), presentation (cli/).

Nothing is removed while any run is unfinished that may write findings, whichever pairs it is of. Between two of its
runs a command at work holds a claim (work_claims.py). The partition goes first: from then on no run can be requested
for it. A run that was requested just before is found by a second look, which gives the partition back. A removal that
was killed is finished by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.catalogue.working_copy import refresh
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.hints import did_you_mean, list_family_partitions, resolve_partition
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import load_models
from audit_pipeline.operate.dagster import in_process, work_claims
from audit_pipeline.operate.dagster.audit import publish
from audit_pipeline.operate.dagster.in_process import dagster_home
from audit_pipeline.operate.removal import (
    Dimension,
    RemovalTarget,
    find_removal,
    list_kept_names,
    list_set_aside_logs,
    mark_removal_finished,
    measure_removal,
    remove,
)
from audit_pipeline.operate.removal_files import Gone

_FETCHING_JOB = "refresh_sources"
_UNFINISHED_BACKFILLS = {"REQUESTED", "CANCELING", "FAILING"}
_NAMED_RUNS = 3


@dataclass(frozen=True)
class Forgotten:
    """What went, or in a dry run would go, and what a user should know besides.

    ``had_partition``: whether Dagster knew it. ``unfinished``: in a dry run, what a removal would wait for now, in
    words. ``configured``: whether the configuration still names it, None where that cannot be read. ``aside``: logs of
    earlier warehouses, which are the user's.
    """

    target: RemovalTarget
    gone: Sequence[Gone]
    kept: Sequence[str]
    had_partition: bool
    configured: bool | None
    aside: Sequence[Path]
    unfinished: Sequence[str] = ()
    dead_runs: Sequence[str] = ()


def plan_to_forget(named_target: RemovalTarget, paths: DataPaths) -> Forgotten:
    """What forgetting would remove, and what it would wait for now; nothing is changed, no Dagster home is made.

    Raises AuditError for an unknown name.
    """
    home = dagster_home(paths)
    if not (home / "dagster.yaml").exists():
        return _preview_removal(_resolve_target(named_target, [], paths), [], [], paths)
    with in_process.open_existing_instance(home) as instance:
        partitions = list(instance.get_dynamic_partitions(named_target.dimension))
        audits = [str(claim) for claim in work_claims.live_claims(paths) if claim.doing == "audit"]
        target = _resolve_target(named_target, partitions, paths)
        return _preview_removal(target, partitions, [*find_unfinished_runs(instance), *audits], paths)


def forget(
    named_target: RemovalTarget, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Forgotten:
    """Remove ``named_target``, then rebuild warehouse and report.

    Raises AuditError for an unknown name and, with everything as it was, while a run is unfinished that may write
    findings.
    """
    with in_process.open_instance(paths) as instance, ExitStack() as claimed:
        dead_runs = in_process.mark_dead_runs_failed(instance)
        partitions = list(instance.get_dynamic_partitions(named_target.dimension))
        target = _resolve_target(named_target, partitions, paths)
        claimed.enter_context(work_claims.claim_removal(target, paths))
        refresh(paths.root)
        refuse_while_unfinished(target, instance)
        on_step(f"looking for what there is of {target}")
        removal = find_removal(target, paths)
        _remove_partition(target, instance, was_there=target.name in partitions)
        on_step(f"removing {target}")
        gone = remove(removal)
        on_step("rebuilding warehouse and report")
        # Everything: a row that is deleted from a DuckDB file may lie on in a block that is not used.
        publish(definitions, paths, on_step, include_text=texts_are_quoted(), everything=True)
        mark_removal_finished(removal)
        return Forgotten(
            target,
            gone,
            removal.kept,
            had_partition=target.name in partitions,
            configured=_is_configured(target),
            aside=list_set_aside_logs(paths),
            dead_runs=dead_runs,
        )


def refuse_while_unfinished(target: RemovalTarget, instance: dg.DagsterInstance) -> None:
    """Raise AuditError, naming the runs, while any of :func:`find_unfinished_runs` is there."""
    runs = find_unfinished_runs(instance)
    if runs:
        more = f" and {len(runs) - _NAMED_RUNS} more" if len(runs) > _NAMED_RUNS else ""
        raise AuditError(
            f"{target} cannot be forgotten while an audit is unfinished: {', '.join(runs[:_NAMED_RUNS])}{more}. "
            "Wait for it or end it, then forget again; nothing was removed"
        )


def find_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """The unfinished runs and backfills that may read or write findings, in words: all but fetches of documents."""
    unfinished = instance.get_runs(dg.RunsFilter(statuses=in_process.UNFINISHED))
    runs = [
        f"run {run.run_id} ({run.job_name}, {run.status.value.lower()}{_describe_process(run)})"
        for run in unfinished
        if run.job_name != _FETCHING_JOB
    ]
    backfills = [
        f"backfill {backfill.backfill_id} ({backfill.status.value.lower()})"
        for backfill in instance.get_backfills()
        if backfill.status.value in _UNFINISHED_BACKFILLS
    ]
    return [*runs, *backfills]


def _describe_process(run: dg.DagsterRun) -> str:
    host = in_process.process_tag(run, in_process.HOST_TAG)
    process = in_process.process_tag(run, in_process.PROCESS_TAG).partition("@")[0]
    return f", process {process} on {host}" if host else ""


def _remove_partition(target: RemovalTarget, instance: dg.DagsterInstance, *, was_there: bool) -> None:
    """Remove the partition from Dagster, so that no run can be requested; gives it back where one just was."""
    instance.delete_dynamic_partition(target.dimension, target.name)
    try:
        refuse_while_unfinished(target, instance)
    except AuditError:
        if was_there:
            instance.add_dynamic_partitions(target.dimension, [target.name])
        raise


def _preview_removal(
    target: RemovalTarget, partitions: Sequence[str], unfinished: Sequence[str], paths: DataPaths
) -> Forgotten:
    removal = find_removal(target, paths)
    return Forgotten(
        target,
        measure_removal(removal),
        removal.kept,
        had_partition=target.name in partitions,
        configured=_is_configured(target),
        aside=list_set_aside_logs(paths),
        unfinished=unfinished,
    )


def _resolve_target(named_target: RemovalTarget, partitions: Sequence[str], paths: DataPaths) -> RemovalTarget:
    """``named_target`` by the name of its partition.

    A model may be given by a path that leads to it, the only benchmark of a family by the family's name.
    """
    configured = _load_entries(named_target.dimension)
    in_entries = configured.names if configured is not None else ()
    known = sorted({*partitions, *list_kept_names(named_target.dimension, paths), *in_entries})
    if named_target.name in known:
        return named_target
    if named_target.dimension == "model" and (path := str(Path(named_target.name).expanduser().resolve())) in known:
        return RemovalTarget("model", path)
    if named_target.dimension == "benchmark" and list_family_partitions(named_target.name, known):
        return RemovalTarget("benchmark", resolve_partition(named_target.name, known))
    raise DataError(
        f"there is no {named_target.dimension} '{named_target.name}': not in "
        f"config/{_file_of(named_target.dimension)}, not among Dagster's "
        f"partitions, and nothing of it under {paths.root}; {did_you_mean(named_target.name, known)}"
    )


def _load_entries(dimension: Dimension) -> Entries[Any] | None:
    try:
        return load_benchmarks() if dimension == "benchmark" else load_models()
    except ConfigError:
        return None


def _is_configured(target: RemovalTarget) -> bool | None:
    entries = _load_entries(target.dimension)
    return None if entries is None else target.name in entries or entries.is_broken(target.name)


def _file_of(dimension: Dimension) -> str:
    return f"{dimension}s.yaml"
