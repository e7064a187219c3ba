"""The command `corpus-audit audit`: bring one model on some benchmarks up to date, through Dagster, in this process.

What belongs here: which assets are stale, in which order they run, what it would cost. What does not: the work itself
(stages.py), presentation (cli.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dagster as dg

from audit_pipeline.benchmarks.build import benchmark_digest, current_digest, read_manifest
from audit_pipeline.benchmarks.config import BenchmarkSpec, LabelledSettings
from audit_pipeline.benchmarks.labelled import folder_of
from audit_pipeline.contracts import Pair
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer
from audit_pipeline.orchestration import in_process, partitions
from audit_pipeline.paths import DataPaths
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import is_stale as source_is_stale
from audit_pipeline.stages import require_fit, texts_of
from audit_pipeline.tables import read_json
from audit_pipeline.token_statistics.run import Kind, Plan, plan


@dataclass(frozen=True)
class AuditRequest:
    """What the user asked for."""

    model: str
    benchmarks: Sequence[BenchmarkSpec]
    refresh: bool = False
    device: str | None = None
    kinds: Sequence[Kind] = ("base",)
    logits_budget_gb: float | None = None
    terminal: bool = False


@dataclass(frozen=True)
class Pass:
    """How many texts of a pair were in the cache, and how many the model was run on."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """Which runs were needed, by what they were for; the dead runs found; what each pair's pass came to,
    or why there was none."""

    runs: dict[str, str] = field(default_factory=dict)
    passes: dict[str, Pass] = field(default_factory=dict)
    not_applicable: dict[str, str] = field(default_factory=dict)
    buried: list[str] = field(default_factory=list)


def audit(
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> AuditOutcome:
    """Run what is missing or stale upstream, then the pairs, then warehouse and report.

    Raises the AuditError that stopped it; what ran before it stays, and the next call goes on from there.
    """
    # First, so that a model that cannot be had costs no download and leaves no partition behind.
    load_tokenizer(resolve_model(request.model, load_models()), paths)
    in_process.ensure_dagster_home(paths)
    outcome = AuditOutcome()
    with dg.DagsterInstance.get() as instance:
        outcome.buried = in_process.bury_dead_runs(instance)
        partitions.register(instance, models=[request.model])
        _prepare(request, definitions, instance, paths, on_step, outcome)
        _run_pairs(request, definitions.resolve_job_def("audit_pairs"), instance, on_step, outcome)
        for spec in request.benchmarks:
            partition = Pair(spec.name, request.model).partition
            _note_pass(instance, partition, outcome)
        on_step("rebuilding warehouse and report")
        publishing = definitions.resolve_job_def("publish")
        outcome.runs["publish"] = in_process.run_job(publishing, instance, on_wait=on_step)
    return outcome


def prepare(
    request: AuditRequest, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> AuditOutcome:
    """Fetch sources and build benchmarks where that is needed; no model is run."""
    in_process.ensure_dagster_home(paths)
    outcome = AuditOutcome()
    with dg.DagsterInstance.get() as instance:
        outcome.buried = in_process.bury_dead_runs(instance)
        _prepare(request, definitions, instance, paths, on_step, outcome)
    return outcome


def publish(
    definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None], *, include_text: bool = True
) -> str:
    """Rebuild warehouse and report, with or without excerpts of the audited texts; returns the run's id."""
    in_process.ensure_dagster_home(paths)
    with dg.DagsterInstance.get() as instance:
        in_process.bury_dead_runs(instance)
        quoting = {"include_text": include_text}
        return in_process.run_job(
            definitions.resolve_job_def("publish"),
            instance,
            ops={"warehouse": quoting, "contamination_report": quoting},
            on_wait=on_step,
        )


