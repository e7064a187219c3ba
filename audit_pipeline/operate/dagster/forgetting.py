"""The command `corpus-audit forget`: take a benchmark or a model away, with its partition and all that came of it.

What belongs here: who uses it, Dagster's partitions, the order of it all. What does not: which files there are
(audit_pipeline/operate/removal.py), presentation (cli/).

An audit that is at work in another process holds a claim (work_claims.py). The partition goes first: from then on no
run can be requested for it, and a run that was requested just before is seen by the second look, which gives the
partition back. A removal that was killed is finished by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.catalogue.working_copy import refresh
from audit_pipeline.config.entries import Entries
from audit_pipeline.config.hints import did_you_mean, only_partition, partitions_of
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import load_models
from audit_pipeline.operate.dagster import in_process, work_claims
from audit_pipeline.operate.dagster.audit import publish
from audit_pipeline.operate.dagster.in_process import dagster_home
from audit_pipeline.operate.dagster.partitions import pair_of
from audit_pipeline.operate.removal import (
    Dimension,
    RemovalTarget,
    find_removal,
    finished,
    kept_aside,
    names_kept,
    remove,
    would_go,
)
from audit_pipeline.operate.removal_files import Gone

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
PARTITION = "dagster/partition"
_UNFINISHED_BACKFILLS = {"REQUESTED", "CANCELING", "FAILING"}
_NAMED_USERS = 3


@dataclass(frozen=True)
class Forgotten:
    """What went, or in a dry run would go, and what a user should know besides.

    ``had_partition``: whether Dagster knew it. ``users``: runs that use it now, in words. ``configured``: whether the
    configuration still names it, None where that cannot be read. ``aside``: logs of earlier warehouses, which are the
    user's.
    """

    target: RemovalTarget
    gone: Sequence[Gone]
    kept: Sequence[str]
    had_partition: bool
    users: Sequence[str]
    configured: bool | None
    aside: Sequence[Path]
    dead_runs: Sequence[str] = field(default_factory=list)


def plan_to_forget(given: RemovalTarget, definitions: dg.Definitions, paths: DataPaths) -> Forgotten:
    """What forgetting would take away, and who uses it now; nothing is changed, no Dagster home is made.

    Raises AuditError for a name that nobody knows.
    """
    home = dagster_home(paths)
    if not (home / "dagster.yaml").exists():
        target = _resolve_target(given, [], paths)
        return _planned(target, [], [], paths)
    with in_process.instance_of(home) as instance:
        order = list(instance.get_dynamic_partitions(given.dimension))
        target = _resolve_target(given, order, paths)
        audits = [str(claim) for claim in work_claims.standing(paths) if claim.uses(target)]
        return _planned(target, order, [*users_of(target, order, instance, definitions), *audits], paths)


def forget(
    given: RemovalTarget, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> Forgotten:
    """Take ``given`` away, then rebuild warehouse and report.

    Raises AuditError for a name that nobody knows, and, with everything as it was, while a run uses it.
    """
    with in_process.open_instance(paths) as instance, ExitStack() as claimed:
        dead_runs = in_process.mark_dead_runs_failed(instance)
        order = list(instance.get_dynamic_partitions(given.dimension))
        target = _resolve_target(given, order, paths)
        claimed.enter_context(work_claims.removal_of(target, paths))
        refresh(paths.root)
        refuse_while_used(target, order, instance, definitions)
        on_step(f"looking for what there is of {target}")
        removal = find_removal(target, paths)
        _remove_partition(target, order, instance, definitions)
        on_step(f"removing {target}")
        gone = remove(removal)
        on_step("rebuilding warehouse and report")
        # Everything: a row that is deleted from a DuckDB file may lie on in a block that is not used.
        publish(definitions, paths, on_step, include_text=texts_are_quoted(), everything=True)
        finished(removal)
        return Forgotten(
            target,
            gone,
            removal.kept,
            had_partition=target.name in order,
            users=users_of(target, order, instance, definitions),
            configured=_configured(target),
            aside=kept_aside(paths),
            dead_runs=dead_runs,
        )


def refuse_while_used(
    target: RemovalTarget, order: Sequence[str], instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    """Raise AuditError, naming the runs, while any uses ``target``; see :func:`users_of`."""
    users = users_of(target, order, instance, definitions)
    if users:
        more = f" and {len(users) - _NAMED_USERS} more" if len(users) > _NAMED_USERS else ""
        raise AuditError(
            f"{target} is in use by {', '.join(users[:_NAMED_USERS])}{more}: "
            "wait for it or end it, then forget again; nothing was removed"
        )


def users_of(
    target: RemovalTarget, order: Sequence[str], instance: dg.DagsterInstance, definitions: dg.Definitions
) -> list[str]:
    """The unfinished runs and backfills that use ``target``, in words.

    ``order`` are the dimension's partitions as they stood before any was removed: it says what a range holds. A run
    without a partition uses everything, unless all it does is to fetch documents.
    """
    users = []
    for run in instance.get_runs(dg.RunsFilter(statuses=in_process.UNFINISHED)):
        if _uses(run, target, order, definitions):
            users.append(f"run {run.run_id} ({run.job_name}, {run.status.value.lower()}{_describe_process(run)})")
    for backfill in instance.get_backfills():
        if backfill.status.value not in _UNFINISHED_BACKFILLS:
            continue
        keys: Sequence[str | None] = backfill.partition_names or []
        if backfill.is_asset_backfill:
            data = backfill.get_asset_backfill_data(definitions.resolve_asset_graph())
            with dg.partition_loading_context(dynamic_partitions_store=instance):
                keys = [one.partition_key for one in data.target_subset.iterate_asset_partitions()]
        if any(key is None or _is_of(key, target) for key in keys):
            users.append(f"backfill {backfill.backfill_id} ({backfill.status.value.lower()})")
    return users


def _uses(run: dg.DagsterRun, target: RemovalTarget, order: Sequence[str], definitions: dg.Definitions) -> bool:
    ranges = [(one.start, one.end) for one in getattr(run.partitions_subset, "key_ranges", ())]
    if RANGE_START in run.tags and RANGE_END in run.tags:
        ranges.append((run.tags[RANGE_START], run.tags[RANGE_END]))
    if ranges:
        return any(_range_holds(first, last, target, order) for first, last in ranges)
    if PARTITION in run.tags:
        return _is_of(run.tags[PARTITION], target)
    return not _fetches_only(run, definitions)


def _is_of(key: str, target: RemovalTarget) -> bool:
    """Whether a partition, of a benchmark or of a pair, is one of ``target``'s."""
    return target.covers(pair_of(key)) if "|" in key else target == RemovalTarget("benchmark", key)


