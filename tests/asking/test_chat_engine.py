"""Asking over the loopback interface: four dialects, limits that are kept before asking, and no key anywhere."""

from __future__ import annotations

import json
import os
import re
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bad_server import Answer
from chat_server import NAME, ChatServer, Dialect, fault, quoting

from audit_pipeline.asking import engine
from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.engine import Allowance, AskLimits, ChatReply, Prompt, Sampling, ask_all, estimate
from audit_pipeline.errors import AuditError, BudgetError, ConfigError, ModelError, TransientError
from audit_pipeline.fetch.retry import RetryPolicy

HERE = Path(__file__).parent
DIALECTS: tuple[Dialect, ...] = ("chat", "completions", "anthropic", "google")
QUICK = RetryPolicy(attempts=3, first=0.01, longest=0.01)
GREEDY = Sampling(0.0, 20, 7)
NO_LIMITS = AskLimits()
KEY = "sk-made-0123456789abcdef"
Serve = Callable[..., ChatServer]


def ask(
    entry: ChatModel,
    prompts: Sequence[str],
    limits: AskLimits = NO_LIMITS,
    *,
    system: str | None = None,
    tell: Callable[[str], None] = print,
    replies: dict[int, ChatReply] | None = None,
) -> tuple[dict[int, ChatReply], Allowance]:
    """The answers by the prompts' numbers, and what they took."""
    allowance, found = Allowance(entry, limits), {} if replies is None else replies
    requests = [(number, Prompt(system, prompt), GREEDY) for number, prompt in enumerate(prompts)]
    ask_all(entry, requests, allowance, found.__setitem__, tell, patience=QUICK)
    return found, allowance


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gets_the_prompt_and_gives_the_answer_with_what_is_known_of_it(
    dialect: Dialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server = chat_server(lambda prompt: f"five words about {prompt.split()[-1]} here")
    # Of a model that it does not know litellm takes Google's to have no place for a system prompt.
    known = {"model": "gemini/gemini-2.5-flash"} if dialect == "google" else {}
    entry = server.entry(dialect, key_env="MADE_KEY", price_in=1.0, price_out=10.0, **known)
    replies, allowance = ask(entry, ["go on after rivers", "go on after hills"], system="be brief")
    (request,) = [one for one in server.asked if one.prompt.endswith("hills")]
    assert request.dialect == dialect
    if dialect == "completions":
        assert (request.system, request.prompt) == (None, "be brief\n\ngo on after hills")
    else:
        assert (request.system, request.prompt) == ("be brief", "go on after hills")
    assert (request.temperature, request.max_tokens, request.key) == (0.0, 20, KEY)
    assert request.seed == (None if dialect == "anthropic" else 7)
    reply = replies[1]
    assert reply.text == "five words about hills here"
    assert reply.finish_reason == {"anthropic": "end_turn", "google": "STOP"}.get(dialect, "stop")
    assert reply.answered_by == NAME
    assert reply.provider_request_id in ("request-1", "request-2")
    assert reply.asked_at.utcoffset() is not None
    assert 0 < reply.seconds < 60
    assert (reply.prompt_tokens, reply.output_tokens) == (6, 5)
    assert reply.cost == pytest.approx((6 * 1 + 5 * 10) / 1e6)
    assert (allowance.requests, allowance.tokens) == (2, 22)
    assert allowance.cost == pytest.approx(2 * 56 / 1e6)


@pytest.mark.parametrize(
    ("dialect", "reason"),
    [
        ("chat", "length"),
        ("completions", "length"),
        ("anthropic", "refusal"),
        ("google", "RECITATION"),
        ("google", "SAFETY"),
    ],
)
def test_the_reason_of_the_end_is_the_interfaces_own(dialect: Dialect, reason: str, chat_server: Serve) -> None:
    server = chat_server(lambda prompt: ("", reason))
    replies, _ = ask(server.entry(dialect), ["hello"])
    assert (replies[0].text, replies[0].finish_reason) == ("", reason)


@pytest.mark.parametrize("dialect", ["chat", "completions"])
@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_filter_that_refuses_by_an_error_is_an_answer(dialect: Dialect, code: str, chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [Answer(json.dumps({"error": {"message": "held back", "code": code}}).encode(), status=400)]
    replies, allowance = ask(server.entry(dialect, concurrency=1), ["one", "two"])
    assert (replies[0].text, replies[0].finish_reason, replies[0].prompt_tokens) == ("", "content_filter", None)
    assert replies[1].text == "made words"
    assert (allowance.requests, allowance.tokens) == (2, 3)


def test_half_a_character_in_an_answer_is_replaced(chat_server: Serve) -> None:
    replies, _ = ask(chat_server(lambda prompt: "a \ud83d b 😀").entry(), ["hello"])
    assert replies[0].text == "a \ufffd b 😀"


def say_of_an_answer(dialect: Dialect, said: object) -> dict[str, Any]:
    """An answer whose number, model and reason of the end are what is ``said``."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "input_tokens": 1, "output_tokens": 1}
    counts = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    message: dict[str, Any] = {"role": "assistant", "content": "w"}
    choice = {"index": 0, "message": message, "text": "w", "logprobs": None, "finish_reason": said}
    match dialect:
        case "google":
            candidate = {"content": {"role": "model", "parts": [{"text": "w"}]}, "finishReason": said}
            return {
                "candidates": [candidate],
                "usageMetadata": counts,
                "modelVersion": said,
                "responseId": said,
            }
        case "anthropic":
            content = [{"type": "text", "text": "w"}]
            return {"id": said, "model": said, "stop_reason": said, "usage": usage, **message, "content": content}
        case _:
            return {"id": said, "model": said, "choices": [choice], "usage": usage}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("dialect", "said", "kept"),
    [("chat", 7, "7"), ("anthropic", 7, "7"), *((dialect, "a\ud83d", "a\ufffd") for dialect in DIALECTS)],
)
def test_all_that_is_said_of_an_answer_is_a_string_that_a_table_takes(
    dialect: Dialect, said: object, kept: str, chat_server: Serve
) -> None:
    server = chat_server()
    server.faults = [Answer(json.dumps(say_of_an_answer(dialect, said)).encode())]
    replies, _ = ask(server.entry(dialect), ["hello"])
    assert len(server.requests) == 1
    reply = replies[0]
    assert (reply.text, reply.finish_reason, reply.answered_by, reply.provider_request_id) == ("w", kept, kept, kept)


def test_no_more_are_under_way_than_the_entry_allows_and_the_prompts_are_taken_as_there_is_room(
    chat_server: Serve,
) -> None:
    server, taken, ahead = chat_server(), 0, []
    server.pause = 0.1
    entry = server.entry(concurrency=3)

    def prompts() -> Any:
        nonlocal taken
        for number in range(9):
            taken += 1
            yield number, Prompt(None, f"prompt {number}"), GREEDY

    came: list[int] = []

    def keep(number: int, reply: ChatReply) -> None:
        came.append(number)
        ahead.append(taken - len(came))

    ask_all(entry, prompts(), Allowance(entry, NO_LIMITS), keep, print)
    assert sorted(came) == list(range(9))
    assert max(ahead) <= 3
    at = [request.at for request in server.requests]
    # Each takes a tenth of a second: of four in a row the last came after the first was answered.
    assert all(later - earlier >= 0.1 for earlier, later in zip(at, at[3:], strict=False))


@pytest.mark.parametrize("status", [429, 503])
def test_a_passing_fault_is_tried_again_after_the_pause_that_the_server_asks_for(
    status: int, chat_server: Serve
) -> None:
    server, told = chat_server(), []
    server.faults = [fault(status, retry_after=1), fault(status)]
    begun = time.monotonic()
    replies, allowance = ask(server.entry(), ["hello"], tell=told.append)
    assert replies[0].text == "made words"
    assert time.monotonic() - begun >= 1
    assert len(server.requests) == allowance.requests == 3
    assert len(told) == 2
    assert f"the server answered {status}" in told[0]


@pytest.mark.parametrize(
    "broken",
    [
        Answer(b"", reset=True),
        Answer(b'{"choices"', media_type="application/json"),
        Answer(b"{}"),
        Answer(b"x", sent=0),
    ],
    ids=["reset", "cut", "nothing", "short"],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_that_cannot_be_read_is_asked_for_again(dialect: Dialect, broken: Answer, chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [broken]
    replies, allowance = ask(server.entry(dialect), ["hello"])
    assert replies[0].text == "made words"
    assert allowance.requests == len(server.requests) == 2


def test_what_is_not_answered_in_spite_of_all_attempts_ends_the_run(chat_server: Serve) -> None:
    server = chat_server()
    server.pause = 5.0
    with pytest.raises(TransientError, match=r"no answer in time \(after 3 attempts\)"):
        ask(server.entry(timeout_seconds=0.2), ["hello"])
    assert len(server.requests) == 3
    server.stop()
    with pytest.raises(TransientError, match="the connection failed"):
        ask(server.entry(), ["hello"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_attempt_is_made_that_is_not_counted(
    dialect: Dialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm would send again, over a connection of its own, what met none."""
    tried = 0
    note = engine._note_request

    async def count(request: Any) -> None:
        nonlocal tried
        tried += 1
        await note(request)

    async def send_again(*given: Any, **named: Any) -> None:
        nonlocal tried
        tried += 1
        raise ConnectionError

    monkeypatch.setattr(engine, "_note_request", count)
    monkeypatch.setattr("litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler.single_connection_request", send_again)
    server, told = chat_server(), []
    server.stop()
    with pytest.raises(TransientError, match="the connection failed"):
        ask(server.entry(dialect), ["hello"], tell=told.append)
    assert (tried, len(told)) == (3, 2)


def test_a_lasting_refusal_ends_the_run_after_what_is_under_way_was_handed_over(chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [quoting(404)]
    server.pause = 0.3
    replies: dict[int, ChatReply] = {}
    with pytest.raises(ModelError, match="the server answered 404") as raised:
        ask(server.entry(concurrency=3), [f"prompt {number}" for number in range(9)], replies=replies)
    assert len(server.requests) == 3
    assert len(replies) == 2
    assert "\n" not in str(raised.value)
    assert "chat_models.yaml" in str(raised.value)


def test_a_redirect_is_not_followed(chat_server: Serve) -> None:
    server, other = chat_server(), chat_server()
    for dialect in DIALECTS:
        server.faults = [Answer(status=307, headers={"Location": f"{other.url}/v1/chat/completions"})]
        with pytest.raises(ModelError, match="leads elsewhere"):
            ask(server.entry(dialect), ["hello"])
    assert other.requests == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_certificate_that_is_not_trusted_ends_the_run(dialect: Dialect, chat_server: Serve, tmp_path: Path) -> None:
    new = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=localhost")
    files = ("-keyout", "key.pem", "-out", "own.pem")
    subprocess.run(["openssl", "req", *new, *files], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        entry = chat_server().entry(dialect, url=f"https://127.0.0.1:{server.server_address[1]}/v1")
        with pytest.raises(ModelError, match="its certificate is not trusted"):
            ask(entry, ["hello"])
        server.shutdown()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_neither_key_nor_prompt_is_in_an_error_or_what_it_is_chained_to(
    dialect: Dialect,
    status: int,
    chat_server: Serve,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MADE_KEY", KEY)
    server, told = chat_server(), []
    server.faults = [quoting(status)] * 3
    entry = server.entry(dialect, key_env="MADE_KEY")
    prompt = 'it said "no"\nand went away over the hills'
    with pytest.raises(AuditError) as raised:
        ask(entry, [prompt], system="never tell", tell=told.append)
    assert {one.key for one in server.asked} == {KEY}
    shown = [*told, *capfd.readouterr(), caplog.text, repr(entry), *(repr(link) for link in links(raised.value))]
    shown += traceback.format_exception(raised.value)
    assert all(KEY not in text and KEY[3:15] not in text for text in shown)
    assert all("went away" not in text and "over the hills" not in text for text in shown)


def links(error: BaseException | None) -> list[BaseException]:
    """An error with all that it is chained to, shown or not."""
    return [] if error is None else [error, *links(error.__cause__), *links(error.__context__)]


OF_OTHERS = """
OPENAI_API_KEY OPENAI_ADMIN_KEY OPENAI_ORGANIZATION OPENAI_ORG_ID OPENAI_PROJECT_ID ANTHROPIC_API_KEY
ANTHROPIC_AUTH_TOKEN GEMINI_API_KEY GOOGLE_API_KEY LITELLM_API_KEY LITELLM_PROXY_API_KEY AZURE_API_KEY
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_key_of_the_environment_goes_to_a_url_without_one(
    dialect: Dialect, chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = chat_server(), chat_server()
    for name in OF_OTHERS.split():
        monkeypatch.setenv(name, f"secret-of-{name}")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL", "GEMINI_API_BASE"):
        monkeypatch.setenv(name, other.url)
    ask(server.entry(dialect), ["hello"])
    assert len(server.requests) == 1
    assert "secret-of" not in repr(server.requests)
    assert server.asked[0].key == "no-key"
    assert other.requests == []


def test_a_key_that_is_not_set_or_no_key_is_told_before_anything_is_sent(
    chat_server: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = chat_server()
    entry = server.entry(key_env="MADE_KEY")
    monkeypatch.delenv("MADE_KEY", raising=False)
    with pytest.raises(ModelError, match="MADE_KEY, which holds the key, is not set"):
        ask(entry, ["hello"])
    monkeypatch.setenv("MADE_KEY", "schlüssel")
    with pytest.raises(ModelError, match="MADE_KEY holds what cannot be a key"):
        ask(entry, ["hello"])
    assert server.requests == []


@pytest.mark.parametrize("which", ["entry", "command"])
def test_no_more_requests_are_sent_than_the_limit_however_many_are_tried_again(which: str, chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [fault(429)] * 3
    fields = {"max_requests": 5} if which == "entry" else {"max_requests": 50}
    limits = NO_LIMITS if which == "entry" else AskLimits(max_requests=5)
    replies: dict[int, ChatReply] = {}
    name = "max_requests of made in chat_models.yaml" if which == "entry" else "--max-requests"
    with pytest.raises(BudgetError, match=f"5 of 5 are used.*raise {name}"):
        ask(server.entry(**fields), [f"prompt {number}" for number in range(9)], limits, replies=replies)
    assert len(server.requests) == 5
    assert len(replies) == 2


@pytest.mark.parametrize("concurrency", [1, 4])
def test_tokens_and_money_are_kept_before_asking(concurrency: int, chat_server: Serve) -> None:
    """The server counts 3 + 12 tokens a request. Kept for one are 15 bytes + 100 and 20, and so 135."""
    server = chat_server(lambda prompt: "word " * 12)
    entry = server.entry(concurrency=concurrency, price_in=1000.0, price_out=2000.0)
    prompts = [f"prompt number {number % 10}" for number in range(40)]
    for limits, most in (
        # After n answers 15 n tokens are used, and 135 more must be left.
        (AskLimits(max_tokens=15 * 6 + 135), 7),
        (AskLimits(max_tokens=15 * 6 + 134), 6),
        # A request takes 3/1000 + 24/1000 of money, and could take 115/1000 + 40/1000.
        (AskLimits(max_cost=(27 * 6 + 155) / 1000 + 1e-9), 7),
        (AskLimits(max_cost=(27 * 6 + 154) / 1000), 6),
    ):
        before = len(server.requests)
        replies: dict[int, ChatReply] = {}
        with pytest.raises(BudgetError, match=r"the limit of (tokens|costs) is reached"):
            ask(entry, prompts, limits, replies=replies)
        assert len(server.requests) - before == len(replies) == most


def test_one_that_waits_for_what_others_take_is_asked_in_the_end(chat_server: Serve) -> None:
    """The limit has room for one request at a time as it could be, and for all as they are."""
    server = chat_server()
    server.pause = 0.02
    replies, allowance = ask(server.entry(concurrency=8), ["hello there"] * 10, AskLimits(max_tokens=4 * 10 + 131))
    assert len(replies) == 10
    assert allowance.tokens == 40


def test_what_may_have_been_worked_on_stays_counted_in_full(chat_server: Serve) -> None:
    server = chat_server()
    server.faults = [fault(500), fault(429)]
    _, allowance = ask(server.entry(), ["hello"])
    assert (allowance.requests, allowance.tokens) == (3, 5 + 100 + 20 + 0 + 3)


def test_an_interface_that_does_not_count_is_counted_by_the_most_that_it_could_take(chat_server: Serve) -> None:
    server = chat_server()
    choice = {"index": 0, "message": {"role": "assistant", "content": "words"}, "finish_reason": "stop"}
    server.faults = [Answer(json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode())]
    replies, allowance = ask(server.entry(price_in=1.0, price_out=1.0), ["hello"])
    assert (replies[0].prompt_tokens, replies[0].output_tokens, replies[0].cost) == (None, None, None)
    assert allowance.tokens == 125


def test_two_allowances_share_a_limit(chat_server: Serve) -> None:
    limits = AskLimits(10, 1000, 1.5)
    assert limits.less(3, 400, 0.5) == (7, 600, 1.0)
    assert limits.less(11, 1001, 2.0) == (0, 0, 0.0)
    assert limits.less(0, 0, None) == limits
    assert NO_LIMITS.less(3, 400, 0.5) == NO_LIMITS
    server = chat_server()
    entry = server.entry(price_in=1.0, price_out=1.0)
    for used, name in (((10, 0, 0.0), "requests"), ((0, 1000, 0.0), "tokens"), ((0, 0, 1.5), "cost")):
        with pytest.raises(BudgetError, match=rf"the limit of {name}s? is reached: .*raise --max-{name}"):
            ask(entry, ["hello"], limits.less(*used))
    assert server.requests == []


def test_a_limit_of_money_takes_a_price(chat_server: Serve) -> None:
    with pytest.raises(ConfigError, match="has no price"):
        Allowance(chat_server().entry(), AskLimits(max_cost=1.0))


def test_a_dry_run_estimates_by_the_same_bounds(chat_server: Serve) -> None:
    entry = chat_server().entry(price_in=1000.0, price_out=2000.0)
    requests = [(Prompt("be brief", "hello"), GREEDY), (Prompt(None, "höhe"), Sampling(1.0, 50))]
    assert estimate(entry, requests) == (2, (113 + 20) + (105 + 50), pytest.approx((218 * 1000 + 70 * 2000) / 1e6))
    assert estimate(chat_server().entry(), []) == (0, 0, None)


def test_a_model_that_takes_no_temperature_says_so_and_is_asked_without(chat_server: Serve) -> None:
    server = chat_server()
    entry = server.entry(model="openai/gpt-5")
    with pytest.raises(ModelError, match=r"temperature: null in chat_models\.yaml"):
        ask(entry, ["hello"])
    found: list[ChatReply] = []
    requests = [(0, Prompt(None, "hello"), Sampling(None, 20))]
    ask_all(entry, requests, Allowance(entry, NO_LIMITS), lambda _, reply: found.append(reply), print)
    assert found[0].text == "made words"
    assert (server.asked[0].temperature, server.asked[0].max_tokens, server.asked[0].seed) == (None, 20, None)


CHILD = """
import sys
sys.path[:0] = {path!r}
from audit_pipeline.asking.config import ChatModel
from audit_pipeline.asking.engine import Allowance, AskLimits, Prompt, Sampling, ask_all
went = set()
sys.addaudithook(lambda event, given: went.add(given[1][:2]) if event == "socket.connect" else None)
entry = ChatModel(name="made", model="openai/made-1", url={url!r}, concurrency=2)
requests = ((number, Prompt(None, "prompt %d" % number), Sampling(0.0, 20)) for number in range({many}))
{before}
ask_all(entry, requests, Allowance(entry, AskLimits()), lambda number, reply: print(number, flush=True), print)
print("went", went)
"""


def start_child(server: ChatServer, *, before: str = "", many: int = 1000, **environment: str) -> subprocess.Popen[str]:
    """A process that asks, and prints the numbers of what came."""
    code = CHILD.format(path=[str(HERE.parents[1])], url=f"{server.url}/v1", before=before, many=many)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_nothing_is_sent_anywhere_but_to_the_model(chat_server: Serve, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=secret-of-file\n")
    server = chat_server()
    done = start_child(server, many=3, HOME=str(tmp_path), PWD=str(tmp_path))
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (0, "")
    port = re.search(r"\d+$", server.url)
    assert port is not None
    assert out.splitlines()[-1] == f"went {{('127.0.0.1', {port[0]})}}"


def test_ctrl_c_ends_it_at_once_and_loses_no_answer_that_was_handed_over(chat_server: Serve) -> None:
    """Four are answered, and the two after them are under way."""

    def answer(prompt: str) -> str:
        server.pause = 30.0 if int(prompt.removeprefix("prompt ")) >= 4 else 0.0
        return "made words"

    server = chat_server(answer)
    child = start_child(server)
    assert child.stdout is not None
    came = [child.stdout.readline() for _ in range(4)]
    while len(server.requests) < 6:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    # Answers are 30 seconds away.
    out, err = child.communicate(timeout=20)
    assert child.returncode != 0
    assert "KeyboardInterrupt" in err
    assert (sorted(came), out) == (["0\n", "1\n", "2\n", "3\n"], "")
    assert len(server.requests) == 6


def test_without_the_extra_it_is_told_what_to_install(chat_server: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ModelError, match=r"pip install 'corpus-audit\[chat\]'"):
        ask(chat_server().entry(), ["hello"])


def test_what_a_caller_raises_ends_it_after_what_is_paid_for_was_handed_over(chat_server: Serve) -> None:
    server, came = chat_server(), list[int]()
    server.pause = 0.2
    entry = server.entry(concurrency=4)

    def keep(number: int, reply: ChatReply) -> None:
        came.append(number)
        if len(came) <= 2:
            raise OSError(f"the disk is full, {len(came)}")

    requests = [(number, Prompt(None, "hello"), GREEDY) for number in range(20)]
    with pytest.raises(OSError, match="the disk is full, 1"):
        ask_all(entry, requests, Allowance(entry, NO_LIMITS), keep, print)
    assert len(server.requests) == len(came) == 4


def test_importing_the_engine_loads_no_client() -> None:
    code = "import sys\nimport audit_pipeline.asking.engine\nprint({'litellm', 'openai', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE.parents[1], check=True)
    assert done.stdout == "set()\n"
