"""The sensors on models and benchmarks: how Dagster is told what follows. They are off until somebody turns them on.

What belongs here: ticks. What does not: what is to be done (operate/plan.py), what is requested for it (planning.py),
reading the state of things (operate/situation.py, situation.py), the sensors that only tell somebody (alerting.py,
hub_watch.py).

A file of the configuration that cannot be read ends the tick with an error that names it: nothing is requested, no
partition goes, and the cursor stays. An entry that cannot be used is reported, and stops nothing else.
"""

from collections.abc import Sequence

import dagster as dg

from audit_pipeline.benchmarks.config import standing
from audit_pipeline.benchmarks.staleness import built_digest
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.models.config import exclude_control_models
from audit_pipeline.operate.configuration import Configuration, load_configuration
from audit_pipeline.operate.dagster import planning, situation
from audit_pipeline.operate.dagster.carry_out import SPLIT_QUALITY
from audit_pipeline.operate.dagster.in_process import mark_dead_runs_failed
from audit_pipeline.operate.dagster.jobs import JOBS
from audit_pipeline.operate.dagster.partitions import BENCHMARK, MODEL, require_keys
from audit_pipeline.operate.dagster.planning import BrokenEntries, PairRange
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.tags import REASON_TAG
from audit_pipeline.operate.facts import PlanRequest
from audit_pipeline.operate.plan import plan
from audit_pipeline.operate.situation import look


def _range_request(one: PairRange) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=one.key,
        job_name="audit_pairs",
        tags={
            "dagster/asset_partition_range_start": one.first.partition,
            "dagster/asset_partition_range_end": one.last.partition,
            REASON_TAG: one.why,
        },
    )


def _added(dimension: str, names: tuple[str, ...]) -> list[dg.AddDynamicPartitionsRequest]:
    require_keys(dimension, names)
    return [dg.AddDynamicPartitionsRequest(dimension, list(names))] if names else []


def _broken(config: Configuration) -> BrokenEntries:
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


def _not_built(benchmarks: Sequence[str]) -> list[str]:
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
    specs = standing(config.benchmarks)
    seen = planning.models_state(context.cursor)
    versions = situation.model_versions(exclude_control_models(config.models))
    built = {name: built_digest(spec, paths) for name, spec in specs.items()}
    unseen = [name for name in versions if name not in seen]
    pairs = [Pair(benchmark, model) for model in unseen for benchmark, digest in built.items() if digest is not None]
    found = planning.new_models(
        seen,
        versions,
        built,
        instance.get_dynamic_partitions(MODEL),
        instance.get_dynamic_partitions(BENCHMARK),
        situation.pairs_to_audit(pairs, specs, config.models, paths),
        situation.find_unfinished_preparation(instance),
        _broken(config),
    )
    for problem in config.models.problems:
        context.log.warning(str(problem))
    missing = _not_built(found.not_built)
    for words in missing:
        context.log.warning(words)
    said = [found.waiting or f"nothing new among {len(versions)} models", *missing, *map(str, config.models.problems)]
    return dg.SensorResult(
        run_requests=[_range_request(one) for one in found.runs],
        skip_reason=None if found.runs else "; ".join(said)[:2000],
        dynamic_partitions_requests=[*_added(BENCHMARK, found.add_benchmarks), *_added(MODEL, found.add_models)],
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
    specs = standing(config.benchmarks)
    asked = PlanRequest(benchmarks=tuple(specs))
    there = look(asked, paths, specs=specs.values())
    seen = planning.benchmarks_state(context.cursor)
    models = list(exclude_control_models(config.models))
    unhandled = [name for name, one in there.benchmarks.items() if one.as_audited not in (None, seen.handled(name))]
    pairs = [Pair(benchmark, model) for benchmark in unhandled for model in models]
    found = planning.changed_benchmarks(
        seen,
        there,
        [*plan(there, asked), *situation.pairs_to_audit(pairs, specs, config.models, paths)],
        models,
        instance.get_dynamic_partitions(MODEL),
        instance.get_dynamic_partitions(BENCHMARK),
        situation.find_unfinished_preparation(instance),
        situation.auditing(instance),
        _broken(config),
    )
    problems = [*map(str, config.benchmarks.problems), *found.problems]
    for problem in problems:
        context.log.warning(problem)
    requests = [
        *(
            dg.RunRequest(
                run_key=one.key,
                job_name="refresh_sources",
                asset_selection=[dg.AssetKey(["documents", one.step.what])],
                tags={REASON_TAG: f"{one.step.what}: {one.step.because}"},
            )
            for one in found.fetches
        ),
        *(
            dg.RunRequest(
                run_key=one.key,
                job_name="build_benchmarks",
                partition_key=one.step.what,
                asset_selection=[SPLIT_QUALITY] if one.step.kind == "assess" else None,
                tags={REASON_TAG: f"{one.step.what}: {one.step.because}"},
            )
            for one in found.builds
        ),
        *(_range_request(one) for one in found.pairs),
    ]
    said = [found.waiting or f"nothing changed in {len(specs)} benchmarks", *problems]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(said)[:2000],
        dynamic_partitions_requests=_added(BENCHMARK, found.add_benchmarks),
        cursor=planning.benchmarks_cursor(found.seen),
    )


SENSORS = [new_models, changed_benchmarks]
