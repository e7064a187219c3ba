"""The execution of jobs in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict, Unpack

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from audit_pipeline.errors import AuditError, PairsFailedError
from audit_pipeline.http.faults import iterate_causes
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.pipeline.dagster.asset_definitions import build_op_config
from audit_pipeline.pipeline.dagster.locks import hold_liveness_file
from audit_pipeline.pipeline.dagster.tags import REASON_TAG, build_remaining_budget_config
from audit_pipeline.scoring.backends import Endpoints
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

CODE_LOCATION = "corpus_audit"
"""The name of the code location in workspace.yaml."""
_REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a code location without a repository name."""

Jobs = Callable[[str], dg.JobDefinition]


@dataclass(frozen=True)
class Runner:
    """Runner of the jobs of a command.

    Attributes:
        jobs: Returns the job with a given name.
        instance: The Dagster instance.
        paths: The data folder.
        notify: Receives each line for the user.
        tags: The tags of every run.
        resources: The configuration of resources, by name.
        options: The options of assets, by the asset's name.
        limits: The limits of the requests to models on servers, for the command and all its runs together. The runs
            share a tag (tags.py).
        endpoints: The endpoints to which the command itself sent requests before its first run.
        survives: The class of errors that fail one step only. Errors of other classes end the command.
    """

    jobs: Jobs
    instance: dg.DagsterInstance
    paths: DataPaths
    notify: Callable[[str], None]
    tags: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    endpoints: Endpoints | None = None
    survives: type[Exception] = AuditError

    def run(self, job: str, reason: str, **scope: Unpack[RunScope]) -> str:
        """Run a job (:func:`run_job`) with the reason as a tag, and return the run's id."""
        remaining_limits = build_remaining_budget_config(self.limits, self.instance, self.tags, self.endpoints)
        models = {**self.resources.get("models", {}), **remaining_limits}
        resources = dict(self.resources)
        if models:
            resources["models"] = models
        scope.setdefault("resources", resources)
        return run_job(self.jobs(job), self.instance, tags={REASON_TAG: reason, **self.tags}, **scope)


class RunScope(TypedDict, total=False):
    """The scope and the configuration of a run.

    Attributes:
        selection: The assets of the job that are made. By default all.
        partition_key: The partition.
        partition_range: The first and the last partition of a range.
        resources: The configuration of resources, by name.
        ops: The options of assets, by the asset's name.
    """

    selection: Sequence[dg.AssetKey] | None
    partition_key: str | None
    partition_range: tuple[str, str] | None
    resources: Mapping[str, Mapping[str, Any]] | None
    ops: Mapping[str, Mapping[str, Any]] | None


def run_job(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    *,
    tags: Mapping[str, str] | None = None,
    **scope: Unpack[RunScope],
) -> str:
    """Run a job or a part of it.

    Args:
        job: The job.
        instance: The Dagster instance.
        tags: The tags of the run.
        scope: The part of the job, and its configuration (:class:`RunScope`).

    Returns:
        The run's id.

    Raises:
        PairsFailedError: If some pairs of a range failed.
        AuditError: If this error made the run fail.
        dagster.DagsterError: If another error made the run fail.
        KeyboardInterrupt: On Ctrl-C.
    """
    run_id = str(uuid.uuid4())
    run_tags = dict(tags or {})
    partition_range = scope.get("partition_range")
    if partition_range:
        start, end = partition_range
        run_tags |= {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
    run_config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    resources = scope.get("resources")
    if resources:
        run_config["resources"] = {name: {"config": dict(config)} for name, config in resources.items()}
    options = scope.get("ops")
    if options:
        run_config["ops"] = build_op_config(options)
    try:
        with hold_liveness_file(DataPaths.from_environment(), run_id), _attribute_runs_to_job(job, instance):
            result = job.execute_in_process(
                instance=instance,
                run_config=run_config,
                run_id=run_id,
                tags=run_tags,
                partition_key=scope.get("partition_key"),
                asset_selection=scope.get("selection"),
            )
    except dg.DagsterExecutionInterruptedError as error:
        raise KeyboardInterrupt from error
    except dg.Failure as failure:
        raise PairsFailedError(str(failure.description)) from failure
    except dg.DagsterError as error:
        for cause in iterate_causes(error):
            if isinstance(cause, AuditError):
                raise cause from error
        raise
    return result.run_id


@contextmanager
def _attribute_runs_to_job(job: dg.JobDefinition, instance: dg.DagsterInstance) -> Iterator[None]:
    """Assign runs that are created within the block to the job of the code location in workspace.yaml.

    The Timeline of the UI shows only such runs, and execute_in_process has no parameter for the code location.
    """
    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), job.name)
    create_run = partial(instance.create_run_for_job, remote_job_origin=origin)
    instance.create_run_for_job = create_run  # type: ignore[method-assign]
    try:
        yield
    finally:
        del instance.create_run_for_job


def publish(runner: Runner, *, include_text: bool | None = None) -> str:
    """Build warehouse and report, and return the run's id.

    Args:
        runner: Runs the job.
        include_text: Whether to include excerpts of the audited texts. By default the environment decides.
    """
    if include_text is None:
        include_text = is_text_output_allowed()
    quoting = {"include_text": include_text}
    ops = {"warehouse": quoting, "contamination_report": quoting}
    runner.notify("rebuilding warehouse and report")
    return runner.run("publish", "findings or report are out of date", ops=ops, resources=None)
