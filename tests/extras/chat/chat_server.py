"""A server on the loopback interface that answers in words, as a test tells it to.

    with ChatServer(lambda prompt: "what it answers") as server:       # or ("", "content_filter"), with the reason
        server.faults = [fault(429, retry_after=1), quoting(401)]      # for the requests to come, one each
        server.pause = 0.1                                             # seconds that every answer takes
        entry = server.entry("completions", concurrency=2)               # a ChatModel for it
        assert [request.prompt for request in server.asked] == [...]

``answer`` gets the user's words; a system prompt is in ``asked``. A completions request gets all that was sent. Tokens
are counted in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from bad_server import Answer, BadServer, Request, fault

from audit_pipeline.extras.chat.config import ChatModel

__all__ = ["DIALECTS", "Asked", "ChatDialect", "ChatServer", "build_reply", "fault", "quoting"]

ChatDialect = Literal["chat", "completions"]
DIALECTS: tuple[ChatDialect, ...] = ("chat", "completions")
Fault = Answer | Callable[[Request], Answer]
NAME = "made-1-2026"
"""What the server calls its model."""


@dataclass(frozen=True)
class Asked:
    """A request as the server understood it; ``at`` in seconds of time.monotonic."""

    dialect: ChatDialect
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


class ChatServer(BadServer):
    """The server, on a free port of 127.0.0.1; a context manager. Safe to be asked by many at a time.

    Requests that meet a fault are among its ``requests``, too.
    """

    def __init__(self, answer: Callable[[str], str | tuple[str, str]] = lambda prompt: "made words") -> None:
        self.answer = answer
        self.faults: list[Fault] = []
        self.pause = 0.0
        super().__init__(otherwise=self._reply)

    @property
    def asked(self) -> list[Asked]:
        """The requests, understood."""
        return [_understand(request) for request in self.requests if request.body]  # killed: none came

    def entry(self, dialect: ChatDialect = "chat", name: str = "made", **fields: Any) -> ChatModel:
        """An entry for this server; without a key unless ``key_env`` is given."""
        made = {"name": name, "model": "openai/made-1", "url": f"{self.url}/v1", "interface": dialect}
        return ChatModel(**{**made, **fields})

    def _reply(self, request: Request) -> Answer:
        asked = _understand(request)
        if self.faults:
            next_fault = self.faults.pop(0)
            return next_fault if isinstance(next_fault, Answer) else next_fault(request)
        given = self.answer(asked.prompt)
        text, reason = given if isinstance(given, tuple) else (given, None)
        number = len(self.requests)
        counts = len((asked.system or "").split()) + len(asked.prompt.split()), len(text.split())
        reply = _json(build_reply(asked.dialect, text, reason, counts))
        return replace(reply, pause=self.pause, headers={"x-request-id": f"request-{number}"})


def _understand(request: Request) -> Asked:
    path, body = urlsplit(request.path).path, json.loads(request.body)
    key = request.header("authorization")
    key = None if key is None else key.removeprefix("Bearer ")
    settings = body.get("temperature"), body.get("max_tokens", body.get("max_completion_tokens")), body.get("seed")
    if path.endswith("/chat/completions"):
        words = {message["role"]: message["content"] for message in body["messages"]}
        return Asked("chat", words["user"], words.get("system"), *settings, key, request.at)
    assert path == "/v1/completions"
    return Asked("completions", body["prompt"], None, *settings, key, request.at)


def build_reply(
    dialect: ChatDialect,
    text: str,
    reason: object = None,
    counts: tuple[object, object] = (5, 3),
    *,
    model: object = NAME,
    number: object = "made",
) -> dict[str, Any]:
    """An answer as an interface writes it; counts that are ... are left out."""
    usage = {
        name: count
        for name, count in zip(("prompt_tokens", "completion_tokens"), counts, strict=True)
        if count is not ...
    }
    # A chat has a message and completions a text: each is read at its own place.
    said = {"message": {"role": "assistant", "content": text}} if dialect == "chat" else {"text": text}
    choice = {"index": 0, **said, "finish_reason": reason or "stop"}
    return {"id": number, "model": model, "choices": [choice], "usage": usage}


def _json(value: dict[str, Any], status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), media_type="application/json", status=status)
