"""The stages up to a pair's scores: the model is run into the cache of token statistics, and detectors score from it.

What belongs here: the order of read, run or score, record and write, with their lineage, from texts to scores and
highlights; the cache of a pair's reference model, too; the data version of what was run. What does not: the forward
pass (token_statistics/), detectors (detectors/), what they need besides, and reading the cache (scoring/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import HIGHLIGHTS, KINDS, SCORES, TOKEN_STATISTICS, Kind, Pair, digest
from audit_pipeline.catalogue.files import cast_to_columns
from audit_pipeline.catalogue.ledger import LineageStep, record_entry
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.versions import table_version
from audit_pipeline.detectors.registry import BROUGHT_BY, mark_defaults, select
from audit_pipeline.endpoints.client import UnansweredError
from audit_pipeline.errors import AuditError, DataError, TransientError
from audit_pipeline.evidence.sides import ScoreColumn, build_score_columns
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel
from audit_pipeline.scoring.highlights import build_highlights
from audit_pipeline.scoring.session import PassesSummary, Session, build_audit_session
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import window_and_stride


class OtherModels:
    """What audits need of other models than the audited ones (a reference model), run for the pairs of a run.

    ``pairs`` are the run's, by the name of their model. ``tell`` is called with the reason where something could
    not be run: some detectors go without then.
    """

    def __init__(
        self, pairs: Mapping[str, Sequence[Pair]], paths: DataPaths, backend_of: BackendOf, tell: Callable[[str], None]
    ) -> None:
        self._pairs, self._paths, self._backend_of, self._tell = pairs, paths, backend_of, tell
        self._done: set[str] = set()

    def run_for(self, name: str, model: TokenizedModel, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Run them over the texts of all pairs of ``model``, which is called ``name``; the second time nothing.

        To be called before the first of its pairs is run: the models would take turns otherwise. Pairs that cannot be
        audited are left to their own run to tell. Raises TransientError where a hub could not be reached: it may be
        reached later.
        """
        if name in self._done:
            return
        session = Session(model, select(), self._paths)
        try:
            if session.runs_other_models:
                texts = _texts_of_all(self._pairs[name], model, self._paths)
                session.run_other_models(texts, self._backend_of, on_progress=on_progress)
            problems = session.missing_of_other_models
        except AuditError as error:
            # A server of a model was asked patiently by then; a hub is tried again.
            if isinstance(error, TransientError) and not isinstance(error, UnansweredError):
                raise
            problems = [str(error)]
        for problem in problems:
            self._tell(f"{name}: detectors that need another model are not computed: {problem}")
        self._done.add(name)


def _texts_of_all(pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> list[str]:
    texts: list[str] = []
    for pair in pairs:
        with suppress(DataError):
            texts.extend(_read_auditable_benchmark(pair, model, paths).texts)
    return texts


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

    Passes of other models are not among them: see :class:`OtherModels`.
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
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark.digest,
    )
    return summary


def statistics_version(model: KnownModel, benchmark_digest: str) -> str:
    """The data version of a pair's token statistics: what they were computed from.

    The length of branches is the benchmark's, so its digest covers it.
    """
    policy = model.entry.start_token_policy
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        model.start_token if policy == "always" else None,
        *window_and_stride(model),
        *(kind.version for kind in KINDS.values() if kind.of_audits),
    )[:16]


SCORES_VERSION = "+".join(("2", *BROUGHT_BY))
"""Of the code that makes the scores, the packages that bring detectors among it: where it changes, pairs that are done
are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair; ``columns`` are those with a label, for plots."""

    pair: Pair
    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str
    columns: Sequence[ScoreColumn]


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
    written = {
        HIGHLIGHTS: (highlighted, None, {**upstream, f"scores/{pair.partition}": version}),
        # Last: where they are, everything is that later stages read.
        SCORES: (table, version, {**upstream, **session.upstream}),
    }
    for declared, (rows, data_version, from_what) in written.items():
        store.write(
            paths,
            step,
            declared,
            pair,
            rows,
            data_version=data_version,
            upstream=from_what,
            model_fingerprint=model.identity.model_fingerprint,
            tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
            benchmark_digest=benchmark.digest,
        )
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    columns = build_score_columns(table, examples, model=pair.model, benchmark=pair.benchmark)
    return ScoreReport(pair, len(table), Counter(table.column("status").to_pylist()), reasons, version, columns)
