"""What a command would send to a model behind an interface, and what a pass would take: for --dry-run.

What belongs here: both in words. What does not: limits and budgets (endpoints/), the commands. Heavy packages are
imported where they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from audit_pipeline.cli.shared import say_fit
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.operate.console import say
from audit_pipeline.report.numbers import time_to_wait

if TYPE_CHECKING:
    from audit_pipeline.models.load import TokenizedModel
    from audit_pipeline.operate.options import RunOptions


def seconds_of(model: TokenizedModel, tokens: int, options: RunOptions) -> float | None:
    """About how long ``tokens`` tokens take; None: the speed of a server, or of a Ray cluster, is not known."""
    if not model.entry.host.is_here or options.chosen_engine.name == "ray":
        return None
    from audit_pipeline.models.weights import default_device
    from audit_pipeline.token_statistics.estimate import seconds_for

    return seconds_for(model, tokens, options.device or default_device())


def say_room(model: TokenizedModel, options: RunOptions) -> None:
    """Whether the weights fit this machine, and of a Ray cluster, which a dry run does not reach for, what it is asked
    for; nothing of a model behind an interface."""
    engine = options.chosen_engine
    if not model.entry.host.is_here:
        return
    if engine.name != "ray":
        say_fit(model, options.device)
        return
    count = "as many workers as it has room for" if engine.workers is None else f"{engine.workers} workers"
    say(
        f"The model would be run by a Ray cluster, which is asked for {count}. How long it takes, and whether the "
        "weights fit its machines, is not known here.",
        cluster={"workers": engine.workers},
    )


def about(seconds: float | None) -> str:
    """The time of a pass in words."""
    return "not known" if seconds is None else f"about {time_to_wait(seconds)}"


def say_sending(to_send: Sequence[tuple[TokenizedModel, int]], limits: Limits) -> None:
    """Where the texts would be sent, how many tokens, what they cost, and whether the limits let them.

    ``to_send``: the model and its reference model, each with the tokens of its texts; nothing is said of those that run
    here. Asking each server which model it is comes on top, once for the command and once for its run. ``limits`` are
    the command's.
    """
    from audit_pipeline.endpoints.in_use import sending_of

    hosts: list[dict[str, object]] = []
    total, total_cost, no_price, allowed, is_over = 0, 0.0, False, [], False
    for sending in [sending_of(model, tokens) for model, tokens in to_send]:
        if sending is None:
            continue
        name, sent, cost = sending.model, sending.tokens, sending.cost
        money = "no price is given" if cost is None else f"about {cost:,.4g} by the price in its entry"
        say(
            f"{name}: {sending.sent_to}. About {sent:,} tokens would be sent, {sending.probes:,} of them to ask the "
            f"server which model it is; {money}."
        )
        hosts.append({"model": name, "url": sending.url, "tokens": sent, "cost": cost})
        total, total_cost, no_price = total + sent, total_cost + (cost or 0.0), no_price or cost is None
        said, over = _allowed(sending.limits, sent, cost)
        allowed += [f"{one} (the entry of {name})" for one in said]
        is_over = is_over or over
    if not hosts:
        return
    said, over = _allowed(limits, total, total_cost)
    allowed, is_over = [*said, *allowed], is_over or over
    if not allowed:
        words = "No limit is set: --max-tokens and --max-cost set one, and so does the model's entry."
    elif is_over:
        words = f"The limit of {' and '.join(allowed)} does not suffice: the run stops there, and the next one goes on."
    else:
        words = f"The limit of {' and '.join(allowed)} suffices."
    facts = {"url": hosts[0]["url"], "tokens": total, "cost": None if no_price else total_cost}
    most = {"max_tokens": limits.max_tokens, "max_cost": limits.max_cost}
    say(words, sending={**facts, "exceeds_limit": is_over, **most, "hosts": hosts})


def _allowed(limits: Limits, tokens: int, cost: float | None) -> tuple[list[str], bool]:
    """The limits in words, and whether so much would exceed one."""
    said = [] if limits.max_tokens is None else [f"{limits.max_tokens:,} tokens"]
    said += [] if limits.max_cost is None else [f"a cost of {limits.max_cost:,.4g}"]
    over_tokens = limits.max_tokens is not None and tokens > limits.max_tokens
    return said, over_tokens or (limits.max_cost is not None and cost is not None and cost > limits.max_cost)
