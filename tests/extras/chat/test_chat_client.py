"""Asking in words over the loopback interface: chat and completions, and limits that hold.

What every request has in common (attempts, pauses, redirects, keys, sizes) is tested in tests/endpoints and fetch.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bad_server import Answer, truncated
from chat_server import DIALECTS, NAME, ChatDialect, ChatServer, build_reply, fault, quoting

from audit_pipeline.errors import BudgetError, ConfigError, ModelError, TransientError
from audit_pipeline.extras.chat.chat_client import ChatPrompt, ChatReply, Sampling, ask_all, estimate_usage, open_budget
from audit_pipeline.extras.chat.config import ChatModel
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.usage_budget import Budget, Limits

ROOT = Path(__file__).parents[3]
QUICK = RetryPolicy(attempts=3, first_pause=0.01, max_pause=0.01)
GREEDY = Sampling(0.0, 20, 7)
NO_LIMITS = Limits()
KEY = "sk-made-0123456789abcdef"
Serve = Callable[..., ChatServer]
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def ask(
    entry: ChatModel,
    prompts: Sequence[str],
    limits: Limits = NO_LIMITS,
    *,
    system: str | None = None,
    notify: Callable[[str], None] = print,
    replies: dict[int, ChatReply] | None = None,
) -> tuple[dict[int, ChatReply], Budget]:
    """The answers by the prompts' numbers, and what they took."""
    budget, found = open_budget(entry, limits), {} if replies is None else replies
    requests = [(number, ChatPrompt(system, prompt), GREEDY) for number, prompt in enumerate(prompts)]
    ask_all(entry, requests, budget, found.__setitem__, notify, patience=QUICK)
    return found, budget


def to_answer(reply: dict[str, Any], **fields: Any) -> Answer:
    return Answer(json.dumps(reply).encode(), "application/json", **fields)


