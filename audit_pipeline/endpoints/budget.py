"""What one command, or run, may send to endpoints, in tokens and in money.

What belongs here: which limits hold for which endpoints, counting, and refusing what would be too much. What does not:
how users say limits (cli/, operate/dagster/resources.py), estimates before a run (token_statistics/cached_texts.py),
sending (client.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError, BudgetError, ConfigError

if TYPE_CHECKING:
    from audit_pipeline.models.config import Endpoint, ModelEntry

MILLION = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What a user allows all endpoints of a command together; None: no limit but those of the models' entries.

    Each endpoint keeps to the limits of its own entry besides.
    """

    max_tokens: int | None = None
    max_cost: float | None = None

    def require_usable_for(self, entry: ModelEntry) -> Limits:
        """These limits, for a command that runs a model; raises ConfigError where they have no meaning for it."""
        models = find_endpoint_models(entry)
        if not models and self != Limits():
            raise ConfigError(
                f"{entry.name} runs on this machine, nothing is sent: leave --max-tokens and --max-cost out"
            )
        for model, endpoint in models:
            if self.max_cost is not None and endpoint.price_per_million is None:
                raise ConfigError(
                    f"{model.name} has no price: give price_per_million in its entry, or leave --max-cost out"
                )
        return self

    def less(self, tokens: int, cost: float) -> Limits:
        """What is left of them when so much was sent."""
        return Limits(
            None if self.max_tokens is None else max(0, self.max_tokens - tokens),
            None if self.max_cost is None else max(0.0, self.max_cost - cost),
        )


def find_endpoint_models(entry: ModelEntry) -> Sequence[tuple[ModelEntry, Endpoint]]:
    """The model and its reference model, in this order, as far as they are at endpoints."""
    both = (entry, _find_reference_model(entry))
    return [(model, model.endpoint) for model in both if model is not None and model.endpoint is not None]


def _find_reference_model(entry: ModelEntry) -> ModelEntry | None:
    if entry.reference_model is None:
        return None
    # Imported where a reference model is named: who asks for a command's help waits for nothing.
    from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415

    try:
        return resolve_model(entry.reference_model, load_models())
    except AuditError:
        # Whoever runs it says what is wrong with it; an audit goes on without.
        return None


@dataclass
class SharedBudget:
    """What all endpoints that a command, or run, asks may be sent together."""

    limits: Limits = field(default_factory=Limits)
    budgets: list[Budget] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The tokens that were sent, to all endpoints."""
        return sum(budget.spent for budget in self.budgets)

    @property
    def cost(self) -> float:
        """What they cost, where prices are known."""
        return sum(budget.cost for budget in self.budgets)


@dataclass
class Budget:
    """Counts the tokens of every request to one endpoint before it is sent.

    ``limits`` are the endpoint's own, ``together`` is what it shares with others. A request's tokens are those of its
    prompt and the one that the server generates. A request that is sent again counts again: the server may have worked
    on it the first time.
    """

    limits: Limits = field(default_factory=Limits)
    price_per_million: float | None = None
    together: SharedBudget = field(default_factory=SharedBudget, repr=False, compare=False)
    spent: int = field(default=0, init=False)
    reserved: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.together.budgets.append(self)

    @property
    def cost(self) -> float:
        """What the tokens that were sent cost, by the price; 0 without one."""
        return self.cost_of(self.spent)

    def reserve(self, tokens: int) -> None:
        """Count ``tokens`` that are about to be sent; raises BudgetError where they are too many."""
        self._require_affordable(tokens)
        self.spent += tokens

    @contextmanager
    def reserve_for_later(self, tokens: int) -> Iterator[None]:
        """Let ``tokens`` be left for what follows; raises BudgetError where there are not so many."""
        self._require_affordable(tokens)
        self.reserved += tokens
        try:
            yield
        finally:
            self.reserved -= tokens

    def cost_of(self, tokens: int) -> float:
        """What so many tokens cost, by the price; 0 without one."""
        return tokens * (self.price_per_million or 0.0) / MILLION

    def _require_affordable(self, tokens: int) -> None:
        self._require_within([self], self.limits, tokens, "{} in the endpoint's entry")
        self._require_within(self.together.budgets, self.together.limits, tokens, "--{}")

    def _require_within(self, budgets: Sequence[Budget], limits: Limits, tokens: int, option: str) -> None:
        """Raise BudgetError where so much more than ``budgets`` have spent, or keep back, would exceed ``limits``."""
        sent, spent = sum(budget.spent for budget in budgets), sum(budget.cost for budget in budgets)
        reserved = sum(budget.reserved for budget in budgets)
        reserve = f", {reserved:,} are kept for checking the model" if reserved else ""
        if limits.max_tokens is not None and sent + reserved + tokens > limits.max_tokens:
            raise BudgetError(
                f"the limit of tokens is reached: {sent:,} of {limits.max_tokens:,} are sent{reserve} and the next "
                f"request has {tokens:,}; {_suggest_raising_limit(option, 'max_tokens')}"
            )
        money = sum(
            budget.cost_of(budget.spent + budget.reserved + (tokens if budget is self else 0)) for budget in budgets
        )
        if limits.max_cost is not None and money > limits.max_cost:
            raise BudgetError(
                f"the limit of costs is reached: {spent:.4f} of {limits.max_cost:.4f} are spent{reserve} and the next "
                f"request costs {self.cost_of(tokens):.4f}; {_suggest_raising_limit(option, 'max_cost')}"
            )


def _suggest_raising_limit(option: str, limit: str) -> str:
    name = option.format(limit.replace("_", "-") if option.startswith("--") else limit)
    return f"what was computed is kept: raise {name}, or audit fewer texts"
