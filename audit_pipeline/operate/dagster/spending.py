"""What the runs of one command have sent to models behind interfaces, and what is left of its limits.

What belongs here: noting it with each run, and summing it up. What does not: the limits (endpoints/limits.py), keeping
to them while texts are sent (endpoints/budget.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict

import dagster as dg

from audit_pipeline.endpoints.in_use import Endpoints
from audit_pipeline.endpoints.limits import Limits

COMMAND_TAG = "corpus_audit/command"
"""The command that the run is a step of, where its steps share one budget."""

TOKENS_TAG = "corpus_audit/tokens_sent"
"""How many tokens the run sent to models behind interfaces."""

COST_TAG = "corpus_audit/cost"
"""What they cost, by the prices in the models' entries."""


def tags_of_command() -> Mapping[str, str]:
    """The tags of all runs of a command whose steps share one budget."""
    return {COMMAND_TAG: str(uuid.uuid4())}


def note_spent(instance: dg.DagsterInstance, run_id: str, endpoints: Endpoints) -> None:
    """Note with a run what it has sent; nothing where it sent nothing."""
    if endpoints.tokens:
        instance.add_run_tags(run_id, {TOKENS_TAG: str(endpoints.tokens), COST_TAG: repr(endpoints.cost)})


def left_of(limits: Limits, instance: dg.DagsterInstance, tags: Mapping[str, str]) -> dict[str, int | float]:
    """What is left of a command's limits after the runs with its tag, as the configuration of the resource models."""
    runs = instance.get_runs(dg.RunsFilter(tags={COMMAND_TAG: tags[COMMAND_TAG]})) if COMMAND_TAG in tags else []
    tokens = sum(int(run.tags.get(TOKENS_TAG, 0)) for run in runs)
    cost = sum(float(run.tags.get(COST_TAG, 0)) for run in runs)
    return {name: value for name, value in asdict(limits.less(tokens, cost)).items() if value is not None}
