"""Prompts to a chat model and its replies, in OpenAI's interface (chat and completions), within a budget.

Commercial providers have this interface, too. The client of model servers (extras/servers/client.py) sends the
requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from audit_pipeline.errors import ConfigError, ModelError
from audit_pipeline.extras.chat.config import FILE_NAME, ChatModel
from audit_pipeline.extras.servers.client import PATIENCE, Client, RefusedError, ServerAnswer, ServerRequest
from audit_pipeline.http.faults import RetryableError, RetryPolicy
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, Usage

# Maximum number of tokens that a server's template adds to a prompt, such as roles, the date and a line of its own.
_TEMPLATE_TOKENS = 100
# Maximum size of a response without its text, in bytes. Filters, citations and signatures take this room.
_FIXED_BYTES = 1 << 20
# Maximum size of an answer token in a response. JSON escapes a byte in up to six bytes.
_BYTES_PER_ANSWER_TOKEN = 256
_FILTER_CODES = ("content_filter", "content_policy_violation", "invalid_prompt")
"""Error codes of OpenAI and Azure for a filtered prompt, with status 400."""

K = TypeVar("K")


class ChatPrompt(NamedTuple):
    """A prompt: the user's message, and an optional system message before it."""

    system: str | None
    user: str


class Sampling(NamedTuple):
    """Settings for sampling an answer. Settings that are None are not sent."""

    temperature: float | None
    max_tokens: int
    seed: int | None = None


