"""The table coverage: the state of every model on every benchmark, according to the plan of all pairs.

The table has one row per configured pair, and one row per other pair that was ever run. So it includes every pair that
a view, a report or the UI shows. A pair that audits include by default has the state *missing* until it has findings. A
pair that is audited only on request is *done* if its existing products are current. Without products it is *not
requested*. A model of a control is *not applicable* to the texts of another benchmark. Any other model is *not
applicable* to the texts of a control. No model is loaded (workspace_state.py, find_seen_models).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.evaluate_pair import write_missing_answers
from audit_pipeline.pipeline.plan import AuditPlan, PairState, Planner, find_pair_state, plan_steps
from audit_pipeline.pipeline.stage import BENCHMARK, PAIR, Product, Stage
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState, find_seen_models
from audit_pipeline.store.ledger_records import Entry, PairOutcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import COVERAGE, Pair
from audit_pipeline.warehouse.build import DataFolderState, WarehouseReport, build_warehouse_file

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


def build_warehouse_with_coverage(
    paths: DataPaths, stages: Sequence[Stage], *, include_text: bool = True, config: Path | None = None
) -> WarehouseReport:
    """Write missing answers and build the warehouse (warehouse/build.py, build_warehouse_file).

    Args:
        paths: The data folder.
        stages: All declared assets.
        include_text: Whether to include excerpts of the audited texts.
        config: The folder of the configuration. By default the workspace's.
    """
    write_missing_answers(paths, config)
    read_state = partial(read_data_folder_state, stages)
    return build_warehouse_file(read_state, paths, include_text=include_text, config=config)


def read_data_folder_state(stages: Sequence[Stage], folder: Path, paths: DataPaths) -> DataFolderState:
    """Return the state of the data folder according to a configuration.

    Args:
        stages: All declared assets.
        folder: The folder of the configuration.
        paths: The data folder.

    Returns:
        Whether each benchmark is current, by name, and a function that builds the table coverage.
    """
    specs = _read_or_nothing(load_benchmarks, folder)
    entries = _read_or_nothing(load_models, folder)
    state = WorkspaceState(paths, specs, entries, find_seen_models(entries, paths), config=folder)
    planner = Planner(state, stages)
    up_to_date = {name: is_built_as_configured(name, planner) for name in specs}
    return up_to_date, lambda connection: build_coverage_table(connection, planner)


def _read_or_nothing(load: Any, folder: Path) -> Mapping[str, Any]:
    """Return the entries of a file, or an empty mapping if it is unreadable. The build reports an unreadable file."""
    try:
        return dict(load(folder))
    except AuditError:
        return {}


def is_built_as_configured(benchmark: str, planner: Planner) -> bool | None:
    """Return whether the built benchmark is current with its entry and its sources.

    Returns:
        None if the benchmark is not built, or if its current inputs are unknown.
    """
    product = planner.get_product_state(Product("benchmark", benchmark))
    wanted = product.inputs.get("entry")
    if product.recorded is None or wanted is None:
        return None
    return product.recorded["entry"] == wanted


def build_coverage_table(connection: duckdb.DuckDBPyConnection, planner: Planner) -> pa.Table:
    """Return the rows of the table coverage: one per pair that occurs in the tables that are already filled."""
    pairs = connection.sql(_PAIRS).to_arrow_table().to_pylist()
    missing_files = set(connection.sql('SELECT "table", "partition", run_id FROM files_gone').fetchall())

    def is_whole(table: str, partition: str) -> bool:
        entries = planner.state.ledger.list_entries(table, partition)
        return not entries or (table, partition, entries[-1].run_id) not in missing_files

    planner.state.is_whole = is_whole
    planned_pairs: list[Pair] = []
    for row in pairs:
        row["pair"] = Pair(row["benchmark"], row["model"])
        planned_pairs.append(row["pair"])
    scope = Scope(pairs=tuple(planned_pairs))
    plan = planner.plan(scope, (*_list_benchmark_stages(planner), *_list_pair_stages(planner)))
    rows = [_build_row(row, plan, planner) for row in pairs]
    return pa.Table.from_pylist(rows, schema=COVERAGE.schema)


def _list_benchmark_stages(planner: Planner) -> list[Stage]:
    return [stage for stage in planner.stages if stage.dimensions == BENCHMARK and not stage.is_on_request]


def _list_pair_stages(planner: Planner) -> list[Stage]:
    return [stage for stage in planner.stages if stage.dimensions == PAIR]


def _determine_missing_state(row: Mapping[str, Any], state: PairState, planner: Planner) -> PairState:
    """Return the state of a pair that the plan finds missing. It may be not applicable, or audited only on request."""
    pair = row["pair"]
    spec = planner.state.specs.get(pair.benchmark)
    control = None
    if spec is not None:
        control = spec.control
    if row["is_configured"] and planner.state.find_control(pair.model) != control:
        return PairState("not_applicable", "a control's models are audited only on the texts of the control")
    stages = _list_pair_stages(planner)
    failures: list[PairOutcome] = []
    existing: dict[str, list[str]] = {}
    is_begun = False
    for stage in stages:
        product = planner.get_product_state(Product(stage.name, pair.partition))
        if product.failure is not None:
            failures.append(product.failure)
        if product.recorded is not None:
            existing[stage.name] = [pair.partition]
            is_begun = is_begun or not stage.has_findings
    if row["is_due"] or is_begun:
        return state
    if failures:
        return PairState(failures[0].status, failures[0].reason, failures[0])
    if not row["has_rows"]:
        return PairState("not_requested", "audited on request only")
    # Only existing products are checked, because products that nobody requested are not missing.
    steps = plan_steps(stages, existing, planner.get_product_state).steps
    if not steps:
        return PairState("done")
    return PairState("stale", steps[0].reason)


def _explain_benchmark(benchmark: str, planner: Planner) -> str | None:
    """Return why a benchmark is out of date, or None if it is current or if its state is unknown."""
    if benchmark not in planner.state.specs:
        if not planner.state.specs:
            return None
        return "the benchmark is no longer in the configuration"
    stages = _list_benchmark_stages(planner)
    wanted = {stage.name: [benchmark] for stage in stages}
    steps = plan_steps(stages, wanted, planner.get_product_state).steps
    if not steps:
        return None
    return steps[0].reason


def _build_row(row: Mapping[str, Any], plan: AuditPlan, planner: Planner) -> Mapping[str, object]:
    pair = row["pair"]
    stages = _list_pair_stages(planner)
    state = find_pair_state(stages, plan, planner.get_product_state, pair)
    if state.status == "missing":
        state = _determine_missing_state(row, state, planner)
    elif state.status == "done":
        reason = _explain_benchmark(pair.benchmark, planner)
        if reason is not None:
            state = PairState("stale", reason)
    run_id = None
    last_audited_at = None
    latest = _find_latest_findings(pair, stages, planner)
    if latest is not None:
        run_id = latest.run_id
        last_audited_at = latest.finished_at
    failed_stage = None
    if state.outcome is not None:
        run_id = state.outcome.run_id
        failed_stage = state.outcome.stage
    outcome = planner.state.find_latest_outcome(pair)
    outcome_at = None if outcome is None else outcome.at
    return {
        "model": row["model"],
        "benchmark": row["benchmark"],
        "is_configured": row["is_configured"],
        "has_results": row["has_results"],
        "status": state.status,
        "reason": state.reason,
        "stage": failed_stage,
        "last_audited_at": last_audited_at,
        "outcome_at": outcome_at,
        "run_id": run_id,
    }


def _find_latest_findings(pair: Pair, stages: Sequence[Stage], planner: Planner) -> Entry | None:
    """Return the latest ledger entry of the pair at the first stage with findings that has an entry."""
    for stage in stages:
        if stage.has_findings:
            entry = planner.state.find_latest_entry(stage.input_name, pair.partition)
            if entry is not None:
                return entry
    return None
