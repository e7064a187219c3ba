"""What one run may send to an endpoint, in tokens and in money.

What belongs here: counting, and refusing what would be too much. What does not: estimates before a run
(token_statistics/prepare.py), sending (client.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from audit_pipeline.errors import BudgetError
from audit_pipeline.models.config import Endpoint

MILLION = 1_000_000


@dataclass
class Budget:
    """Counts the tokens of every request before it is sent; None is no limit.

    A request's tokens are those of its prompt and the one that the server generates. A request that is sent again
    counts again: the server may have worked on it the first time.
    """

    max_tokens: int | None = None
    price_per_million: float | None = None
    max_cost: float | None = None
    spent: int = field(default=0, init=False)
    _back: int = field(default=0, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, endpoint: Endpoint, max_tokens: int | None = None, max_cost: float | None = None) -> Self:
        """The limits of an endpoint's entry, unless others are given.

        Raises BudgetError for a limit in money where the entry has no price.
        """
        if max_cost is not None and endpoint.price_per_million is None:
            raise BudgetError("a limit in money needs price_per_million in the endpoint's entry in config/models.yaml")
        return cls(
            endpoint.max_tokens if max_tokens is None else max_tokens,
            endpoint.price_per_million,
            endpoint.max_cost if max_cost is None else max_cost,
        )

    @property
    def cost(self) -> float:
        """What the tokens that were sent cost, by the price; 0 without one."""
        return self._cost_of(self.spent)

    def reserve(self, tokens: int) -> None:
        """Count ``tokens`` that are about to be sent; raises BudgetError where they are too many."""
        self._require(tokens)
        self.spent += tokens

    @contextmanager
    def kept_back(self, tokens: int) -> Iterator[None]:
        """Let ``tokens`` be left for what follows; raises BudgetError where there are not so many."""
        self._require(tokens)
        self._back += tokens
        try:
            yield
        finally:
            self._back -= tokens

    def _require(self, tokens: int) -> None:
        after = self.spent + self._back + tokens
        back = f", {self._back:,} are kept for checking the model" if self._back else ""
        if self.max_tokens is not None and after > self.max_tokens:
            raise BudgetError(
                f"the limit of tokens is reached: {self.spent:,} of {self.max_tokens:,} are sent{back} and the next "
                f"request has {tokens:,}; {_WHAT_NOW.format('max_tokens')}"
            )
        if self.max_cost is not None and self._cost_of(after) > self.max_cost:
            raise BudgetError(
                f"the limit of costs is reached: {self.cost:.4f} of {self.max_cost:.4f} are spent{back} and the next "
                f"request costs {self._cost_of(tokens):.4f}; {_WHAT_NOW.format('max_cost')}"
            )

    def _cost_of(self, tokens: int) -> float:
        return tokens * (self.price_per_million or 0.0) / MILLION


_WHAT_NOW = "what was computed is kept: raise {}, or audit fewer texts"
