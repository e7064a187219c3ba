"""The command `corpus-audit audit`: bring one model on some benchmarks up to date, through Dagster, in this process.

What belongs here: which assets are stale, in which order they run, what it would cost. What does not: the work itself
(operate/stages/), presentation (cli/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, load_benchmarks
from audit_pipeline.benchmarks.rolling import keep_day, roll, utc_today
from audit_pipeline.benchmarks.staleness import is_stale, up_to_date
from audit_pipeline.catalogue.contracts import Pair
from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.catalogue.tables import read_json
from audit_pipeline.controls.config import load_controls, load_studies
from audit_pipeline.errors import AuditError, DataError, PairsFailedError, SourceError
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer
from audit_pipeline.operate.dagster import claims, in_process, partitions
from audit_pipeline.operate.dagster.controls import ensure_control
from audit_pipeline.operate.dagster.documents import ensure_documents
from audit_pipeline.operate.dagster.frequencies import ensure_frequencies
from audit_pipeline.operate.dagster.pair_runs import run_pairs
from audit_pipeline.scoring.selection import audit_session
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import is_stale as source_is_stale
from audit_pipeline.token_statistics.run import Kind, Plan


@dataclass(frozen=True)
class AuditRequest:
    """What the user asked for. ``leave_out``: a benchmark that cannot be built is left out, and the others go on;
    ``publish``: warehouse and report follow (False where another audit comes right behind it)."""

    model: str
    benchmarks: Sequence[BenchmarkSpec]
    refresh: bool = False
    device: str | None = None
    kinds: Sequence[Kind] = ("base",)
    logits_budget_gb: float | None = None
    terminal: bool = False
    leave_out: bool = False
    publish: bool = True


@dataclass(frozen=True)
class Pass:
    """How many texts of a pair were in the cache, and how many the model was run on."""

    from_cache: int
    computed: int


@dataclass
class AuditOutcome:
    """Which runs were needed, by what they were for; the dead runs found; what each pair's pass came to, or why there
    was none; the error where some pairs met a fault and the others are done; the benchmarks left out, and why."""

    runs: dict[str, str] = field(default_factory=dict)
    passes: dict[str, Pass] = field(default_factory=dict)
    not_applicable: dict[str, str] = field(default_factory=dict)
    failed: PairsFailedError | None = None
    left_out: dict[str, str] = field(default_factory=dict)
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
    entry = resolve_model(request.model, load_models())
    _refuse_strangers(entry, request.benchmarks)
    models = [request.model, *([entry.reference_model] if entry.reference_model is not None else [])]
    with claims.audit_of(paths, models=models, benchmarks=[spec.name for spec in request.benchmarks]):
        return _audit(entry, request, definitions, paths, on_step)


def _audit(
    entry: ModelEntry,
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
) -> AuditOutcome:
    outcome = AuditOutcome()
    if entry.control is not None:
        _train(entry.control.name, request, definitions, paths, on_step, outcome)
    # First of all else, so that a model that cannot be had costs no download and leaves no partition behind.
    model = load_tokenizer(entry, paths)
    request = _with_settled_day(request, paths, on_step)
    with in_process.open_instance(paths) as instance:
        outcome.buried += in_process.bury_dead_runs(instance)
        partitions.register(instance, models=[request.model])
        _prepare(request, definitions, instance, paths, on_step, outcome)
        try:
            outcome.runs |= ensure_frequencies(definitions.resolve_job_def, instance, model, paths, on_step)
        except AuditError as error:
            # One detector goes without.
            on_step(f"dc_pdd goes without token frequencies: {error}")
        try:
            _run_pairs(request, definitions.resolve_job_def("audit_pairs"), instance, on_step, outcome)
        except PairsFailedError as error:
            # The others are done: what they came to is published, and then the error told.
            outcome.failed = error
        for spec in request.benchmarks:
            if spec.name not in outcome.left_out:
                _note_pass(instance, Pair(spec.name, request.model).partition, outcome)
        if request.publish:
            on_step("rebuilding warehouse and report")
            outcome.runs["publish"] = _publish(definitions, instance, on_step, include_text=texts_are_quoted())
    return outcome


def _refuse_strangers(entry: ModelEntry, benchmarks: Sequence[BenchmarkSpec]) -> None:
    """Raise DataError, before anything is trained, where one of model and benchmark is of a control, the other not."""
    of_model = entry.control.name if entry.control is not None else None
    for spec in benchmarks:
        if spec.control != of_model:
            raise DataError(
                f"{entry.name} and {spec.name} do not belong together: a control's texts are asked of its own models, "
                "and those of nothing else (corpus-audit control)"
            )


def _train(
    control: str,
    request: AuditRequest,
    definitions: dg.Definitions,
    paths: DataPaths,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> None:
    with in_process.open_instance(paths) as instance:
        outcome.buried += in_process.bury_dead_runs(instance)
        outcome.runs |= ensure_control(
            control, definitions.resolve_job_def, instance, paths, on_step, device=request.device
        )


def study(study_name: str, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]) -> str:
    """Run a study of a control, then warehouse and report; returns the run's id."""
    with in_process.open_instance(paths) as instance:
        in_process.bury_dead_runs(instance)
        control = load_controls().named(load_studies().named(study_name).control)
        ensure_documents(control.sources, definitions.resolve_job_def, instance, paths, on_step)
        run = in_process.run_job(
            definitions.resolve_job_def("run_studies"), instance, partition_key=study_name, on_wait=on_step
        )
        on_step("rebuilding warehouse and report")
        _publish(definitions, instance, on_step, include_text=texts_are_quoted())
        return run


