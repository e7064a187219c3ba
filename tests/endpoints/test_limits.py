"""What a command may send: its own limits, or those of the model's entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.endpoints.in_use import Endpoints, sent_to
from audit_pipeline.endpoints.limits import Limits
from audit_pipeline.errors import ConfigError
from audit_pipeline.models.config import Endpoint, ModelEntry


def entry(**endpoint: Any) -> ModelEntry:
    given = {"url": "https://host:8000/v1", "model": "m", "dialect": "vllm", **endpoint}
    return ModelEntry(name="served", backend="openai", endpoint=Endpoint(**given), path=Path("anywhere"))


def test_the_entry_says_what_the_command_does_not() -> None:
    of_entry = entry(max_tokens=10, price_per_million=2.0, max_cost=5.0)
    assert Limits().for_model(of_entry) == Limits(10, 5.0)
    assert Limits(30, 6.0).for_model(of_entry) == Limits(30, 6.0)
    assert Limits().for_model(entry()) == Limits()
    with pytest.raises(ConfigError, match="served has no price"):
        Limits(max_cost=1.0).for_model(entry())
    with pytest.raises(ConfigError, match="here runs on this machine"):
        Limits(max_tokens=1).for_model(ModelEntry(name="here", path=Path("anywhere")))


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert Limits(10, 1.0).less(4, 0.25) == Limits(6, 0.75)
    assert Limits(10, 1.0).less(14, 2.5) == Limits(0, 0.0)
    assert Limits().less(4, 1.0) == Limits()


def test_each_endpoint_has_one_budget_and_a_reference_model_keeps_to_its_own() -> None:
    own, reference = entry().endpoint, entry(model="reference", max_tokens=3).endpoint
    assert own is not None
    assert reference is not None
    endpoints = Endpoints(Limits(max_tokens=100))
    budget = endpoints.budget(own)
    assert endpoints.budget(own) is budget
    assert (budget.max_tokens, endpoints.budget(reference).max_tokens) == (100, 3)
    budget.reserve(40)
    endpoints.budget(reference).reserve(2)
    assert (endpoints.tokens, endpoints.cost) == (42, 0.0)


def test_who_gets_the_texts_is_said_with_the_port() -> None:
    endpoint = entry().endpoint
    assert endpoint is not None
    assert sent_to(endpoint).startswith("the texts are sent to host:8000: whoever runs")
