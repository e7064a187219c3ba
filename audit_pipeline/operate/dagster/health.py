"""The doctor's look at Dagster: its home, runs whose process is gone, slots that are not freed, daemon and switches.

What belongs here: looking, without making or changing anything. What does not: repairing (in_process.py buries dead
runs), files that are not Dagster's (audit_pipeline/operate/doctor.py).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy.exc
import yaml

from audit_pipeline.catalogue.paths import DataPaths, explain_unwritable, is_writable
from audit_pipeline.operate.dagster.in_process import (
    HOST_TAG,
    UNFINISHED,
    dagster_home,
    dead_runs,
    open_existing_instance,
    process_tag,
)
from audit_pipeline.operate.doctor_checks import DoctorCheck, Ending, HowEnded

_RUNNING = (dg.DefaultScheduleStatus.RUNNING, dg.DefaultSensorStatus.RUNNING)
_CANNOT_OPEN = (dg.DagsterError, sqlalchemy.exc.SQLAlchemyError, ImportError, OSError, ValueError)


def examine_dagster(paths: DataPaths, definitions: dg.Definitions) -> list[DoctorCheck]:
    """All that is looked at, in order; a Dagster home that was never made is not made for it."""
    config = dagster_home(paths) / "dagster.yaml"
    if (unwritable := explain_unwritable(config.parent)) is not None:
        words = f"{config.parent} cannot be written ({unwritable}); set DAGSTER_HOME to a folder of yours"
        return [DoctorCheck("Dagster home", ok=False, words=words)]
    if not config.exists():
        words = f"{config.parent} is not made yet; the first audit makes it"
        return [DoctorCheck("Dagster home", ok=True, words=words)]
    content, problem = _read(config)
    if problem is not None:
        return [
            DoctorCheck("Dagster home", ok=False, words=f"{config} {problem}; correct it, or delete it for a new one")
        ]
    findings = [*_check_settings(config, content)]
    try:
        with open_existing_instance(config.parent) as instance:
            findings += [
                *_check_runs(instance),
                _check_pool_slots(instance),
                _check_daemon(instance),
                *_check_automations(instance, definitions),
            ]
    except _list_opening_errors() as error:
        words = f"the storage that {config} names cannot be opened: {' '.join(str(error).split())[:300]}"
        findings.append(DoctorCheck("Dagster storage", ok=False, words=words))
    return findings


def build_run_ending_lookup(paths: DataPaths) -> HowEnded:
    """What Dagster knows of how a run ended; opened when it is first asked. None of a run that it does not know, and
    where it cannot be asked: :func:`examine_dagster` says why."""

    @cache
    def ended(run_id: str) -> Ending | None:
        config = dagster_home(paths) / "dagster.yaml"
        if not config.exists() or not is_writable(config.parent):
            return None
        try:
            with open_existing_instance(config.parent) as instance:
                run = instance.get_run_by_id(run_id)
                dead = [one.run_id for one in dead_runs(instance)]
        except _list_opening_errors():
            return None
        if run is None:
            return None
        if run.is_finished or run_id in dead:
            return "well" if run.is_success else "badly"
        return "not yet"

    return ended


def runs_stuck_in_pools(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """Runs that hold or await a slot of a pool although they are finished or unknown, by pool."""
    found: dict[str, list[str]] = {}
    storage = instance.event_log_storage
    for pool in sorted(storage.get_concurrency_keys()):
        info = storage.get_concurrency_info(pool)
        for run_id in sorted(info.active_run_ids | info.assigned_run_ids | info.pending_run_ids):
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                found.setdefault(pool, []).append(run_id)
    return found


def _list_opening_errors() -> tuple[type[Exception], ...]:
    """What opening a Dagster instance raises; dagster-postgres has an error of its own, which is no DagsterError."""
    if importlib.util.find_spec("dagster_postgres") is None:
        return _CANNOT_OPEN
    from dagster_postgres.utils import DagsterPostgresException  # noqa: PLC0415 - an optional package

    return (*_CANNOT_OPEN, DagsterPostgresException)


def _read(config: Path) -> tuple[Mapping[str, Any], str | None]:
    """What dagster.yaml holds, and what is wrong with it."""
    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return {}, f"cannot be read ({' '.join(str(error).split())})"
    if content is None:
        return {}, None
    return (content, None) if isinstance(content, dict) else ({}, "holds no settings")


def _check_settings(config: Path, content: Mapping[str, Any]) -> Iterator[DoctorCheck]:
    storage = next(iter(_section(content, "storage")), "sqlite")
    yield DoctorCheck("Dagster home", ok=True, words=f"{config.parent}, storage {storage}")
    limit = _section(_section(content, "concurrency"), "pools").get("default_limit")
    pools = f"at most {limit} step(s) a pool at once"
    if limit is None:
        pools = (
            "concurrency.pools.default_limit is not set: two runs may take the GPU at once; "
            f"set it to 1 in {config} (docs/storage.md)"
        )
    yield DoctorCheck("pools", limit is not None, pools)
    monitored = _section(content, "run_monitoring").get("enabled") is True
    monitoring = "slots of runs that have ended are freed while a daemon is alive"
    if not monitored:
        monitoring = f"run_monitoring is not enabled: a run that was ended keeps its slots; enable it in {config}"
    yield DoctorCheck("run monitoring", monitored, monitoring)


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name)
    return section if isinstance(section, dict) else {}


def _check_runs(instance: dg.DagsterInstance) -> Iterator[DoctorCheck]:
    dead = dead_runs(instance)
    words = "none whose process is gone"
    if dead:
        words = f"{_format_run_ids([run.run_id for run in dead])}: process gone; the next audit marks them failed"
    yield DoctorCheck("stale runs", not dead, words)
    if not _list_alive_daemons(instance):
        unfinished = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
        left = [run.run_id for run in unfinished if not process_tag(run, HOST_TAG)]
        if left:
            words = (
                f"{_format_run_ids(left)}: no daemon is alive to go on with them; start one (corpus-audit dev) or "
                "end them"
            )
            yield DoctorCheck("unwatched runs", ok=False, words=words)


def _check_pool_slots(instance: dg.DagsterInstance) -> DoctorCheck:
    stuck = runs_stuck_in_pools(instance)
    if not stuck:
        return DoctorCheck("pool slots", ok=True, words="none held by a run that is over")
    words = "; ".join(f"{pool}: held by {_format_run_ids(runs)}, over or unknown" for pool, runs in stuck.items())
    return DoctorCheck("pool slots", ok=False, words=f"{words}; the next audit, or a daemon, frees them")


def _check_daemon(instance: dg.DagsterInstance) -> DoctorCheck:
    beating = _list_alive_daemons(instance)
    words = f"alive: {', '.join(beating)}" if beating else "none alive; schedules and sensors rest (corpus-audit dev)"
    return DoctorCheck("daemon", ok=True, words=words)


def _list_alive_daemons(instance: dg.DagsterInstance) -> list[str]:
    return sorted(kind.lower() for kind, status in instance.get_daemon_statuses().items() if status.healthy)


def _check_automations(instance: dg.DagsterInstance, definitions: dg.Definitions) -> Iterator[DoctorCheck]:
    """Which schedules and sensors are on; one that was never switched is as its definition says."""
    switched = {state.instigator_name: state.is_running for state in instance.all_instigator_state()}
    for what, defined in (("schedules", definitions.schedules), ("sensors", definitions.sensors)):
        names = {one.name: one.default_status in _RUNNING for one in defined or ()}
        if not names:
            continue
        on = [name for name, by_default in names.items() if switched.get(name, by_default)]
        off = [name for name in names if name not in on]
        words = "; ".join(f"{state}: {', '.join(some)}" for state, some in (("on", on), ("off", off)) if some)
        yield DoctorCheck(what, ok=True, words=words)


def _format_run_ids(run_ids: Sequence[str]) -> str:
    more = f" and {len(run_ids) - 1} more" if len(run_ids) > 1 else ""
    return f"run {run_ids[0]}{more}"
