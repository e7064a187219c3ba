"""The evaluation of a pair: from its latest scores to its findings and its answer, with lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import read_built, read_or_assess_split
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import load_models
from audit_pipeline.models.display_title import find_model_title
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.report.pair_answer import PairFacts, Row, Setting, answer_pair
from audit_pipeline.scoring.needs.provider import is_input_of_provider
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.roc import METRICS
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json_if_whole, table_from_rows
from audit_pipeline.store.ledger import LineageStep, RowOrigin, file_of, read_latest_run, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EVALUATIONS, EXAMPLES, PAIR_ANSWERS, SCORES, TABLES, Pair, parse_pair
from audit_pipeline.token_statistics.cached_texts import build_pair_origin, compute_statistics_version

ANSWERS_VERSION = "3"
"""The version of the rules and sentences of answers, for the ledger entries of :func:`write_missing_answers`."""


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
    """Collect the facts that the answer for a pair needs besides the findings.

    Args:
        pair: The pair.
        manifest: The manifest of the benchmark.
        examples: The examples of the benchmark.
        scores: The scores of the pair, or None if the findings show which detectors have scores.
        paths: The data folder, which has the model cards.
        config: The folder of the configuration. By default the workspace's.
        named_detector: The detector that the user chose for the answer.
    """
    spec = manifest.get("spec", {})
    is_unknown = pc.and_(pc.equal(examples["split"], "evaluation"), pc.is_null(examples["label"]))
    model_title, benchmark_title = _find_titles(pair, paths, config)
    return PairFacts(
        model_title,
        benchmark_title,
        design=manifest.get("design"),
        design_stated_by=manifest.get("design_stated_by"),
        member_before=_as_text(spec.get("member_before")),
        nonmember_from=_as_text(spec.get("nonmember_from")),
        named=named_detector,
        handed_over=spec.get("builder") == "given",
        audited=pc.count_distinct(examples.filter(is_unknown)["group"]).as_py(),
        scored=() if scores is None else _list_scored_settings(scores),
        fewest_groups=_count_groups_of_smaller_side(examples),
    )


def _count_groups_of_smaller_side(examples: pa.Table) -> int | None:
    """Return the number of groups of the smaller compared side, or None if there is only one side."""
    compared = relabel_for_comparison(examples)
    sides = compared.filter(pc.and_(pc.equal(compared["split"], "evaluation"), pc.is_valid(compared["label"])))
    counts = sides.group_by("label").aggregate([("group", "count_distinct")])["group_count_distinct"].to_pylist()
    return min(counts) if len(counts) == 2 else None


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value)


def _find_titles(pair: Pair, paths: DataPaths, config: Path | None) -> tuple[str, str]:
    """Return the titles of the model and the benchmark. If an entry has no title, return the name."""
    try:
        models = load_models(config)
        benchmarks = load_benchmarks(config)
    except AuditError:
        # A folder of findings has no configuration.
        return find_model_title(pair.model, {}, paths), pair.benchmark
    benchmark_title = pair.benchmark
    if pair.benchmark in benchmarks:
        benchmark_title = benchmarks[pair.benchmark].title or pair.benchmark
    return find_model_title(pair.model, models, paths), benchmark_title


def _list_scored_settings(scores: pa.Table) -> list[Setting]:
    """Return the default settings that have a score. If there are none, return all settings that have a score."""
    scored = scores.filter(pc.equal(scores["status"], "ok")).select(["detector", "parameters", "is_default"])
    rows = scored.group_by(scored.column_names).aggregate([]).to_pylist()
    default_rows = [row for row in rows if row["is_default"]]
    return [(row["detector"], row["parameters"]) for row in default_rows or rows]


def write_missing_answers(paths: DataPaths, config: Path | None = None) -> None:
    """Write the answer of every pair that has scores or findings but no answer.

    Args:
        paths: The data folder.
        config: The folder of the configuration. By default the workspace's.
    """
    evaluated = {
        partition for table in (SCORES, EVALUATIONS) for partition, _ in store.iterate_partitions(paths, table)
    }
    answered = {partition for partition, _ in store.iterate_partitions(paths, PAIR_ANSWERS)}
    for partition in sorted(evaluated - answered):
        try:
            _recompute_answer(parse_pair(partition), paths, config)
        except AuditError:
            # The build of the warehouse reports the corrupt or missing file.
            continue


def _recompute_answer(pair: Pair, paths: DataPaths, config: Path | None) -> None:
    versions: dict[str, str] = {}
    tables: dict[str, pa.Table] = {}
    for name in PAIR_ANSWERS.made_from:
        tables[name], version = _read_latest_rows(paths, name, pair)
        versions |= version
    scores = None
    run_table = "evaluations"
    if not len(tables["evaluations"]) and not len(tables["group_tests"]):
        scores, version = _read_latest_rows(paths, "scores", pair)
        versions |= version
        run_table = "scores"
    run = read_latest_run(paths, run_table, pair.partition)
    manifest = read_json_if_whole(paths.benchmark_manifest(pair.benchmark)) or {}
    examples = store.read(paths, EXAMPLES, pair.benchmark, label=f"the examples of {pair.benchmark}")
    named_detector = _find_named_detector(pair, paths)
    facts = collect_pair_facts(
        pair, manifest, examples, scores, paths=paths, config=config, named_detector=named_detector
    )
    # The answer gets its own run id, because its ledger entry does not record the fingerprint of a model.
    run_id = f"answer-{run.run_id}"
    store.write(
        paths,
        LineageStep.now(run_id, "warehouse", ANSWERS_VERSION),
        PAIR_ANSWERS,
        pair,
        table_from_rows([answer_pair(pair, tables, facts, run_id)], PAIR_ANSWERS),
        upstream=versions,
        benchmark_digest=run.benchmark_digest,
    )


def _find_named_detector(pair: Pair, paths: DataPaths) -> str | None:
    """Return the detector that the user chose when external scores of the pair were evaluated, or None."""
    for entry in reversed(read_ledger(paths).list_entries("scores", pair.partition)):
        if entry.settings:
            return entry.settings.get("headline")
    return None


def _read_latest_rows(paths: DataPaths, name: str, pair: Pair) -> tuple[pa.Table, dict[str, str]]:
    """Return the rows of a table from the latest run, and their version by the name of the product.

    If no run wrote rows, the table and the versions are empty.
    """
    table = TABLES[name]
    if not any(file_of(paths, table, pair.partition, "any").parent.glob("*.parquet")):
        return table.empty_table(), {}
    run = read_latest_run(paths, name, pair.partition)
    rows = store.read(paths, table, pair, run_id=run.run_id, label=f"the {name} of {pair.partition}")
    return rows, {f"{name}/{pair.partition}": run.data_version}


EVALUATIONS_VERSION = "5"
"""The version of the code that computes findings. If you raise it, existing findings become stale."""


@dataclass(frozen=True)
class EvaluationReport:
    """The findings and the answer of a pair, as written.

    Attributes:
        pair: The pair.
        findings: The findings.
        data_version: The data version of the table of evaluations.
        answer: The row of the answer.
    """

    pair: Pair
    findings: Findings
    data_version: str
    answer: Row

    @property
    def out_of_range(self) -> int:
        """Return the number of metrics and interval bounds beyond the bounds of their metric."""
        bounds = {metric.name: metric.bounds for metric in METRICS.values()}
        count = 0
        for row in self.findings.evaluation.table.to_pylist():
            lowest, highest = bounds[row["metric"]]
            numbers = (row["value"], row["ci_low"], row["ci_high"])
            count += sum(not lowest <= number <= highest for number in numbers if number is not None)
        return count


def evaluate_pair(pair: Pair, model: TokenizedModel, paths: DataPaths, step: LineageStep) -> EvaluationReport:
    """Evaluate the latest scores of a pair and write its findings (:mod:`audit_pipeline.statistics.findings`).

    The assessment of the benchmark's split is read, or computed if it is missing (:func:`read_or_assess_split`).

    Raises:
        DataError: If the pair has no scores. Also if the benchmark was rebuilt, or the model, its start token or the
            code of the statistics changed since the pair was scored.
    """
    benchmark = read_built(paths, pair.benchmark)
    benchmark.require_passed_checks()
    scores_run = read_latest_run(paths, "scores", pair.partition)
    statistics = f"token_statistics/{pair.partition}"
    statistics_version = compute_statistics_version(model, benchmark.digest)
    command = f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
    if scores_run.benchmark_digest != benchmark.digest:
        raise DataError(
            f"the scores of {pair.partition} were computed for an earlier build of the benchmark. Compute them again: "
            f"{command}"
        )
    if scores_run.upstream.get(statistics) != statistics_version:
        raise DataError(
            f"the scores of {pair.partition} were computed with other weights, another start token or older token "
            f"statistics. Compute them again: {command}"
        )
    scores = store.read(paths, SCORES, pair, run_id=scores_run.run_id, label=f"the scores of {pair.partition}")
    split = read_or_assess_split(benchmark, paths, step.run_id)
    findings = compute_findings(scores, benchmark.examples, pair, split.assessed, step.run_id)
    upstream = {
        f"examples/{pair.benchmark}": benchmark.digest,
        f"scores/{pair.partition}": scores_run.data_version,
        statistics: statistics_version,
        **split.versions,
    }
    for key, version in scores_run.upstream.items():
        if is_input_of_provider(key):
            upstream[key] = version
    facts = collect_pair_facts(pair, benchmark.manifest, benchmark.examples, scores, paths=paths)
    answer = answer_pair(pair, findings.tables, facts, step.run_id)
    origin = build_pair_origin(model, benchmark)
    versions = write_findings(findings, answer, pair, paths, step, upstream=upstream, **origin)
    return EvaluationReport(pair, findings, versions["evaluations"], answer)


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
    """Write the answer and all tables of a pair's findings, with lineage.

    Args:
        findings: The findings.
        answer: The row of the answer.
        pair: The pair.
        paths: The data folder.
        step: The run for the ledger.
        upstream: The versions of the inputs.
        origin: The fingerprints of the model and the benchmark.

    Returns:
        The data versions by table.
    """
    # The answer is written first, so that a pair with evaluations always has an answer.
    tables = {PAIR_ANSWERS.name: table_from_rows([answer], PAIR_ANSWERS), **findings.tables}
    versions = {}
    for name, rows in tables.items():
        versions[name] = store.write(paths, step, TABLES[name], pair, rows, upstream=upstream, **origin)
    return versions
