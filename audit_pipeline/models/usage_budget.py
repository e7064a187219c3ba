"""Limits of what one command, or run, may send to servers: requests, tokens and money, counted before each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from audit_pipeline.errors import AuditError, BudgetError, ConfigError

if TYPE_CHECKING:
    from audit_pipeline.models.config import Endpoint, ModelEntry

MILLION = 1_000_000


class Usage(NamedTuple):
    """Tokens of prompts and of answers. Where all tokens have one price, all count as those of prompts."""

    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(self.prompt_tokens + other.prompt_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True)
class Limits:
    """What a user allows all servers of a command together; None: no limit but those of the models' entries.

    Each server keeps to the limits of its own entry too.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    max_requests: int | None = None

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

    def subtract(self, tokens: int, cost: float) -> Limits:
        """Return what is left of them when so much was sent."""
        return Limits(
            None if self.max_tokens is None else max(0, self.max_tokens - tokens),
            None if self.max_cost is None else max(0.0, self.max_cost - cost),
            self.max_requests,
        )


def find_endpoint_models(entry: ModelEntry) -> Sequence[tuple[ModelEntry, Endpoint]]:
    """Return the model and its reference model, in this order, as far as they are at endpoints."""
    models = [entry]
    if entry.reference_model is not None:
        # Imported where a reference model is named: a command's help does not wait for it.
        from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415

        # Running it says what is wrong with it; an audit goes on without.
        with suppress(AuditError):
            models.append(resolve_model(entry.reference_model, load_models()))
    return [(model, model.endpoint) for model in models if model.endpoint is not None]


@dataclass
class SharedBudget:
    """What all servers that a command, or run, asks may be sent together."""

    limits: Limits = field(default_factory=Limits)
    budgets: list[Budget] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The tokens that were sent, to all servers."""
        return sum(budget.tokens for budget in self.budgets)

    @property
    def cost(self) -> float:
        """What they cost, where prices are known."""
        return sum(budget.cost for budget in self.budgets)


@dataclass
class Budget:
    """Counts every attempt to one server before it is sent, with the most that it can take.

    ``limits`` are the server's own, of the entry that ``entry`` names; ``shared`` is what it shares with others.
    Prices are those of a million tokens. An attempt that is not answered stays counted: the server may have worked on
    it. Not for several threads.
    """

    limits: Limits = field(default_factory=Limits)
    price_in: float = 0.0
    price_out: float = 0.0
    shared: SharedBudget = field(default_factory=SharedBudget, repr=False, compare=False)
    entry: str = "the endpoint's entry"
    requests: int = field(default=0, init=False)
    used: Usage = field(default_factory=Usage, init=False)
    reserved: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.shared.budgets.append(self)

    @property
    def tokens(self) -> int:
        """The tokens that count: those that were sent and answered, and the most of what is under way."""
        return self.used.tokens

    @property
    def cost(self) -> float:
        """What they cost by the prices; 0 without."""
        return self.cost_of(self.used)

    def reserve(self, most: Usage) -> None:
        """Count an attempt that is about to be sent; raises BudgetError where it could exceed a limit."""
        self._require_affordable(most)
        self.requests += 1
        self.used = self.used.plus(most)

    def settle(self, most: Usage, took: Usage) -> None:
        """Put what an attempt took in the place of the most that it could."""
        self.used = self.used.plus(
            Usage(took.prompt_tokens - most.prompt_tokens, took.output_tokens - most.output_tokens)
        )

    @contextmanager
    def reserve_for_later(self, tokens: int) -> Iterator[None]:
        """Let ``tokens`` be left for what follows; raises BudgetError where there are not so many."""
        self._require_affordable(Usage(tokens))
        self.reserved += tokens
        try:
            yield
        finally:
            self.reserved -= tokens

    def cost_of(self, usage: Usage) -> float:
        """Return what so many tokens cost by the prices; 0 without."""
        return (usage.prompt_tokens * self.price_in + usage.output_tokens * self.price_out) / MILLION

    def _require_affordable(self, most: Usage) -> None:
        self._require_within([self], self.limits, most, f"{{}} in {self.entry}")
        self._require_within(self.shared.budgets, self.shared.limits, most, "--{}")

    def _require_within(self, budgets: Sequence[Budget], limits: Limits, most: Usage, place: str) -> None:
        """Raise BudgetError where so much more than ``budgets`` have used, or keep back, would exceed ``limits``."""
        requests, tokens = sum(budget.requests for budget in budgets), sum(budget.tokens for budget in budgets)
        reserved = sum(budget.reserved for budget in budgets)
        cost_after = sum(
            budget.cost_of(budget.used.plus(Usage(budget.reserved)).plus(most if budget is self else Usage()))
            for budget in budgets
        )
        for what, limit, used, after in (
            ("max_requests", limits.max_requests, requests, requests + 1),
            ("max_tokens", limits.max_tokens, tokens, tokens + reserved + most.tokens),
            ("max_cost", limits.max_cost, sum(budget.cost for budget in budgets), cost_after),
        ):
            if limit is not None and after > limit:
                kept = f", {reserved:,} tokens are kept for checking the model" if reserved else ""
                where = place.format(what.replace("_", "-") if place.startswith("--") else what)
                raise BudgetError(
                    f"the limit of {what.removeprefix('max_')} is reached: {_format(used)} of {_format(limit)} are used"
                    f"{kept}, and with the next request it could be {_format(after)}; what was answered is kept: raise "
                    f"{where}"
                )


def _format(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4f}"
