"""Execution of an audit request in this process. Dagster is imported only if something has to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError
from audit_pipeline.pipeline.audit_requests import AuditOutcome, AuditRequest, plan_request
from audit_pipeline.store.paths import DataPaths, require_writable

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.pipeline.plan import AuditPlan


def run_audit(
    request: AuditRequest, load_definitions: Callable[[], dg.Definitions], on_step: Callable[[str], None]
) -> AuditOutcome:
    """Update the pairs of a request in this process. If they are current, Dagster is not imported.

    A failed pair does not stop the other pairs. The outcome lists the failed pairs.

    Args:
        request: The request.
        load_definitions: Imports and returns the Dagster definitions, which takes seconds. It is called only if
            something has to run.
        on_step: Receives each line for the user.

    Raises:
        AuditError: If the audit cannot continue.
    """
    paths = DataPaths.from_environment()
    if _is_current(request, paths):
        on_step(request.completion_message)
        return AuditOutcome(request.models, request.benchmarks)
    require_writable(paths.root)

    definitions = load_definitions()
    from audit_pipeline.pipeline.dagster.audit import audit  # noqa: PLC0415

    outcome = audit(request, definitions, paths, on_step)
    if not outcome.runs and not outcome.failed and not outcome.left_out:
        on_step(request.completion_message)
    return outcome


def plan_quickly(request: AuditRequest, paths: DataPaths) -> AuditPlan | None:
    """Return the plan of a request without importing heavy packages and without writing.

    Returns:
        The plan. It is None if a tokenizer is not cached, if a server has to be queried, or if an error occurred. The
        audit itself reports the error.
    """
    from audit_pipeline.models.tokenized_model import is_tokenizer_stored, load_tokenized  # noqa: PLC0415

    try:
        if not all(entry.host.is_here and is_tokenizer_stored(entry, paths) for entry in request.models):
            return None
        models = [load_tokenized(entry, paths) for entry in request.models]
        return plan_request(request, models, paths)
    except AuditError:
        return None


def _is_current(request: AuditRequest, paths: DataPaths) -> bool:
    """Return True if all results of a request are known to be current, and published if it asks for that."""
    from audit_pipeline.pipeline.publication_state import explain_unpublished  # noqa: PLC0415

    if not request.options.keeps_current_results:
        return False
    plan = plan_quickly(request, paths)
    if plan is None or plan.steps or plan.problems:
        return False
    if not request.options.publish:
        return True
    return explain_unpublished([entry.name for entry in request.models], paths) is None
