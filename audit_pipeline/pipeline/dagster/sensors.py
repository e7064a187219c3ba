"""The sensors that request what is out of date; those of extras are found in their modules ``sensors``.

A sensor keeps nothing from one tick to the next: it requests what is out of date, under a key of what is to be made, of
what, and after which findings. Dagster runs no key twice, so what failed is not requested again until something
changes; what is moved and moved back follows other findings and has another key.

Those on models, benchmarks and the hub are off until a user turns them on. A file of the configuration that cannot be
read ends the tick with an error that names it: nothing is requested and no partition goes. An entry that cannot be used
is reported, and stops nothing else.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import dagster as dg

from audit_pipeline import extras
from audit_pipeline.benchmarks.config import exclude_on_request
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.models.config import exclude_control_models, load_models
from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.models.model_proposals import (
    list_candidates,
    load_watched,
    proposals_path,
    propose_entries,
    write_proposals,
)
from audit_pipeline.pipeline.dagster.audit import group_neighbours
from audit_pipeline.pipeline.dagster.instance import UNFINISHED, mark_dead_runs_failed
from audit_pipeline.pipeline.dagster.jobs import JOBS
from audit_pipeline.pipeline.dagster.partitions import BENCHMARK, MODEL, require_keys
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.pipeline.dagster.tags import REASON_TAG
from audit_pipeline.pipeline.plan import Plan, Planner, Step
from audit_pipeline.pipeline.registry import OF_BENCHMARKS, OF_PAIRS, STAGES
from audit_pipeline.pipeline.remembered_models import SeenModel, find_seen_models
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, SOURCE
from audit_pipeline.pipeline.whole_configuration import Configuration, load_configuration
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair, digest

_PREPARING_JOBS = (*dict.fromkeys(stage.job.name for stage in OF_BENCHMARKS), "weekly_audit")


def _describe_unfinished_run(instance: dg.DagsterInstance, jobs: Iterable[str]) -> str | None:
    """An unfinished run of one of ``jobs``, in words; None where there is none."""
    for job in jobs:
        for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=UNFINISHED), limit=1):
            return f"waiting for run {run.run_id[:8]} of {job}"
    return None


@dg.sensor(
    minimum_interval_seconds=6 * 3600,
    description="Looks at the owners in config/watch.yaml on the hub and writes the models that "
    "are not configured yet to config/models.proposed.yaml. It audits nothing: moving an entry to models.yaml does.",
)
def hub_watcher(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """One look at the hub; raises TransientError where it cannot be reached, and looks again at the next tick."""
    listed = load_watched()
    watched = listed.named("hub") if "hub" in listed.names else ()
    if not watched:
        return dg.SkipReason("config/watch.yaml names no owner to watch")
    candidates = [candidate for name in watched for candidate in list_candidates(name)]
    proposals = propose_entries(candidates, load_models())
    write_proposals(proposals_path(), proposals)
    return dg.SkipReason(f"{len(proposals)} of {len(candidates)} models proposed in {proposals_path()}")


def _request_pairs(made: Plan, planner: Planner, order: Sequence[str]) -> Iterator[dg.RunRequest]:
    """As few runs as hold exactly the pairs of a plan: for each model the ranges of benchmarks that follow one another.

    ``order``: the benchmarks as Dagster has, or will have, them.
    """
    steps: dict[Pair, list[Step]] = {}
    for step in made.steps:
        steps.setdefault(step.pair, []).append(step)
    for model in dict.fromkeys(pair.model for pair in steps):
        for benchmarks in group_neighbours(order, {pair.benchmark for pair in steps if pair.model == model}):
            pairs = [Pair(benchmark, model) for benchmark in benchmarks]
            yield dg.RunRequest(
                run_key=digest([_key_of(step, planner) for pair in pairs for step in steps[pair]])[:32],
                job_name=AUDIT_PAIRS.name,
                tags={
                    "dagster/asset_partition_range_start": pairs[0].partition,
                    "dagster/asset_partition_range_end": pairs[-1].partition,
                    REASON_TAG: steps[pairs[0]][0].reason,
                },
            )


def _key_of(step: Step, planner: Planner) -> list[object]:
    """What a step makes, of what, and how often that came out differently or was forgotten before."""
    product = planner.get_product_state(step.product)
    ledger = planner.state.ledger
    versions = [entry.data_version for entry in ledger.list_entries(step.stage.input_name, step.partition)]
    changes = sum(version != after for version, after in itertools.pairwise(versions))
    entry = planner.state.entries.get(step.pair.model)
    model = None if entry is None else entry_version(entry)
    return [step.stage.name, step.partition, dict(product.inputs), model, len(versions[:1]), changes, ledger.forgotten]


def _drop_requested(requests: Iterable[dg.RunRequest], instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    """Those that no run has the key of yet: Dagster would run none of the others again."""
    return [
        request
        for request in requests
        if not instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": request.run_key or ""}), limit=1)
    ]


def _build_partition_requests(dimension: str, names: Sequence[str]) -> list[dg.AddDynamicPartitionsRequest]:
    require_keys(dimension, names)
    return [dg.AddDynamicPartitionsRequest(dimension, list(names))] if names else []


def _read_planner(
    context: dg.SensorEvaluationContext, config: Configuration, paths: DataPaths
) -> tuple[Planner, Mapping[str, Sequence[str]]]:
    """The configured benchmarks and models, these as they were seen last (a tick has no time to load them), and the
    partitions that Dagster has of each.

    A model whose entry or files are not those that were loaded last is taken for another one. Runs whose process was
    killed are marked failed: they would be waited for for ever.
    """
    for run_id in mark_dead_runs_failed(context.instance, paths):
        context.log.warning(f"run {run_id} is marked failed: the process that ran it is gone")
    registered = {name: context.instance.get_dynamic_partitions(name) for name in (BENCHMARK, MODEL)}
    entries = exclude_control_models(config.models)
    seen = {
        name: model if model.is_current else replace(model, identity=replace(model.identity, model_fingerprint="new"))
        for name, model in find_seen_models(entries, paths).items()
    }
    state = WorkspaceState(paths, exclude_on_request(config.benchmarks), entries, seen)
    return Planner(state, STAGES), registered


@dg.sensor(
    job_name=AUDIT_PAIRS.name,
    minimum_interval_seconds=30,
    description="A model that is new in config/models.yaml, or whose entry or files changed, gets a partition and one "
    "run over all benchmarks that are built.",
)
def new_models(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """One tick of the sensor on config/models.yaml."""
    instance, config = context.instance, load_configuration()
    planner, registered = _read_planner(context, config, data.paths)
    new = [name for name in planner.state.entries if not _is_known(name, planner, registered[MODEL])]
    built = [name for name in planner.state.specs if planner.state.find_built_digest(name) is not None]
    waiting = _describe_unfinished_run(instance, _PREPARING_JOBS) or (None if built else "no benchmark is built yet")
    if not new:
        waiting = None
    elif waiting is not None:
        new = []
    add = [name for name in planner.state.specs if name not in registered[BENCHMARK]] if new else []
    made = planner.plan(Scope.of_all_pairs(built, new), OF_PAIRS)
    requests = _drop_requested(_request_pairs(made, planner, [*registered[BENCHMARK], *add]), instance)
    problems = [str(problem) for problem in config.models.problems]
    if missing := [name for name in planner.state.specs if name not in built]:
        problems.append(
            f"{len(missing)} benchmark(s) are not built, their pairs stay missing: {', '.join(missing)}; "
            "switch on the sensor changed_benchmarks, which builds them and then audits their pairs"
        )
    for words in problems:
        context.log.warning(words)
    said = [waiting or f"nothing new among {len(planner.state.entries)} models", *problems]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(said)[:2000],
        dynamic_partitions_requests=[
            *_build_partition_requests(BENCHMARK, add),
            *_build_partition_requests(MODEL, [name for name in new if name not in registered[MODEL]]),
        ],
    )


def _is_known(model: str, planner: Planner, registered: Sequence[str]) -> bool:
    """Whether a model has a partition, and is as it was when it was loaded last."""
    seen = planner.state.models.get(model)
    return model in registered and isinstance(seen, SeenModel) and seen.is_current


@dg.sensor(
    jobs=JOBS,
    minimum_interval_seconds=30,
    description="A benchmark whose entry in config/benchmarks.yaml, or whose documents, changed is built again, and "
    "then its pairs are audited; nothing else is.",
)
def changed_benchmarks(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """One tick of the sensor on config/benchmarks.yaml and the documents."""
    instance, config = context.instance, load_configuration()
    planner, registered = _read_planner(context, config, data.paths)
    new = [name for name in planner.state.specs if name not in registered[BENCHMARK]]
    made = planner.plan(Scope(tuple(planner.state.specs)), OF_BENCHMARKS)
    problems = [f"{product.partition}: {problem}" for product, problem in made.problems.items()]
    waiting = _describe_unfinished_run(instance, _PREPARING_JOBS)
    requests = _drop_requested(_request_preparation(made, planner), instance) if waiting is None else []
    unfit = {step.partition for step in made.steps} | {product.partition for product in made.problems}
    models = [name for name in planner.state.entries if _is_known(name, planner, registered[MODEL])]
    benchmarks = [
        name for name in planner.state.specs if name not in unfit and planner.state.find_built_digest(name) is not None
    ]
    scope = Scope.of_all_pairs(benchmarks, models)
    if waiting is None and not requests:
        pairs = planner.plan(scope, OF_PAIRS)
        requests = _drop_requested(_request_pairs(pairs, planner, [*registered[BENCHMARK], *new]), instance)
        if requests and (waiting := _describe_unfinished_run(instance, (AUDIT_PAIRS.name,))) is not None:
            requests = []
    for words in problems:
        context.log.warning(words)
    if made.steps and not requests:
        problems += [f"{step.product}: was asked for and did not come about, see its run" for step in made.steps]
    said = [waiting or f"nothing changed in {len(planner.state.specs)} benchmarks", *problems]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join([*said, *map(str, config.benchmarks.problems)])[:2000],
        dynamic_partitions_requests=_build_partition_requests(BENCHMARK, new),
    )


def _request_preparation(made: Plan, planner: Planner) -> Iterator[dg.RunRequest]:
    """The runs of what waits for no other run; the stages of one job and partition share one."""
    groups: dict[tuple[str, str], list[Step]] = {}
    for step in made.steps:
        groups.setdefault((step.stage.job.name, step.partition), []).append(step)
    group_of = {f"{step.stage.input_name}/{step.partition}": group for group, steps in groups.items() for step in steps}
    for group, steps in groups.items():
        inputs = [name for step in steps for name in planner.get_product_state(step.product).inputs]
        if any(group_of.get(name, group) != group for name in inputs):
            continue
        job, partition = group
        is_source = steps[0].stage.dimensions == SOURCE
        yield dg.RunRequest(
            run_key=digest([_key_of(step, planner) for step in steps])[:32],
            job_name=job,
            partition_key=None if is_source else partition,
            asset_selection=[
                dg.AssetKey([step.stage.name, partition] if is_source else step.stage.name) for step in steps
            ],
            tags={REASON_TAG: f"{partition}: {steps[0].reason}"},
        )


_OF_EXTRAS: Mapping[str, dg.SensorDefinition] = collect_by_name(
    extras.find_modules("sensors"),
    label="sensors",
    is_wanted=lambda value: isinstance(value, dg.SensorDefinition),
    name_of=lambda sensor: sensor.name,
)
SENSORS = [new_models, changed_benchmarks, *_OF_EXTRAS.values(), hub_watcher]
