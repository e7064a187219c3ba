"""The budget: what is sent never exceeds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.errors import BudgetError
from audit_pipeline.models.config import Endpoint

sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


@given(sizes, st.integers(1, 20_000), st.floats(0.001, 1000), st.floats(1e-6, 10))
def test_the_sum_never_exceeds_a_limit(requests: list[int], most: int, price: float, money: float) -> None:
    budget, sent, refused = Budget(most, price, money), list[int](), list[int]()
    for tokens in requests:
        try:
            budget.reserve(tokens)
        except BudgetError:
            refused.append(tokens)
        else:
            sent.append(tokens)
    assert budget.spent == sum(sent) <= most
    assert budget.cost <= money
    for tokens in refused:
        with pytest.raises(BudgetError):
            budget.reserve(tokens)


def test_what_is_kept_back_is_left_for_what_follows() -> None:
    budget = Budget(100)
    with budget.kept_back(30):
        budget.reserve(70)
        with pytest.raises(BudgetError, match="70 of 100 are sent, 30 are kept for checking the model and the next"):
            budget.reserve(1)
    budget.reserve(30)
    with pytest.raises(BudgetError), budget.kept_back(1):
        pytest.fail("there is nothing left")


def test_what_is_told() -> None:
    budget = Budget(1000, 2.0, 0.0018)
    budget.reserve(800)
    assert budget.cost == pytest.approx(0.0016)
    with pytest.raises(BudgetError, match=r"800 of 1,000 are sent and the next request has 201; .* raise max_tokens"):
        budget.reserve(201)
    with pytest.raises(BudgetError, match=r"0.0016 of 0.0018 are spent .* costs 0.0003; .* raise max_cost"):
        budget.reserve(150)
    budget.reserve(100)


def test_limits_are_the_entrys_unless_others_are_given() -> None:
    endpoint = Endpoint(
        url="https://host/v1", model="m", dialect="vllm", price_per_million=2.0, max_tokens=500, max_cost=1.0
    )
    assert Budget.of(endpoint) == Budget(500, 2.0, 1.0)
    assert Budget.of(endpoint, 7, 0.5) == Budget(7, 2.0, 0.5)
    priceless = endpoint.model_copy(update={"price_per_million": None, "max_cost": None})
    with pytest.raises(BudgetError, match="price_per_million"):
        Budget.of(priceless, max_cost=1.0)
    assert Budget.of(priceless).cost == 0.0