def prepare(
    request: AuditRequest, definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None]
) -> AuditOutcome:
    """Fetch sources and build benchmarks where that is needed; no model is run."""
    request = _with_settled_day(request, paths, on_step)
    outcome = AuditOutcome()
    names = [spec.name for spec in request.benchmarks]
    with claims.audit_of(paths, benchmarks=names), in_process.open_instance(paths) as instance:
        outcome.buried = in_process.bury_dead_runs(instance)
        _prepare(request, definitions, instance, paths, on_step, outcome)
    return outcome


def publish(
    definitions: dg.Definitions, paths: DataPaths, on_step: Callable[[str], None], *, include_text: bool = True
) -> str:
    """Rebuild warehouse and report, with or without excerpts of the audited texts; returns the run's id."""
    with in_process.open_instance(paths) as instance:
        in_process.bury_dead_runs(instance)
        return _publish(definitions, instance, on_step, include_text=include_text)


def _publish(
    definitions: dg.Definitions, instance: dg.DagsterInstance, on_step: Callable[[str], None], *, include_text: bool
) -> str:
    quoting = {"include_text": include_text}
    return in_process.run_job(
        definitions.resolve_job_def("publish"),
        instance,
        ops={"warehouse": quoting, "contamination_report": quoting},
        on_wait=on_step,
    )


def _with_settled_day(request: AuditRequest, paths: DataPaths, on_step: Callable[[str], None]) -> AuditRequest:
    """The request with cutoffs told by today counted from the kept day, which is moved on where a refresh is asked."""
    if not any(spec.is_relative for spec in request.benchmarks):
        return request
    if not request.refresh:
        keep_day(paths)
    elif roll(paths, utc_today()):
        on_step(f"relative cutoffs are counted from {utc_today()} on")
    settled = load_benchmarks()
    return replace(request, benchmarks=[settled[spec.name] for spec in request.benchmarks])