def _range_holds(first: str, last: str, target: RemovalTarget, order: Sequence[str]) -> bool:
    """Whether the range holds a partition of ``target``; where an end is unknown, nobody can say that it does not."""
    ends = [_name_in(key, target.dimension) for key in (first, last)]
    if None in ends:
        return False
    if target.name in ends:
        return True
    if any(end not in order for end in ends):
        return True
    if target.name not in order:
        return False
    low, high = sorted(order.index(str(end)) for end in ends)
    return low <= order.index(target.name) <= high


def _name_in(key: str, dimension: Dimension) -> str | None:
    """The benchmark, or model, of a partition; None where it has none."""
    pair = pair_of(key) if "|" in key else Pair(key, "")
    return (pair.benchmark if dimension == "benchmark" else pair.model) or None


def _fetches_only(run: dg.DagsterRun, definitions: dg.Definitions) -> bool:
    keys = run.asset_selection
    if keys is None:
        jobs = {job.name: job for job in definitions.resolve_all_job_defs()}
        keys = frozenset(jobs[run.job_name].asset_layer.executable_asset_keys) if run.job_name in jobs else frozenset()
    return bool(keys) and all(key.path[0] == "documents" for key in keys)


def _describe_process(run: dg.DagsterRun) -> str:
    host = in_process.process_tag(run, in_process.HOST_TAG)
    process = in_process.process_tag(run, in_process.PROCESS_TAG).partition("@")[0]
    return f", process {process} on {host}" if host else ""


def _remove_partition(
    target: RemovalTarget, order: Sequence[str], instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    """Take the partition out of Dagster, so that no run can be requested; gives it back where one just was."""
    instance.delete_dynamic_partition(target.dimension, target.name)
    try:
        refuse_while_used(target, order, instance, definitions)
    except AuditError:
        if target.name in order:
            instance.add_dynamic_partitions(target.dimension, [target.name])
        raise


def _planned(target: RemovalTarget, order: Sequence[str], users: Sequence[str], paths: DataPaths) -> Forgotten:
    removal = find_removal(target, paths)
    return Forgotten(
        target,
        would_go(removal),
        removal.kept,
        had_partition=target.name in order,
        users=users,
        configured=_configured(target),
        aside=kept_aside(paths),
    )


def _resolve_target(given: RemovalTarget, order: Sequence[str], paths: DataPaths) -> RemovalTarget:
    """``given`` by the name of its partition: a model may be given by a path that leads to it, the only benchmark of a
    family by the family's name."""
    configured = _entries(given.dimension)
    known = sorted({*order, *names_kept(given.dimension, paths), *(configured.names if configured is not None else ())})
    if given.name in known:
        return given
    if given.dimension == "model" and (path := str(Path(given.name).expanduser().resolve())) in known:
        return RemovalTarget("model", path)
    if given.dimension == "benchmark" and partitions_of(given.name, known):
        return RemovalTarget("benchmark", only_partition(given.name, known))
    raise DataError(
        f"there is no {given.dimension} '{given.name}': not in config/{_file_of(given.dimension)}, not among Dagster's "
        f"partitions, and nothing of it under {paths.root}; {did_you_mean(given.name, known)}"
    )


def _entries(dimension: Dimension) -> Entries[Any] | None:
    try:
        return load_benchmarks() if dimension == "benchmark" else load_models()
    except ConfigError:
        return None


def _configured(target: RemovalTarget) -> bool | None:
    entries = _entries(target.dimension)
    return None if entries is None else target.name in entries or entries.is_broken(target.name)


def _file_of(dimension: Dimension) -> str:
    return f"{dimension}s.yaml"
