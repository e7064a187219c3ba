"""The budget: what is sent never exceeds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.endpoints.budget import Budget, Limits, SharedBudget
from audit_pipeline.errors import BudgetError

sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


@given(sizes, st.integers(1, 20_000), st.floats(0.001, 1000), st.floats(1e-6, 10))
def test_the_sum_never_exceeds_a_limit(requests: list[int], most: int, price: float, money: float) -> None:
    budget, sent, refused = Budget(Limits(most, money), price), list[int](), list[int]()
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
    budget = Budget(Limits(100))
    with budget.kept_back(30):
        budget.reserve(70)
        with pytest.raises(BudgetError, match="70 of 100 are sent, 30 are kept for checking the model and the next"):
            budget.reserve(1)
    budget.reserve(30)
    with pytest.raises(BudgetError), budget.kept_back(1):
        pytest.fail("there is nothing left")


def test_what_is_told() -> None:
    budget = Budget(Limits(1000, 0.0018), 2.0)
    budget.reserve(800)
    assert budget.cost == pytest.approx(0.0016)
    with pytest.raises(BudgetError, match=r"800 of 1,000 are sent and the next request has 201; .* raise max_tokens"):
        budget.reserve(201)
    with pytest.raises(BudgetError, match=r"0.0016 of 0.0018 are spent .* costs 0.0003; .* raise max_cost"):
        budget.reserve(150)
    budget.reserve(100)


def test_what_endpoints_share_counts_what_each_has_sent_and_keeps_back() -> None:
    together = SharedBudget(Limits(max_tokens=100, max_cost=1.0))
    one, other = Budget(Limits(80), 10_000.0, together), Budget(Limits(), 1_000.0, together)
    one.reserve(60)
    with pytest.raises(BudgetError, match=r"60 of 80 are sent .* raise max_tokens in the endpoint's entry"):
        one.reserve(21)
    with other.kept_back(30):
        with pytest.raises(BudgetError, match=r"60 of 100 are sent, 30 are kept .* raise --max-tokens, or audit"):
            one.reserve(11)
        one.reserve(10)
    assert (together.tokens, together.cost) == (70, pytest.approx(0.7))
    with pytest.raises(BudgetError, match="raise --max-tokens"):
        other.reserve(31)
    dear = Budget(Limits(), 20_000.0, together)
    with pytest.raises(BudgetError, match=r"0.7000 of 1.0000 are spent .* raise --max-cost"):
        dear.reserve(16)
    dear.reserve(15)
