"""The stage that concludes: from a pair's latest scores to its findings, with their lineage.

What belongs here: the order of read, conclude, record and write. What does not: the statistics (evidence/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audit_pipeline.benchmarks.built import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import PAIR_ANSWERS, SCORES, TABLES, Pair
from audit_pipeline.catalogue.lineage import LineageStep, latest_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors.registry import mark_defaults
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.evaluate import Evaluation
from audit_pipeline.evidence.findings import Findings, find
from audit_pipeline.metrics.declared import METRICS
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.operate.stages.answers import asked_pair
from audit_pipeline.operate.stages.benchmarks import split_of
from audit_pipeline.operate.stages.token_statistics import statistics_version
from audit_pipeline.report.pair_answer import PairAnswer, answer_pair
from audit_pipeline.scoring.needs.registry import is_extra

EVALUATIONS_VERSION = "3"
"""Of the code that makes the findings: where it is raised, pairs that are done are done again."""


@dataclass(frozen=True)
class EvaluationReport:
    """The findings of a pair, as written, and the answer that they come to."""

    pair: Pair
    findings: Findings
    data_version: str
    answer: PairAnswer

    @property
    def evaluation(self) -> Evaluation:
        """The metrics among the findings."""
        return self.findings.evaluation

    @property
    def out_of_range(self) -> int:
        """How many metrics or interval ends are beyond the bounds of their metric."""
        bounds = {metric.name: metric.bounds for metric in METRICS.values()}
        return sum(
            1
            for row in self.evaluation.table.to_pylist()
            for number in (row["value"], row["ci_low"], row["ci_high"])
            if number is not None and not bounds[row["metric"]][0] <= number <= bounds[row["metric"]][1]
        )


def evaluate_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> EvaluationReport:
    """Everything that is concluded from a pair's latest scores: see :mod:`audit_pipeline.evidence.findings`.

    Raises DataError where the pair has not been scored, or was scored on another build of the benchmark, with other
    weights or under other conventions. What separates members from non-members without a model is read; see
    :func:`split_of`.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_fit()
    written = latest_run(paths, "scores", pair.partition)
    statistics, version_now = f"token_statistics/{pair.partition}", statistics_version(model, benchmark.digest)
    if written.benchmark_digest != benchmark.digest:
        raise DataError(f"the scores of {pair.partition} are of an earlier build of the benchmark: score it again")
    if written.upstream.get(statistics) != version_now:
        changed = "of other weights, another start token or older statistics"
        raise DataError(f"the scores of {pair.partition} are {changed}: score it again")
    scores = store.read(paths, SCORES, pair, run_id=written.run_id, what=f"the scores of {pair.partition}")
    # Files of earlier versions do not say which setting is the default.
    scores = mark_defaults(scores, benchmark.overrides)
    split = split_of(benchmark, paths, step.run_id)
    found = find(scores, benchmark.examples, pair, split.assessed, step.run_id)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"scores/{pair.partition}": written.data_version,
        statistics: version_now,
        **split.versions,
        **{key: version for key, version in written.upstream.items() if is_extra(key)},
    }
    answer = answer_pair(
        pair, found.tables, asked_pair(pair, benchmark.manifest, benchmark.examples, scores), step.run_id
    )
    versions = write_findings(
        found,
        answer,
        pair,
        paths,
        step,
        upstream=upstream,
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark.digest,
    )
    return EvaluationReport(pair, found, versions["evaluations"], answer)


def write_findings(
    findings: Findings,
    answer: PairAnswer,
    pair: Pair,
    paths: DataPaths,
    step: LineageStep,
    *,
    upstream: Mapping[str, str],
    benchmark_digest: str,
    model_fingerprint: str | None = None,
    tokenizer_fingerprint: str | None = None,
) -> Mapping[str, str]:
    """Write every table of a pair's findings, and its answer, with lineage; their data versions, by table."""
    # First: where the evaluations are, everything else is.
    tables = {PAIR_ANSWERS.name: answer.table(), **findings.tables}
    return {
        name: store.write(
            paths,
            step,
            TABLES[name],
            pair,
            rows,
            upstream=upstream,
            model_fingerprint=model_fingerprint,
            tokenizer_fingerprint=tokenizer_fingerprint,
            benchmark_digest=benchmark_digest,
        )
        for name, rows in tables.items()
    }
