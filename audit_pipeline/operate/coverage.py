"""The state of every model on every benchmark: the planner's word on each pair, as a table.

What belongs here: the facts of all pairs, read from the tables of the warehouse that is being built, and the rows of
coverage. What does not: what follows from the facts (plan.py), building the warehouse, which is handed this
(warehouse/build.py, stages/warehouse.py), how the report lays it out (report/).

The pairs are those of the configuration, and those of any run, so that every pair that any view, report or page of the
UI shows has its row. What the planner calls missing is missing where the pair is to be audited. Where it is audited on
request only, it is done by whatever was asked of it, or not requested; where only one of both is of a control, it is
not applicable. Models are taken as they were seen last (seen_models.py): nothing is loaded for a warehouse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue.contracts import COVERAGE, DOCUMENT_MEMORISATION, RUN_TABLES, Pair
from audit_pipeline.catalogue.ledger import PairOutcome
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.operate.facts import BenchmarkFacts, PairFacts, PairState, PlanRequest, Situation, WrittenRows
from audit_pipeline.operate.plan import find_extraction_failure, find_extraction_reason, is_as_configured, state_of
from audit_pipeline.operate.seen_models import SeenModels, Sighting, collect_seen_models
from audit_pipeline.operate.situation import CODE, read_situation, written_from_run
from audit_pipeline.warehouse.fill import Judgement

_PAIRS = """
WITH configured AS (
    SELECT name AS model, benchmark, NOT models.on_request AND NOT benchmarks.on_request AS is_due
    FROM configured_models AS models CROSS JOIN configured_benchmarks AS benchmarks
), found AS (
    SELECT model, benchmark FROM current_pair_answers UNION SELECT model, benchmark FROM current_evaluations
    UNION SELECT model, benchmark FROM current_document_memorisation
    UNION SELECT model, benchmark FROM current_chat_documents
    UNION SELECT model, benchmark FROM current_corpus_tests WHERE status = 'ok'
), worked AS (
    SELECT model, benchmark, bool_or(rows > 0) AS has_rows FROM runs WHERE model IS NOT NULL GROUP BY ALL
)
SELECT model, benchmark, configured.is_due IS NOT NULL AS is_configured, coalesce(is_due, FALSE) AS is_due,
    coalesce(has_rows, FALSE) AS has_rows, (model, benchmark) IN (FROM found) AS has_results
FROM (
    SELECT model, benchmark FROM configured UNION SELECT model, benchmark FROM worked
    UNION SELECT model, benchmark FROM outcomes
) LEFT JOIN configured USING (model, benchmark) LEFT JOIN worked USING (model, benchmark)
ORDER BY model, benchmark
"""
_WRITTEN = """
SELECT runs."table", runs.model, runs.benchmark, runs.run_id, runs.code_version, runs.data_version,
    runs.benchmark_digest, runs.finished_at, runs.model_fingerprint, runs.tokenizer_fingerprint,
    max_by(lineage.upstream_data_versions, lineage.finished_at) AS upstream
FROM runs LEFT JOIN lineage
    ON lineage."table" = runs."table" AND lineage."partition" = runs."partition" AND lineage.run_id = runs.run_id
WHERE runs.is_current AND runs.model IS NOT NULL AND runs."table" IN ('scores', 'evaluations', 'document_memorisation')
GROUP BY ALL
"""
_OUTCOMES = """
SELECT * FROM outcomes
QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY recorded_at DESC, run_id DESC) = 1
"""
_SIGHTINGS = """
SELECT split_part("partition", '|', 2) AS model, model_fingerprint AS fingerprint,
    tokenizer_fingerprint AS tokenizer, max(finished_at) AS at
