"""A server on the loopback interface that answers chat and completions requests, with a function of the prompt.

    with ChatServer(lambda prompt: "the answer") as server:
        server.faults = [fault(429, retry_after=1)]         # answers to the next requests
        server.pause = 0.1                                  # duration of every answer in seconds
        entry = server.entry("completions", concurrency=2)  # a ChatModel for this server
        assert [request.prompt for request in server.asked] == [...]

Tokens are counted in words. A completions request has no separate system prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from bad_server import Answer, BadServer, Request, json_answer

from audit_pipeline.extras.chat.config import ChatModel

ChatDialect = Literal["chat", "completions"]
NAME = "made-1-2026"
"""The name of the model in answers."""


class Asked(NamedTuple):
    """A request: its prompts, its API key and its whole body."""

    prompt: str
    system: str | None
    key: str | None
    body: Mapping[str, Any]


class ChatServer(BadServer):
    """The server, on a free port of 127.0.0.1; a context manager."""

    def __init__(self, answer: Callable[[str], str] = lambda prompt: "made words") -> None:
        self.answer = answer
        self.faults: list[Answer] = []
        self.pause = 0.0
        super().__init__(otherwise=self._reply)

    @property
    def asked(self) -> list[Asked]:
        """Return the requests. A killed client may send a request without a body, which is skipped."""
        return [_parse(request) for request in self.requests if request.body]

    def entry(self, dialect: ChatDialect = "chat", **fields: Any) -> ChatModel:
        return ChatModel(
            **{"name": "made", "model": "openai/made-1", "url": f"{self.url}/v1", "interface": dialect, **fields}
        )

    def _reply(self, request: Request) -> Answer:
        asked = _parse(request)
        if self.faults:
            return self.faults.pop(0)
        text = self.answer(asked.prompt)
        prompt_tokens = len(f"{asked.system or ''} {asked.prompt}".split())
        dialect: ChatDialect = "chat" if "messages" in asked.body else "completions"
        reply = json_answer(build_reply(dialect, text, usage=(prompt_tokens, len(text.split()))))
        return replace(reply, pause=self.pause, headers={"x-request-id": f"request-{len(self.requests)}"})


def _parse(request: Request) -> Asked:
    body = json.loads(request.body)
    words = {message["role"]: message["content"] for message in body.get("messages", ())}
    key = (request.header("authorization") or "").removeprefix("Bearer ") or None
    return Asked(words.get("user", body.get("prompt")), words.get("system"), key, body)


def build_reply(
    dialect: ChatDialect, text: str, said: object = None, usage: tuple[object, ...] = (5, 3)
) -> dict[str, Any]:
    """Return an answer. ``said`` replaces its finish reason, model and id. ``usage``: prompt and answer tokens."""
    choice = {"message": {"role": "assistant", "content": text}} if dialect == "chat" else {"text": text}
    counts = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=False))
    choices = [{"index": 0, **choice, "finish_reason": said or "stop"}]
    return {"id": said or "made", "model": said or NAME, "choices": choices, "usage": counts}


def make_text(name: str) -> str:
    """Return 180 words that no other text has: two passages."""
    return " ".join(f"{name}{number}" for number in range(180))


def recite(name: str, prompt: str) -> str:
    """Return the answer of a model that knows one text: the 60 words after the last known word of the prompt."""
    words = make_text(name).split()
    known = [words.index(word) for word in prompt.split() if word in words]
    if not known and f"Title {name}" not in prompt:
        return "<b>I would say</b> once upon a time, far away."
    begin = known[-1] + 1 if known else 0
    return " ".join(words[begin : begin + 60])
