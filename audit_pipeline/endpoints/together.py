"""What all endpoints of one command, or run, may be sent together.

What belongs here: the one limit that they share. What does not: each endpoint's own (budget.py), and which limits hold
(limits.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.endpoints.limits import Limits
from audit_pipeline.errors import BudgetError


@dataclass
class Together:
    """The budgets of all endpoints, and what they may come to."""

    limits: Limits = field(default_factory=Limits)
    budgets: list[Budget] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """The tokens that were sent, to all endpoints."""
        return sum(one.spent for one in self.budgets)

    @property
    def cost(self) -> float:
        """What they cost, where prices are known."""
        return sum(one.cost for one in self.budgets)

    def require(self, tokens: int, cost: float) -> None:
        """Raise BudgetError where so much more would exceed what all may come to; the caller holds the lock."""
        most, money = self.limits.max_tokens, self.limits.max_cost
        if most is not None and self.tokens + tokens > most:
            raise BudgetError(
                f"the limit of tokens is reached: {self.tokens:,} of {most:,} are sent and the next request has "
                f"{tokens:,}; {_WHAT_NOW.format('--max-tokens')}"
            )
        if money is not None and self.cost + cost > money:
            raise BudgetError(
                f"the limit of costs is reached: {self.cost:.4f} of {money:.4f} are spent and the next request costs "
                f"{cost:.4f}; {_WHAT_NOW.format('--max-cost')}"
            )


_WHAT_NOW = "what was computed is kept: raise {}, or audit fewer texts"


@dataclass
class SharingBudget(Budget):
    """An endpoint's budget within what all endpoints may come to."""

    together: Together = field(default_factory=Together, compare=False)

    def reserve(self, tokens: int) -> None:
        """As Budget.reserve, for the endpoint's own limits and those that all share."""
        with self.together.lock:
            self.together.require(tokens, self._cost_of(tokens))
            super().reserve(tokens)
