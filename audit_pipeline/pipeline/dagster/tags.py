"""The tags of this project's runs, and the budget that a command's earlier runs have left.

The limits themselves are enforced while texts are sent (models/usage_budget.py).
"""

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.usage_budget import Limits, find_endpoint_models
from audit_pipeline.scoring.backends import Endpoints

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


def note_spent(instance: dg.DagsterInstance, run_id: str, endpoints: Endpoints) -> None:
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
