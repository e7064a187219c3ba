"""The limits of what a command, or a run, may send to models behind interfaces: in tokens and in money.

What belongs here: which limits hold, and one budget an endpoint for all that is sent there. What does not: counting
(budget.py), and how users say limits (cli/, operate/dagster/resources.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from audit_pipeline.endpoints.budget import Budget
    from audit_pipeline.models.config import Endpoint, ModelEntry


@dataclass(frozen=True)
class Limits:
    """What a user allows; None: what the model's entry says, and where that says nothing there is no limit."""

    max_tokens: int | None = None
    max_cost: float | None = None

    def for_model(self, entry: ModelEntry) -> Limits:
        """The limits that hold for a model; raises ConfigError where they have no meaning for it."""
        endpoint = entry.endpoint
        if endpoint is None:
            if self != Limits():
                raise ConfigError(
                    f"{entry.name} runs on this machine, nothing is sent: leave --max-tokens and --max-cost out"
                )
            return self
        cost = endpoint.max_cost if self.max_cost is None else self.max_cost
        if cost is not None and endpoint.price_per_million is None:
            raise ConfigError(
                f"{entry.name} has no price: give price_per_million in its entry, or leave --max-cost out"
            )
        return Limits(endpoint.max_tokens if self.max_tokens is None else self.max_tokens, cost)


class Budgets:
    """One budget an endpoint, shared by all that is sent there: a reference model has one of its own."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._of: dict[tuple[str, str], Budget] = {}

    def of(self, endpoint: Endpoint) -> Budget:
        """The budget of what is sent to ``endpoint``."""
        # Imported where something is sent: options of commands are made of limits, and are to be there at once.
        from audit_pipeline.endpoints.budget import Budget  # noqa: PLC0415

        place = endpoint.url, endpoint.model
        if place not in self._of:
            cost = self._limits.max_cost if endpoint.price_per_million is not None else None
            self._of[place] = Budget.of(endpoint, self._limits.max_tokens, cost)
        return self._of[place]

    @property
    def tokens(self) -> int:
        """The tokens that were sent."""
        return sum(one.spent for one in self._of.values())

    @property
    def cost(self) -> float:
        """What they cost, where prices are known."""
        return sum(one.cost or 0.0 for one in self._of.values())
