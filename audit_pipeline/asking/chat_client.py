"""Asking a model that answers in words within limits, through the one client of model servers (endpoints/client.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from audit_pipeline.asking.config import FILE_NAME, ChatModel
from audit_pipeline.asking.interfaces import (
    KEY_HEADERS,
    Prompt,
    Sampling,
    build_chat_request,
    compute_most_usage,
    find_request_id,
    read_chat_answer,
)
from audit_pipeline.endpoints.budget import Budget, Limits, SharedBudget, Usage
from audit_pipeline.endpoints.client import PATIENCE, Client, RefusedError, ServerAnswer
from audit_pipeline.errors import AuditError, ConfigError, ModelError
from audit_pipeline.fetch.retry import RetryPolicy

# Of all tokenizers in use none cuts prose into longer tokens on the mean.
_BYTES_PER_TOKEN = 16
_REFUSALS = range(400, 500)
_FILTERED = "content_filter"
_FILTER_CODES = ("content_filter", "content_policy_violation", "invalid_prompt")
"""OpenAI's and Azure's, with status 400."""

K = TypeVar("K")


@dataclass(frozen=True)
class ChatReply:
    """An answer. ``finish_reason`` and ``provider_request_id`` are the interface's own; tokens as it counts them.

    ``seconds`` and ``asked_at`` are those of the attempt that was answered. ``cost`` is by the entry's prices.
    """

    text: str
    finish_reason: str | None
    answered_by: str | None
    provider_request_id: str | None
    asked_at: datetime
    seconds: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


class Estimate(NamedTuple):
    """Requests, and the most tokens (prompts and answers) and money that they can take; no attempt counted twice."""

    requests: int
    tokens: int
    cost: float | None


def estimate(entry: ChatModel, requests: Iterable[tuple[Prompt, Sampling]]) -> Estimate:
    """The most that ``requests`` can take, by the bounds that limits are kept with."""
    bounds = [compute_most_usage(*request) for request in requests]
    most = Usage(sum(bound.prompt_tokens for bound in bounds), sum(bound.output_tokens for bound in bounds))
    return Estimate(len(bounds), most.tokens, entry.cost_of(*most))


def open_budget(entry: ChatModel, limits: Limits) -> Budget:
    """What one run may take of ``entry``: the entry's own limits and ``limits``, whichever is stricter.

    Raises ConfigError for a limit in money where the entry has no price.
    """
    if limits.max_cost is not None and entry.price_in is None:
        raise ConfigError(f"{entry.name} has no price: give price_in and price_out, or leave --max-cost out")
    own = Limits(entry.max_tokens, entry.max_cost, entry.max_requests)
    place = f"{entry.name} of {FILE_NAME}"
    return Budget(own, entry.price_in or 0.0, entry.price_out or 0.0, SharedBudget(limits), place)


def ask_all(
    entry: ChatModel,
    requests: Iterable[tuple[K, Prompt, Sampling]],
    budget: Budget,
    on_reply: Callable[[K, ChatReply], None],
    tell: Callable[[str], None],
    *,
    patience: RetryPolicy = PATIENCE,
) -> None:
    """Ask ``entry`` all ``requests``, taken when there is room for one more, and give ``on_reply`` each answer.

    ``on_reply`` is called in this thread, once at a time, in whatever order answers come. ``tell`` is called with what
    is tried again. Raises as :meth:`Client.iterate_answers`, and what ``on_reply`` raises. What is under way then is
    waited for and handed over first, since it is paid for: of several errors the first is raised. No message holds the
    key or a prompt. Ctrl-C ends it at once.
    """
    client = Client(
        f"{entry.name} at {entry.host}",
        entry,
        budget,
        place=f"{entry.name} in config/{FILE_NAME}",
        key_header=KEY_HEADERS[entry.provider],
        tell=tell,
        patience=patience,
    )
    reader = _ReplyReader(entry, budget, tell)
    fault: Exception | None = None

    def iterate_until_fault() -> Iterator[tuple[K, Prompt, Sampling]]:
        for request in requests:
            yield request
            if fault is not None:
                return

    answers = client.iterate_answers(
        iterate_until_fault(),
        lambda request: build_chat_request(entry, request[1], request[2]),
        reader.read,
        read_refusal=reader.read_filtered,
    )
    try:
        with closing(answers):
            for replies in answers:
                for key, reply in replies:
                    try:
                        on_reply(key, reply)
                    except Exception as error:  # noqa: BLE001 - raised once all that is paid for is handed over
                        fault = fault or error
    except RefusedError as error:
        hint = "; for models that take none say temperature: null" if "temperature" in error.words else ""
        fault = fault or ModelError(f"{error}{hint}")
    except AuditError as error:
        fault = fault or error
    if fault is not None:
        raise fault


class _ReplyReader:
    """Reads answers, and puts what they took in the place of the most that they could."""

    def __init__(self, entry: ChatModel, budget: Budget, tell: Callable[[str], None]) -> None:
        self._entry, self._budget, self._tell = entry, budget, tell
        self._has_told_counts = False

    def read(self, request: tuple[K, Prompt, Sampling], answer: ServerAnswer) -> tuple[K, ChatReply]:
        """The reply, with the request's key; raises PassingError where it cannot be read."""
        key, prompt, sampling = request
        found = read_chat_answer(self._entry, answer)
        reply = ChatReply(
            found.text, found.finish_reason, found.answered_by, found.request_id, answer.asked_at, answer.seconds
        )
        if found.counts is None:
            return key, reply
        most = compute_most_usage(prompt, sampling)
        took = self._bound_counts(found.counts, "\n".join(filter(None, prompt)), found.text, most)
        self._budget.settle(most, took)
        return key, replace(reply, **took._asdict(), cost=self._entry.cost_of(*took))

    def read_filtered(self, request: tuple[K, Prompt, Sampling], answer: ServerAnswer) -> tuple[K, ChatReply] | None:
        """The reply where the interface says by an error that a filter held the answer back; None for other refusals.

        A refusal takes no tokens.
        """
        if answer.status in _REFUSALS:
            key, prompt, sampling = request
            self._budget.settle(compute_most_usage(prompt, sampling), Usage())
            with suppress(ValueError, LookupError, TypeError, RecursionError):
                if json.loads(answer.body)["error"]["code"] in _FILTER_CODES:
                    request_id = find_request_id(answer, {})
                    return key, ChatReply("", _FILTERED, None, request_id, answer.asked_at, answer.seconds)
        return None

    def _bound_counts(self, counts: tuple[Any, Any], prompt: str, text: str, most: Usage) -> Usage:
        """As many tokens as the server counts, as far as there can be so many.

        What is sent and what comes have at least so many tokens as words; a count that is none, or above what was asked
        for, is replaced by the most.
        """
        least = (max(1, _count_least_tokens(prompt)), _count_least_tokens(text))
        # A side that is not counted of an answer without words is no fault: Google's says nothing of it.
        given = [0 if count is None and not fewest else count for count, fewest in zip(counts, least, strict=True)]
        bounded = Usage(
            *(
                max(count, fewest) if type(count) is int and min(1, fewest) <= count <= largest else largest
                for count, fewest, largest in zip(given, least, most, strict=True)
            )
        )
        if list(bounded) != given and not self._has_told_counts:
            self._has_told_counts = True
            counted = " and ".join(str(count)[:20] for count in given)
            self._tell(
                f"{self._entry.name}: the server counts {counted} tokens of prompt and answer, which cannot be: "
                f"{bounded.prompt_tokens:,} and {bounded.output_tokens:,} are counted, and such counts are replaced "
                "from now on"
            )
        return bounded


def _count_least_tokens(text: str) -> int:
    return max(len(text.split()), -(-len(text.encode()) // _BYTES_PER_TOKEN))
