"""Budgets of requests, tokens and money for model servers. Each attempt is counted before it is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from audit_pipeline.errors import AuditError, BudgetError, ConfigError

if TYPE_CHECKING:
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.server_settings import Endpoint

MILLION = 1_000_000


class Usage(NamedTuple):
    """Numbers of tokens in prompts and in answers.

    If prompts and answers have one price, all tokens may be counted as prompt tokens.
    """

    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Return the total number of tokens."""
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum of two usages."""
        return Usage(self.prompt_tokens + other.prompt_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True)
class Limits:
    """The limits of one command, for all its servers together. None means no limit.

    The limits in the entries of the servers apply in addition.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    max_requests: int | None = None

    def require_usable_for(self, entry: ModelEntry) -> Limits:
        """Return these limits if they can apply to a model and its reference model.

        Raises:
            ConfigError: If the model runs locally, or a cost limit lacks a price.
        """
        models = find_endpoint_models(entry)
        if not models and self != Limits():
            raise ConfigError(
                f"{entry.name} runs on this machine, so no tokens are sent to a server. Remove --max-tokens and "
                "--max-cost."
            )
        for model, endpoint in models:
            if self.max_cost is not None and endpoint.price_per_million is None:
                raise ConfigError(
                    f"the price of {model.name} is unknown. Set price_per_million in its entry in config/models.yaml, "
                    "or remove --max-cost."
                )
        return self

    def subtract(self, tokens: int, cost: float) -> Limits:
        """Return the limits that remain after the use of tokens and money."""
        max_tokens = self.max_tokens
        if max_tokens is not None:
            max_tokens = max(0, max_tokens - tokens)
        max_cost = self.max_cost
        if max_cost is not None:
            max_cost = max(0.0, max_cost - cost)
        return Limits(max_tokens, max_cost, self.max_requests)


def find_endpoint_models(entry: ModelEntry) -> Sequence[tuple[ModelEntry, Endpoint]]:
    """Return the entries and endpoints of a model and its reference model. Models without an endpoint are omitted."""
    models = [entry]
    if entry.detector_reference is not None:
        # Imported only for a reference model, so that the help of commands starts fast.
        from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415

        # A faulty reference model is reported later by the run, and an audit continues without it. The base of an
        # adapter may have no entry, but it never runs on a server.
        with suppress(AuditError):
            models.append(resolve_model(entry.detector_reference, load_models()))
    return [(model, model.endpoint) for model in models if model.endpoint is not None]


@dataclass
class SharedBudget:
    """A budget that all servers of a command share.

    Attributes:
        limits: Limits for all servers together.
        budgets: Budgets of the servers.
    """

    limits: Limits = field(default_factory=Limits)
    budgets: list[Budget] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Return the number of tokens sent to all servers and received from them."""
        return sum(budget.tokens for budget in self.budgets)

    @property
    def cost(self) -> float:
        """Return the cost at all servers with a known price."""
        return sum(budget.cost for budget in self.budgets)


@dataclass
class Budget:
    """The budget of one server, which counts each attempt with its maximum usage before it is sent.

    An attempt without an answer remains counted, because the server may have worked on it. The class is not
    thread-safe.

    Attributes:
        limits: Limits in the entry of the server.
        price_in: Price of a million prompt tokens.
        price_out: Price of a million output tokens.
        shared: Budget that the server shares with others.
        entry: Name of the server's entry, for error messages.
        requests: Number of attempts.
        used: Tokens of answered attempts, plus the maximum usage of all unanswered attempts.
        reserved: Number of tokens that are reserved for later requests.
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
        """Return the number of used tokens, including the maximum usage of open attempts."""
        return self.used.tokens

    @property
    def cost(self) -> float:
        """Return the cost of the used tokens, or 0 without a price."""
        return self.cost_of(self.used)

    def reserve(self, most: Usage) -> None:
        """Count the maximum usage of an attempt that is about to be sent.

        Raises:
            BudgetError: If the attempt could exceed a limit.
        """
        self._require_affordable(most)
        self.requests += 1
        self.used = self.used.plus(most)

    def settle(self, most: Usage, took: Usage) -> None:
        """Replace the maximum usage of an attempt by its actual usage."""
        difference = Usage(took.prompt_tokens - most.prompt_tokens, took.output_tokens - most.output_tokens)
        self.used = self.used.plus(difference)

    @contextmanager
    def reserve_for_later(self, tokens: int) -> Iterator[None]:
        """Reserve tokens for later requests while the block runs.

        Raises:
            BudgetError: If fewer than ``tokens`` tokens remain.
        """
        self._require_affordable(Usage(tokens))
        self.reserved += tokens
        try:
            yield
        finally:
            self.reserved -= tokens

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of a usage, or 0 without a price."""
        return (usage.prompt_tokens * self.price_in + usage.output_tokens * self.price_out) / MILLION

    def _require_affordable(self, most: Usage) -> None:
        self._require_within([self], self.limits, most, f"{{}} in {self.entry}")
        self._require_within(self.shared.budgets, self.shared.limits, most, "--{}")

    def _require_within(self, budgets: Sequence[Budget], limits: Limits, most: Usage, setting: str) -> None:
        """Raise BudgetError if the budgets, their reserved tokens and an attempt could together exceed the limits.

        Args:
            budgets: Budgets whose sum the limits apply to. This budget is one of them.
            limits: Limits.
            most: Maximum usage of the attempt.
            setting: Template for the name of the setting that a user can raise, for error messages.
        """
        n_requests = 0
        n_tokens = 0
        n_reserved = 0
        cost = 0.0
        cost_after = 0.0
        for budget in budgets:
            n_requests += budget.requests
            n_tokens += budget.tokens
            n_reserved += budget.reserved
            cost += budget.cost
            usage_after = budget.used.plus(Usage(budget.reserved))
            if budget is self:
                usage_after = usage_after.plus(most)
            cost_after += budget.cost_of(usage_after)
        for name, limit, used, after in (
            ("max_requests", limits.max_requests, n_requests, n_requests + 1),
            ("max_tokens", limits.max_tokens, n_tokens, n_tokens + n_reserved + most.tokens),
            ("max_cost", limits.max_cost, cost, cost_after),
        ):
            if limit is None or after <= limit:
                continue
            reserved = f", {n_reserved:,} tokens are reserved for checking the model" if n_reserved else ""
            option = setting.format(name.replace("_", "-") if setting.startswith("--") else name)
            raise BudgetError(
                f"the next request could exceed the limit of {name.removeprefix('max_')}: {_format(used)} of "
                f"{_format(limit)} are used{reserved}, and the request could raise this number to {_format(after)}. "
                f"All answers so far are stored. To continue, raise {option}."
            )


def _format(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4f}"
