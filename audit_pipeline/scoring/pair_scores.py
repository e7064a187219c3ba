"""The passes and the scores of a model on a benchmark, as they are kept: what audits and packs make of a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.detectors.registry import BROUGHT_BY, mark_defaults, select
from audit_pipeline.errors import AuditError, DataError, TransientError, UnansweredError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.highlights import build_highlights
from audit_pipeline.scoring.session import PassesSummary, Session, build_audit_session
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.versions import table_version
from audit_pipeline.tables import HIGHLIGHTS, SCORES, TOKEN_STATISTICS, Kind, Pair
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.versions import build_origin, statistics_version


def run_other_models(
    model: TokenizedModel,
    pairs: Sequence[Pair],
    paths: DataPaths,
    backend_of: BackendOf,
    notify: Callable[[str], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run what audits need of other models than the audited one (a reference model) over the texts of its pairs.

    To be called once for all pairs of a model, before the first is run: the models would take turns otherwise. Pairs
    that cannot be audited are left to their own run to tell. ``notify`` is called with the reason where something could
    not be run: some detectors go without then. Raises TransientError where a hub could not be reached: it may be
    reached later.
    """
    session = Session(model, select(), paths)
    try:
        if session.runs_other_models:
            texts: list[str] = []
            for pair in pairs:
                with suppress(DataError):
                    texts += _read_auditable_benchmark(pair, model, paths).texts
            session.run_other_models(texts, backend_of, on_progress=on_progress)
        problems = session.missing_of_other_models
    except AuditError as error:
        # A server of a model was asked patiently by then; a hub is tried again.
        if isinstance(error, TransientError) and not isinstance(error, UnansweredError):
            raise
        problems = [str(error)]
    for problem in problems:
        notify(f"{model.entry.name}: detectors that need another model are not computed: {problem}")


def _read_auditable_benchmark(pair: Pair, model: TokenizedModel, paths: DataPaths) -> BuiltBenchmark:
    """The pair's benchmark; raises DataError where it is not built, is not fit, or is another control's."""
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    benchmark.require_matching_control(
        pair.model, model.entry.control.name if model.entry.control is not None else None
    )
    return benchmark


def run_tokens(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    backend: Callable[[], Backend],
    step: LineageStep,
    *,
    kinds: Sequence[Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Bring the caches of token statistics up to the benchmark's texts, and to what detectors need besides.

    Passes of other models are not among them: see :func:`run_other_models`.
    """
    benchmark = _read_auditable_benchmark(pair, model, paths)
    summary = build_audit_session(benchmark, model, paths).run(
        benchmark.texts, lambda _: backend(), kinds=kinds, logits_budget=logits_budget, on_progress=on_progress
    )
    record_entry(
        paths,
        step,
        TOKEN_STATISTICS,
        pair,
        data_version=statistics_version(model, benchmark.digest),
        upstream={f"examples/{pair.benchmark}": benchmark.digest},
        **build_origin(model, benchmark),
    )
    return summary


SCORES_VERSION = "+".join(("2", *BROUGHT_BY))
"""Of the code that makes the scores, the packages that bring detectors among it: where it changes, pairs that are done
are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair."""

    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str


def score_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> ScoreReport:
    """Score a benchmark's examples with every detector, at every setting of its grid, from the cache.

    Raises DataError where the benchmark is not fit to be audited, or the model has been run on none of its texts.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    examples = benchmark.examples
    session = build_audit_session(benchmark, model, paths)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = session.score(ids, texts, benchmark.contexts)
    table = (
        mark_defaults(scored, session.limit_overrides(benchmark.overrides))
        .append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = cast_to_columns(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"token_statistics/{pair.partition}": statistics_version(model, benchmark.digest),
    }
    highlighted = build_highlights(table, examples, pair, model, paths)
    origin = build_origin(model, benchmark)
    from_scores = {**upstream, f"scores/{pair.partition}": version}
    store.write(paths, step, HIGHLIGHTS, pair, highlighted, upstream=from_scores, **origin)
    # Last: where they are, everything is that later stages read.
    from_needs = {**upstream, **session.upstream}
    store.write(paths, step, SCORES, pair, table, data_version=version, upstream=from_needs, **origin)
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    return ScoreReport(len(table), Counter(table.column("status").to_pylist()), reasons, version)
