"""The limits of what a command, or a run, may send to a model behind an interface: in tokens and in money.

What belongs here: which limits hold. What does not: keeping to them (budget.py), how users say them (cli/,
operate/dagster/resources.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import ConfigError

if TYPE_CHECKING:
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

    def or_stricter(self, endpoint: Endpoint) -> Limits:
        """These limits, or those of an endpoint's entry where they allow less."""
        tokens, cost = (self.max_tokens, endpoint.max_tokens), (self.max_cost, endpoint.max_cost)
        return Limits(
            min((one for one in tokens if one is not None), default=None),
            min((one for one in cost if one is not None), default=None),
        )

    def less(self, tokens: int, cost: float) -> Limits:
        """What is left of them when so much was sent."""
        return Limits(
            None if self.max_tokens is None else max(0, self.max_tokens - tokens),
            None if self.max_cost is None else max(0.0, self.max_cost - cost),
        )
