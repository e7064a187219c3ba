"""The stage that scores: from a pair's cached statistics to its scores and highlights, with their lineage.

What belongs here: the order of read, score, record and write. What does not: detectors (detectors/), and reading the
cache (scoring/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.build import read_examples, read_manifest
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import HIGHLIGHTS, SCORES, Pair
from audit_pipeline.catalogue.lineage import Step, table_version
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.evidence.evaluate import ScoreColumn, score_columns
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.operate.stages.benchmarks import require_fit
from audit_pipeline.operate.stages.token_statistics import statistics_version
from audit_pipeline.scoring.cached import score_from_cache
from audit_pipeline.scoring.highlights import highlights
from audit_pipeline.scoring.passes import in_context
from audit_pipeline.scoring.selection import audit_selection, overrides_of, passes_of

SCORES_VERSION = "2"
"""Of the code that makes the scores: where it is raised, pairs that are done are done again."""


@dataclass(frozen=True)
class ScoreReport:
    """How many scores of each status were written for a pair; ``columns`` are those with a label, for plots."""

    pair: Pair
    rows: int
    by_status: Mapping[str, int]
    reasons: Mapping[str, int]
    data_version: str
    columns: Sequence[ScoreColumn]


def score_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: Step) -> ScoreReport:
    """Score a benchmark's examples with every detector, at every setting of its grid, from the cache.

    Raises DataError where the benchmark is not fit to be audited, or the model has been run on none of its texts.
    """
    require_fit(pair.benchmark, paths)
    examples = read_examples(paths, pair.benchmark)
    benchmark = read_manifest(paths, pair.benchmark)["digest"]
    overrides = overrides_of(pair.benchmark, paths)
    selection = audit_selection(overrides)
    contexts = examples.column("context").to_pylist()
    passes = in_context(passes_of(selection, model, paths), contexts)
    ids, texts = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
    scored = score_from_cache(model, ids, texts, paths, selection, passes, contexts)
    table = (
        scored.append_column("model", pa.repeat(pair.model, len(scored)))
        .append_column("benchmark", pa.repeat(pair.benchmark, len(scored)))
        .append_column("run_id", pa.repeat(step.run_id, len(scored)))
    )
    table = checked(table, SCORES)
    version = table_version(table)
    upstream = {
        f"examples/{pair.benchmark}": benchmark,
        f"token_statistics/{pair.partition}": statistics_version(model, benchmark),
    }
    highlighted = highlights(table, examples, pair, model, paths, overrides)
    written = {
        HIGHLIGHTS: (highlighted, None, {**upstream, f"scores/{pair.partition}": version}),
        # Last: where they are, everything is that later stages read.
        SCORES: (table, version, {**upstream, **passes.upstream}),
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
            benchmark_digest=benchmark,
        )
    reasons = Counter(reason for reason in table.column("reason").to_pylist() if reason is not None)
    columns = score_columns(table, examples, model=pair.model, benchmark=pair.benchmark, overrides=overrides)
    return ScoreReport(pair, len(table), Counter(table.column("status").to_pylist()), reasons, version, columns)
