"""What there is: the facts that the planner is told, read from the data folder and the configuration.

What belongs here: reading, for every kind of product, the version that it should have and the one that is there; and
keeping with warehouse and report what they were made with besides the findings (the configuration, the code, whether
texts are quoted). What does not: comparing them (plan.py), the same facts of pairs read from the tables of a warehouse
that is being built (coverage.py), and what Dagster is busy with (operate/dagster/sensors.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb

from audit_pipeline.benchmarks.build import compute_wanted_digest, read_built_digest, read_source_version
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.catalogue.bucket_folder import refresh_warehouse
from audit_pipeline.catalogue.contracts import DOCUMENT_MEMORISATION, PLANS, RUN_TABLES, Pair
from audit_pipeline.catalogue.files import read_json_if_whole, write_json
from audit_pipeline.catalogue.integrity import digest_of_files
from audit_pipeline.catalogue.ledger import find_latest_outcome, is_latest_file_whole, read_latest_run
from audit_pipeline.catalogue.paths import DataPaths, config_dir, model_page_path, texts_are_quoted
from audit_pipeline.catalogue.versions import code_digest, package_versions
from audit_pipeline.controls.config import load_controls
from audit_pipeline.controls.versions import compute_wanted_version, read_trained_version
from audit_pipeline.errors import AuditError, ConfigError, DataError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel, is_tokenizer_kept, load_tokenizer
from audit_pipeline.operate import facts
from audit_pipeline.operate.facts import PlannedStep, PlanRequest, Situation
from audit_pipeline.operate.plan import find_benchmark_problems, plan
from audit_pipeline.operate.stages.benchmarks import SPLIT_VERSION, find_split_versions, read_split_facts
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION
from audit_pipeline.operate.stages.extraction import find_search_version
from audit_pipeline.operate.stages.scores import SCORES_VERSION, statistics_version
from audit_pipeline.references.config import ReferenceEntry
from audit_pipeline.references.frequencies import corpus_from_entry, find_countable_corpus, read_corpus_digests
from audit_pipeline.scoring.needs.registry import is_extra
from audit_pipeline.scoring.session import find_current_upstream
from audit_pipeline.sources.config import SourceSettings, load_source_settings
from audit_pipeline.sources.store import read_settings_digest
from audit_pipeline.warehouse.query import open_read_only


def note_published(paths: DataPaths, *, include_text: bool) -> None:
    """Keep what warehouse and report, which have just been written, were made with."""
    write_json(paths.published, compute_current_inputs(paths, include_text=include_text))


def read_published_inputs(paths: DataPaths) -> Mapping[str, object] | None:
    """What warehouse and report were made with, each part by its name; None where it was not kept."""
    return read_json_if_whole(paths.published)


def compute_current_inputs(paths: DataPaths, *, include_text: bool | None = None) -> Mapping[str, object]:
    """What they would be made with now; texts are quoted as the environment says, unless that is given."""
    config = config_dir()
    return {
        "configuration": digest_of_files(config, sorted(config.glob("*.yaml"))),
        "code": code_digest(),
        "packages": dict(package_versions()),
        "include_text": texts_are_quoted() if include_text is None else include_text,
        "sealed plans": sum(1 for _ in paths.table(PLANS.name).rglob("*.parquet")),
    }


CODE = {
    "split_quality": SPLIT_VERSION,
    "scores": SCORES_VERSION,
    "evaluations": EVALUATIONS_VERSION,
}


def read_situation(
    request: PlanRequest,
    paths: DataPaths,
    *,
    specs: Iterable[BenchmarkSpec] = (),
    entries: Iterable[ModelEntry] = (),
    models: Mapping[str, TokenizedModel] | None = None,
    ask_hub: bool = False,
    config: Path | None = None,
) -> Situation:
    """What there is of all that ``asked`` takes.

    ``specs`` and ``entries`` are the benchmarks and models of it; ``models`` are those of ``entries`` that are loaded:
    of the others it is not known how they would be run now. ``ask_hub``: rows of the hub are looked at there.
    ``config``: the folder that sources and controls are configured in, by default the workspace's.
    Raises ConfigError where a part of the configuration that this takes cannot be read.
    """
    specs, models = list(specs), models or {}
    settings = load_source_settings(config)
    needs = {entry.name: _read_model_facts(entry, models.get(entry.name), paths) for entry in entries}
    trained = [*(model.control for model in needs.values()), *(spec.control for spec in specs)]
    wanted = [name for name in dict.fromkeys((*request.controls, *trained)) if name is not None]
    controls = {name: _read_control_facts(name, paths, config) for name in wanted}
    named = (
        *request.sources,
        *(source for spec in specs for source in spec.sources),
        *(source for control in controls.values() for source in control.sources),
        *(table.source for model in needs.values() if (table := model.frequencies) and table.source),
    )
    sources = {name: _read_source_facts(name, paths, settings) for name in dict.fromkeys(named)}
    benchmarks = _read_benchmark_facts(specs, sources, controls, paths, ask_hub=ask_hub)
    extras = {name: find_current_upstream(model, paths) for name, model in models.items()}
    audits = {}
    for pair in request.pairs:
        now = facts.Conventions()
        if pair.model in models and pair.benchmark in benchmarks:
            now = conventions(
                models[pair.model], benchmarks[pair.benchmark].built, *split_extra_versions(extras[pair.model])
            )
        audits[pair] = _read_pair_facts(pair, now, paths)
    return Situation(
        sources=sources,
        controls=controls,
        benchmarks=benchmarks,
        models=needs,
        audits=audits,
        published=_read_published_facts(request, paths) if request.publish else facts.PublishedFacts(),
        code=CODE,
    )


def plan_audit_quickly(
    entry: ModelEntry, specs: Sequence[BenchmarkSpec], paths: DataPaths, *, publish: bool
) -> tuple[PlannedStep, ...] | None:
    """The planner's steps for the model on these benchmarks, told without a heavy package and without writing.

    None where they are not known; the audit itself then says what is wrong, where something is.
    """
    model = _load_kept_tokenizer(entry, paths)
    if model is None:
        return None
    request = PlanRequest(pairs=tuple(Pair(spec.name, entry.name) for spec in specs), publish=publish)
    try:
        situation = read_situation(request, paths, specs=specs, entries=[entry], models={entry.name: model})
    except AuditError:
        return None
    return None if find_benchmark_problems(situation, situation.benchmarks) else plan(situation, request)


def plan_publication(pairs: Iterable[Pair], paths: DataPaths) -> tuple[PlannedStep, ...]:
    """The step that makes warehouse and report show what was found on ``pairs``; none where they do."""
    request = PlanRequest(pairs=tuple(pairs), publish=True)
    return plan(read_situation(request, paths), request)


def _load_kept_tokenizer(entry: ModelEntry, paths: DataPaths) -> TokenizedModel | None:
    """The model, where reading its tokenizer takes no time and writes nothing; else, or where it is lacking, None.

    None too where its server has to be asked first whether it is still the same model.
    """
    if not entry.host.is_here:
        return None
    try:
        return load_tokenizer(entry, paths) if is_tokenizer_kept(entry, paths) else None
    except AuditError:
        # Running the model raises what is wrong with it.
        return None


def _read_source_facts(name: str, paths: DataPaths, settings: SourceSettings) -> facts.SourceFacts:
    if settings.is_broken(name):
        return facts.SourceFacts(None, None, _explain_broken_source(name, settings))
    to_be_set = settings.to_be_set_for(name)
    problem = None if to_be_set is None else f"{name} is not configured: {to_be_set}"
    return facts.SourceFacts(settings.digest_for(name), read_settings_digest(name, paths), problem)


def _explain_broken_source(name: str, settings: SourceSettings) -> str:
    try:
        settings.require_usable(name)
    except ConfigError as error:
        return str(error)
    raise TypeError(f"{name} is not broken")


def _read_control_facts(name: str, paths: DataPaths, config: Path | None) -> facts.ControlFacts:
    try:
        entry = load_controls(config).named(name)
    except ConfigError as error:
        return facts.ControlFacts(None, None, problem=str(error))
    return facts.ControlFacts(compute_wanted_version(entry, paths), read_trained_version(name, paths), entry.sources)


def _read_benchmark_facts(
    specs: Iterable[BenchmarkSpec],
    sources: Mapping[str, facts.SourceFacts],
    controls: Mapping[str, facts.ControlFacts],
    paths: DataPaths,
    *,
    ask_hub: bool,
) -> dict[str, facts.BenchmarkFacts]:
    """What each benchmark is and would be, by name; each source is read once, however many are drawn from it."""
    version_of = cache(lambda source: read_source_version(source, paths))
    found = {}
    for spec in specs:
        built, wanted, problem = read_built_digest(spec, paths), None, None
        made_of = [sources[name].there for name in spec.sources]
        made_of += [controls[name].there for name in (spec.control,) if name is not None]
        # Where something that it is made of is not there yet, nothing is wrong: it is not known yet.
        if None not in made_of:
            try:
                wanted = compute_wanted_digest(spec, built, paths, version_of, ask_hub=ask_hub)
            except AuditError as error:
                problem = str(error)
        found[spec.name] = facts.BenchmarkFacts(
            wanted,
            built,
            spec.sources,
            spec.control,
            problem,
            split=_read_split_or_empty(spec.name, paths),
            extraction=find_search_version(spec),
            overlaps=_read_overlaps(spec, built, paths),
        )
    return found


def _read_overlaps(spec: BenchmarkSpec, built: str | None, paths: DataPaths) -> tuple[facts.OverlapFacts, ...]:
    if not spec.settings.corpora:
        return ()
    # Here and not above: most benchmarks name no corpus.
    from audit_pipeline.operate.stages.overlap import read_overlap_facts  # noqa: PLC0415

    found = []
    for corpus in spec.settings.corpora:
        try:
            found.append(read_overlap_facts(spec.name, built, corpus, paths))
        except AuditError as error:
            found.append(facts.OverlapFacts(corpus, "", None, str(error)))
    return tuple(found)


def _read_split_or_empty(benchmark: str, paths: DataPaths) -> facts.SplitFacts:
    try:
        return read_split_facts(benchmark, paths)
    except DataError:
        # A lineage entry is damaged: the split is assessed again.
        return facts.SplitFacts()


def _read_model_facts(entry: ModelEntry, model: TokenizedModel | None, paths: DataPaths) -> facts.ModelFacts:
    control = entry.control.name if entry.control is not None else None
    return facts.ModelFacts(control, None if model is None else _read_frequency_facts(model, paths))


def _read_frequency_facts(model: TokenizedModel, paths: DataPaths) -> facts.FrequencyFacts | None:
    try:
        corpus = find_countable_corpus(model.entry)
    except ConfigError:
        # Counting raises what is wrong with the entry; the audit goes on without.
        return None
    if corpus is None:
        return None
    counted = read_corpus_digests(corpus.name, model, paths)
    settings, documents = corpus.settings_digest, _documents_digest(corpus, paths)
    if counted is None:
        return facts.FrequencyFacts(corpus.name, settings, None, corpus.package)
    if documents is None:
        return facts.FrequencyFacts(corpus.name, settings, counted[0], corpus.package)
    return facts.FrequencyFacts(corpus.name, f"{settings} {documents}", " ".join(counted), corpus.package)


def _documents_digest(corpus: ReferenceEntry, paths: DataPaths) -> str | None:
    """The digest of the documents of a corpus that is a source; None where they are not there, and of files: their
    bytes, which may be many, are looked at when they are counted."""
    if corpus.package is None or not paths.documents(corpus.package).exists():
        return None
    try:
        return corpus_from_entry(corpus, paths).digest
    except AuditError:
        return None


def _read_pair_facts(pair: Pair, now: facts.Conventions, paths: DataPaths) -> facts.PairFacts:
    try:
        outcome = find_latest_outcome(paths, pair)
    except DataError:
        # It is named where the warehouse is built; what it says is not known.
        outcome = None
    return facts.PairFacts(
        now,
        _read_written_rows("scores", pair, paths),
        _read_written_rows("evaluations", pair, paths),
        _read_written_rows(DOCUMENT_MEMORISATION.name, pair, paths),
        outcome,
        tuple(table for table in RUN_TABLES if not is_latest_file_whole(paths, table, pair.partition)),
    )


def conventions(
    model: KnownModel, built: str | None, reference: facts.Versions | None, frequencies: facts.Versions | None
) -> facts.Conventions:
    """How a model would be run now on a benchmark of that digest, with that reference model and token frequencies."""
    return facts.Conventions(
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        None if built is None else statistics_version(model, built),
        reference,
        frequencies,
        model.identity.before,
    )


def written_from_run(
    run_id: str,
    finished_at: datetime,
    code_version: str,
    data_version: str,
    benchmark_digest: str | None,
    model_fingerprint: str | None,
    tokenizer_fingerprint: str | None,
    upstream: Mapping[str, str],
    pair: Pair,
) -> facts.WrittenRows:
    """What the lineage says of the rows of a pair, as a fact."""
    reference, frequencies = split_extra_versions({key: upstream[key] for key in upstream if is_extra(key)})
    statistics = upstream.get(f"token_statistics/{pair.partition}")
    return facts.WrittenRows(
        run_id,
        finished_at,
        code_version,
        benchmark_digest,
        facts.Conventions(model_fingerprint, tokenizer_fingerprint, statistics, reference, frequencies),
        data_version,
        upstream.get(f"scores/{pair.partition}"),
        find_split_versions(pair.benchmark, upstream),
    )


def split_extra_versions(extras: Mapping[str, str] | None) -> tuple[facts.Versions | None, facts.Versions | None]:
    """The versions of reference models, and those of token frequencies.

    Prefixes are none of them: their texts are covered by the digest of the benchmark that they come from.
    """
    if extras is None:
        return None, None
    items = sorted(extras.items())
    return (
        tuple(item for item in items if item[0].startswith("reference_model/")),
        tuple(item for item in items if item[0].startswith("token_frequencies/")),
    )


def is_evaluated(pair: Pair, paths: DataPaths) -> bool:
    """Whether there are findings of a pair, up to date or not."""
    return _read_written_rows("evaluations", pair, paths) is not None


def _read_written_rows(table: str, pair: Pair, paths: DataPaths) -> facts.WrittenRows | None:
    try:
        run = read_latest_run(paths, table, pair.partition)
    except DataError:
        return None
    return written_from_run(
        run.run_id,
        run.finished_at,
        run.code_version,
        run.data_version,
        run.benchmark_digest,
        run.model_fingerprint,
        run.tokenizer_fingerprint,
        run.upstream,
        pair,
    )


def _read_published_facts(request: PlanRequest, paths: DataPaths) -> facts.PublishedFacts:
    files: Sequence[Path] = (
        paths.report,
        paths.published,
        *(model_page_path(paths.reports, pair.model) for pair in request.pairs),
    )
    runs = _published_runs(paths)
    if runs is None or not all(file.exists() for file in files):
        return facts.PublishedFacts(compute_current_inputs(paths))
    made_at = paths.warehouse.stat().st_mtime_ns
    if paths.published.stat().st_mtime_ns < made_at:
        # The report was made of an earlier warehouse: it is noted last of all that it was made.
        return facts.PublishedFacts(compute_current_inputs(paths))
    return facts.PublishedFacts(
        compute_current_inputs(paths), read_published_inputs(paths), runs, datetime.fromtimestamp(made_at / 1e9, UTC)
    )


def _published_runs(paths: DataPaths) -> frozenset[str] | None:
    """The runs whose findings and splits the warehouse holds; None where there is none that can be read."""
    refresh_warehouse(paths.warehouse)
    if not paths.warehouse.exists():
        return None
    try:
        with open_read_only(paths.warehouse) as connection:
            found = connection.execute(
                "SELECT run_id FROM evaluations UNION SELECT run_id FROM split_quality"
                " UNION SELECT run_id FROM document_memorisation"
            ).fetchall()
    except (DataError, duckdb.Error):
        # A damaged warehouse is built again.
        return None
    return frozenset(run_id for (run_id,) in found)
