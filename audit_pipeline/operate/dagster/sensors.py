"""The sensors: how Dagster is told what follows, and how people are told what happened.

What belongs here: ticks (new models, changed benchmarks, the hub, failed runs, changed findings), what they read of
Dagster's unfinished runs and ask the planner, and what an alert says of a run. What does not: what lies in the data
folder (operate/situation.py), what is to be done (operate/plan.py), what is requested for it (planning.py), which
changes of findings count and how an alert travels (operate/alerts.py), asking the hub, and what becomes a proposal
(models/watch.py).

Those on models, benchmarks and the hub are off until a user turns them on. A file of the configuration that cannot be
read ends the tick with an error that names it: nothing is requested, no partition goes, and the cursor stays. An entry
that cannot be used is reported, and stops nothing else.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.benchmarks.config import BenchmarkSpec, exclude_on_request
from audit_pipeline.catalogue.bucket_folder import refresh_warehouse
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.files import read_json, write_json
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.models.config import ModelEntry, exclude_control_models, load_models
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.models.watch import list_candidates, load_watched, proposals_path, propose, write_proposals
from audit_pipeline.operate.alerts import Alert, WatchedFinding, compare_findings, deliver, read_findings
from audit_pipeline.operate.dagster import planning
from audit_pipeline.operate.dagster.in_process import UNFINISHED, mark_dead_runs_failed
from audit_pipeline.operate.dagster.jobs import JOBS
from audit_pipeline.operate.dagster.partitions import BENCHMARK, MODEL, require_keys
from audit_pipeline.operate.dagster.planning import BrokenEntries, DagsterState, PairRange
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.step_runs import SPLIT_QUALITY
from audit_pipeline.operate.dagster.tags import REASON_TAG, WEEKLY_TAG
from audit_pipeline.operate.facts import OF_PAIRS, PlannedStep, PlanRequest
from audit_pipeline.operate.plan import assume_benchmarks_current, plan
from audit_pipeline.operate.seen_models import collect_seen_models, read_cards, sightings_of
from audit_pipeline.operate.situation import read_situation
from audit_pipeline.operate.whole_configuration import Configuration, load_configuration

_PREPARING_JOBS = ("refresh_sources", "build_benchmarks", "weekly_audit")


def model_versions(models: Mapping[str, ModelEntry]) -> dict[str, str]:
    """The versions of the configured models, by name."""
    return {name: entry_version(entry) for name, entry in models.items()}


def plan_pairs_to_audit(
    pairs: Collection[Pair], benchmarks: Mapping[str, BenchmarkSpec], models: Mapping[str, ModelEntry], paths: DataPaths
) -> list[PlannedStep]:
    """The planner's steps of ``pairs`` on the benchmarks as they are built, with the models as they were seen last: a
    tick has no time to load them."""
    if not pairs:
        return []
    request = PlanRequest(pairs=tuple(pairs))
    named = {pair.benchmark for pair in pairs}
    situation = read_situation(request, paths, specs=[spec for name, spec in benchmarks.items() if name in named])
    written = [
        sighting
        for pair, audit in situation.audits.items()
        for sighting in sightings_of(pair.model, (audit.scores, audit.evaluations))
    ]
    seen = collect_seen_models(read_cards(paths), written, models, paths)
    audits = {
        pair: replace(audit, now=seen.conventions(pair.model, situation.benchmarks[pair.benchmark].built))
        for pair, audit in situation.audits.items()
    }
    return [
        step
        for step in plan(assume_benchmarks_current(replace(situation, audits=audits)), request)
        if step.kind in OF_PAIRS
    ]


def _read_dagster_state(instance: dg.DagsterInstance) -> DagsterState:
    return DagsterState(
        instance.get_dynamic_partitions(MODEL),
        instance.get_dynamic_partitions(BENCHMARK),
        preparing=_find_unfinished(instance, _PREPARING_JOBS),
        auditing=_find_unfinished(instance, ("audit_pairs",)),
    )


def _find_unfinished(instance: dg.DagsterInstance, jobs: Iterable[str]) -> str | None:
    """An unfinished run of one of ``jobs``, in words; None where there is none."""
    for job in jobs:
        for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=UNFINISHED), limit=1):
            return f"waiting for run {run.run_id[:8]} of {job}"
    return None


@dg.sensor(
    minimum_interval_seconds=6 * 3600,
    description="Looks at the organisations and collections of config/watch.yaml on the hub and writes the models that "
    "are not configured yet to config/models.proposed.yaml. It audits nothing: moving an entry to models.yaml does.",
)
def hub_watcher(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """One look at the hub; raises TransientError where it cannot be reached, and looks again at the next tick."""
    listed = load_watched()
    watched = listed.named("hub") if "hub" in listed.names else ()
    if not watched:
        return dg.SkipReason("config/watch.yaml names no organisation or collection to watch")
    candidates = [candidate for name in watched for candidate in list_candidates(name)]
    proposals = propose(candidates, load_models())
    changed = write_proposals(proposals_path(), proposals)
    state = "written to" if changed else "as before in"
    return dg.SkipReason(f"{len(proposals.entries)} of {len(candidates)} models proposed, {state} {proposals_path()}")


_REPORTED_TAGS = (
    "dagster/partition",
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
    "dagster/backfill",
    "dagster/schedule_name",
    "dagster/sensor_name",
)


@dg.run_failure_sensor(
    minimum_interval_seconds=30,
    # Runs of the command line, and those that the weekly audit starts, belong to no code location.
    monitor_all_code_locations=True,
    description="Tells the webhook in CORPUS_AUDIT_WEBHOOK, or data/alerts.jsonl where there is none, of every run "
    "that failed.",
)
def alert_run_failed(context: dg.RunFailureSensorContext, data: AuditData) -> None:
    """One failed run. An alert that cannot be delivered is kept in the file, and the log of the tick shows why."""
    run = context.dagster_run
    if WEEKLY_TAG in run.tags:
        # The weekly audit that asked for it fails as well, and names it.
        return
    reasons = [_format_failure(event) for event in context.get_step_failure_events()]
    alert = Alert(
        kind="run_failed",
        title=f"run {run.run_id[:8]} of {run.job_name} failed",
        lines=tuple(reasons or [context.failure_event.message or "no reason was given"]),
        details={
            "run_id": run.run_id,
            "job": run.job_name,
            **{tag.removeprefix("dagster/"): run.tags[tag] for tag in _REPORTED_TAGS if tag in run.tags},
        },
    )
    context.log.info(deliver(alert, data.paths))


def _format_failure(event: dg.DagsterEvent) -> str:
    """Return the step and the message of its error, without Dagster's words around it and without a stack trace."""
    error: Any = event.step_failure_data.error
    while error is not None and str(error.cls_name).startswith("Dagster") and error.cause is not None:
        error = error.cause
    message = to_one_line(str(event.message if error is None else error.message))
    # Python puts the name of the class before the message.
    words = re.sub(r"^[\w.]+: ", "", message)
    return f"{event.step_key}: {words}"