def _prepare(
    request: AuditRequest,
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    paths: DataPaths,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> None:
    partitions.register(instance, benchmarks=[spec.name for spec in request.benchmarks])
    refresh, build = definitions.resolve_job_def("refresh_sources"), definitions.resolve_job_def("build_benchmarks")
    fetched: dict[str, AuditError | None] = {}
    for spec in request.benchmarks:
        try:
            for name in spec.sources:
                if name not in fetched:
                    fetched[name] = _fetch(name, request, refresh, instance, paths, on_step, outcome)
                if (error := fetched[name]) is not None:
                    raise error
            if spec.control is not None:
                outcome.runs |= ensure_control(
                    spec.control, definitions.resolve_job_def, instance, paths, on_step, device=request.device
                )
            if is_stale(spec, paths) or (request.refresh and not spec.sources):
                on_step(f"building benchmark: {spec.name}")
                outcome.runs[f"examples/{spec.name}"] = _build(spec, build, instance, paths)
                _tell_skipped_rows(spec.name, paths, on_step)
        except AuditError as error:
            if not request.leave_out:
                raise
            on_step(f"{spec.name} is left out: {error}")
            outcome.left_out[spec.name] = str(error)


def _fetch(
    name: str,
    request: AuditRequest,
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    paths: DataPaths,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> AuditError | None:
    """Fetch a source where that is needed; the error, where it could not be had."""
    settings = load_source_settings()
    if not (request.refresh or source_is_stale(name, paths, settings)):
        return None
    to_be_set = settings.to_be_set_for(name)
    if to_be_set is not None:
        return SourceError(f"{name} is not configured: {to_be_set}")
    on_step(f"fetching documents: {name}")
    try:
        key = dg.AssetKey(["documents", name])
        outcome.runs[f"documents/{name}"] = in_process.run_job(job, instance, selection=[key])
    except AuditError as error:
        return error
    _tell_what_a_source_lacks(name, paths, on_step)
    return None


def _tell_what_a_source_lacks(name: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    manifest = read_json(paths.source_manifest(name))
    for item in manifest["missing"]:
        on_step(f"missing from {name}: {item['part']}: {item['reason']}")
    if left_out := manifest["left_out"]:
        on_step(f"left out of {name}: {len(left_out)}, the first {left_out[0]['part']}: {left_out[0]['reason']}")


def _tell_skipped_rows(benchmark: str, paths: DataPaths, on_step: Callable[[str], None]) -> None:
    skipped = read_built(paths, benchmark).manifest["skipped"]
    if skipped["rows"]:
        first = skipped["first"][0]
        on_step(f"skipped in {benchmark}: {skipped['rows']} row(s), the first {first['row']}: {first['reason']}")


def _build(spec: BenchmarkSpec, job: dg.JobDefinition, instance: dg.DagsterInstance, paths: DataPaths) -> str:
    try:
        return in_process.run_job(job, instance, partition_key=spec.name)
    except dg.DagsterError:
        # A blocking check that fails ends the run with an error that only names it.
        if not is_stale(spec, paths):
            read_built(paths, spec.name).require_fit()
        raise


def _run_pairs(
    request: AuditRequest,
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    on_step: Callable[[str], None],
    outcome: AuditOutcome,
) -> None:
    pairs = [Pair(spec.name, request.model) for spec in request.benchmarks if spec.name not in outcome.left_out]
    resources: dict[str, dict[str, object]] = {
        "models": {"device": request.device},
        "progress": {"terminal": request.terminal},
    }
    config: dict[str, object] = {"topk": "topk" in request.kinds, "logits": "logits" in request.kinds}
    if request.logits_budget_gb is not None:
        config["logits_budget_gb"] = request.logits_budget_gb
    on_step(f"auditing {request.model} on {', '.join(pair.benchmark for pair in pairs)}")
    outcome.runs |= run_pairs(
        job, instance, pairs, resources=resources, ops={"token_statistics": config}, on_wait=on_step
    )


def _note_pass(instance: dg.DagsterInstance, partition: str, outcome: AuditOutcome) -> None:
    """What the pair's latest materialisation says of its pass."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("token_statistics"), asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        outcome.not_applicable[partition] = "its run failed before it came to that"
        return
    said = {name: str(entry.value) for name, entry in records[0].asset_materialization.metadata.items()}
    if "texts_computed" in said:
        outcome.passes[partition] = Pass(int(said["texts_from_cache"]), int(said["texts_computed"]))
    else:
        outcome.not_applicable[partition] = said.get("reason", "no reason was given")


def dry_run(request: AuditRequest, model: TokenizedModel, paths: DataPaths) -> dict[str, Plan]:
    """What an audit would run, by benchmark, without running it.

    Raises DataError where a benchmark has not been built, because its texts are not known then; a request that leaves
    out has no plan for it.
    """
    plans = {}
    ready = up_to_date(request.benchmarks, paths)
    for spec in request.benchmarks:
        if request.leave_out and not ready[spec.name]:
            continue
        if is_stale(spec, paths):
            raise DataError(
                f"the benchmark {spec.name} is not built or not up to date, so its texts are not known; "
                f"build it first: corpus-audit benchmarks --build {spec.name}"
            )
        built = read_built(paths, spec.name)
        built.require_fit()
        plans[spec.name] = audit_session(built, model, paths).plan(built.texts, request.kinds)
    return plans
