"""A server on the loopback interface that answers in words, in four dialects, as a test tells it to.

What belongs here: the routes of OpenAI (chat and completions), Anthropic and Google as far as litellm needs them, and
refusals that quote what nobody should. What does not: tests.

    with ChatServer(lambda prompt: "what it answers") as server:       # or ("", "content_filter"), with the reason
        server.faults = [fault(429, retry_after=1), quoting(401)]      # for the requests to come, one each
        server.pause = 0.1                                             # seconds that every answer takes
        entry = server.entry("anthropic", concurrency=2)               # a ChatModel for it
        assert [one.prompt for one in server.asked] == [...]

``answer`` gets the user's words; a system prompt is in ``asked``. A completions request gets all that was sent. Tokens
are counted in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from bad_server import Answer, BadServer, Request, fault

from audit_pipeline.asking.config import ChatModel

__all__ = ["Asked", "ChatServer", "Dialect", "fault", "quoting"]

Dialect = Literal["chat", "completions", "anthropic", "google"]
Fault = Answer | Callable[[Request], Answer]
_MODELS = {
    "chat": "openai/made-1",
    "completions": "openai/made-1",
    "anthropic": "anthropic/made-1",
    "google": "gemini/made-1",
}
NAME = "made-1-2026"
"""What the server calls its model."""


@dataclass(frozen=True)
class Asked:
    """A request as the server understood it; ``at`` in seconds of time.monotonic."""

    dialect: Dialect
    prompt: str
    system: str | None
    temperature: float | None
    max_tokens: int | None
    seed: int | None
    key: str | None
    at: float


def quoting(status: int) -> Callable[[Request], Answer]:
    """A refusal that quotes the key and the prompt."""

    def refuse(request: Request) -> Answer:
        asked = _understand(request)
        words = f"no: {asked.key} must not ask ({asked.prompt})"
        return _json({"error": {"message": words, "type": "invalid_request_error"}}, status)

    return refuse


class ChatServer:
    """The server, on a free port of 127.0.0.1; a context manager. Safe to be asked by many at a time."""

    def __init__(self, answer: Callable[[str], str | tuple[str, str]] = lambda prompt: "made words") -> None:
        self.answer = answer
        self.faults: list[Fault] = []
        self.pause = 0.0
        self._server = BadServer(otherwise=self._reply)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def requests(self) -> list[Request]:
        """Every request as it came in, those too that met a fault."""
        return self._server.requests

    @property
    def asked(self) -> list[Asked]:
        """The same, understood."""
        return [_understand(request) for request in self._server.requests]

    def entry(self, dialect: Dialect = "chat", name: str = "made", **fields: Any) -> ChatModel:
        """An entry for this server; without a key unless ``key_env`` is given."""
        url = self.url if dialect in ("anthropic", "google") else f"{self.url}/v1"
        interface = "completions" if dialect == "completions" else "chat"
        return ChatModel(**{"name": name, "model": _MODELS[dialect], "url": url, "interface": interface, **fields})

    def stop(self) -> None:
        """No more answers: connections are refused from now on."""
        self._server.stop()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _reply(self, request: Request) -> Answer:
        asked = _understand(request)
        if self.faults:
            next_fault = self.faults.pop(0)
            return next_fault if isinstance(next_fault, Answer) else next_fault(request)
        given = self.answer(asked.prompt)
        text, reason = given if isinstance(given, tuple) else (given, None)
        number = len(self._server.requests)
        reply = _json(_build_reply(asked, text, reason, f"id-{number}"))
        return replace(reply, pause=self.pause, headers={"x-request-id": f"request-{number}"})


def _understand(request: Request) -> Asked:
    path, body = urlsplit(request.path).path, json.loads(request.body)
    key = (
        request.header("authorization")
        or request.header("x-api-key")
        or request.header("x-goog-api-key")
        or request.query.get("key")
    )
    key = None if key is None else key.removeprefix("Bearer ")
    if path.endswith(":generateContent"):
        settings = body.get("generationConfig", {})
        system = body.get("system_instruction") or body.get("systemInstruction")
        return Asked(
            "google",
            _google_text(body["contents"][-1]),
            None if system is None else _google_text(system),
            settings.get("temperature"),
            settings.get("max_output_tokens", settings.get("maxOutputTokens")),
            settings.get("seed"),
            key,
            request.at,
        )
    settings = body.get("temperature"), body.get("max_tokens", body.get("max_completion_tokens")), body.get("seed")
    if path.endswith("/chat/completions"):
        words = {message["role"]: _text(message["content"]) for message in body["messages"]}
        return Asked("chat", words["user"], words.get("system"), *settings, key, request.at)
    if path.endswith("/completions"):
        return Asked("completions", body["prompt"], None, *settings, key, request.at)
    system = body.get("system")
    return Asked(
        "anthropic",
        _text(body["messages"][-1]["content"]),
        None if system is None else _text(system),
        *settings,
        key,
        request.at,
    )


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _google_text(content: Any) -> str:
    return "".join(part["text"] for part in content["parts"])


def _build_reply(asked: Asked, text: str, reason: str | None, number: str) -> dict[str, Any]:
    read, written = len((asked.system or "").split()) + len(asked.prompt.split()), len(text.split())
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    match asked.dialect:
        case "google":
            return {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": reason or "STOP"}
                ],
                "usageMetadata": {
                    "promptTokenCount": read,
                    "candidatesTokenCount": written,
                    "totalTokenCount": read + written,
                },
                "modelVersion": NAME,
                "responseId": number,
            }
        case "anthropic":
            return {
                "id": number,
                "type": "message",
                "role": "assistant",
                "model": NAME,
                "content": [{"type": "text", "text": text}],
                "stop_reason": reason or "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": read, "output_tokens": written},
            }
        case "completions":
            choice = {"index": 0, "text": text, "finish_reason": reason or "stop", "logprobs": None}
            return {
                "id": number,
                "object": "text_completion",
                "created": 1,
                "model": NAME,
                "choices": [choice],
                "usage": usage,
            }
        case "chat":
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": reason or "stop"}
            return {
                "id": number,
                "object": "chat.completion",
                "created": 1,
                "model": NAME,
                "choices": [choice],
                "usage": usage,
            }


def _json(value: dict[str, Any], status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), media_type="application/json", status=status)
