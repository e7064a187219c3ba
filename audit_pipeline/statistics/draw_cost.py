"""The number of samples that must be drawn from a model until it reproduces a passage, and their cost."""

from __future__ import annotations

import math


def compute_log_draws(log_p: float, p: float = 0.5) -> float:
    """Return the log of the number of draws n that yield a suffix at least once with probability p.

    n = ln(1 - p) / ln(1 - p_z), with p_z the probability of the suffix ((n, p)-discoverable extraction, Hayes et al.
    2025). The computation uses logs, because p_z may be far below the smallest float.

    Args:
        log_p: The log of p_z, in nats.
        p: The probability of at least one reproduction.
    """
    if log_p >= 0.0:
        return 0.0
    # For a tiny p_z, -ln(1 - p_z) is p_z itself.
    log_rate = log_p if log_p < -30.0 else math.log(-math.log1p(-math.exp(log_p)))
    return max(0.0, math.log(-math.log1p(-p)) - log_rate)


def compute_log_cost_of_draws(log_p: float, tokens: int, price_per_million: float) -> float:
    """Return the log of the cost of the draws that yield a suffix at least once with probability 0.5.

    Args:
        log_p: The log of the probability of the suffix, in nats.
        tokens: Number of sent and received tokens per draw.
        price_per_million: The price of a million tokens, above 0.
    """
    return compute_log_draws(log_p) + math.log(tokens * price_per_million / 1e6)