def _prepare(
    request: AuditRequest,
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    paths: DataPaths,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> None:
    partitions.register(instance, benchmarks=[spec.name for spec in request.benchmarks])
    sources = dict.fromkeys(name for spec in request.benchmarks for name in spec.sources)
    refresh = definitions.resolve_job_def("refresh_sources")
    for name in sources:
        settings = load_source_settings()
        if request.refresh or source_is_stale(name, paths, settings):
            to_be_set = settings.to_be_set(name)
            if to_be_set is not None:
                raise SourceError(f"{name} is not configured: {to_be_set}")
            on_step(f"fetching documents: {name}")
            key = dg.AssetKey(["documents", name])
            outcome.runs[f"documents/{name}"] = in_process.run_job(refresh, instance, selection=[key])
            _tell_what_a_source_lacks(name, paths, on_step)
    build = definitions.resolve_job_def("build_benchmarks")
    for spec in request.benchmarks:
        if is_stale(spec, paths) or (request.refresh and not spec.sources):
            on_step(f"building benchmark: {spec.name}")
            outcome.runs[f"examples/{spec.name}"] = _build(spec, build, instance, paths)
            _tell_skipped_rows(spec.name, paths, on_step)


def _tell_what_a_source_lacks(name: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    manifest = read_json(paths.source_manifest(name))
    for item in manifest["missing"]:
        on_step(f"missing from {name}: {item['part']}: {item['reason']}")
    if left_out := manifest["left_out"]:
        on_step(f"left out of {name}: {len(left_out)}, the first {left_out[0]['part']}: {left_out[0]['reason']}")


def _tell_skipped_rows(benchmark: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    skipped = read_manifest(paths, benchmark)["skipped"]
    if skipped["rows"]:
        first = skipped["first"][0]
        on_step(f"skipped in {benchmark}: {skipped['rows']} row(s), the first {first['row']}: {first['reason']}")


def _build(spec: BenchmarkSpec, job: dg.JobDefinition, instance: dg.DagsterInstance, paths: DataPaths) -> str:
    try:
        return in_process.run_job(job, instance, partition_key=spec.name)
    except dg.DagsterError:
        # A blocking check that fails ends the run with an error that only names it.
        if not is_stale(spec, paths):
            require_fit(spec.name, paths)
        raise


def is_stale(spec: BenchmarkSpec, paths: DataPaths) -> bool:
    """Whether the benchmark is missing, or was built from another entry or other documents than there are now."""
    if not paths.examples(spec.name).exists() or not paths.benchmark_manifest(spec.name).exists():
        return True
    manifest = read_manifest(paths, spec.name)
    settings = spec.settings
    if isinstance(settings, LabelledSettings) and folder_of(settings)[0] is None:
        # A data set of the hub is looked at again when the user asks for it (--refresh), not for every audit.
        return bool(manifest["digest"] != benchmark_digest(spec, manifest["source_versions"]))
    return bool(manifest["digest"] != current_digest(spec, paths))


def _run_pairs(
    request: AuditRequest,
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> None:
    pairs = [Pair(spec.name, request.model) for spec in request.benchmarks]
    resources: dict[str, dict[str, object]] = {
        "models": {"device": request.device},
        "progress": {"terminal": request.terminal},
    }
    config: dict[str, object] = {"topk": "topk" in request.kinds, "logits": "logits" in request.kinds}
    if request.logits_budget_gb is not None:
        config["logits_budget_gb"] = request.logits_budget_gb
    ops = {"token_statistics": config}
    one_range = partitions.range_of(instance, pairs)
    on_step(f"auditing {request.model} on {', '.join(pair.benchmark for pair in pairs)}")
    if one_range is not None and len(pairs) > 1:
        outcome.runs["pairs"] = in_process.run_job(
            job, instance, partition_range=one_range, resources=resources, ops=ops, on_wait=on_step
        )
    else:
        for pair in pairs:
            outcome.runs[pair.partition] = in_process.run_job(
                job, instance, partition_key=pair.partition, resources=resources, ops=ops, on_wait=on_step
            )


def _note_pass(instance: dg.DagsterInstance, partition: str, outcome: AuditOutcome) -> None:
    """What the pair's latest materialisation says of its pass."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("token_statistics"), asset_partitions=[partition])
    (record,) = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    said = {name: str(entry.value) for name, entry in record.asset_materialization.metadata.items()}
    if "texts_computed" in said:
        outcome.passes[partition] = Pass(int(said["texts_from_cache"]), int(said["texts_computed"]))
    else:
        outcome.not_applicable[partition] = said.get("reason", "no reason was given")


def dry_run(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> dict[str, Plan]:
    """What an audit would run, by benchmark, without running it.

    Raises DataError where a benchmark has not been built, because its texts are not known then.
    """
    plans = {}
    for spec in request.benchmarks:
        if is_stale(spec, paths):
            raise DataError(
                f"the benchmark {spec.name} is not built or not up to date, so its texts are not known; "
                f"build it first: corpus-audit benchmarks --build {spec.name}"
            )
        plans[spec.name] = plan(model, texts_of(Pair(spec.name, request.model), paths), paths, request.kinds)
    return plans
