"""The state of every model on every benchmark: what the plan of all pairs says of each, as a table.

The pairs are those of the configuration, and those of any run, so that every pair that any view, report or page of the
UI shows has its row. What is missing is missing where the pair is to be audited. Where it is audited on request only,
it is done by whatever was asked of it, or not requested; where only one of both is of a control, it is not applicable.
Models are taken as they were seen last (remembered_models.py): nothing is loaded for a warehouse.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.freshness import PairState, Plan, judge_pair, plan_steps
from audit_pipeline.pipeline.remembered_models import find_seen_models
from audit_pipeline.pipeline.situation import Scope, Situation
from audit_pipeline.pipeline.stage import Product
from audit_pipeline.pipeline.stages.benchmarks import BENCHMARK_STAGE
from audit_pipeline.pipeline.stages.registry import OF_PAIRS, STAGES
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import COVERAGE, Pair
from audit_pipeline.warehouse.build import Judgement

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
_OF_BENCHMARKS = tuple(stage for stage in STAGES if stage.dimensions == ("benchmark",) and not stage.is_on_request)


def judge_data_folder(folder: Path, paths: DataPaths) -> Judgement:
    """What the plan makes of what the configuration in ``folder`` asks for and of what the data folder holds."""
    specs, entries = _read_or_nothing(load_benchmarks, folder), _read_or_nothing(load_models, folder)
    situation = Situation(paths, specs, entries, find_seen_models(entries, paths), config=folder)
    up_to_date = {name: is_built_as_configured(name, situation) for name in specs}
    return up_to_date, lambda connection: build_coverage_table(connection, situation)


def _read_or_nothing(load: Any, folder: Path) -> Mapping[str, Any]:
    """A file of the configuration that cannot be read, which is named where its rows are read, asks for nothing."""
    try:
        return dict(load(folder))
    except AuditError:
        return {}


def is_built_as_configured(benchmark: str, situation: Situation) -> bool | None:
    """Whether a benchmark is built as its entry and its sources are; None where it is not built, or it is not known."""
    facts = situation.facts_of(Product(BENCHMARK_STAGE.name, benchmark))
    wanted = facts.inputs.get("entry")
    return None if facts.recorded is None or wanted is None else facts.recorded["entry"] == wanted


def build_coverage_table(connection: duckdb.DuckDBPyConnection, situation: Situation) -> pa.Table:
    """The rows of the table coverage, of the pairs in the tables that are filled already."""
    pairs = connection.sql(_PAIRS).to_arrow_table().to_pylist()
    gone = {*connection.sql('SELECT "table", "partition", run_id FROM files_gone').fetchall()}

    def is_whole(table: str, partition: str) -> bool:
        entries = situation.ledger.list_entries(table, partition)
        return not entries or (table, partition, entries[-1].run_id) not in gone

    situation.is_whole = is_whole
    for row in pairs:
        row["pair"] = Pair(row["benchmark"], row["model"])
    made = situation.plan(Scope(pairs=tuple(row["pair"] for row in pairs)), (*_OF_BENCHMARKS, *OF_PAIRS))
    rows = [_build_row(row, made, situation) for row in pairs]
    return pa.Table.from_pylist(rows, schema=COVERAGE.schema)


def _judge_missing(row: Mapping[str, Any], state: PairState, situation: Situation) -> PairState:
    pair = row["pair"]
    spec = situation.specs.get(pair.benchmark)
    if row["is_configured"] and situation.find_control(pair.model) != (None if spec is None else spec.control):
        return PairState("not_applicable", "a control's texts are asked of its own models, and those of nothing else")
    found = {stage: situation.facts_of(Product(stage.name, pair.partition)) for stage in OF_PAIRS}
    if row["is_due"] or any(facts.recorded is not None for stage, facts in found.items() if not stage.concludes):
        return state
    for facts in found.values():
        if facts.failure is not None:
            return PairState(facts.failure.status, facts.failure.reason, facts.failure)
    if not row["has_rows"]:
        return PairState("not_requested", "audited on request only")
    # What was asked of it is current or not; what was not asked is not missing.
    asked = {stage.name: [pair.partition] for stage, facts in found.items() if facts.recorded is not None}
    steps = plan_steps(OF_PAIRS, asked, situation.facts_of).steps
    return PairState("stale", steps[0].because) if steps else PairState("done")


def _explain_benchmark(benchmark: str, situation: Situation) -> str | None:
    """Why what is made of a benchmark is not what its pairs should rest on; None where it is, or it is not known."""
    if benchmark not in situation.specs:
        return "the benchmark is no longer in the configuration" if situation.specs else None
    wanted = {stage.name: [benchmark] for stage in _OF_BENCHMARKS}
    return next((step.because for step in plan_steps(_OF_BENCHMARKS, wanted, situation.facts_of).steps), None)


def _build_row(row: Mapping[str, Any], made: Plan, situation: Situation) -> Mapping[str, object]:
    pair = row["pair"]
    state = judge_pair(OF_PAIRS, made, situation.facts_of, pair)
    if state.status == "done" and (reason := _explain_benchmark(pair.benchmark, situation)) is not None:
        state = PairState("stale", reason)
    elif state.status == "missing":
        state = _judge_missing(row, state, situation)
    names = (stage.input_name for stage in OF_PAIRS if stage.concludes)
    concluding = (situation.find_latest_entry(name, pair.partition) for name in names)
    found = next((entry for entry in concluding if entry is not None), None)
    outcome = situation.find_latest_outcome(pair)
    return {
        **{name: row[name] for name in ("model", "benchmark", "is_configured", "has_results")},
        "status": state.status,
        "reason": state.reason,
        "stage": None if state.outcome is None else state.outcome.stage,
        "last_audited_at": None if found is None else found.finished_at,
        "outcome_at": None if outcome is None else outcome.at,
        "run_id": state.outcome.run_id if state.outcome is not None else None if found is None else found.run_id,
    }