FROM lineage WHERE model_fingerprint IS NOT NULL GROUP BY ALL
"""
# A file that counts now is the one that the last entry of its table and pair explains.
_DAMAGED = """
WITH last AS (
    SELECT "table", "partition", max_by(run_id, (finished_at, run_id)) AS run_id FROM lineage
    WHERE "table" IN (SELECT unnest($tables)) GROUP BY ALL
)
SELECT split_part("partition", '|', 2) AS model, split_part("partition", '|', 1) AS benchmark, list("table") AS damaged
FROM last SEMI JOIN files_gone USING ("table", "partition", run_id) GROUP BY ALL
"""


@dataclass(frozen=True)
class Present:
    """What there is beside the tables: the benchmarks of the configuration, and its models by name."""

    situation: Situation
    models: Mapping[str, ModelEntry]


def judge(folder: Path, paths: DataPaths) -> Judgement:
    """What the planner makes of what the configuration in ``folder`` asks for and of what the data folder holds."""
    present = _read_configuration(folder, paths)
    up_to_date = {name: is_as_configured(benchmark) for name, benchmark in present.situation.benchmarks.items()}
    return Judgement(up_to_date, lambda connection: build_coverage_table(connection, present, paths))


def _read_configuration(folder: Path, paths: DataPaths) -> Present:
    """A file of the configuration that cannot be read, which is named where its rows are read, asks for nothing."""
    try:
        specs = load_benchmarks(folder)
        situation = read_situation(PlanRequest(benchmarks=tuple(specs)), paths, specs=specs.values(), config=folder)
    except AuditError:
        situation = Situation(code=CODE)
    try:
        models: Mapping[str, ModelEntry] = load_models(folder)
    except AuditError:
        models = {}
    return Present(situation, models)


def build_coverage_table(connection: duckdb.DuckDBPyConnection, present: Present, paths: DataPaths) -> pa.Table:
    """The rows of the table coverage, from the tables that are filled already."""
    pairs = _query_rows(connection, _PAIRS)
    situation = _read_situation_of_pairs(connection, map(_pair_from_row, pairs), present, paths)
    rows = [_build_row(row, situation, present.models.get(row["model"])) for row in pairs]
    return pa.Table.from_pylist(rows, schema=COVERAGE.schema)


def _state_of_row(row: Mapping[str, Any], situation: Situation, entry: ModelEntry | None) -> PairState:
    pair = _pair_from_row(row)
    state = state_of(pair, situation)
    if state.status != "missing":
        return state
    of_model = None if entry is None or entry.control is None else entry.control.name
    of_benchmark = situation.benchmarks[pair.benchmark].control
    if row["is_configured"] and of_model != of_benchmark:
        return PairState("not_applicable", "a control's texts are asked of its own models, and those of nothing else")
    if row["is_due"] or situation.audits[pair].scores is not None:
        return state
    audit = situation.audits[pair]
    if (failure := find_extraction_failure(audit)) is not None:
        return PairState(failure.status, failure.reason, failure)
    if not row["has_rows"]:
        return PairState("not_requested", "audited on request only")
    doubt = None if audit.extraction is None else find_extraction_reason(pair, situation)
    return PairState("done") if doubt is None else PairState("stale", doubt)


def _build_row(row: Mapping[str, Any], situation: Situation, entry: ModelEntry | None) -> Mapping[str, object]:
    state, audit = _state_of_row(row, situation, entry), situation.audits[_pair_from_row(row)]
    found = audit.evaluations or audit.extraction
    return {
        "model": row["model"],
        "benchmark": row["benchmark"],
        "is_configured": row["is_configured"],
        "status": state.status,
        "reason": state.reason,
        "has_results": row["has_results"],
        "stage": None if state.outcome is None else state.outcome.stage,
        "last_audited_at": None if found is None else found.at,
        "outcome_at": None if audit.outcome is None else audit.outcome.at,
        "run_id": state.outcome.run_id if state.outcome is not None else None if found is None else found.run_id,
    }


def _read_situation_of_pairs(
    connection: duckdb.DuckDBPyConnection, pairs: Iterable[Pair], present: Present, paths: DataPaths
) -> Situation:
    pairs = list(pairs)
    benchmarks = _read_benchmark_facts(connection, {pair.benchmark for pair in pairs}, present)
    seen = _read_seen_models(connection, present, paths)
    found = {(row["table"], _pair_from_row(row)): _written_from_row(row) for row in _query_rows(connection, _WRITTEN)}
    outcomes = {_pair_from_row(row): _outcome_from_row(row) for row in _query_rows(connection, _OUTCOMES)}
    damaged = {
        _pair_from_row(row): tuple(sorted(row["damaged"]))
        for row in _query_rows(connection, _DAMAGED, tables=list(RUN_TABLES))
    }
    audits = {
        pair: PairFacts(
            seen.conventions(pair.model, benchmarks.get(pair.benchmark, BenchmarkFacts(None, None)).built),
            found.get(("scores", pair)),
            found.get(("evaluations", pair)),
            found.get((DOCUMENT_MEMORISATION.name, pair)),
            outcomes.get(pair),
            damaged.get(pair, ()),
        )
        for pair in pairs
    }
    return replace(present.situation, benchmarks=benchmarks, audits=audits)


def _read_benchmark_facts(
    connection: duckdb.DuckDBPyConnection, names: Iterable[str], present: Present
) -> Mapping[str, BenchmarkFacts]:
    """Those of the configuration, and those of ``names`` that are no longer, or not readably, in it.

    Only where the configuration names any is another one removed: an unreadable file names none.
    """
    named = {row["benchmark"] for row in _query_rows(connection, "SELECT benchmark FROM configured_benchmarks")}
    built = {
        row["benchmark"]: row["digest"]
        for row in _query_rows(connection, "SELECT benchmark, max(digest) AS digest FROM benchmarks GROUP BY benchmark")
    }
    others = {
        name: BenchmarkFacts(None, built.get(name), is_removed=bool(named) and name not in named) for name in names
    }
    return {**others, **present.situation.benchmarks}


def _read_seen_models(connection: duckdb.DuckDBPyConnection, present: Present, paths: DataPaths) -> SeenModels:
    cards = [json.loads(row["card"]) for row in _query_rows(connection, "SELECT card FROM models")]
    return collect_seen_models(
        cards, [Sighting(**row) for row in _query_rows(connection, _SIGHTINGS)], present.models, paths
    )


def _written_from_row(row: Mapping[str, Any]) -> WrittenRows:
    return written_from_run(
        row["run_id"],
        row["finished_at"],
        row["code_version"],
        row["data_version"],
        row["benchmark_digest"],
        row["model_fingerprint"],
        row["tokenizer_fingerprint"],
        json.loads(row["upstream"] or "{}"),
        _pair_from_row(row),
    )


def _outcome_from_row(row: Mapping[str, Any]) -> PairOutcome:
    return PairOutcome(
        _pair_from_row(row), row["stage"], row["status"], row["reason"], row["run_id"], row["recorded_at"]
    )


def _pair_from_row(row: Mapping[str, Any]) -> Pair:
    return Pair(row["benchmark"], row["model"])


def _query_rows(connection: duckdb.DuckDBPyConnection, query: str, **parameters: object) -> list[dict[str, Any]]:
    return list(connection.sql(query, params=parameters or None).to_arrow_table().to_pylist())
