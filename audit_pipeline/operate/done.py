"""Which pairs are audited as things stand, and whether a whole request is.

What belongs here: comparing what was written with what would be written now. What does not: doing what is missing
(operate/dagster/), and Dagster, which this is read without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import duckdb

from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.benchmarks.staleness import is_built, up_to_date
from audit_pipeline.catalogue.contracts import RUN_TABLES, Pair
from audit_pipeline.catalogue.lineage import Written, latest_is_whole, latest_run
from audit_pipeline.catalogue.outcomes import latest_outcome
from audit_pipeline.catalogue.paths import DataPaths, model_page
from audit_pipeline.controls.config import load_controls
from audit_pipeline.controls.current import is_current
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.load import TokenizedModel, is_kept, load_tokenizer
from audit_pipeline.operate.published import is_published_as_now
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION
from audit_pipeline.operate.stages.scores import SCORES_VERSION
from audit_pipeline.operate.stages.token_statistics import statistics_version
from audit_pipeline.references.frequencies import corpus_to_count
from audit_pipeline.scoring.needs.registry import is_extra
from audit_pipeline.scoring.selection import upstream_now
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import is_stale as source_is_stale
from audit_pipeline.warehouse.query import open_read_only


def built_digests(specs: Iterable[BenchmarkSpec], paths: DataPaths) -> dict[str, str | None]:
    """The digests of the benchmarks as they are built, by name in the given order; None where one is not."""
    return {spec.name: built_digest(spec, paths) for spec in specs}


def built_digest(spec: BenchmarkSpec, paths: DataPaths) -> str | None:
    """The digest of a benchmark as it is built; None where it is not."""
    if not is_built(spec, paths):
        return None
    try:
        return read_built(paths, spec.name).digest
    except (DataError, KeyError):
        return None


def done_pairs(
    pairs: Iterable[Pair], built: Mapping[str, str | None], paths: DataPaths, model: TokenizedModel | None = None
) -> set[Pair]:
    """Those of ``pairs`` whose latest finding is of the benchmark as it is built, with no failure since, and where
    their ``model`` is given, of its weights and conventions, reference model and token frequencies as they are."""
    extras = upstream_now(model, paths) if model is not None else {}
    return {pair for pair in pairs if _is_done(pair, built.get(pair.benchmark), paths, model, extras)}


def _is_done(
    pair: Pair, built: str | None, paths: DataPaths, model: TokenizedModel | None, extras: Mapping[str, str]
) -> bool:
    if built is None:
        return False
    try:
        written = latest_run(paths, "evaluations", pair.partition)
    except DataError:
        return False
    if written.benchmark_digest != built or (
        model is not None and not _as_now(written, pair, built, paths, model, extras)
    ):
        return False
    outcome = latest_outcome(paths, pair)
    return outcome is None or outcome.at <= written.finished_at


def _as_now(
    written: Written, pair: Pair, built: str, paths: DataPaths, model: TokenizedModel, extras: Mapping[str, str]
) -> bool:
    """Whether a finding is of the code, weights, conventions, reference model and token frequencies of now."""
    return (
        written.code_version == EVALUATIONS_VERSION
        and _scores_version(pair, paths) == SCORES_VERSION
        and written.upstream.get(f"token_statistics/{pair.partition}") == statistics_version(model, built)
        and {key: version for key, version in written.upstream.items() if is_extra(key)} == dict(extras)
    )


def _scores_version(pair: Pair, paths: DataPaths) -> str | None:
    try:
        return latest_run(paths, "scores", pair.partition).code_version
    except DataError:
        return None


def nothing_to_do(entry: ModelEntry, specs: Sequence[BenchmarkSpec], paths: DataPaths) -> bool:
    """Whether an audit of the model on these benchmarks would change nothing.

    So it is where the control is trained, sources and benchmarks are as their entries say, every pair is audited with
    the weights and conventions of now by the code of now, and warehouse and report hold what was found. What cannot be
    told counts as something to do: the audit itself then says what is wrong.
    """
    try:
        return (
            _trained(entry, specs, paths)
            and _sources_are_there(specs, paths)
            and all(up_to_date(specs, paths).values())
            and all(_are_whole(spec, entry.name, paths) for spec in specs)
            and is_published_as_now(paths)
            and is_kept(entry, paths)
            and _audited(load_tokenizer(entry, paths), specs, paths)
        )
    except AuditError:
        return False


def _trained(entry: ModelEntry, specs: Sequence[BenchmarkSpec], paths: DataPaths) -> bool:
    names = {spec.control for spec in specs if spec.control is not None}
    if entry.control is not None:
        names.add(entry.control.name)
    return all(is_current(load_controls().named(name), paths) for name in names)


def _sources_are_there(specs: Sequence[BenchmarkSpec], paths: DataPaths) -> bool:
    settings = load_source_settings()
    return not any(source_is_stale(name, paths, settings) for name in {name for spec in specs for name in spec.sources})


def _are_whole(spec: BenchmarkSpec, model: str, paths: DataPaths) -> bool:
    """Whether the files that count now of the benchmark and of the pair are there, every byte as it was written."""
    pair = Pair(spec.name, model)
    kept = [("documents", source) for source in spec.sources]
    kept += [("examples", spec.name), ("split_quality", spec.name), ("blind_scores", spec.name)]
    kept += [(table, pair.partition) for table in RUN_TABLES]
    return all(latest_is_whole(paths, table, partition) for table, partition in kept)


def _audited(model: TokenizedModel, specs: Sequence[BenchmarkSpec], paths: DataPaths) -> bool:
    pairs = [Pair(spec.name, model.entry.name) for spec in specs]
    if corpus_to_count(model, paths) is not None or not model_page(paths.reports, model.entry.name).exists():
        return False
    if done_pairs(pairs, built_digests(specs, paths), paths, model) != set(pairs):
        return False
    return _published({latest_run(paths, "evaluations", pair.partition).run_id for pair in pairs}, paths)


def _published(run_ids: set[str], paths: DataPaths) -> bool:
    """Whether the warehouse holds the findings of these runs, and the report was made of it."""
    if not paths.report.exists() or not paths.warehouse.exists():
        return False
    if paths.report.stat().st_mtime_ns < paths.warehouse.stat().st_mtime_ns:
        return False
    try:
        with open_read_only(paths.warehouse) as connection:
            found = connection.execute("SELECT DISTINCT run_id FROM evaluations").fetchall()
    except duckdb.Error:
        # A damaged warehouse is built again.
        return False
    return run_ids <= {run_id for (run_id,) in found}
