"""What a command would send to a model behind an interface, and what a pass would take: for --dry-run.

What belongs here: both in words. What does not: limits and budgets (endpoints/), the commands. Heavy packages are
imported where they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit_pipeline.operate.console import say

if TYPE_CHECKING:
    from audit_pipeline.cluster.engine import Engine
    from audit_pipeline.endpoints.limits import Limits
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.load import TokenizedModel


def seconds_of(model: TokenizedModel, tokens: int, device: str | None, engine: Engine) -> float | None:
    """About how long ``tokens`` tokens take; None: the speed of a server, or of a Ray cluster, is not known."""
    if model.entry.endpoint is not None or engine.name == "ray":
        return None
    from audit_pipeline.models.weights import default_device
    from audit_pipeline.token_statistics.estimate import seconds_for

    return seconds_for(model, tokens, device or default_device())


def say_workers(engine: Engine) -> None:
    """What a dry run cannot know of a Ray cluster, which it does not reach for."""
    count = "as many workers as it has room for" if engine.workers is None else f"{engine.workers} workers"
    say(
        f"The model would be run by a Ray cluster, which is asked for {count}. How long it takes, and whether the "
        "weights fit its machines, is not known here.",
        cluster={"workers": engine.workers},
    )


def about(seconds: float | None) -> str:
    """The time of a pass in words."""
    return "not known" if seconds is None else f"about {seconds:,.0f} s"


def say_sending(entry: ModelEntry, tokens: int, limits: Limits) -> None:
    """Where the texts would be sent, how many tokens, what they cost, and whether the limits let them; nothing for a
    model that runs here. ``limits`` are those that hold for the model."""
    endpoint = entry.endpoint
    if endpoint is None:
        return
    from audit_pipeline.endpoints.in_use import sent_to

    price = endpoint.price_per_million
    cost = None if price is None else tokens * price / 1e6
    money = "no price is given" if cost is None else f"about {cost:,.4g} by the price in its entry"
    say(f"{entry.name}: {sent_to(endpoint)}. About {tokens:,} tokens would be sent; {money}.")
    allowed = [] if limits.max_tokens is None else [f"{limits.max_tokens:,} tokens"]
    allowed += [] if limits.max_cost is None else [f"a cost of {limits.max_cost:,.4g}"]
    over_tokens = limits.max_tokens is not None and tokens > limits.max_tokens
    is_over = over_tokens or (limits.max_cost is not None and cost is not None and cost > limits.max_cost)
    if not allowed:
        words = "No limit is set: --max-tokens and --max-cost set one, and so does the model's entry."
    elif is_over:
        words = f"The limit of {' and '.join(allowed)} does not suffice: the run stops there, and the next one goes on."
    else:
        words = f"The limit of {' and '.join(allowed)} suffices."
    sending = {"url": endpoint.url, "tokens": tokens, "cost": cost, "exceeds_limit": is_over}
    say(words, sending={**sending, "max_tokens": limits.max_tokens, "max_cost": limits.max_cost})