@dataclass(frozen=True)
class ChatReply:
    """A reply of a chat model.

    Attributes:
        text: Text of the reply.
        finish_reason: The server's reason for the end of the text.
        answered_by: The server's name for the model.
        provider_request_id: The server's id of the request.
        asked_at: Time when the successful attempt was sent.
        seconds: Duration of the successful attempt.
        prompt_tokens: Number of prompt tokens by the server's count.
        output_tokens: Number of output tokens by the server's count.
        cost: Cost by the prices of the entry.
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


class CostEstimate(NamedTuple):
    """The number of requests, and their maximum number of tokens and cost if each is sent once.

    Tokens of prompts and answers are counted together.
    """

    requests: int
    tokens: int
    cost: float | None


def estimate_usage(entry: ChatModel, requests: Iterable[tuple[ChatPrompt, Sampling]]) -> CostEstimate:
    """Return the maximum number of tokens and the maximum cost of requests, by the same bounds as the budget."""
    bounds = [compute_max_usage(*request) for request in requests]
    most = Usage()
    for bound in bounds:
        most = most.plus(bound)
    return CostEstimate(len(bounds), most.tokens, entry.cost_of(*most))


def open_budget(entry: ChatModel, limits: Limits) -> Budget:
    """Return the budget of a run, with the limits of the entry and of the command.

    Raises:
        ConfigError: If the command has a cost limit, and the entry has no price.
    """
    if limits.max_cost is not None and entry.price_in is None:
        raise ConfigError(
            f"--max-cost requires prices, but the entry of {entry.name} in config/{FILE_NAME} has no prices. Set "
            "price_in and price_out, or remove --max-cost."
        )
    entry_limits = Limits(entry.max_tokens, entry.max_cost, entry.max_requests)
    entry_name = f"{entry.name} of {FILE_NAME}"
    return Budget(entry_limits, entry.price_in or 0.0, entry.price_out or 0.0, SharedBudget(limits), entry_name)


def ask_all(
    entry: ChatModel,
    requests: Iterable[tuple[K, ChatPrompt, Sampling]],
    budget: Budget,
    on_reply: Callable[[K, ChatReply], None],
    notify: Callable[[str], None],
    *,
    patience: RetryPolicy = PATIENCE,
) -> None:
    """Send all requests to a chat model. No error or message about retries contains the API key or a prompt.

    Args:
        entry: Chat model.
        requests: Triples of an identifier that the caller chooses, a prompt and the settings for sampling. A triple is
            read as soon as the entry's concurrency allows its request.
        budget: Budget of the run.
        on_reply: Function that receives each identifier with its reply, in this thread, in the order in which replies
            arrive.
        notify: Function that receives a message about each retry.
        patience: Policy of retries.

    Raises:
        AuditError: If :meth:`Client.iterate_answers` or ``on_reply`` raises it.
    """
    entry_name = f"{entry.name} in config/{FILE_NAME}"
    client = Client(
        f"{entry.name} at {entry.host}", entry, budget, entry_name=entry_name, notify=notify, patience=patience
    )

    def read(keyed: tuple[K, Usage], answer: ServerAnswer) -> tuple[K, ChatReply]:
        key, most = keyed
        reply = read_chat_answer(entry, answer, most)
        if reply.prompt_tokens is not None and reply.output_tokens is not None:
            budget.settle(most, Usage(reply.prompt_tokens, reply.output_tokens))
        return key, reply

    def read_filtered(keyed: tuple[K, Usage], answer: ServerAnswer) -> tuple[K, ChatReply] | None:
        """Return an empty reply if a filter blocked the prompt, else None. The server charges nothing for errors."""
        if not 400 <= answer.status < 500:
            return None
        key, most = keyed
        budget.settle(most, Usage())
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            if json.loads(answer.body)["error"]["code"] in _FILTER_CODES:
                request_id = _find_request_id(answer, {})
                return key, ChatReply("", "content_filter", None, request_id, answer.asked_at, answer.seconds)
        return None

    built = ((key, build_chat_request(entry, prompt, sampling)) for key, prompt, sampling in requests)
    keyed = (((key, request.max_usage), request) for key, request in built)
    try:
        with closing(client.iterate_answers(keyed, read, read_refusal=read_filtered)) as answers:
            for key, reply in chain.from_iterable(answers):
                on_reply(key, reply)
    except RefusedError as error:
        if "temperature" not in error.server_message:
            raise
        raise ModelError(
            f"{error} If the model accepts no temperature, set temperature: null in the entry of {entry.name} in "
            f"config/{FILE_NAME}."
        ) from error


def compute_max_usage(prompt: ChatPrompt, sampling: Sampling) -> Usage:
    """Return the maximum number of tokens of a request. Bytes are counted, because each token has at least one byte."""
    sent = len(prompt.user.encode()) + len((prompt.system or "").encode())
    return Usage(sent + _TEMPLATE_TOKENS, sampling.max_tokens)


def build_chat_request(entry: ChatModel, prompt: ChatPrompt, sampling: Sampling) -> ServerRequest:
    """Return a request for a reply, in the interface of the entry."""
    limit_name = "max_tokens"
    body: dict[str, Any] = {"model": entry.model.partition("/")[2]}
    if entry.interface == "completions":
        path = "completions"
        body["prompt"] = prompt.user if prompt.system is None else f"{prompt.system}\n\n{prompt.user}"
    else:
        path = "chat/completions"
        messages = [{"role": "user", "content": prompt.user}]
        if prompt.system is not None:
            messages.insert(0, {"role": "system", "content": prompt.system})
        body["messages"] = messages
        # Providers and reasoning models refuse the older name. Other servers may not know the newer name.
        if entry.url is None or sampling.temperature is None:
            limit_name = "max_completion_tokens"
    body[limit_name] = sampling.max_tokens
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return ServerRequest(
        f"{entry.address.rstrip('/')}/{path}",
        body,
        compute_max_usage(prompt, sampling),
        _FIXED_BYTES + sampling.max_tokens * _BYTES_PER_ANSWER_TOKEN,
        private="\n".join(filter(None, prompt)),
    )


def read_chat_answer(entry: ChatModel, answer: ServerAnswer, most: Usage) -> ChatReply:
    """Return the chat model's reply that a server's answer contains.

    Args:
        entry: Chat model.
        answer: Answer of the model's server.
        most: Maximum usage of the request. It replaces the server's counts of tokens if they are missing or larger.

    Raises:
        RetryableError: If the answer is unreadable.
    """
    try:
        reply = json.loads(answer.body)
        choice = reply["choices"][0]
        text = _extract_text(entry, choice)
        prompt_tokens = output_tokens = cost = None
        usage = reply.get("usage")
        if isinstance(usage, dict):
            prompt_tokens = _use_maximum_if_implausible(usage.get("prompt_tokens"), 1, most.prompt_tokens)
            output_tokens = _use_maximum_if_implausible(
                usage.get("completion_tokens"), min(1, len(text)), most.output_tokens
            )
            cost = entry.cost_of(prompt_tokens, output_tokens)
        return ChatReply(
            _to_table_text(text) or "",
            _to_table_text(choice.get("finish_reason")),
            _to_table_text(reply.get("model")),
            _find_request_id(answer, reply),
            answer.asked_at,
            answer.seconds,
            prompt_tokens,
            output_tokens,
            cost,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RetryableError("the response does not have the form of OpenAI's interface") from error


def _extract_text(entry: ChatModel, choice: Mapping[str, Any]) -> str:
    content = choice["text"] if entry.interface == "completions" else choice["message"]["content"] or ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content)


def _find_request_id(answer: ServerAnswer, reply: Mapping[str, Any]) -> str | None:
    headers = answer.headers
    return _to_table_text(headers.get("x-request-id") or headers.get("request-id") or reply.get("id"))


def _use_maximum_if_implausible(count: Any, least: int, most: int) -> int:
    """Return the count that a server reported, or the maximum if it is not a whole number from least to most."""
    return count if isinstance(count, int) and least <= count <= most else most


def _to_table_text(value: Any) -> str | None:
    """Return the value as a string for a table, with lone surrogates replaced. JSON allows them, UTF-8 does not."""
    return None if value is None else str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
