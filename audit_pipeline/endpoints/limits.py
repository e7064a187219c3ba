"""The limits of what a command, or a run, may send to a model behind an interface: in tokens and in money.

What belongs here: which limits hold, and for which endpoints. What does not: keeping to them (budget.py, together.py),
how users say them (cli/, operate/dagster/resources.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError, ConfigError

if TYPE_CHECKING:
    from audit_pipeline.models.config import Endpoint, ModelEntry


@dataclass(frozen=True)
class Limits:
    """What a user allows all endpoints of a command together; None: no limit but those of the models' entries.

    Each endpoint keeps to the limits of its own entry besides.
    """

    max_tokens: int | None = None
    max_cost: float | None = None

    def for_model(self, entry: ModelEntry) -> Limits:
        """These limits, for a command that runs a model; raises ConfigError where they have no meaning for it."""
        asked = behind_interfaces(entry)
        if not asked and self != Limits():
            raise ConfigError(
                f"{entry.name} runs on this machine, nothing is sent: leave --max-tokens and --max-cost out"
            )
        for one, endpoint in asked:
            if self.max_cost is not None and endpoint.price_per_million is None:
                raise ConfigError(
                    f"{one.name} has no price: give price_per_million in its entry, or leave --max-cost out"
                )
        return self

    def less(self, tokens: int, cost: float) -> Limits:
        """What is left of them when so much was sent."""
        return Limits(
            None if self.max_tokens is None else max(0, self.max_tokens - tokens),
            None if self.max_cost is None else max(0.0, self.max_cost - cost),
        )


def cost_of(tokens: int, endpoint: Endpoint) -> float:
    """What so many tokens cost by the price in an entry; 0 without one."""
    return tokens * (endpoint.price_per_million or 0.0) / 1e6


def behind_interfaces(entry: ModelEntry) -> Sequence[tuple[ModelEntry, Endpoint]]:
    """The model and its reference model, in this order, as far as they are behind interfaces."""
    both = (entry, _reference(entry))
    return [(one, one.endpoint) for one in both if one is not None and one.endpoint is not None]


def _reference(entry: ModelEntry) -> ModelEntry | None:
    if entry.reference_model is None:
        return None
    # Imported where a reference model is named: who asks for a command's help waits for nothing.
    from audit_pipeline.models.config import load_models, resolve_model  # noqa: PLC0415

    try:
        return resolve_model(entry.reference_model, load_models())
    except AuditError:
        # Whoever runs it says what is wrong with it; an audit goes on without.
        return None
