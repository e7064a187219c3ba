"""How often a model has to be asked until it gives a passage, and what that costs."""

from __future__ import annotations

import math


def compute_log_draws(log_p: float, p: float = 0.5) -> float:
    """The log of how many draws give a suffix at least once with probability ``p``: n = ln(1 - p) / ln(1 - p_z).

    In logs, since p_z may be far below the smallest float (Hayes et al. 2025, the (n, p)-discoverable extraction).
    """
    if log_p >= 0.0:
        return 0.0
    # -ln(1 - p_z), and where p_z is tiny p_z itself.
    log_rate = log_p if log_p < -30.0 else math.log(-math.log1p(-math.exp(log_p)))
    return max(0.0, math.log(-math.log1p(-p)) - log_rate)


def compute_log_cost_of_draws(log_p: float, tokens: int, price_per_million: float) -> float:
    """The log of what those draws cost for p = 0.5 where each sends and gives ``tokens`` tokens together, by the price
    of a million tokens, above 0."""
    return compute_log_draws(log_p) + math.log(tokens * price_per_million / 1e6)
