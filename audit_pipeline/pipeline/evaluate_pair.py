"""From a pair's latest scores to its findings and its answer, with their lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.stored_split import read_or_assess_split
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import load_models
from audit_pipeline.models.display_title import find_model_title
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.report.pair_answer import PairFacts, Row, Setting, answer_pair
from audit_pipeline.scoring.needs.registry import is_from_need
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.roc import METRICS
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json_if_whole, table_from_rows
from audit_pipeline.store.ledger import LineageStep, RowOrigin, file_of, read_latest_run, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import (
    EVALUATIONS,
    EXAMPLES,
    PAIR_ANSWERS,
    SCORES,
    TABLES,
    Pair,
    parse_pair,
)
from audit_pipeline.token_statistics.pair_origin import build_pair_origin, compute_statistics_version

ANSWERS_VERSION = "3"
"""Of the rules and sentences of answers."""


def collect_pair_facts(
    pair: Pair,
    manifest: Mapping[str, Any],
    examples: pa.Table,
    scores: pa.Table | None,
    *,
    paths: DataPaths,
    config: Path | None = None,
    named_detector: str | None = None,
) -> PairFacts:
    """Collect what is known of a pair apart from its findings; ``manifest`` and ``examples`` are the benchmark's.

    ``scores``: None if findings say which detectors there are. ``paths`` hold the cards of models.
    """
    spec = manifest.get("spec", {})
    unknown = pc.and_(pc.equal(examples["split"], "evaluation"), pc.is_null(examples["label"]))
    model_title, benchmark_title = _titles(pair, paths, config)
    return PairFacts(
        model_title,
        benchmark_title,
        design=manifest.get("design"),
        design_stated_by=manifest.get("design_stated_by"),
        member_before=_as_text(spec.get("member_before")),
        nonmember_from=_as_text(spec.get("nonmember_from")),
        named=named_detector,
        handed_over=spec.get("builder") == "given",
        audited=pc.count_distinct(examples.filter(unknown)["group"]).as_py(),
        scored=() if scores is None else _list_scored_settings(scores),
        fewest_groups=_count_groups_of_smaller_side(examples),
    )


def _count_groups_of_smaller_side(examples: pa.Table) -> int | None:
    """How many groups the side has that has fewer, of the two that are compared; None for one side alone."""
    compared = relabel_for_comparison(examples)
    sides = compared.filter(pc.and_(pc.equal(compared["split"], "evaluation"), pc.is_valid(compared["label"])))
    counts = sides.group_by("label").aggregate([("group", "count_distinct")])["group_count_distinct"].to_pylist()
    return min(counts) if len(counts) == 2 else None


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _titles(pair: Pair, paths: DataPaths, config: Path | None) -> tuple[str, str]:
    """Return what people call the model and the benchmark, or their names if no entry says."""
    try:
        models, benchmarks = load_models(config), load_benchmarks(config)
    except AuditError:
        # A folder of findings alone has no configuration.
        return find_model_title(pair.model, {}, paths), pair.benchmark
    of_benchmark = benchmarks[pair.benchmark].title if pair.benchmark in benchmarks else None
    return find_model_title(pair.model, models, paths), of_benchmark or pair.benchmark


def _list_scored_settings(scores: pa.Table) -> list[Setting]:
    """The settings with a score: those at their defaults, or all where none is."""
    found = scores.filter(pc.equal(scores["status"], "ok")).select(["detector", "parameters", "is_default"])
    rows = found.group_by(found.column_names).aggregate([]).to_pylist()
    return [(row["detector"], row["parameters"]) for row in ([row for row in rows if row["is_default"]] or rows)]


def write_missing_answers(paths: DataPaths, config: Path | None = None) -> None:
    """Conclude the answer of every pair that has scores or findings and no answer yet."""
    folders = {
        partition for table in (SCORES, EVALUATIONS) for partition, _ in store.iterate_partitions(paths, table)
    } - {partition for partition, _ in store.iterate_partitions(paths, PAIR_ANSWERS)}
    for partition in sorted(folders):
        try:
            _recompute_answer(parse_pair(partition), paths, config)
        except AuditError:
            # A damaged or missing file: building the warehouse names it.
            continue


def _recompute_answer(pair: Pair, paths: DataPaths, config: Path | None) -> None:
    versions: dict[str, str] = {}
    tables: dict[str, pa.Table] = {}
    for name in PAIR_ANSWERS.made_from:
        tables[name], version = _latest_rows(paths, name, pair)
        versions |= version
    scores = None
    if not len(tables["evaluations"]) and not len(tables["group_tests"]):
        scores, version = _latest_rows(paths, "scores", pair)
        versions |= version
    run = read_latest_run(paths, "scores" if scores is not None else "evaluations", pair.partition)
    manifest = read_json_if_whole(paths.benchmark_manifest(pair.benchmark)) or {}
    examples = store.read(paths, EXAMPLES, pair.benchmark, label=f"the examples of {pair.benchmark}")
    # The detector that was named to answer when a user's own scores were evaluated.
    given = [entry.settings for entry in read_ledger(paths).list_entries("scores", pair.partition) if entry.settings]
    named = given[-1].get("headline") if given else None
    asked = collect_pair_facts(pair, manifest, examples, scores, paths=paths, config=config, named_detector=named)
    # A run of its own, in which no model was seen: what is known of the findings' run stays what it was.
    run_id = f"answer-{run.run_id}"
    store.write(
        paths,
        LineageStep.now(run_id, "warehouse", ANSWERS_VERSION),
        PAIR_ANSWERS,
        pair,
        table_from_rows([answer_pair(pair, tables, asked, run_id)], PAIR_ANSWERS),
        upstream=versions,
        benchmark_digest=run.benchmark_digest,
    )


def _latest_rows(paths: DataPaths, name: str, pair: Pair) -> tuple[pa.Table, dict[str, str]]:
    """The rows that the latest run wrote to a table, and their version by its name; none where no run did."""
    table, partition = TABLES[name], pair.partition
    if not any(file_of(paths, table, partition, "any").parent.glob("*.parquet")):
        return table.empty_table(), {}
    run = read_latest_run(paths, name, partition)
    rows = store.read(paths, table, pair, run_id=run.run_id, label=f"the {name} of {partition}")
    return rows, {f"{name}/{partition}": run.data_version}


EVALUATIONS_VERSION = "5"
"""Of the code that makes the findings: where it is raised, pairs that are done are done again."""


@dataclass(frozen=True)
class EvaluationReport:
    """The findings of a pair, as written, and the answer that they come to."""

    pair: Pair
    findings: Findings
    data_version: str
    answer: Row

    @property
    def out_of_range(self) -> int:
        """How many metrics or interval ends are beyond the bounds of their metric."""
        bounds = {metric.name: metric.bounds for metric in METRICS.values()}
        return sum(
            1
            for row in self.findings.evaluation.table.to_pylist()
            for number in (row["value"], row["ci_low"], row["ci_high"])
            if number is not None and not bounds[row["metric"]][0] <= number <= bounds[row["metric"]][1]
        )


def evaluate_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> EvaluationReport:
    """Everything that is concluded from a pair's latest scores: see :mod:`audit_pipeline.statistics.findings`.

    Raises DataError where the pair has not been scored, or was scored on another build of the benchmark, with other
    weights or under other conventions. What separates members from non-members without a model is read; see
    :func:`read_or_assess_split`.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    written = read_latest_run(paths, "scores", pair.partition)
    statistics, version_now = f"token_statistics/{pair.partition}", compute_statistics_version(model, benchmark.digest)
    if written.benchmark_digest != benchmark.digest:
        raise DataError(f"the scores of {pair.partition} are of an earlier build of the benchmark: score it again")
    if written.upstream.get(statistics) != version_now:
        changed = "of other weights, another start token or older statistics"
        raise DataError(f"the scores of {pair.partition} are {changed}: score it again")
    scores = store.read(paths, SCORES, pair, run_id=written.run_id, label=f"the scores of {pair.partition}")
    split = read_or_assess_split(benchmark, paths, step.run_id)
    found = compute_findings(scores, benchmark.examples, pair, split.assessed, step.run_id)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"scores/{pair.partition}": written.data_version,
        statistics: version_now,
        **split.versions,
        **{key: version for key, version in written.upstream.items() if is_from_need(key)},
    }
    asked = collect_pair_facts(pair, benchmark.manifest, benchmark.examples, scores, paths=paths)
    answer = answer_pair(pair, found.tables, asked, step.run_id)
    versions = write_findings(
        found,
        answer,
        pair,
        paths,
        step,
        upstream=upstream,
        **build_pair_origin(model, benchmark),
    )
    return EvaluationReport(pair, found, versions["evaluations"], answer)


def write_findings(
    findings: Findings,
    answer: Row,
    pair: Pair,
    paths: DataPaths,
    step: LineageStep,
    *,
    upstream: Mapping[str, str],
    **origin: Unpack[RowOrigin],
) -> Mapping[str, str]:
    """Write every table of a pair's findings, and its answer, with lineage; their data versions, by table."""
    # First: where the evaluations are, everything else is.
    tables = {PAIR_ANSWERS.name: table_from_rows([answer], PAIR_ANSWERS), **findings.tables}
    return {
        name: store.write(paths, step, TABLES[name], pair, rows, upstream=upstream, **origin)
        for name, rows in tables.items()
    }
