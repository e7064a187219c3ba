"""The command `corpus-audit forget`: remove a benchmark or a model, with its partition and all that came of it.

Nothing is removed while an audit is at work or any run is unfinished that may write findings. The partition goes first:
from then on no run can be requested for it. The same command finishes a removal that was killed
(extras/maintenance/removal.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.hints import did_you_mean, list_family_partitions, resolve_partition
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.extras.maintenance.removal import (
    Removal,
    RemovalTarget,
    execute_removal,
    find_removal,
    list_kept_names,
)
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.dagster.audit import publish
from audit_pipeline.pipeline.dagster.instance import (
    UNFINISHED,
    dagster_home,
    mark_dead_runs_failed,
    open_existing_instance,
    open_instance,
)
from audit_pipeline.pipeline.dagster.locks import hold_removal_lock
from audit_pipeline.store.bucket_folder import refresh
from audit_pipeline.store.paths import DataPaths, texts_are_quoted

_FETCHING_JOB = "refresh_sources"
_UNFINISHED_BACKFILLS = {"REQUESTED", "CANCELING", "FAILING"}
_NAMED_RUNS = 3


@dataclass(frozen=True)
class Forgotten:
    """What went, or in a dry run would go, and what stays.

    ``had_partition``: whether Dagster knew it. ``configured``: whether the configuration still names it, None where
    that cannot be read.
    """

    target: RemovalTarget
    gone: Sequence[dict[str, Any]]
    kept: Sequence[str]
    had_partition: bool
    configured: bool | None
    dead_runs: Sequence[str] = ()


def plan_to_forget(named_target: RemovalTarget, paths: DataPaths) -> Forgotten:
    """Find what forgetting would remove; nothing is changed, no Dagster home is made.

    Raises AuditError for an unknown name.
    """
    partitions: Sequence[str] = ()
    home = dagster_home(paths)
    if (home / "dagster.yaml").exists():
        with open_existing_instance(home) as instance:
            partitions = instance.get_dynamic_partitions(named_target.dimension)
    return _describe_removal(find_removal(_resolve_target(named_target, partitions, paths), paths), partitions)


def forget(
    named_target: RemovalTarget, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Forgotten:
    """Remove ``named_target``, then build warehouse and report again.

    Raises AuditError for an unknown name and, with everything as it was, while an audit is at work.
    """
    with hold_removal_lock(paths), open_instance(paths) as instance:
        dead_runs = mark_dead_runs_failed(instance, paths)
        refresh(paths.root)
        partitions = instance.get_dynamic_partitions(named_target.dimension)
        target = _resolve_target(named_target, partitions, paths)
        _refuse_while_unfinished(target, instance)
        removal = find_removal(target, paths)
        forgotten = _describe_removal(removal, partitions, dead_runs)
        instance.delete_dynamic_partition(target.dimension, target.name)
        try:
            _refuse_while_unfinished(target, instance)
        except AuditError:
            # A run was requested just before the partition went.
            instance.add_dynamic_partitions(target.dimension, [target.name] if target.name in partitions else [])
            raise
        on_step(f"removing {target}")
        execute_removal(removal, paths)
        on_step("rebuilding warehouse and report")
        publish(definitions, paths, on_step, include_text=texts_are_quoted())
        return forgotten


def _describe_removal(removal: Removal, partitions: Sequence[str], dead_runs: Sequence[str] = ()) -> Forgotten:
    target, entries = removal.target, _load_entries(removal.target)
    configured = None if entries is None else target.name in entries or entries.is_broken(target.name)
    return Forgotten(target, removal.measure(), removal.kept, target.name in partitions, configured, dead_runs)


def find_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """The unfinished runs and backfills that may read or write findings, in words: all but fetches of documents."""
    runs = [
        f"run {run.run_id} ({run.job_name}, {run.status.value.lower()})"
        for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
        if run.job_name != _FETCHING_JOB
    ]
    backfills = [
        f"backfill {backfill.backfill_id} ({backfill.status.value.lower()})"
        for backfill in instance.get_backfills()
        if backfill.status.value in _UNFINISHED_BACKFILLS
    ]
    return [*runs, *backfills]


def _refuse_while_unfinished(target: RemovalTarget, instance: dg.DagsterInstance) -> None:
    if runs := find_unfinished_runs(instance):
        more = f" and {len(runs) - _NAMED_RUNS} more" if len(runs) > _NAMED_RUNS else ""
        raise AuditError(
            f"{target} cannot be forgotten while an audit is unfinished: {', '.join(runs[:_NAMED_RUNS])}{more}. "
            "Wait for it or end it, then forget again; nothing was removed"
        )


def _resolve_target(named_target: RemovalTarget, partitions: Sequence[str], paths: DataPaths) -> RemovalTarget:
    """Return ``named_target`` by the name of its partition.

    A model may be given by a path that leads to it, the only benchmark of a family by the family's name.
    """
    dimension, name = named_target.dimension, named_target.name
    configured = _load_entries(named_target)
    in_entries = configured.names if configured is not None else ()
    known = sorted({*partitions, *list_kept_names(dimension, paths), *in_entries})
    if name in known:
        return named_target
    if dimension == "model" and (path := str(Path(name).expanduser().resolve())) in known:
        return RemovalTarget("model", path)
    if dimension == "benchmark" and list_family_partitions(name, known):
        return RemovalTarget("benchmark", resolve_partition(name, known))
    raise DataError(
        f"there is no {dimension} '{name}': not in config/{dimension}s.yaml, not among Dagster's partitions, and "
        f"nothing of it under {paths.root}; {did_you_mean(name, known)}"
    )


def _load_entries(target: RemovalTarget) -> Entries[Any] | None:
    try:
        return load_benchmarks() if target.dimension == "benchmark" else load_models()
    except ConfigError:
        return None
