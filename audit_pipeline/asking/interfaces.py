"""How each interface is asked in words, and where its answers say what: those of OpenAI (chat and completions),
Anthropic and Google. Requests are sent by endpoints/client.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from audit_pipeline.asking.config import ChatModel
from audit_pipeline.endpoints.budget import Usage
from audit_pipeline.endpoints.client import PassingError, ServerAnswer, ServerRequest

KEY_HEADERS: Mapping[str, str] = {
    "openai": "Authorization",
    "anthropic": "x-api-key",
    "gemini": "x-goog-api-key",
}
_COUNTS = {
    "openai": ("usage", ("prompt_tokens",), ("completion_tokens",)),
    "anthropic": (
        "usage",
        ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        ("output_tokens",),
    ),
    "gemini": ("usageMetadata", ("promptTokenCount",), ("candidatesTokenCount", "thoughtsTokenCount")),
}
"""Where each interface counts tokens: those of the prompt, and those of the answer."""
# What an interface's template may put around a prompt: roles, the date, a line of its own.
_TEMPLATE_TOKENS = 100
# What comes with an answer (filters, citations, signatures), and the most of a token: JSON escapes a byte in up to six.
_FIXED_BYTES, _BYTES_PER_ANSWER_TOKEN = 1 << 20, 256
# Python refuses to read longer ones.
_DIGITS = 100


class Prompt(NamedTuple):
    """What is asked: the user's words, and what the model is told before them."""

    system: str | None
    user: str


class Sampling(NamedTuple):
    """How an answer is drawn. ``temperature`` None is not sent; nor is ``seed`` to Anthropic, which takes none."""

    temperature: float | None
    max_tokens: int
    seed: int | None = None


class ChatAnswer(NamedTuple):
    """What an answer says, in the interface's own words; ``counts``: tokens of prompt and answer as it counts them."""

    text: str
    finish_reason: str | None
    answered_by: str | None
    request_id: str | None
    counts: tuple[Any, Any] | None


def compute_most_usage(prompt: Prompt, sampling: Sampling) -> Usage:
    """The most tokens of a request, by the bytes that are sent: models cut text into tokens of a byte or more."""
    sent = len(prompt.user.encode()) + len((prompt.system or "").encode())
    return Usage(sent + _TEMPLATE_TOKENS, sampling.max_tokens)


def build_chat_request(entry: ChatModel, prompt: Prompt, sampling: Sampling) -> ServerRequest:
    """What is sent to ``entry`` for a prompt."""
    provider, _, model = entry.model.partition("/")
    settings = {"temperature": sampling.temperature, "seed": sampling.seed}
    messages = [{"role": "user", "content": prompt.user}]
    headers: Mapping[str, str] = {}
    body: dict[str, Any]
    if provider == "anthropic":
        path, headers = "v1/messages", {"anthropic-version": "2023-06-01"}
        body = {"model": model, "system": prompt.system, "messages": messages, "max_tokens": sampling.max_tokens}
        body["temperature"] = sampling.temperature
    elif provider == "gemini":
        path = f"models/{quote(model)}:generateContent"
        body = {
            "systemInstruction": None if prompt.system is None else {"parts": [{"text": prompt.system}]},
            "contents": [{"role": "user", "parts": [{"text": prompt.user}]}],
            "generationConfig": _drop_missing({"maxOutputTokens": sampling.max_tokens, **settings}),
        }
    elif entry.interface == "completions":
        path = "completions"
        words = prompt.user if prompt.system is None else f"{prompt.system}\n\n{prompt.user}"
        body = {"model": model, "prompt": words, "max_tokens": sampling.max_tokens, **settings}
    else:
        path = "chat/completions"
        system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        # OpenAI itself, and models that reason, refuse the older name; other servers may not know the newer.
        is_newer = entry.url is None or sampling.temperature is None
        most = {"max_completion_tokens" if is_newer else "max_tokens": sampling.max_tokens}
        body = {"model": model, "messages": [*system, *messages], **most, **settings}
    base = entry.address.rstrip("/")
    return ServerRequest(
        f"{base.removesuffix('/v1') if provider == 'anthropic' else base}/{path}",
        _drop_missing(body),
        compute_most_usage(prompt, sampling),
        _FIXED_BYTES + sampling.max_tokens * _BYTES_PER_ANSWER_TOKEN,
        headers,
        "\n".join(filter(None, prompt)),
    )


def _drop_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def read_chat_answer(entry: ChatModel, answer: ServerAnswer) -> ChatAnswer:
    """What an answer says; raises PassingError where it cannot be read."""
    try:
        reply = json.loads(answer.body, parse_int=lambda digits: int(digits[:_DIGITS]))
        text, reason = _read_text(entry, reply)
        name, prompt_names, answer_names = _COUNTS[entry.provider]
        usage = reply.get(name)
        is_counted = isinstance(usage, dict)
        counts = (_add_counts(usage, prompt_names), _add_counts(usage, answer_names)) if is_counted else None
        return ChatAnswer(
            _clean(text) or "",
            _clean(reason),
            _clean(reply.get("model") or reply.get("modelVersion")),
            find_request_id(answer, reply),
            counts,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise PassingError("its answer cannot be read") from error


def find_request_id(answer: ServerAnswer, reply: Mapping[str, Any]) -> str | None:
    """The interface's own number of the request."""
    headers = answer.headers
    return _clean(
        headers.get("x-request-id") or headers.get("request-id") or reply.get("responseId") or reply.get("id")
    )


def _read_text(entry: ChatModel, reply: Mapping[str, Any]) -> tuple[str, Any]:
    """The words of an answer, and why it ended."""
    if entry.provider == "anthropic":
        parts = [part for part in reply["content"] if part["type"] == "text"]
        return "".join(part["text"] for part in parts), reply.get("stop_reason")
    if entry.provider == "gemini":
        if not reply.get("candidates"):
            return "", reply["promptFeedback"]["blockReason"]
        candidate = reply["candidates"][0]
        parts = candidate.get("content", {}).get("parts", ())
        return "".join(part.get("text", "") for part in parts if not part.get("thought")), candidate.get("finishReason")
    choice = reply["choices"][0]
    content = choice["text"] if entry.interface == "completions" else choice["message"]["content"] or ""
    words = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return words, choice.get("finish_reason")


def _add_counts(usage: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The sum of the counts that are there; one that is none as it is, and None where none is there."""
    found = [usage[name] for name in names if usage.get(name) is not None]
    wrong = [count for count in found if type(count) is not int or count < 0]
    return wrong[0] if wrong else sum(found) if found else None


def _clean(value: Any) -> str | None:
    """As a string that a table takes: half a character of UTF-16, which JSON can hold, is replaced."""
    return None if value is None else str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
