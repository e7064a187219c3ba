"""Limits of one command or run on requests, tokens and money for servers, counted before each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from audit_pipeline.errors import AuditError, BudgetError, ConfigError

if TYPE_CHECKING:
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.server_settings import Endpoint

MILLION = 1_000_000


class Usage(NamedTuple):
    """Numbers of tokens of prompts and of responses. With a single price, all tokens count as tokens of prompts."""

    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Return the number of all tokens."""
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return the sum with another usage."""
        return Usage(self.prompt_tokens + other.prompt_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True)
class Limits:
    """The limits that a user sets for all servers of a command together. None means no limit.

    Each server also observes the limits of its entry.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    max_requests: int | None = None

    def require_usable_for(self, entry: ModelEntry) -> Limits:
        """Return these limits for a command that runs a model.

        Raises:
            ConfigError: If the limits do not apply to the model.
        """
        models = find_endpoint_models(entry)
        if not models and self != Limits():
            raise ConfigError(
                f"{entry.name} runs on this machine, so nothing is sent: omit --max-tokens and --max-cost"
            )
        for model, endpoint in models:
            if self.max_cost is not None and endpoint.price_per_million is None:
                raise ConfigError(f"{model.name} has no price: set price_per_million in its entry, or omit --max-cost")
        return self

    def subtract(self, tokens: int, cost: float) -> Limits:
        """Return the limits that remain after ``tokens`` tokens at ``cost``."""
        limits = self
        if self.max_tokens is not None:
            limits = replace(limits, max_tokens=max(0, self.max_tokens - tokens))
        if self.max_cost is not None:
            limits = replace(limits, max_cost=max(0.0, self.max_cost - cost))
        return limits


def find_endpoint_models(entry: ModelEntry) -> Sequence[tuple[ModelEntry, Endpoint]]:
    """Return the model and its reference model, in this order, without models on this machine."""
    models = [entry]
    if entry.reference_model is not None:
        # This import is slow, and the help of a command must not wait for it.
        from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415

        # An audit continues without a broken reference model. Running the model reports the problem.
        with suppress(AuditError):
            models.append(resolve_model(entry.reference_model, load_models()))
    return [(model, model.endpoint) for model in models if model.endpoint is not None]


@dataclass
class SharedBudget:
    """The common limits and budgets of all servers of one command or run."""

    limits: Limits = field(default_factory=Limits)
    budgets: list[Budget] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Return the number of tokens for all servers."""
        return sum(budget.tokens for budget in self.budgets)

    @property
    def cost(self) -> float:
        """Return the cost of all servers with known prices."""
        return sum(budget.cost for budget in self.budgets)


@dataclass
class Budget:
    """Counter for one server. It counts each attempt at its maximum size before the attempt is sent.

    An attempt without a response stays counted, because the server may have worked on it. A budget is not thread-safe.

    Attributes:
        limits: Limits of the server's entry.
        price_in: Price of a million tokens of prompts.
        price_out: Price of a million tokens of responses.
        shared: Limits that all servers of the command share.
        entry: Name of the entry, for messages.
        requests: Number of attempts.
        used: Tokens of finished attempts, plus the maximum of running ones.
        reserved: Tokens that :meth:`reserve_for_later` holds back.
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
        """Return the number of counted tokens: those of finished attempts, plus the maximum of running ones."""
        return self.used.tokens

    @property
    def cost(self) -> float:
        """Return the cost of the counted tokens, or 0 without prices."""
        return self.cost_of(self.used)

    def reserve(self, most: Usage) -> None:
        """Count an attempt that is about to be sent.

        Raises:
            BudgetError: If the attempt could exceed a limit.
        """
        self._require_affordable(most)
        self.requests += 1
        self.used = self.used.plus(most)

    def settle(self, most: Usage, took: Usage) -> None:
        """Replace the maximum size of an attempt by its actual size."""
        self.used = self.used.plus(
            Usage(took.prompt_tokens - most.prompt_tokens, took.output_tokens - most.output_tokens)
        )

    @contextmanager
    def reserve_for_later(self, tokens: int) -> Iterator[None]:
        """Hold ``tokens`` back for later requests inside this block.

        Raises:
            BudgetError: If fewer tokens remain.
        """
        self._require_affordable(Usage(tokens))
        self.reserved += tokens
        try:
            yield
        finally:
            self.reserved -= tokens

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of ``usage``, or 0 without prices."""
        return (usage.prompt_tokens * self.price_in + usage.output_tokens * self.price_out) / MILLION

    def _require_affordable(self, most: Usage) -> None:
        self._require_within([self], self.limits, most, f"{{}} in {self.entry}")
        self._require_within(self.shared.budgets, self.shared.limits, most, "--{}")

    def _require_within(self, budgets: Sequence[Budget], limits: Limits, most: Usage, setting: str) -> None:
        """Raise BudgetError if ``budgets`` and an attempt of size ``most`` would exceed ``limits``.

        ``setting`` is the pattern of the setting's name in the message.
        """
        requests = 0
        tokens = 0
        reserved = 0
        cost = 0.0
        cost_after = 0.0
        for budget in budgets:
            requests += budget.requests
            tokens += budget.tokens
            reserved += budget.reserved
            cost += budget.cost
            usage = budget.used.plus(Usage(budget.reserved))
            if budget is self:
                usage = usage.plus(most)
            cost_after += budget.cost_of(usage)
        for name, limit, used, after in (
            ("max_requests", limits.max_requests, requests, requests + 1),
            ("max_tokens", limits.max_tokens, tokens, tokens + reserved + most.tokens),
            ("max_cost", limits.max_cost, cost, cost_after),
        ):
            if limit is not None and after > limit:
                held_back = ""
                if reserved:
                    held_back = f", {reserved:,} tokens are kept for checking the model"
                setting_name = setting.format(name)
                if setting.startswith("--"):
                    setting_name = setting_name.replace("_", "-")
                raise BudgetError(
                    f"the limit of {name.removeprefix('max_')} is reached: {_format(used)} of {_format(limit)} are used"
                    f"{held_back}, and with the next request it could be {_format(after)}; responses so far are kept: "
                    f"raise {setting_name}"
                )


def _format(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4f}"