@dg.sensor(
    minimum_interval_seconds=60,
    description="Tells the webhook in CORPUS_AUDIT_WEBHOOK, or data/alerts.jsonl where there is none, of findings that "
    "are new, gone, or say something else than before.",
)
def alert_finding_changed(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Compare the warehouse with the last one seen; the first tick only looks."""
    paths = data.paths
    refresh_warehouse(paths.warehouse)
    if not paths.warehouse.exists():
        return dg.SensorResult(skip_reason="there is no warehouse yet")
    # The cursor is stored with every tick, so the findings themselves are kept in a file.
    cursor = str(paths.warehouse.stat().st_mtime_ns)
    if context.cursor == cursor:
        return dg.SensorResult(skip_reason="the warehouse is the one that was looked at")
    findings = read_findings(paths.warehouse)
    if not paths.findings_told.exists():
        write_json(paths.findings_told, {"findings": findings})
        return dg.SensorResult(skip_reason=f"{len(findings)} findings are watched from now on", cursor=cursor)
    try:
        before = [WatchedFinding(*row) for row in read_json(paths.findings_told)["findings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{error}: delete {paths.findings_told}, and comparing starts anew") from error
    changed = compare_findings(before, findings)
    if not changed:
        return dg.SensorResult(skip_reason=f"none of {len(findings)} findings changed", cursor=cursor)
    alert = Alert(
        kind="finding_changed",
        title=f"findings of {len(changed)} model(s) on a benchmark changed",
        lines=tuple(change.words for change in changed),
        details={"changes": [{"model": change.model, "benchmark": change.benchmark} for change in changed]},
    )
    delivered = deliver(alert, paths)
    write_json(paths.findings_told, {"findings": findings})
    return dg.SensorResult(skip_reason=f"{len(changed)} pairs changed; {delivered}", cursor=cursor)


ALERT_SENSORS = [alert_run_failed, alert_finding_changed]


def _range_request(pairs: PairRange) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=pairs.key,
        job_name="audit_pairs",
        tags={
            "dagster/asset_partition_range_start": pairs.first.partition,
            "dagster/asset_partition_range_end": pairs.last.partition,
            REASON_TAG: pairs.why,
        },
    )


def _build_partition_requests(dimension: str, names: tuple[str, ...]) -> list[dg.AddDynamicPartitionsRequest]:
    require_keys(dimension, names)
    return [dg.AddDynamicPartitionsRequest(dimension, list(names))] if names else []


def _find_broken_entries(config: Configuration) -> BrokenEntries:
    """Which names are in the configuration, but cannot be used; what a broken family is drawn from is not known."""
    return BrokenEntries(
        config.models.is_broken,
        config.benchmarks.is_broken,
        lambda source: bool(config.benchmarks.problems) or config.sources.is_broken(source),
    )


def _mark_dead_runs_failed(context: dg.SensorEvaluationContext) -> None:
    """A run whose process was killed would be waited for, and would hold its pool, for ever."""
    for run_id in mark_dead_runs_failed(context.instance):
        context.log.warning(f"run {run_id} is marked failed: the process that ran it is gone")


def _describe_unbuilt_benchmarks(benchmarks: Sequence[str]) -> list[str]:
    """Which benchmarks are not built, so that their pairs stay missing, and what builds them."""
    if not benchmarks:
        return []
    return [
        f"{len(benchmarks)} benchmark(s) are not built, their pairs stay missing: {', '.join(benchmarks)}; "
        "switch on the sensor changed_benchmarks, which builds them and then audits their pairs"
    ]


@dg.sensor(
    job_name="audit_pairs",
    minimum_interval_seconds=30,
    description="A model that is new in config/models.yaml, or whose entry or files changed, gets a partition and one "
    "run over all benchmarks that are built.",
)
def new_models(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """One tick of the sensor on config/models.yaml."""
    paths, instance = data.paths, context.instance
    _mark_dead_runs_failed(context)
    config = load_configuration()
    specs = exclude_on_request(config.benchmarks)
    seen = planning.models_state(context.cursor)
    versions = model_versions(exclude_control_models(config.models))
    built = {name: read_built_digest(spec, paths) for name, spec in specs.items()}
    unseen = [name for name in versions if name not in seen]
    pairs = [Pair(benchmark, model) for model in unseen for benchmark, digest in built.items() if digest is not None]
    found = planning.plan_new_models(
        seen,
        versions,
        built,
        plan_pairs_to_audit(pairs, specs, config.models, paths),
        _read_dagster_state(instance),
        _find_broken_entries(config),
    )
    for problem in config.models.problems:
        context.log.warning(str(problem))
    missing = _describe_unbuilt_benchmarks(found.not_built)
    for words in missing:
        context.log.warning(words)
    said = [found.waiting or f"nothing new among {len(versions)} models", *missing, *map(str, config.models.problems)]
    return dg.SensorResult(
        run_requests=[_range_request(pairs) for pairs in found.runs],
        skip_reason=None if found.runs else "; ".join(said)[:2000],
        dynamic_partitions_requests=[
            *_build_partition_requests(BENCHMARK, found.add_benchmarks),
            *_build_partition_requests(MODEL, found.add_models),
        ],
        cursor=planning.models_cursor(found.seen),
    )


@dg.sensor(
    jobs=JOBS,
    minimum_interval_seconds=30,
    description="A benchmark whose entry in config/benchmarks.yaml, or whose documents, changed is built again, and "
    "then its pairs are audited; nothing else is.",
)
def changed_benchmarks(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """One tick of the sensor on config/benchmarks.yaml and the documents."""
    paths, instance = data.paths, context.instance
    _mark_dead_runs_failed(context)
    config = load_configuration()
    specs = exclude_on_request(config.benchmarks)
    request = PlanRequest(benchmarks=tuple(specs))
    situation = read_situation(request, paths, specs=specs.values())
    seen = planning.benchmarks_state(context.cursor)
    models = list(exclude_control_models(config.models))
    changed = [
        name
        for name, benchmark in situation.benchmarks.items()
        if benchmark.as_audited not in (None, seen.audited_version(name))
    ]
    pairs = [Pair(benchmark, model) for benchmark in changed for model in models]
    found = planning.plan_changed_benchmarks(
        seen,
        situation,
        [*plan(situation, request), *plan_pairs_to_audit(pairs, specs, config.models, paths)],
        models,
        _read_dagster_state(instance),
        _find_broken_entries(config),
    )
    problems = [*map(str, config.benchmarks.problems), *found.problems]
    for problem in problems:
        context.log.warning(problem)
    requests = [
        *(
            dg.RunRequest(
                run_key=keyed.key,
                job_name="refresh_sources",
                asset_selection=[dg.AssetKey(["documents", keyed.step.what])],
                tags={REASON_TAG: f"{keyed.step.what}: {keyed.step.because}"},
            )
            for keyed in found.fetches
        ),
        *(
            dg.RunRequest(
                run_key=keyed.key,
                job_name="build_benchmarks",
                partition_key=keyed.step.what,
                asset_selection=[SPLIT_QUALITY] if keyed.step.kind == "assess" else None,
                tags={REASON_TAG: f"{keyed.step.what}: {keyed.step.because}"},
            )
            for keyed in found.builds
        ),
        *(_range_request(pairs) for pairs in found.pairs),
    ]
    said = [found.waiting or f"nothing changed in {len(specs)} benchmarks", *problems]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(said)[:2000],
        dynamic_partitions_requests=_build_partition_requests(BENCHMARK, found.add_benchmarks),
        cursor=planning.benchmarks_cursor(found.seen),
    )


SENSORS = [new_models, changed_benchmarks]
