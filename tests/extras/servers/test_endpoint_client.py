"""The client of servers: retries, pauses, ends of a run, and the API key."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from bad_server import Answer, BadServer, fault, redirect, slow, truncated
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import BudgetError, ModelError, TransientError, UnansweredError
from audit_pipeline.extras.servers.client import RefusedError, ServerAnswer, ServerRequest
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.usage_budget import Budget, Limits, Usage

KEY = "sk-very-secret-0123456789"
FINE = Answer(b'{"fine": 1}', media_type="application/json")


@pytest.fixture
def server() -> Iterator[BadServer]:
    with BadServer() as running:
        yield running


def client(
    server: BadServer, budget: Budget | None = None, notify: Callable[[str], None] = print, **fields: object
) -> EndpointClient:
    endpoint = Endpoint.model_validate({"url": f"{server.url}/v1", "model": "tiny", "dialect": "vllm", **fields})
    patience = RetryPolicy(attempts=3, first_pause=0.01, max_pause=0.01)
    return EndpointClient("tiny", endpoint, budget or Budget(), notify=notify, patience=patience)


def post(server: BadServer, number: int | None = None, tokens: int = 3, **fields: object) -> ServerRequest:
    path = "completions" if number is None else f"completions/{number}"
    return ServerRequest(f"{server.url}/v1/{path}", {"prompt": "x", **fields}, Usage(tokens))


def keep_number(number: int, answer: ServerAnswer) -> int:
    return number


@pytest.mark.parametrize(
    "passing",
    [fault(status) for status in (408, 409, 425, 429, 500, 502, 503, 504)]
    + [truncated(FINE.body), Answer(FINE.body, sent=0)],
    ids=lambda one: str(one.status) if one.status != 200 else "cut",
)
def test_transient_failures_are_repeated_and_counted(server: BadServer, passing: Answer) -> None:
    server.serve("/v1/completions", passing, FINE)
    budget, told = Budget(), list[str]()
    assert client(server, budget, told.append).send_request(post(server)) == FINE.body
    assert (len(server.requests), budget.tokens, len(told)) == (2, 6, 1)
    assert "The request is sent again." in told[0]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 501])
def test_permanent_failures_are_not_repeated(server: BadServer, status: int) -> None:
    content = json.dumps({"error": {"message": "This is\nwhy."}}).encode()
    server.serve("/v1/completions", Answer(content, status=status))
    # Servers quote parts of keys, so messages about keys are dropped.
    words = "" if status in (401, 403) else "This is why."
    with pytest.raises(
        RefusedError, match=rf"answered {status} {re.escape(f'({words}) ') if words else ''}to /v1/"
    ) as refused:
        client(server).send_request(post(server))
    assert (refused.value.status, refused.value.server_message, len(server.requests)) == (status, words, 1)


TEXT = 'A private "text", of\na few words that nobody else may read.'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # FastAPI's: where and what, without pydantic's input.
        (
            json.dumps({"detail": [{"loc": ["body", "prompt"], "msg": "not a list", "type": "t", "input": TEXT}]}),
            "['body', 'prompt']: not a list",
        ),
        (json.dumps({"error": {"message": f"cannot read {TEXT}!"}}), "cannot read …!"),
        (f"500 at {TEXT!r}", "500 at …"),
        (json.dumps({"input": TEXT}), '{"input": …'),
        (json.dumps({"error": "ids [5, 19, 22, 7, 8, 100] are bad"}), "ids […] are bad"),
        (json.dumps({"detail": [{"loc": 5, "msg": "nowhere"}]}), "5: nowhere"),
        ("[" * 60_000, "[" * 80),
        ("<html>" + "busy " * 100, ("<html>" + "busy " * 100)[:80]),
    ],
)
def test_errors_contain_no_text_of_the_prompt(server: BadServer, body: str, expected: str) -> None:
    server.serve("/v1/completions", Answer(body.encode(), status=422))
    with pytest.raises(RefusedError) as refused:
        client(server).send_request(replace(post(server), private=TEXT))
    assert refused.value.server_message.startswith(expected)
    assert "private" not in str(refused.value)
    assert "may read" not in str(refused.value)


def test_attempts_are_bounded(server: BadServer) -> None:
    server.serve("/v1/completions", fault(503))
    with pytest.raises(UnansweredError, match=r"answered 503 .*\(after 3 attempts\)") as unanswered:
        client(server).send_request(post(server))
    assert unanswered.value.status == 503
    assert isinstance(unanswered.value, TransientError)
    assert len(server.requests) == 3


def test_timeouts_apply_to_the_whole_request(server: BadServer) -> None:
    server.serve("/v1/completions", slow(FINE.body), Answer(FINE.body * 50, drip=0.05), FINE)
    assert client(server, timeout_seconds=1.0).send_request(post(server)) == FINE.body


def test_a_requested_pause_applies_to_all_requests(server: BadServer) -> None:

    def ask_all(server: BadServer, asking: EndpointClient, requests: Sequence[int]) -> list[int]:
        answers = asking.iterate_answers(((number, post(server, number)) for number in requests), keep_number)
        return [number for numbers in answers for number in numbers]

    server.serve("/v1/completions/0", fault(429, 1), FINE)
    for number in range(1, 6):
        server.serve(f"/v1/completions/{number}", FINE)
    assert ask_all(server, client(server, concurrency=1), range(6)).count(0) == 1
    assert server.asked()[:2] == ["/v1/completions/0", "/v1/completions/0"]
    assert server.gaps()[0] >= 0.9
    assert len(server.requests) == 7


def test_a_long_requested_pause_ends_the_run(server: BadServer) -> None:
    server.serve("/v1/completions", fault(429, 3600))
    with pytest.raises(UnansweredError, match="requests a pause of 3600 s"):
        client(server).send_request(post(server))
    assert len(server.requests) == 1


def test_the_entry_limits_simultaneous_requests(server: BadServer) -> None:
    now, most = 0, 0

    def iterate_requests() -> Iterator[tuple[int, ServerRequest]]:
        nonlocal now, most
        for number in range(12):
            now += 1
            most = max(most, now)
            yield number, post(server)

    def read(number: int, answer: ServerAnswer) -> int:
        nonlocal now
        now -= 1
        return number

    server.serve("/v1/completions", Answer(FINE.body, pause=0.05))
    answers = client(server, concurrency=4).iterate_answers(iterate_requests(), read)
    found = [number for some in answers for number in some]
    assert sorted(found) == list(range(12))
    assert most == 4


@pytest.mark.parametrize("how", ["closed", "interrupted"])
def test_closing_cancels_open_requests(server: BadServer, how: str) -> None:
    server.serve("/v1/completions/0", FINE)
    for number in range(1, 5):
        server.serve(f"/v1/completions/{number}", slow(FINE.body))
    before = threading.active_count()
    started = time.monotonic()
    requests = ((number, post(server, number)) for number in range(5))
    each = client(server, concurrency=3).iterate_answers(requests, keep_number)
    with closing(each) as found:
        assert next(found) == [0]
        if how == "interrupted":
            with pytest.raises(KeyboardInterrupt):
                found.throw(KeyboardInterrupt)
    assert time.monotonic() - started < 30
    # The remaining threads belong to the server.
    assert threading.active_count() <= before + 4


def test_the_key_is_only_in_the_header(
    server: BadServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TINY_KEY", f"{KEY}\n")
    caplog.set_level(logging.DEBUG)
    quoting = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}}).encode()
    server.serve("/v1/completions", fault(500), FINE, Answer(quoting, status=401), Answer(quoting, status=503))
    told: list[str] = []
    asking = client(server, notify=told.append, key_env="TINY_KEY")
    asking.send_request(post(server))
    said = [repr(asking), str(vars(asking))]
    for _ in range(2):
        with pytest.raises((RefusedError, UnansweredError)) as error:
            asking.send_request(post(server))
        said += [
            str(error.value),
            repr(error.value),
            error.value.server_message if isinstance(error.value, RefusedError) else "",
        ]
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in "".join([*said, *told, caplog.text])


def test_a_missing_or_invalid_key_is_refused(server: BadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINY_KEY", raising=False)
    with pytest.raises(ModelError, match="The environment variable TINY_KEY is not set"):
        client(server, key_env="TINY_KEY").send_request(post(server))
    monkeypatch.setenv("TINY_KEY", "schlüssel")
    with pytest.raises(ModelError, match="TINY_KEY contains no valid API key") as error:
        client(server, key_env="TINY_KEY").send_request(post(server))
    assert "schl" not in str(error.value)
    assert server.requests == []


def test_redirects_are_not_followed(server: BadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", KEY)
    with BadServer() as other:
        other.serve("/v1/completions", FINE)
        server.serve("/v1/completions", redirect(f"{other.url}/v1/completions", 307))
        with pytest.raises(RefusedError, match="The client does not follow redirects"):
            client(server, key_env="TINY_KEY").send_request(post(server))
        assert other.requests == []


@max_examples(15)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 150),
    st.integers(1, 5),
    st.lists(st.booleans(), max_size=12),
)
def test_the_budget_is_never_exceeded(tokens: list[int], most: int, at_a_time: int, failing: list[bool]) -> None:
    with BadServer() as server:
        server.serve("/v1/completions", *(fault(500) if fails else FINE for fails in [*failing, False]))
        budget = Budget(Limits(most))
        found: list[int] = []
        asking = client(server, budget, notify=lambda words: None, concurrency=at_a_time)
        try:
            url = f"{server.url}/v1/completions"
            requests = ((n, ServerRequest(url, {"tokens": size}, Usage(size))) for n, size in enumerate(tokens))
            for some in asking.iterate_answers(requests, keep_number):
                found.extend(some)
        except BudgetError:
            assert len(found) < len(tokens)
        except UnansweredError:
            assert sum(failing) >= 3
        else:
            assert sorted(found) == list(range(len(tokens)))
        sent = sum(json.loads(one.body)["tokens"] for one in server.requests)
        assert sent == budget.tokens <= most
