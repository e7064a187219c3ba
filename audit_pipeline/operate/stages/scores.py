"""The stage that scores: from a pair's cached statistics to its scores and highlights, with their lineage.

What belongs here: the order of read, score, record and write. What does not: detectors (detectors/), and reading the
cache (scoring/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import HIGHLIGHTS, SCORES, Pair
from audit_pipeline.catalogue.lineage import LineageStep, table_version
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.detectors.registry import BROUGHT_BY, mark_defaults
from audit_pipeline.evidence.columns import ScoreColumn, score_columns
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.operate.stages.token_statistics import statistics_version
from audit_pipeline.scoring.highlights import highlights
from audit_pipeline.scoring.selection import audit_session

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
    benchmark.require_fit()
    examples = benchmark.examples
    session = audit_session(benchmark, model, paths)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = session.score(ids, texts, benchmark.contexts)
    table = (
        mark_defaults(scored, session.defaults(benchmark.overrides))
        .append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = checked(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"token_statistics/{pair.partition}": statistics_version(model, benchmark.digest),
    }
    highlighted = highlights(table, examples, pair, model, paths)
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
    columns = score_columns(table, examples, model=pair.model, benchmark=pair.benchmark)
    return ScoreReport(pair, len(table), Counter(table.column("status").to_pylist()), reasons, version, columns)
