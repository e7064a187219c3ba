"""Budgets: the limits of a command and of the model's entry are never exceeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import BudgetError, ConfigError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, Usage, find_endpoint_models
from audit_pipeline.pipeline.dagster.resources import COMMAND_TAG, build_remaining_budget_config, tag_run_with_usage
from audit_pipeline.scoring.backends import Endpoints


def entry(**endpoint: Any) -> ModelEntry:
    given = {"url": "https://host:8000/v1", "model": "m", "dialect": "vllm", **endpoint}
    return ModelEntry(name="served", backend="openai", endpoint=Endpoint(**given), path=Path("anywhere"))


def test_limits_require_an_endpoint_and_cost_limits_a_price() -> None:
    assert Limits(30, 6.0).require_usable_for(entry(price_per_million=2.0)) == Limits(30, 6.0)
    assert Limits().require_usable_for(entry()) == Limits()
    with pytest.raises(ConfigError, match="the price of served is unknown"):
        Limits(max_cost=1.0).require_usable_for(entry())
    with pytest.raises(ConfigError, match="here runs on this machine"):
        Limits(max_tokens=1).require_usable_for(ModelEntry(name="here", path=Path("anywhere")))


def test_limits_apply_to_a_reference_model_at_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ModelEntry(name="here", path=Path("anywhere"), reference_model="served")
    reference = entry()
    monkeypatch.setattr("audit_pipeline.models.config.load_models", lambda: {"served": reference})
    monkeypatch.setattr("audit_pipeline.models.config.resolve_model", lambda name, models: models[name])
    assert find_endpoint_models(here) == [(reference, reference.endpoint)]
    assert Limits(max_tokens=1).require_usable_for(here) == Limits(max_tokens=1)
    with pytest.raises(ConfigError, match="the price of served is unknown"):
        Limits(max_cost=1.0).require_usable_for(here)


def endpoint(**given: Any) -> Endpoint:
    found = entry(**given).endpoint
    assert found is not None
    return found


def test_endpoints_share_a_limit_and_have_their_own() -> None:
    own, reference = endpoint(), endpoint(model="reference", max_tokens=30)
    endpoints = Endpoints(Limits(max_tokens=100))
    budget = endpoints.get_budget(own)
    assert endpoints.get_budget(own) is budget
    endpoints.get_budget(reference).reserve(Usage(25))
    with pytest.raises(
        BudgetError, match=r"25 of 30 are used, and the request could raise this number to 31\. .* raise max_tokens"
    ):
        endpoints.get_budget(reference).reserve(Usage(6))
    budget.reserve(Usage(70))
    with pytest.raises(BudgetError, match=r"95 of 100 are used, .* raise --max-tokens"):
        budget.reserve(Usage(6))
    with pytest.raises(BudgetError):
        endpoints.get_budget(reference).reserve(Usage(6))
    budget.reserve(Usage(5))
    assert (endpoints.shared.tokens, endpoints.shared.cost) == (100, 0.0)
    assert endpoints.sent == {own.described: 75, reference.described: 25}


def test_earlier_runs_of_a_command_count_for_the_limit_of_the_entry() -> None:
    reference = endpoint(max_tokens=30)
    with pytest.raises(BudgetError):
        Endpoints(sent={reference.described: 28}).get_budget(reference).reserve(Usage(3))
    Endpoints(sent={"another": 28}).get_budget(reference).reserve(Usage(3))


def test_runs_of_a_command_are_summed_up_over_all_endpoints() -> None:
    own, reference = endpoint(price_per_million=1e6), endpoint(model="reference", price_per_million=1e6)
    asked, tags = Endpoints(), {COMMAND_TAG: "this"}
    asked.get_budget(reference).reserve(Usage(2))
    with dg.DagsterInstance.ephemeral() as instance:
        for command in ("this", "this", "another"):
            run = instance.add_run(dg.DagsterRun("audit_pairs", tags={COMMAND_TAG: command}))
            of_run = Endpoints()
            of_run.get_budget(own).reserve(Usage(10))
            of_run.get_budget(reference).reserve(Usage(3))
            tag_run_with_usage(instance, run.run_id, of_run)
        found = build_remaining_budget_config(Limits(100, 50.0), instance, tags, asked)
        assert build_remaining_budget_config(Limits(), instance, {}, None) == {}
    sent = {own.described: 20, reference.described: 8}
    assert found == {"max_tokens": 72, "max_cost": 22.0, "sent": sent}


sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


@given(sizes, st.integers(1, 20_000), st.floats(0.001, 1000), st.floats(1e-6, 10))
def test_the_sum_never_exceeds_a_limit(requests: list[int], most: int, price: float, money: float) -> None:
    budget, sent, refused = Budget(Limits(most, money), price), list[int](), list[int]()
    for tokens in requests:
        try:
            budget.reserve(Usage(tokens))
        except BudgetError:
            refused.append(tokens)
        else:
            sent.append(tokens)
    assert budget.tokens == sum(sent) <= most
    assert budget.cost <= money
    for tokens in refused:
        with pytest.raises(BudgetError):
            budget.reserve(Usage(tokens))


def test_a_shared_budget_counts_sent_and_reserved_tokens() -> None:
    together = SharedBudget(Limits(max_tokens=100, max_cost=1.0))
    one, other = Budget(Limits(80), 10_000.0, shared=together), Budget(Limits(), 1_000.0, shared=together)
    one.reserve(Usage(60))
    with pytest.raises(BudgetError, match=r"60 of 80 are used, .* raise max_tokens in the endpoint's entry"):
        one.reserve(Usage(21))
    with other.reserve_for_later(30):
        with pytest.raises(BudgetError, match=r"60 of 100 are used, 30 tokens are reserved .* raise --max-tokens"):
            one.reserve(Usage(11))
        one.reserve(Usage(10))
    assert (together.tokens, together.cost) == (70, pytest.approx(0.7))
    with pytest.raises(BudgetError, match="raise --max-tokens"):
        other.reserve(Usage(31))
    dear = Budget(Limits(), 20_000.0, shared=together)
    with pytest.raises(BudgetError, match=r"0.7000 of 1.0000 are used.* raise --max-cost"):
        dear.reserve(Usage(16))
    dear.reserve(Usage(15))
