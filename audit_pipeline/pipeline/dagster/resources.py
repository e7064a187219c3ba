"""The Dagster resources of assets: the data folder, the models, and a reporter of progress.

The module also declares the tags of runs. Some tags record the tokens that a run sent, so that the runs of a command
share one budget. The limits themselves are enforced while texts are sent (models/usage_budget.py).
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import filelock
from pydantic import Field, PrivateAttr

from audit_pipeline.config.entries import Entries
from audit_pipeline.models.config import ModelEntry, load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.usage_budget import Limits, find_endpoint_models
from audit_pipeline.pipeline.dagster.locks import lock_liveness_file
from audit_pipeline.pipeline.progress import format_progress, progress_bar
from audit_pipeline.scoring.backends import Endpoints, HeldModel
from audit_pipeline.store.paths import DataPaths, make_private
from audit_pipeline.token_statistics.engine_choice import choose_engine
from audit_pipeline.token_statistics.run import Progress

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend


IS_READY = "is ready after"
"""The words after a model's name in the log line about its loading. tests/ui counts these lines."""
_LOG_SECONDS = 15.0


class AuditData(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The data folder (`CORPUS_AUDIT_DATA` or data/).

    Every asset needs this resource, so it also locks the run's liveness file.
    """

    _lock: filelock.FileLock | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Prepare the data folder and lock the liveness file of the run."""
        make_private(self.paths.root)
        if context.run is not None:
            # The lock is held until the process ends. A resource with a teardown could not be used outside a run.
            self._lock = lock_liveness_file(self.paths, context.run.run_id)

    @property
    def paths(self) -> DataPaths:
        """Return the paths of the data folder."""
        return DataPaths.from_environment()


class ModelsResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The models of a run, by partition name. At most one has its weights in memory.

    If no engine is configured, the environment decides (token_statistics/engine_choice.py).
    """

    device: str | None = None
    max_tokens: int | None = Field(
        default=None, ge=0, description="maximum number of tokens that the run may send to models on servers"
    )
    max_cost: float | None = Field(
        default=None, ge=0, description="maximum cost of the tokens that the run may send, by the prices in the entries"
    )
    sent: dict[str, int] = Field(
        default={}, description="number of tokens that earlier runs of the same command sent, by endpoint"
    )
    _endpoints: Endpoints | None = PrivateAttr(default=None)
    engine: str | None = Field(default=None, description="engine that runs models: in_process, or ray at RAY_ADDRESS")
    workers: int | None = Field(default=None, description="number of Ray workers that load the model")
    _held: HeldModel = PrivateAttr(default_factory=HeldModel)
    _configured: Entries[ModelEntry] | None = PrivateAttr(default=None)

    def entry(self, name: str) -> ModelEntry:
        """Return the entry of a model by its name, hub id or path. models.yaml is read once per run."""
        if self._configured is None:
            self._configured = load_models()
        return resolve_model(name, self._configured)

    def tokenized(self, name: str, paths: DataPaths) -> TokenizedModel:
        """Load the identity and the tokenizer of a model without its weights, and write its card."""
        model = load_tokenized(self.entry(name), paths)
        write_card(model, paths)
        return model

    def load_for_run(self, name: str, paths: DataPaths, log: logging.Logger) -> TokenizedModel:
        """Load a model as :meth:`tokenized` does. Once per run, check that a server still has the same model."""
        self.endpoints.probe_and_load(self.entry(name), paths, log.info)
        return self.tokenized(name, paths)

    @property
    def endpoints(self) -> Endpoints:
        """Return the endpoints of the run. All requests of the run share their budgets."""
        if self._endpoints is None:
            self._endpoints = Endpoints(Limits(self.max_tokens, self.max_cost), self.sent)
        return self._endpoints

    def backend(self, model: TokenizedModel, paths: DataPaths, log: logging.Logger) -> Backend:
        """Return the backend of a model. If another model is loaded, replace it."""
        return self._held.ensure_loaded(model, partial(self._make_ready, paths, log))

    def _make_ready(self, paths: DataPaths, log: logging.Logger, model: TokenizedModel) -> Backend:
        # The module imports torch, which an audit with all passes in the cache does not need.
        from audit_pipeline.scoring.backends import open_backend  # noqa: PLC0415

        started = time.monotonic()
        engine = choose_engine(self.engine, self.workers)
        ready = open_backend(model, paths, self.device, log.info, self.endpoints, engine, self._held.base)
        log.info(f"{model.entry.name} {IS_READY} {time.monotonic() - started:.1f} s: {ready.described}")
        return ready

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Free the model and tag the run with the tokens that it sent."""
        self._held.free()
        if context.instance is not None and context.run is not None:
            tag_run_with_usage(context.instance, context.run.run_id, self.endpoints)


class ProgressReporter(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Progress as log lines of the run and, if `terminal` is set, as a bar on standard error."""

    terminal: bool = False

    @contextmanager
    def report_progress(self, label: str, log: logging.Logger) -> Iterator[Callable[[Progress], None]]:
        """Yield a progress callback for :func:`audit_pipeline.token_statistics.run.compute`."""
        last_logged = time.monotonic()

        def notify(progress: Progress) -> None:
            nonlocal last_logged
            if draw is not None:
                draw(progress)
            finished = progress.tokens_done == progress.tokens_total
            if finished or time.monotonic() - last_logged >= _LOG_SECONDS:
                last_logged = time.monotonic()
                log.info(f"{label}: {format_progress(progress)}")

        with progress_bar(label) if self.terminal else nullcontext() as draw:
            yield notify


REASON_TAG = "why"
"""The reason for the run. The name is short, because the UI's list of runs shows 40 characters."""

WEEKLY_TAG = "corpus_audit/weekly_audit"
"""The id of the weekly audit that the run belongs to."""

SUMMARY_TAG = "corpus_audit/summary"
"""The summary of a weekly audit."""

COMMAND_TAG = "corpus_audit/command"
"""The id of the command that the run belongs to, if the runs of the command share a budget."""

TOKENS_TAG = "corpus_audit/tokens_sent"
"""The number of tokens that the run sent to models on servers."""

SENT_TAG = "corpus_audit/tokens_by_endpoint"
"""The number of tokens by endpoint, as JSON."""

COST_TAG = "corpus_audit/cost"
"""The cost of the tokens, by the prices in the models' entries."""


def build_command_tags(entry: ModelEntry) -> Mapping[str, str]:
    """Return the tags of all runs of a command. If the model is on a server, a tag makes them share one budget."""
    return {COMMAND_TAG: str(uuid.uuid4())} if find_endpoint_models(entry) else {}


def tag_run_with_usage(instance: dg.DagsterInstance, run_id: str, endpoints: Endpoints) -> None:
    """Tag a run with the tokens that it sent and their cost. A run that sent nothing gets no tags."""
    shared = endpoints.shared
    if shared.tokens:
        by_endpoint = json.dumps(dict(endpoints.sent))
        tags = {TOKENS_TAG: str(shared.tokens), SENT_TAG: by_endpoint, COST_TAG: repr(shared.cost)}
        instance.add_run_tags(run_id, tags)


def build_remaining_budget_config(
    limits: Limits, instance: dg.DagsterInstance, tags: Mapping[str, str], command_endpoints: Endpoints | None
) -> dict[str, Any]:
    """Return the configuration of the resource ``models``: the remaining budget of a command and its use so far.

    Args:
        limits: The limits of the command.
        instance: The Dagster instance.
        tags: The tags of the command's runs.
        command_endpoints: The endpoints to which the command itself sent requests before its first run.

    Returns:
        The remaining limits, and the number of sent tokens by endpoint. Limits that are not set are omitted.
    """
    sent: Counter[str] = Counter()
    cost = 0.0
    if command_endpoints is not None:
        sent.update(command_endpoints.sent)
        cost = command_endpoints.shared.cost
    if COMMAND_TAG in tags:
        for run in instance.get_runs(dg.RunsFilter(tags={COMMAND_TAG: tags[COMMAND_TAG]})):
            sent.update(json.loads(run.tags.get(SENT_TAG, "{}")))
            cost += float(run.tags.get(COST_TAG, 0))
    remaining = asdict(limits.subtract(sent.total(), cost))
    config = {name: value for name, value in remaining.items() if value is not None}
    if sent:
        config["sent"] = dict(sent)
    return config
