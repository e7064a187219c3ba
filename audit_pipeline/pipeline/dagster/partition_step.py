"""The step that makes all assets of a job, partition by partition.

Dagster cannot mark single partitions of a run as failed (dagster #17836). Therefore the step reports each cell (a
partition of an asset) itself: as planned when the cell begins, and as materialised when it is done. A failed cell stays
planned, so the UI shows exactly the failed cells as failed. Cells that never began are missing. If a run is killed, its
finished cells are kept. Each cell has its own data version, because Dagster would use one version for all cells of a
run (dagster #34013).

A cell that fails with a transient error is tried again, by the policy of http/faults.py. The log of the run shows the
attempts.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NoReturn, TypeVar

import dagster as dg
import tenacity
from huggingface_hub.errors import OfflineModeIsEnabled

from audit_pipeline import errors
from audit_pipeline.benchmarks.built_benchmark import require_matching_control
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import UnansweredError, to_one_line
from audit_pipeline.http.faults import RetryPolicy, build_retryer, is_transient_fault, iterate_causes
from audit_pipeline.pipeline.dagster.cell_events import CellEvents, SkippedCell, list_checks
from audit_pipeline.pipeline.dagster.conditions import ONLY_IF_DUE, find_due_products
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import PAIR_STAGES, STAGES, get_stage
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, PAIR, Product, Stage, StageResult, StageRun, UiMetadata
from audit_pipeline.pipeline.stage_settings import is_stage_requested, load_stage_entries
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.ledger import read_ledger, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import PairStatus, parse_pair


def plan_cells_one_by_one() -> None:
    """Configure Dagster so that runs of this process do not plan their cells in advance.

    By default Dagster plans every cell when it creates a run, and shows cells that never began as failed.
    """
    os.environ.setdefault("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", "1")


@dataclass
class PartitionLoop:
    """The loop that makes the selected assets of a step for every partition of a run, model by model.

    Attributes:
        context: Dagster's context of the step.
        paths: The data folder.
        stages: The selected stages. Each stage comes after the stages that it depends on.
        start: Creates the StageRun with which a stage makes a partition.
        events: Reports the cells to Dagster.
        failed: The first failed cell of a partition and its error, by partition.
    """

    context: dg.AssetExecutionContext
    paths: DataPaths
    stages: Sequence[Stage]
    start: Callable[..., StageRun]
    events: CellEvents
    failed: dict[str, tuple[SkippedCell, Exception]] = field(default_factory=dict)

    def run(self) -> None:
        """Make every cell.

        Raises:
            AuditError: If the run has one partition and it failed. An unexpected error becomes a PairsFailedError.
            dg.Failure: If the run has several partitions and some failed. Its metadata lists the failed partitions.
                The other partitions are done.
        """
        # The partitions of a model are made in sequence, so that the model is loaded once.
        keys_by_model: dict[str, list[str]] = {}
        for key in self.context.partition_keys:
            keys_by_model.setdefault(str(key).rpartition("|")[2], []).append(key)
        for keys in keys_by_model.values():
            for key in keys:
                self._make_partition(str(key), key)
        if self.failed:
            self._raise_failure(len(self.context.partition_keys))

    def _make_partition(self, partition: str, key: str) -> None:
        """Make the cells of a partition. A cell that depends on a failed cell is not made."""
        skipped: dict[str, SkippedCell] = {}
        for stage in self.stages:
            above = next((cell for cell in skipped.values() if _depends_on(stage, cell.stage)), None)
            if above is not None and above.status == "failed":
                continue
            if self._partitions_of_audits is not None and partition not in self._partitions_of_audits[stage.name]:
                self.events.report_unrequested(stage, partition)
                continue
            if above is None:
                if self._is_made_by_repeated_run(stage, partition):
                    continue
                if self._due_products is not None and Product(stage.name, partition) not in self._due_products:
                    self._keep_current_cell(stage, partition, key)
                    continue
                above = self._make_cell(stage, partition, key)
            if above is not None:
                skipped[stage.name] = above
                if above.status != "failed":
                    self.events.report_not_applicable(stage, partition, key, above)

    def _make_cell(self, stage: Stage, partition: str, key: str) -> SkippedCell | None:
        """Make one cell and report it, or return why it was not made."""
        run = self.start(stage, partition)
        self.events.report_begun(stage, partition)
        try:
            if stage.dimensions == PAIR:
                _require_auditable(run)
            if stage.is_on_request and not is_stage_requested(stage, partition, load_stage_entries(STAGES)):
                reason = UiMetadata(values={"reason": "config/stages.yaml does not request this product"})
                result = StageResult(metadata=reason, status="not_requested")
            else:
                label = f"{stage.name} of {partition}"
                result = run_with_retries(partial(stage.make, run), label, self.context.log)
        except Exception as error:  # noqa: BLE001 - every error is recorded, and the run fails at its end
            return self._record_failure(run, error)
        self.events.report_made(stage, partition, key, result)
        return self._find_failed_check(stage, partition, result)

    @cached_property
    def _partitions_of_audits(self) -> dict[str, set[str]] | None:
        """Return the partitions that audits make, by stage, or None if the run makes all its cells.

        A run of the whole audit job selects all assets of the job. Cells that audits do not make stay missing, because
        nobody requested them. A backfill makes all cells, because it waits for each of them.
        """
        stages_of_job = {stage.name for stage in PAIR_STAGES if stage.job == AUDIT_PAIRS}
        selected = {stage.name for stage in self.stages}
        if selected != stages_of_job or "dagster/backfill" in self.context.run.tags:
            return None
        planner = Planner(WorkspaceState(self.paths, load_benchmarks()), STAGES)
        scope = Scope(pairs=tuple(parse_pair(str(key)) for key in self.context.partition_keys))
        return {stage.name: set(planner.list_partitions(stage, scope)) for stage in self.stages}

    def _find_failed_check(self, stage: Stage, partition: str, result: StageResult) -> SkippedCell | None:
        """Return the failure of a blocking check, or None if no such check failed. The product is kept."""
        for name, check in list_checks(stage).items():
            check_result = result.checks.get(name)
            if check.blocking and check_result is not None and not check_result.passed:
                description = check_result.description or check.description
                failure = errors.FailedCheckError(
                    f"the check {name} of {stage.name} of {partition} failed: {description}"
                )
                cell = SkippedCell("failed", stage.name, str(failure))
                self.failed.setdefault(partition, (cell, failure))
                return cell
        return None

    def _record_failure(self, run: StageRun, error: Exception) -> SkippedCell:
        """Log why a stage did not make a partition, and return the reason as a SkippedCell.

        If the stage is a required stage of pairs, the reason is also recorded in the ledger.
        """
        stage = run.stage
        is_applicable = not isinstance(error, errors.NotApplicableError)
        is_only_partition = len(run.partitions) == 1
        has_failed = is_applicable and (is_only_partition or not stage.is_optional)
        status: PairStatus = "not_applicable"
        if has_failed:
            status = "failed"
        reason = (
            errors.to_one_line(error) or "an unexpected error without a message; the log of the run has the traceback"
        )
        if stage.dimensions == PAIR and not stage.is_optional:
            record_outcome(run.paths, run.pair, stage.name, status, reason, run.run_id)
        trace = None if isinstance(error, errors.AuditError) else error
        run.log.log(logging.ERROR, f"{run.partition}: {status} at {stage.name}: {reason}", exc_info=trace)
        cell = SkippedCell(status, stage.name, reason)
        if has_failed:
            self.failed.setdefault(run.partition, (cell, error))
            self.events.report_failed(stage, run.partition, cell)
        return cell

    def _raise_failure(self, n_partitions: int) -> NoReturn:
        partition, (cell, error) = next(iter(self.failed.items()))
        if n_partitions == 1:
            if isinstance(error, errors.AuditError):
                raise error
            raise errors.PairsFailedError(f"{partition} failed at {cell.stage}: {cell.reason}") from error
        reasons = {name: f"{failed.stage}: {failed.reason}" for name, (failed, _) in self.failed.items()}
        raise dg.Failure(
            f"{len(self.failed)} of {n_partitions} pairs failed, the others are done. The first failed pair is "
            f"{partition}: {cell.reason}",
            metadata={"failed": reasons},
            allow_retries=False,
        )

    @cached_property
    def _repeated_runs(self) -> set[str]:
        """Return the ids of the runs that this run re-executes: its parent and all earlier ancestors."""
        repeated: set[str] = set()
        run: dg.DagsterRun | None = self.context.run
        while run is not None and run.parent_run_id is not None and run.parent_run_id not in repeated:
            repeated.add(run.parent_run_id)
            run = self.context.instance.get_run_by_id(run.parent_run_id)
        return repeated

    def _is_made_by_repeated_run(self, stage: Stage, partition: str) -> bool:
        """Return whether an ancestor of this run made the cell. A re-execution makes only the remaining cells."""
        if not self._repeated_runs:
            return False
        record = self.events.fetch_latest_materialisation(stage, partition)
        if record is None or record.run_id not in self._repeated_runs:
            return False
        self.context.log.info(f"{stage.name} of {partition} is kept, because run {record.run_id[:8]} already made it")
        return True

    @cached_property
    def _due_products(self) -> set[Product] | None:
        """Return the products that are out of date, or None if the run also makes cells that are current."""
        if ONLY_IF_DUE not in self.context.run.tags:
            return None
        return find_due_products(self.stages, list(map(str, self.context.partition_keys)), self.paths)

    def _keep_current_cell(self, stage: Stage, partition: str, key: str) -> None:
        """Report a current cell to Dagster as materialised, without making it again."""
        self.context.log.info(f"{stage.name} of {partition} is kept, because it is current according to the ledger")
        entries = read_ledger(self.paths).list_entries(stage.input_name, partition)
        version = self.context.run.run_id
        if entries:
            version = entries[-1].data_version
        self.events.report_current(stage, partition, key, version)


def _require_auditable(run: StageRun) -> None:
    """Check that the pair's benchmark is built, and that benchmark and model belong to the same control or to none.

    Raises:
        DataError: If the benchmark is not built.
        NotApplicableError: If benchmark and model belong to different controls, or only one of them to a control.
    """
    benchmark = run.pair.benchmark
    manifest_path = run.paths.benchmark_manifest(benchmark)
    if not (run.paths.examples(benchmark).exists() and manifest_path.exists()):
        raise errors.DataError(
            f"the benchmark {benchmark} has not been built yet. Build it first: launch the job build_benchmarks, or "
            f"run corpus-audit benchmarks --build {benchmark}"
        )
    manifest = read_json_if_whole(manifest_path)
    if manifest is None:
        # A damaged manifest is reported by the code that reads the benchmark.
        return
    control = run.models.entry(run.pair.model).control
    model_control = None
    if control is not None:
        model_control = control.name
    benchmark_control = manifest.get("spec", {}).get("control")
    require_matching_control(benchmark, benchmark_control, run.pair.model, model_control)


def _depends_on(stage: Stage, other: str) -> bool:
    """Return whether a stage depends on another stage, directly or indirectly."""
    for dep in stage.deps:
        name = dep.partition("/")[0]
        if name == other or _depends_on(get_stage(name), other):
            return True
    return False


RETRY_POLICY = RetryPolicy(attempts=4, first_pause=2.0, max_pause=60.0, jitter=1.0)

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, is transient.

    Errors of a server, a network or a disk are transient, and so is exhausted GPU memory.
    """
    causes = list(iterate_causes(error))
    # If the user has disabled the hub, its client raises a connection error, which no retry would cure.
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
        return False
    # torch is not imported here. If it raised the error, it is already imported.
    torch = sys.modules.get("torch")
    is_out_of_memory = torch is not None and any(isinstance(cause, torch.OutOfMemoryError) for cause in causes)
    return is_out_of_memory or is_transient_fault(error)


def run_with_retries(
    run: Callable[[], T], label: str, log: logging.Logger, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Run a function, with up to four attempts if an error is transient. Waits are 2, 4 and 8 s plus jitter.

    Args:
        run: The function.
        label: The name of the function in log lines.
        log: The log of the run.
        sleep: Replaces the waits in tests.

    Returns:
        The result of the function.

    Raises:
        Exception: The error of the last attempt. Errors that are not transient are raised at once.
    """

    def is_worth_repeating(error: BaseException) -> bool:
        # The client of a server has already repeated its request (extras/servers/client.py), and requests cost money.
        return is_transient(error) and not any(isinstance(cause, UnansweredError) for cause in iterate_causes(error))

    def notify(state: tenacity.RetryCallState) -> None:
        assert state.outcome is not None
        log.warning(
            f"{label}: attempt {state.attempt_number} of {RETRY_POLICY.attempts} failed, trying again in "
            f"{state.upcoming_sleep:.1f} s: {to_one_line(state.outcome.exception() or '')}"
        )

    return build_retryer(RETRY_POLICY, is_worth_repeating, on_retry=notify, sleep=sleep)(run)
