"""Requests to chat models over the loopback interface: chat and completions, and limits.

Attempts, pauses, redirects, keys and sizes are tested in tests/extras/servers.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bad_server import Answer, fault, json_answer, truncated
from chat_server import NAME, ChatDialect, ChatServer, build_reply

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
every_dialect = pytest.mark.parametrize("dialect", ["chat", "completions"])


def ask(
    entry: ChatModel,
    prompts: Sequence[str],
    limits: Limits = NO_LIMITS,
    *,
    system: str | None = None,
    notify: Callable[[str], None] = print,
    replies: dict[int, ChatReply] | None = None,
) -> tuple[dict[int, ChatReply], Budget]:
    """Send the prompts. Return the answers by the numbers of their prompts, and the budget."""
    budget, found = open_budget(entry, limits), {} if replies is None else replies
    requests = [(number, ChatPrompt(system, prompt), GREEDY) for number, prompt in enumerate(prompts)]
    ask_all(entry, requests, budget, found.__setitem__, notify, patience=QUICK)
    return found, budget


@every_dialect
def test_request_and_reply_of_each_interface(
    dialect: ChatDialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server = chat_server(lambda prompt: f"five words about {prompt.split()[-1]} here")
    entry = server.entry(dialect, key_env="MADE_KEY", price_in=1.0, price_out=10.0)
    replies, budget = ask(entry, ["go on after rivers", "go on after hills"], system="be brief")
    (request,) = [asked for asked in server.asked if asked.prompt.endswith("hills")]
    if dialect == "completions":
        assert (request.system, request.prompt) == (None, "be brief\n\ngo on after hills")
    else:
        assert (request.system, request.prompt) == ("be brief", "go on after hills")
    assert request.key == KEY
    assert {"temperature": 0.0, "max_tokens": 20, "seed": 7}.items() <= request.body.items()
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
def test_keys_and_addresses_of_the_environment_are_not_used(
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
def test_a_model_without_temperature(model: str, is_newer: bool, chat_server: Serve) -> None:
    server = chat_server()
    entry = server.entry(model=model, temperature=None if is_newer else 1.0)
    requests = [(0, ChatPrompt(None, "hello"), Sampling(None if is_newer else 0.0, 20))]
    ask_all(entry, requests, open_budget(entry, NO_LIMITS), lambda *_: None, print)
    [(_, _, _, body)] = server.asked
    assert body["max_completion_tokens" if is_newer else "max_tokens"] == 20
    assert ("temperature" in body, "seed" in body) == (not is_newer, False)
    server.faults = [json_answer({"error": {"message": "temperature 0.0 is not supported"}}, 400)]
    with pytest.raises(ModelError, match="If the model accepts no temperature, set temperature: null in the entry of "):
        ask(entry, ["hello"])


def test_a_filtered_prompt_has_an_empty_reply_without_tokens(chat_server: Serve) -> None:
    server = chat_server()
    for code in ("content_filter", "content_policy_violation"):
        server.faults = [json_answer({"error": {"message": "held back", "code": code}}, 400)]
        replies, budget = ask(server.entry(concurrency=1), ["one", "two"])
        assert (replies[0].text, replies[0].finish_reason, replies[0].prompt_tokens) == ("", "content_filter", None)
        assert replies[1].text == "made words"
        assert (budget.requests, budget.tokens) == (2, 3)


@pytest.mark.parametrize(("said", "kept"), [(7, "7"), ("a \ud83d b 😀", "a \ufffd b 😀")], ids=["number", "half"])
@every_dialect
def test_fields_of_a_reply_become_valid_strings(
    dialect: ChatDialect, said: object, kept: str, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [json_answer(build_reply(dialect, str(said), said))]
    replies, _ = ask(server.entry(dialect), ["hello"])
    reply = replies[0]
    assert {reply.text, reply.finish_reason, reply.answered_by, reply.provider_request_id} == {kept}
    assert len(server.requests) == 1


@every_dialect
def test_an_unreadable_answer_is_requested_again(dialect: ChatDialect, chat_server: Serve) -> None:
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
def test_errors_and_their_causes_contain_neither_key_nor_prompt(
    dialect: ChatDialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server, told = chat_server(), []
    prompt = 'it said "no"\nand went away over the hills'
    refusal = {"error": {"message": f"no: {KEY} must not ask (never tell\n\n{prompt})", "type": "invalid"}}
    server.faults = [json_answer(refusal, 429), json_answer(refusal, 400)]
    entry = server.entry(dialect, key_env="MADE_KEY")
    with pytest.raises(ModelError) as raised:
        ask(entry, [prompt], system="never tell", notify=told.append)
    assert {asked.key for asked in server.asked} == {KEY}
    shown = [*told, caplog.text, repr(entry), *traceback.format_exception(raised.value)]
    assert all(KEY not in text and KEY[3:15] not in text for text in shown)
    assert all("went away" not in text and "over the hills" not in text for text in shown)


# The prompt below has 22 bytes and 100 more, and the answer 20 tokens.
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
        ((9,), (9, 20)),
    ],
    ids=str,
)
@every_dialect
def test_impossible_token_counts_are_replaced_by_the_maximum(
    given: tuple[object, ...], counted: tuple[int, int], dialect: ChatDialect, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [json_answer(build_reply(dialect, "three made words", usage=given))]
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
def test_retries_count_for_the_limit_of_requests(most: int, limits: Limits, name: str, chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [fault(429)] * 3
    replies: dict[int, ChatReply] = {}
    with pytest.raises(BudgetError, match=f"5 of 5 are used.*raise {name}"):
        ask(server.entry(max_requests=most), [f"prompt {number}" for number in range(9)], limits, replies=replies)
    assert (len(server.requests), len(replies)) == (5, 2)


def test_tokens_and_cost_are_reserved_before_a_request(chat_server: Serve) -> None:
    # Each request uses 3 + 12 tokens by the server's count. Its reservation is 15 bytes + 100 and 20, together 135.
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
        with pytest.raises(BudgetError, match=r"could exceed the limit of (tokens|cost)"):
            ask(entry, prompts, limits, replies=replies)
        assert len(server.requests) - before == len(replies) == most


def test_failed_attempts_and_missing_counts_use_the_maximum(chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [fault(500), fault(429)]
    _, budget = ask(server.entry(), ["hello"])
    assert (budget.requests, budget.tokens) == (3, 5 + 100 + 20 + 0 + 3)
    reply = build_reply("chat", "words")
    del reply["usage"]
    server.faults = [json_answer(reply)]
    replies, budget = ask(server.entry(price_in=1.0, price_out=1.0), ["hello"])
    assert (replies[0].prompt_tokens, replies[0].output_tokens, replies[0].cost) == (None, None, None)
    assert budget.tokens == 125


def test_a_cost_limit_requires_prices_and_estimates_use_the_same_bounds(chat_server: Serve) -> None:
    with pytest.raises(ConfigError, match="--max-cost requires prices"):
        open_budget(chat_server().entry(), Limits(max_cost=1.0))
    entry = chat_server().entry(price_in=1000.0, price_out=2000.0)
    requests = [(ChatPrompt("be brief", "hello"), GREEDY), (ChatPrompt(None, "höhe"), Sampling(1.0, 50))]
    cost = pytest.approx((218 * 1000 + 70 * 2000) / 1e6)
    assert estimate_usage(entry, requests) == (2, (113 + 20) + (105 + 50), cost)
    assert estimate_usage(chat_server().entry(), []) == (0, 0, None)
