"""What a chat server says is bounded by what was asked: tokens, lengths, and the key, which it may say back."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bad_server import Answer, Request, truncated
from chat_server import ChatServer, Dialect

from audit_pipeline.asking.engine import Allowance, AskLimits, ChatReply, Prompt, Sampling, ask_all
from audit_pipeline.asking.journal import AskJournal
from audit_pipeline.errors import BudgetError, ModelError, TransientError
from audit_pipeline.fetch.retry import RetryPolicy

DIALECTS: tuple[Dialect, ...] = ("chat", "completions", "anthropic", "google")
QUICK = RetryPolicy(attempts=2, first=0.01, longest=0.01)
KEY = "sk-made-0123456789abcdef"
PROMPT = "five words of a prompt"
NO_LIMITS = AskLimits()
Serve = Callable[..., ChatServer]


def ask(server: ChatServer, dialect: Dialect, limits: AskLimits = NO_LIMITS, many: int = 1, **fields: Any) -> Any:
    """The answers, the allowance, and what was told."""
    entry = server.entry(dialect, concurrency=1, price_in=1.0, price_out=2.0, **fields)
    allowance, told, replies = Allowance(entry, limits), list[str](), list[ChatReply]()
    requests = [(number, Prompt(None, PROMPT), Sampling(0.0, 40)) for number in range(many)]
    try:
        ask_all(entry, requests, allowance, lambda _, reply: replies.append(reply), told.append, patience=QUICK)
    except BudgetError as error:
        told.append(str(error))
    return replies, allowance, told


def answer_with_usage(dialect: Dialect, prompt: object, output: object) -> Answer:
    """An answer of three words; counts that are ... are left out."""
    names = {
        "google": ("promptTokenCount", "candidatesTokenCount"),
        "anthropic": ("input_tokens", "output_tokens"),
    }.get(dialect, ("prompt_tokens", "completion_tokens"))
    counts = {name: count for name, count in zip(names, (prompt, output), strict=True) if count is not ...}
    message: dict[str, Any] = {"role": "assistant", "content": "three made words"}
    match dialect:
        case "google":
            part = {"content": {"role": "model", "parts": [{"text": "three made words"}]}, "finishReason": "STOP"}
            body: dict[str, Any] = {"candidates": [part], "usageMetadata": counts, "modelVersion": "m"}
        case "anthropic":
            content = [{"type": "text", "text": "three made words"}]
            body = {"id": "1", "model": "m", "stop_reason": "end_turn", **message, "content": content, "usage": counts}
        case _:
            choice = {"index": 0, "message": message, "text": "three made words", "finish_reason": "stop"}
            body = {"id": "1", "model": "m", "choices": [choice], "usage": counts}
    return Answer(json.dumps(body).replace('"huge"', "9" * 5000).encode(), "application/json")


# 22 bytes and 100, and 40.
MOST = (122, 40)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ((5, 3), (5, 3)),
        ((100, 40), (100, 40)),
        # No text has fewer tokens than words.
        ((1, 1), (5, 3)),
        ((0, 0), MOST),
        ((-100_000, -3), MOST),
        ((10**30, 10**30), MOST),
        (("huge", "huge"), MOST),
        ((7.5, 3.0), MOST),
        (("7", "3"), MOST),
        ((True, False), MOST),
        ((float("nan"), float("inf")), MOST),
        ((None, None), MOST),
        ((..., ...), MOST),
        (([7], {"a": 3}), MOST),
        ((9, 41), (9, 40)),
        ((123, 3), (122, 3)),
        ((9, ...), (9, 40)),
    ],
    ids=str,
)
def test_counts_that_cannot_be_are_replaced_by_the_most_that_can(
    given: tuple[object, object], counted: tuple[int, int], dialect: Dialect, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [answer_with_usage(dialect, *given)]
    [reply], allowance, told = ask(server, dialect)
    assert len(server.requests) == 1, "an answer that came is kept, and not paid for again"
    assert reply.text == "three made words"
    assert (reply.prompt_tokens, reply.output_tokens) == counted
    assert reply.cost == pytest.approx((counted[0] + 2 * counted[1]) / 1e6)
    assert allowance.tokens == sum(counted)
    assert len(told) == (given != counted)
    assert all("which cannot be" in line for line in told)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("given", [(-100_000, -100_000), (0, 0), (10**30, 10**30)])
def test_no_count_lets_more_through_than_the_limit(
    given: tuple[int, int], dialect: Dialect, chat_server: Serve
) -> None:
    """Each counts 162 then: three are 486, and no fourth could be within 600."""
    server = chat_server()
    server.faults = [answer_with_usage(dialect, *given)] * 8
    replies, allowance, told = ask(server, dialect, AskLimits(max_tokens=600), many=8)
    assert (len(replies), len(server.requests), allowance.tokens) == (3, 3, 486)
    assert len([line for line in told if "which cannot be" in line]) == 1, "said once"


@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens", "cost"])
@pytest.mark.parametrize("value", [10**30, -800_000, float("nan"), 1.5e300, "many", True])
def test_a_journal_with_counts_that_cannot_be_is_read(field: str, value: Any, tmp_path: Any) -> None:
    journal = AskJournal(tmp_path / "answers.jsonl")
    journal.append({"asked_at": None, "prompt_tokens": 5, "output_tokens": 3, "cost": 0.1, "output": "a", field: value})
    assert journal.read() == [
        {"asked_at": None, "prompt_tokens": None, "output_tokens": None, "cost": None, "output": "a"}
    ]


def repeat_key(dialect: Dialect, form: Callable[[str], str]) -> Callable[[Request], Answer]:
    """An answer that says the key in every place."""

    def answer(request: Request) -> Answer:
        sent = request.header("authorization") or request.header("x-api-key") or request.header("x-goog-api-key") or ""
        said = form(sent.removeprefix("Bearer "))
        body = json.loads(answer_with_usage(dialect, 5, 3).body)
        text = f"it is {said} here"
        match dialect:
            case "google":
                body |= {"modelVersion": said, "responseId": said}
                body["candidates"][0] |= {"content": {"parts": [{"text": text}]}, "finishReason": said}
            case "anthropic":
                body |= {"id": said, "model": said, "stop_reason": said, "content": [{"type": "text", "text": text}]}
            case _:
                body |= {"id": said, "model": said}
                body["choices"][0] |= {"message": {"content": text}, "text": text, "finish_reason": said}
        packed = gzip.compress(json.dumps(body).encode())
        return Answer(packed, "application/json", headers={"x-request-id": said, "Content-Encoding": "gzip"})

    return answer


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "form",
    [str, lambda key: f"Bearer {key}", lambda key: base64.b64encode(f"user:{key}".encode()).decode(), str.upper],
    ids=["plain", "bearer", "base64", "upper"],
)
def test_a_key_that_is_said_back_is_nowhere(
    form: Callable[[str], str], dialect: Dialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server = chat_server()
    server.faults = [repeat_key(dialect, form)]
    [reply], _, told = ask(server, dialect, key_env="MADE_KEY")
    assert server.asked[0].key == KEY
    assert all(
        "***" in said for said in (reply.text, reply.finish_reason, reply.answered_by, reply.provider_request_id)
    )
    shown = (repr(reply) + repr(told)).lower()
    assert KEY not in shown
    assert form(KEY).lower() not in shown


BOMB = gzip.compress(bytes(64 << 20), 1)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", [200, 400, 503])
def test_an_answer_that_is_longer_than_it_can_be_ends_the_run(
    status: int, dialect: Dialect, chat_server: Serve
) -> None:
    server = chat_server()
    for long in (
        Answer(BOMB, status=status, headers={"Content-Encoding": "gzip"}),
        Answer(bytes(2 << 20), status=status),
    ):
        server.requests.clear()
        server.faults = [long]
        with pytest.raises(ModelError, match="its answer is longer than the 1,058,816 bytes that are taken"):
            ask(server, dialect)
        assert len(server.requests) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_that_cannot_be_read_are_asked_for_again(dialect: Dialect, chat_server: Serve) -> None:
    server = chat_server()
    deep = Answer(b"[" * 400_000 + b"]" * 400_000, "application/json")
    other = Answer(b"x", headers={"Content-Encoding": "br"})
    for faulty in (deep, other, truncated(b"an answer that is cut", 3)):
        server.faults = [faulty] * 2
        with pytest.raises(TransientError, match=r"\(after 2 attempts\)"):
            ask(server, dialect)
    server.faults = [replace(truncated(b"a refusal that is cut", 3), status=400)]
    with pytest.raises(ModelError, match="the server answered 400"):
        ask(server, dialect)
