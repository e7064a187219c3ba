"""The tags that runs of this project carry, and what they say of the texts that a command's runs have sent.

Limits are kept while texts are sent (models/usage_budget.py); here is what a command's earlier runs leave of them.
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
from audit_pipeline.scoring.used_endpoints import Endpoints

REASON_TAG = "why"
"""Why there is the run, in words; a short name, because the UI's list of runs has room for 40 characters."""

WEEKLY_TAG = "corpus_audit/weekly_audit"
"""The weekly audit that the run is a step of."""

SUMMARY_TAG = "corpus_audit/summary"
"""The summary of a weekly audit."""


COMMAND_TAG = "corpus_audit/command"
"""The command that the run is a step of, where its steps share one budget."""

TOKENS_TAG = "corpus_audit/tokens_sent"
"""How many tokens the run sent to models on servers."""

SENT_TAG = "corpus_audit/tokens_by_endpoint"
"""The same by endpoint, as JSON."""

COST_TAG = "corpus_audit/cost"
"""What they cost, by the prices in the models' entries."""


def tags_of_command(entry: ModelEntry) -> Mapping[str, str]:
    """The tags of all runs of a command that runs a model; they share one budget where anything is sent."""
    return {COMMAND_TAG: str(uuid.uuid4())} if find_endpoint_models(entry) else {}


def note_spent(instance: dg.DagsterInstance, run_id: str, endpoints: Endpoints) -> None:
    """Note with a run what it has sent; nothing where it sent nothing."""
    shared = endpoints.shared
    if shared.tokens:
        by_endpoint = json.dumps(dict(endpoints.sent))
        tags = {TOKENS_TAG: str(shared.tokens), SENT_TAG: by_endpoint, COST_TAG: repr(shared.cost)}
        instance.add_run_tags(run_id, tags)


def compute_remaining_limits(
    limits: Limits, instance: dg.DagsterInstance, tags: Mapping[str, str], command_endpoints: Endpoints | None
) -> dict[str, Any]:
    """What is left of a command's limits after the runs with its tag, and what they sent to which endpoint, as the
    configuration of the resource models; empty where there is nothing to say.

    ``command_endpoints`` is what the command itself has asked, ahead of its runs.
    """
    runs = instance.get_runs(dg.RunsFilter(tags={COMMAND_TAG: tags[COMMAND_TAG]})) if COMMAND_TAG in tags else []
    sent = Counter(command_endpoints.sent if command_endpoints is not None else {})
    cost = command_endpoints.shared.cost if command_endpoints is not None else 0.0
    for run in runs:
        sent.update(json.loads(run.tags.get(SENT_TAG, "{}")))
        cost += float(run.tags.get(COST_TAG, 0))
    remaining = asdict(limits.subtract(sent.total(), cost))
    left = {name: value for name, value in remaining.items() if value is not None}
    return {**left, **({"sent": dict(sent)} if sent else {})}