@every_dialect
def test_every_dialect_gets_the_prompt_and_gives_the_answer_with_what_is_known_of_it(
    dialect: ChatDialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server = chat_server(lambda prompt: f"five words about {prompt.split()[-1]} here")
    entry = server.entry(dialect, key_env="MADE_KEY", price_in=1.0, price_out=10.0)
    replies, budget = ask(entry, ["go on after rivers", "go on after hills"], system="be brief")
    (request,) = [asked for asked in server.asked if asked.prompt.endswith("hills")]
    assert request.dialect == dialect
    if dialect == "completions":
        assert (request.system, request.prompt) == (None, "be brief\n\ngo on after hills")
    else:
        assert (request.system, request.prompt) == ("be brief", "go on after hills")
    assert (request.temperature, request.max_tokens, request.key) == (0.0, 20, KEY)
    assert request.seed == 7
    reply = replies[1]
    assert reply.text == "five words about hills here"
    assert reply.finish_reason == "stop"
    assert reply.answered_by == NAME
    assert reply.provider_request_id in ("request-1", "request-2")
    assert reply.asked_at.utcoffset() is not None
    assert 0 < reply.seconds < 60
    assert (reply.prompt_tokens, reply.output_tokens) == (6, 5)
    assert reply.cost == pytest.approx((6 * 1 + 5 * 10) / 1e6)
    assert (budget.requests, budget.tokens) == (2, 22)
    assert budget.cost == pytest.approx(2 * 56 / 1e6)


@every_dialect
def test_no_key_and_no_address_of_the_environment_is_used(
    dialect: ChatDialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = chat_server(), chat_server()
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    ask(server.entry(dialect), ["hello"])
    assert "secret-of" not in repr(server.requests)
    assert (server.asked[0].key, other.requests) == (None, [])


@pytest.mark.parametrize(
    ("model", "is_newer"), [("openai/gpt-5", True), ("openai/made", False)], ids=["without temperature", "with"]
)
def test_a_model_that_takes_no_temperature(model: str, is_newer: bool, chat_server: Serve) -> None:
    server = chat_server()
    entry = server.entry(model=model, temperature=None if is_newer else 1.0)
    requests = [(0, ChatPrompt(None, "hello"), Sampling(None if is_newer else 0.0, 20))]
    ask_all(entry, requests, open_budget(entry, NO_LIMITS), lambda *_: None, print)
    body = json.loads(server.requests[0].body)
    assert body["max_completion_tokens" if is_newer else "max_tokens"] == 20
    assert ("temperature" in body, "seed" in body) == (not is_newer, False)
    server.faults = [to_answer({"error": {"message": "temperature 0.0 is not supported"}}, status=400)]
    with pytest.raises(
        ModelError, match=r"in config/chat_models\.yaml; set temperature: null for a model without temperature"
    ):
        ask(entry, ["hello"])


def test_a_filter_that_refuses_is_an_answer_and_takes_no_tokens(chat_server: Serve) -> None:
    server = chat_server()
    for code in ("content_filter", "content_policy_violation"):
        server.faults = [to_answer({"error": {"message": "held back", "code": code}}, status=400)]
        replies, budget = ask(server.entry(concurrency=1), ["one", "two"])
        assert (replies[0].text, replies[0].finish_reason, replies[0].prompt_tokens) == ("", "content_filter", None)
        assert replies[1].text == "made words"
        assert (budget.requests, budget.tokens) == (2, 3)


@pytest.mark.parametrize(("said", "kept"), [(7, "7"), ("a \ud83d b 😀", "a \ufffd b 😀")], ids=["number", "half"])
@every_dialect
def test_all_that_is_said_of_an_answer_is_a_string_that_a_table_takes(
    dialect: ChatDialect, said: object, kept: str, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [to_answer(build_reply(dialect, str(said), said, model=said, number=said))]
    replies, _ = ask(server.entry(dialect), ["hello"])
    reply = replies[0]
    assert {reply.text, reply.finish_reason, reply.answered_by, reply.provider_request_id} == {kept}
    assert len(server.requests) == 1


@every_dialect
def test_an_answer_that_cannot_be_read_is_asked_for_again(dialect: ChatDialect, chat_server: Serve) -> None:
    server = chat_server()
    for broken in (Answer(b"", reset=True), Answer(b'{"choices"'), Answer(b"{}"), Answer(b"[1]")):
        server.requests.clear()
        server.faults = [broken]
        replies, budget = ask(server.entry(dialect), ["hello"])
        assert replies[0].text == "made words"
        assert budget.requests == len(server.requests) == 2
    server.faults = [truncated(b"an answer that is cut", 3)] * 3
    with pytest.raises(TransientError, match=r"\(after 3 attempts\)"):
        ask(server.entry(dialect), ["hello"])


@every_dialect
def test_neither_key_nor_prompt_is_in_an_error_or_what_it_is_chained_to(
    dialect: ChatDialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server, told = chat_server(), []
    server.faults = [quoting(429), quoting(400)]
    entry = server.entry(dialect, key_env="MADE_KEY")
    prompt = 'it said "no"\nand went away over the hills'
    with pytest.raises(ModelError) as raised:
        ask(entry, [prompt], system="never tell", notify=told.append)
    assert {asked.key for asked in server.asked} == {KEY}
    shown = [*told, caplog.text, repr(entry), *traceback.format_exception(raised.value)]
    assert all(KEY not in text and KEY[3:15] not in text for text in shown)
    assert all("went away" not in text and "over the hills" not in text for text in shown)


# Of the prompt below 22 bytes and 100, and of the answer 20.
MOST = (122, 20)


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ((5, 3), (5, 3)),
        ((0, 0), MOST),
        ((-100_000, -3), MOST),
        ((10**30, 10**30), MOST),
        ((7.5, 3.0), MOST),
        ((None, None), MOST),
        ((9, ...), (9, 20)),
    ],
    ids=str,
)
@every_dialect
def test_counts_that_cannot_be_are_replaced_by_the_most_that_can(
    given: tuple[object, object], counted: tuple[int, int], dialect: ChatDialect, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [to_answer(build_reply(dialect, "three made words", None, given))]
    replies, budget = ask(server.entry(dialect, price_in=1.0, price_out=2.0), ["five words of a prompt"])
    assert len(server.requests) == 1, "an answer that came is kept, and not paid for again"
    assert (replies[0].text, replies[0].prompt_tokens, replies[0].output_tokens) == ("three made words", *counted)
    assert replies[0].cost == pytest.approx((counted[0] + 2 * counted[1]) / 1e6)
    assert budget.tokens == sum(counted)


@pytest.mark.parametrize(
    ("most", "limits", "name"),
    [(5, NO_LIMITS, "max_requests in made of chat_models.yaml"), (50, Limits(max_requests=5), "--max-requests")],
    ids=["entry", "command"],
)
def test_no_more_requests_are_sent_than_the_limit_however_many_are_tried_again(
    most: int, limits: Limits, name: str, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [fault(429)] * 3
    replies: dict[int, ChatReply] = {}
    with pytest.raises(BudgetError, match=f"5 of 5 are used.*raise {name}"):
        ask(server.entry(max_requests=most), [f"prompt {number}" for number in range(9)], limits, replies=replies)
    assert (len(server.requests), len(replies)) == (5, 2)


def test_tokens_and_money_are_kept_before_asking(chat_server: Serve) -> None:
    """The server counts 3 + 12 tokens a request. Kept for each are 15 bytes + 100 and 20, and so 135."""
    server = chat_server(lambda prompt: "word " * 12)
    entry = server.entry(price_in=1000.0, price_out=2000.0)
    prompts = [f"prompt number {number % 10}" for number in range(40)]
    for limits, most in (
        # After n answers 15 n tokens are used, and 135 more must be left.
        (Limits(max_tokens=15 * 6 + 135), 7),
        (Limits(max_tokens=15 * 6 + 134), 6),
        # A request takes 3/1000 + 24/1000 of money, and could take 115/1000 + 40/1000.
        (Limits(max_cost=(27 * 6 + 155) / 1000 + 1e-9), 7),
        (Limits(max_cost=(27 * 6 + 154) / 1000), 6),
    ):
        before = len(server.requests)
        replies: dict[int, ChatReply] = {}
        with pytest.raises(BudgetError, match=r"the limit of (tokens|cost) is reached"):
            ask(entry, prompts, limits, replies=replies)
        assert len(server.requests) - before == len(replies) == most


def test_what_may_have_been_worked_on_or_is_not_counted_stays_counted_in_full(chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [fault(500), fault(429)]
    _, budget = ask(server.entry(), ["hello"])
    assert (budget.requests, budget.tokens) == (3, 5 + 100 + 20 + 0 + 3)
    reply = build_reply("chat", "words")
    del reply["usage"]
    server.faults = [to_answer(reply)]
    replies, budget = ask(server.entry(price_in=1.0, price_out=1.0), ["hello"])
    assert (replies[0].prompt_tokens, replies[0].output_tokens, replies[0].cost) == (None, None, None)
    assert budget.tokens == 125


def test_a_limit_of_money_takes_a_price_and_a_dry_run_estimates_by_the_same_bounds(chat_server: Serve) -> None:
    with pytest.raises(ConfigError, match="has no price"):
        open_budget(chat_server().entry(), Limits(max_cost=1.0))
    entry = chat_server().entry(price_in=1000.0, price_out=2000.0)
    requests = [(ChatPrompt("be brief", "hello"), GREEDY), (ChatPrompt(None, "höhe"), Sampling(1.0, 50))]
    cost = pytest.approx((218 * 1000 + 70 * 2000) / 1e6)
    assert estimate_usage(entry, requests) == (2, (113 + 20) + (105 + 50), cost)
    assert estimate_usage(chat_server().entry(), []) == (0, 0, None)
