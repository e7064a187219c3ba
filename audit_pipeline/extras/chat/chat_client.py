"""Asking a model that answers in words within limits: requests and answers of OpenAI's interface (chat and
completions), which the providers have too, sent through the one client of model servers (extras/servers/client.py).
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
from audit_pipeline.http.faults import RetryableError
from audit_pipeline.http.retry import RetryPolicy
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, Usage

# What an interface's template may put around a prompt: roles, the date, a line of its own.
_TEMPLATE_TOKENS = 100
# What comes with an answer (filters, citations, signatures), and the most of a token: JSON escapes a byte in up to six.
_FIXED_BYTES, _BYTES_PER_ANSWER_TOKEN = 1 << 20, 256
_FILTER_CODES = ("content_filter", "content_policy_violation", "invalid_prompt")
"""OpenAI's and Azure's, with status 400."""

K = TypeVar("K")


class ChatPrompt(NamedTuple):
    """What is asked: the user's words, and what the model is told before them."""

    system: str | None
    user: str


class Sampling(NamedTuple):
    """How an answer is drawn. What is None is not sent."""

    temperature: float | None
    max_tokens: int
    seed: int | None = None


@dataclass(frozen=True)
class ChatReply:
    """An answer. ``finish_reason`` and ``provider_request_id`` are the server's own; tokens as it counts them."""

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
    """Requests, and the most tokens (prompts and answers) and money that they can take; no attempt counted twice."""

    requests: int
    tokens: int
    cost: float | None


def estimate_usage(entry: ChatModel, requests: Iterable[tuple[ChatPrompt, Sampling]]) -> CostEstimate:
    """Return the most that ``requests`` can take, by the bounds that limits are kept with."""
    bounds = [compute_max_usage(*request) for request in requests]
    most = Usage(sum(bound.prompt_tokens for bound in bounds), sum(bound.output_tokens for bound in bounds))
    return CostEstimate(len(bounds), most.tokens, entry.cost_of(*most))


def open_budget(entry: ChatModel, limits: Limits) -> Budget:
    """Return what one run may take of ``entry``: the entry's own limits and ``limits``, whichever is stricter.

    Raises ConfigError for a limit in money where the entry has no price.
    """
    if limits.max_cost is not None and entry.price_in is None:
        raise ConfigError(f"{entry.name} has no price: give price_in and price_out, or leave --max-cost out")
    own = Limits(entry.max_tokens, entry.max_cost, entry.max_requests)
    place = f"{entry.name} of {FILE_NAME}"
    return Budget(own, entry.price_in or 0.0, entry.price_out or 0.0, SharedBudget(limits), place)


def ask_all(
    entry: ChatModel,
    requests: Iterable[tuple[K, ChatPrompt, Sampling]],
    budget: Budget,
    on_reply: Callable[[K, ChatReply], None],
    notify: Callable[[str], None],
    *,
    patience: RetryPolicy = PATIENCE,
) -> None:
    """Ask ``entry`` all ``requests``, taken when there is room for one more, and give ``on_reply`` each answer.

    ``on_reply`` is called in this thread, in whatever order answers come. ``notify`` is called with what
    is tried again. Raises as :meth:`Client.iterate_answers`, and what ``on_reply`` raises. No message holds the key or
    a prompt.
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
        """Return the reply where the interface says by an error that a filter held it back. It takes no tokens."""
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
    keyed = (((key, request.most), request) for key, request in built)
    try:
        with closing(client.iterate_answers(keyed, read, read_refusal=read_filtered)) as answers:
            for key, reply in chain.from_iterable(answers):
                on_reply(key, reply)
    except RefusedError as error:
        if "temperature" not in error.server_message:
            raise
        raise ModelError(f"{error}; for models that take none say temperature: null") from error


def compute_max_usage(prompt: ChatPrompt, sampling: Sampling) -> Usage:
    """Return the most tokens of a request, by the bytes that are sent: a token is a byte or more."""
    sent = len(prompt.user.encode()) + len((prompt.system or "").encode())
    return Usage(sent + _TEMPLATE_TOKENS, sampling.max_tokens)


def build_chat_request(entry: ChatModel, prompt: ChatPrompt, sampling: Sampling) -> ServerRequest:
    """Return a prompt in the entry's interface."""
    most = "max_tokens"
    body: dict[str, Any]
    if entry.interface == "completions":
        path = "completions"
        body = {"prompt": prompt.user if prompt.system is None else f"{prompt.system}\n\n{prompt.user}"}
    else:
        path = "chat/completions"
        system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        body = {"messages": [*system, {"role": "user", "content": prompt.user}]}
        # Providers, and models that reason, refuse the older name; other servers may not know the newer.
        if entry.url is None or sampling.temperature is None:
            most = "max_completion_tokens"
    settings = {"temperature": sampling.temperature, "seed": sampling.seed}
    return ServerRequest(
        f"{entry.address.rstrip('/')}/{path}",
        {
            "model": entry.model.partition("/")[2],
            **body,
            most: sampling.max_tokens,
            **{name: value for name, value in settings.items() if value is not None},
        },
        compute_max_usage(prompt, sampling),
        _FIXED_BYTES + sampling.max_tokens * _BYTES_PER_ANSWER_TOKEN,
        private="\n".join(filter(None, prompt)),
    )


def read_chat_answer(entry: ChatModel, answer: ServerAnswer, most: Usage) -> ChatReply:
    """Return what an answer says; raises PassingError where it cannot be read.

    A count of tokens that is none, or more than the ``most`` that there can be, is replaced by the most.
    """
    try:
        reply = json.loads(answer.body)
        choice = reply["choices"][0]
        content = choice["text"] if entry.interface == "completions" else choice["message"]["content"] or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        prompt_tokens = output_tokens = cost = None
        if isinstance(usage := reply.get("usage"), dict):
            prompt_tokens = _bound_count(usage.get("prompt_tokens"), 1, most.prompt_tokens)
            output_tokens = _bound_count(usage.get("completion_tokens"), min(1, len(text)), most.output_tokens)
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
        raise RetryableError("its answer cannot be read") from error


def _find_request_id(answer: ServerAnswer, reply: Mapping[str, Any]) -> str | None:
    headers = answer.headers
    return _to_table_text(headers.get("x-request-id") or headers.get("request-id") or reply.get("id"))


def _bound_count(count: Any, least: int, most: int) -> int:
    return count if isinstance(count, int) and least <= count <= most else most


def _to_table_text(value: Any) -> str | None:
    """As a string that a table takes: half a character of UTF-16, which JSON can hold, is replaced."""
    return None if value is None else str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
