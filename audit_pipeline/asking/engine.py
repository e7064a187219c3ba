"""Asking a model that answers in words: many requests at a time, patiently, within limits, and without letting the key
out.

What belongs here: prompts as they are sent, answers as they come, limits, and what a fault is called. What does not:
what is asked and what an answer means (ladder.py, quiz.py, outcomes.py), and which faults may pass (fetch/retry.py).

litellm speaks the interfaces: OpenAI's (chat and completions), Anthropic's and Google's in one package, of which
usage, model as answered and reason of the end come back alike. inspect-ai, which was tried beside it, has no
completions and needs every provider's own package. Left unused: litellm's retries (no limit of ours would count them),
prices (those of the entry hold), cache and callbacks. The connection is our own: it follows no redirect, and hands over
headers and body as they came.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from audit_pipeline.asking.config import FILE_NAME, ChatModel
from audit_pipeline.errors import (
    AuditError,
    BudgetError,
    ConfigError,
    ModelError,
    TransientError,
    to_one_line,
    withhold_quotes,
)
from audit_pipeline.fetch.retry import RetryPolicy, build_async_retryer, is_transient_status, parse_retry_after
from audit_pipeline.fetch.server_answers import (
    ACCEPTED,
    OversizedAnswerError,
    guard_response_async,
    put_body,
    redact,
)

PATIENCE = RetryPolicy(attempts=8, first=0.5, longest=60.0, jitter=1.0)
"""About two minutes in all."""
_LONGEST_PAUSE = 300.0
_OK = 200
_REDIRECTS = range(300, 400)
_REFUSALS = range(400, 500)
_OF_KEYS = (401, 403)
# What an interface's template may put around a prompt: roles, the date, a line of its own.
_TEMPLATE_TOKENS = 100
_NO_KEY = "no-key"
# Of all tokenizers in use none cuts prose into longer tokens on the mean.
_BYTES_PER_TOKEN = 16
# What comes with an answer (filters, citations, signatures), and the most of a token: JSON escapes a byte in up to six.
_FIXED_BYTES, _BYTES_PER_ANSWER_TOKEN = 1 << 20, 256
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
_FILTERED = "content_filter"
# OpenAI's and Azure's, with status 400.
_FILTER_CODES = ("content_filter", "content_policy_violation", "invalid_prompt")
_WORDS = 300
_NOT_THE_ENTRYS = ("OpenAI-Organization", "OpenAI-Project")
_ADVICE = {
    401: "the key is missing or not accepted: see key_env",
    402: "payment is required: see the account of the key in key_env",
    403: "the key does not allow it: see key_env",
    404: "no such route or model: see url and model",
}

K = TypeVar("K")


class Prompt(NamedTuple):
    """What is asked: the user's words, and what the model is told before them."""

    system: str | None
    user: str


class Sampling(NamedTuple):
    """How an answer is drawn. ``temperature`` None is not sent; nor is ``seed`` to Anthropic, which takes none."""

    temperature: float | None
    max_tokens: int
    seed: int | None = None


@dataclass(frozen=True)
class ChatReply:
    """An answer. ``finish_reason`` and ``provider_request_id`` are the interface's own; tokens as it counts them.

    ``seconds`` and ``asked_at`` are those of the attempt that was answered. ``cost`` is by the entry's prices.
    """

    text: str
    finish_reason: str | None
    answered_by: str | None
    provider_request_id: str | None
    asked_at: datetime
    seconds: float
    prompt_tokens: int | None
    output_tokens: int | None
    cost: float | None


class AskLimits(NamedTuple):
    """The most of one run; None: no limit."""

    max_requests: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None

    def less(self, requests: int, tokens: int, cost: float | None) -> AskLimits:
        """What is left of each limit after so much; not below 0. ``cost`` None: nothing."""
        return AskLimits(
            None if self.max_requests is None else max(self.max_requests - requests, 0),
            None if self.max_tokens is None else max(self.max_tokens - tokens, 0),
            None if self.max_cost is None else max(self.max_cost - (cost or 0.0), 0.0),
        )


class Estimate(NamedTuple):
    """Requests, and the most tokens (prompts and answers) and money that they can take; no attempt counted twice."""

    requests: int
    tokens: int
    cost: float | None


class _Bound(NamedTuple):
    prompt_tokens: int
    output_tokens: int


def _bound(prompt: Prompt, sampling: Sampling) -> _Bound:
    """The most tokens of a request, by the bytes that are sent: models cut text into tokens of a byte or more."""
    sent = len(prompt.user.encode()) + len((prompt.system or "").encode())
    return _Bound(sent + _TEMPLATE_TOKENS, sampling.max_tokens)


def _count_least(text: str) -> int:
    """The fewest tokens that ``text`` can have."""
    return max(len(text.split()), -(-len(text.encode()) // _BYTES_PER_TOKEN))


def estimate(entry: ChatModel, requests: Iterable[tuple[Prompt, Sampling]]) -> Estimate:
    """The most that ``requests`` can take, by the bounds that limits are kept with."""
    bounds = [_bound(*request) for request in requests]
    prompt_tokens, output_tokens = (sum(side) for side in zip(*bounds, strict=True)) if bounds else (0, 0)
    return Estimate(len(bounds), prompt_tokens + output_tokens, entry.cost_of(prompt_tokens, output_tokens))


class Allowance:
    """What one run may take of ``entry``: the entry's own limits and ``limits``, whichever is stricter.

    Every attempt is counted before it is sent, with the most that it can take; once it is answered, with what it took.
    What is not answered may still have been worked on, and stays counted in full, unless the server refused it.
    Not for several threads.
    """

    def __init__(self, entry: ChatModel, limits: AskLimits) -> None:
        self.entry = entry
        self.requests = 0
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._limits = [
            (AskLimits(entry.max_requests, entry.max_tokens, entry.max_cost), f"{{}} of {entry.name} in {FILE_NAME}"),
            (limits, "--{}"),
        ]
        if limits.max_cost is not None and entry.price_in is None:
            raise ConfigError(f"{entry.name} has no price: give price_in and price_out, or leave --max-cost out")

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers, those kept for what is under way included."""
        return self._prompt_tokens + self._output_tokens

    @property
    def cost(self) -> float | None:
        """What they cost by the entry's prices; None without."""
        return self.entry.cost_of(self._prompt_tokens, self._output_tokens)

    def reserve(self, most: _Bound) -> None:
        """Count a request that is about to be sent; raises BudgetError where it could exceed a limit."""
        tokens = self.tokens + sum(most)
        cost = self.entry.cost_of(self._prompt_tokens + most.prompt_tokens, self._output_tokens + most.output_tokens)
        for limits, place in self._limits:
            for what, name, limit, used, after in (
                ("requests", "max_requests", limits.max_requests, self.requests, self.requests + 1),
                ("tokens", "max_tokens", limits.max_tokens, self.tokens, tokens),
                ("costs", "max_cost", limits.max_cost, self.cost, cost),
            ):
                if limit is not None and after is not None and after > limit:
                    where = place.format(name.replace("_", "-") if place.startswith("--") else name)
                    raise BudgetError(
                        f"the limit of {what} is reached: {used:,} of {limit:,} are used, and with the next request "
                        f"it could be {after:,}; what was answered is kept: raise {where}"
                    )
        self.requests += 1
        self._prompt_tokens += most.prompt_tokens
        self._output_tokens += most.output_tokens

    def settle(self, most: _Bound, prompt_tokens: int | None, output_tokens: int | None) -> None:
        """Put what a request took in the place of the most that it could; where that is not known, the most stays."""
        self._prompt_tokens += 0 if prompt_tokens is None else prompt_tokens - most.prompt_tokens
        self._output_tokens += 0 if output_tokens is None else output_tokens - most.output_tokens


def ask_all(
    entry: ChatModel,
    requests: Iterable[tuple[K, Prompt, Sampling]],
    allowance: Allowance,
    on_reply: Callable[[K, ChatReply], None],
    tell: Callable[[str], None],
    *,
    patience: RetryPolicy = PATIENCE,
) -> None:
    """Ask ``entry`` all ``requests``, taken when there is room for one more, and give ``on_reply`` each answer.

    ``on_reply`` is called in this thread, once at a time, in whatever order answers come. ``tell`` hears of attempts
    that are made again. Raises ModelError where litellm or the key is missing, or the interface will never answer;
    TransientError where it does not in spite of all attempts; BudgetError where a request could exceed a limit; and
    what ``on_reply`` raises. What is under way then is waited for and handed over first, since it is paid for: of
    several errors the first is raised. No message holds the key or a prompt. Ctrl-C ends it at once.
    """
    with asyncio.Runner() as runner:
        runner.run(_Session(entry, allowance, tell, patience).ask(iter(requests), on_reply))


@dataclass
class _Exchange:
    """What one attempt has sent and got; ``counts``: tokens of prompt and answer as the server counts them, or None."""

    provider: str
    most_bytes: int
    is_sent: bool = False
    response: Any = None
    counts: tuple[Any, Any] | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether the server did nothing with it."""
        return self.response is not None and self.response.status_code in _REFUSALS


_EXCHANGE: ContextVar[_Exchange] = ContextVar("exchange")


class _PassingError(Exception):
    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class _StoppedError(Exception):
    """Not sent, because another request has ended the run."""


@dataclass
class _Session:
    """The requests of one run: those under way, and what has stopped it."""

    entry: ChatModel
    allowance: Allowance
    tell: Callable[[str], None]
    patience: RetryPolicy
    fault: Exception | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _under_way: int = 0
    _has_told_counts: bool = False
    _not_before: float = 0.0

    async def ask(
        self, requests: Iterator[tuple[K, Prompt, Sampling]], on_reply: Callable[[K, ChatReply], None]
    ) -> None:
        litellm, key = _load_litellm(), self.entry.read_key() or _NO_KEY
        import httpx  # noqa: PLC0415 - litellm's, so there only with the extra

        hooks: dict[str, list[Callable[..., Any]]] = {"request": [_note_request], "response": [_note_response]}
        # The entry's limit, in _attempt, is for a request as a whole, and comes first.
        wait = 2 * self.entry.timeout_seconds
        async with httpx.AsyncClient(follow_redirects=False, timeout=wait, event_hooks=hooks) as http:
            send = _build_sender(litellm, self.entry, key, http)
            tasks: set[asyncio.Task[tuple[K, ChatReply]]] = set()
            try:
                while True:
                    while self.fault is None and len(tasks) < self.entry.concurrency:
                        request = next(requests, None)
                        if request is None:
                            break
                        tasks.add(asyncio.create_task(self._answer(*request, send, key)))
                    if not tasks:
                        break
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        self._hand_over(task, on_reply)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        if self.fault is not None:
            raise self.fault

    def _hand_over(self, task: asyncio.Task[tuple[K, ChatReply]], on_reply: Callable[[K, ChatReply], None]) -> None:
        try:
            on_reply(*task.result())
        except _StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - raised by ask, once all that is paid for is handed over
            self.fault = self.fault or error
            self._stopping.set()

    async def _answer(
        self, key: K, prompt: Prompt, sampling: Sampling, send: _Sender, secret: str
    ) -> tuple[K, ChatReply]:
        again = build_async_retryer(
            self.patience,
            lambda error: isinstance(error, _PassingError),
            requested_pause=lambda error: error.pause if isinstance(error, _PassingError) else None,
            on_retry=lambda state: self.tell(
                f"{self.entry.name}: {state.outcome.exception() if state.outcome else ''}; trying again"
            ),
            sleep=self._sleep,
        )
        try:
            reply: ChatReply = await again(self._attempt, prompt, sampling, send, secret)
        except _PassingError as fault:
            tries = self.patience.attempts
            raise TransientError(
                f"{self.entry.name} at {self.entry.host}: {fault} (after {tries} attempts); try again later"
            ) from None
        return key, reply

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, prompt: Prompt, sampling: Sampling, send: _Sender, secret: str) -> ChatReply:
        # A Retry-After header pauses all requests: each of the others would only meet the same refusal.
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set() and (wait := self._not_before - loop.time()) > 0:
            await self._sleep(wait)
        most = _bound(prompt, sampling)
        await self._reserve(most)
        exchange = _Exchange(
            self.entry.model.partition("/")[0], _FIXED_BYTES + sampling.max_tokens * _BYTES_PER_ANSWER_TOKEN
        )
        asked_at, begun = datetime.now(UTC), time.monotonic()
        _EXCHANGE.set(exchange)
        reply: ChatReply | Exception
        try:
            async with asyncio.timeout(self.entry.timeout_seconds):
                answer = await send(prompt, sampling)
            reply = self._bound_counts(
                _read_reply(answer, exchange, self.entry, asked_at, time.monotonic() - begun), exchange, prompt, most
            )
            self.allowance.settle(most, reply.prompt_tokens, reply.output_tokens)
        except TimeoutError:
            reply = _PassingError("no answer in time")
        except Exception as error:  # noqa: BLE001 - whatever litellm makes of a fault, none of it may be shown
            if exchange.is_refusal:
                self.allowance.settle(most, 0, 0)
            if _is_filter(error, exchange):
                number = _read_number(exchange.response, {})
                reply = ChatReply("", _FILTERED, None, number, asked_at, time.monotonic() - begun, None, None, None)
            else:
                reply = self._explain(error, exchange, prompt, secret)
        finally:
            self._under_way -= 1
            self._settled.set()
        if isinstance(reply, AuditError):
            self._stopping.set()
        if isinstance(reply, Exception):
            # Raised out here, so that no error of litellm's, which may quote key and prompt, is chained to it.
            raise reply
        return reply

    def _bound_counts(self, reply: ChatReply, exchange: _Exchange, prompt: Prompt, most: _Bound) -> ChatReply:
        """The reply with as many tokens as the server counts, as far as there can be so many.

        What is sent and what comes have at least so many tokens; a count that is none, or above what was asked for, is
        replaced by the most. Without any count tokens and cost stay None.
        """
        if exchange.counts is None:
            return reply
        least = (max(1, _count_least("\n".join(filter(None, prompt)))), _count_least(reply.text))
        # A side that is not counted of an answer without words is no fault: Google's says nothing of it.
        given = [
            0 if count is None and not fewest else count for count, fewest in zip(exchange.counts, least, strict=True)
        ]
        counts = [
            max(count, fewest) if type(count) is int and min(1, fewest) <= count <= largest else largest
            for count, fewest, largest in zip(given, least, most, strict=True)
        ]
        if counts != given and not self._has_told_counts:
            self._has_told_counts = True
            said = " and ".join(str(count)[:20] for count in given)
            self.tell(
                f"{self.entry.name}: the server counts {said} tokens of prompt and answer, which cannot be: "
                f"{counts[0]:,} and {counts[1]:,} are counted, and such counts are replaced from now on"
            )
        cost = self.entry.cost_of(*counts)
        return replace(reply, prompt_tokens=counts[0], output_tokens=counts[1], cost=cost)

    async def _reserve(self, most: _Bound) -> None:
        """Count the attempt; where that fails, first wait for others that may take less than is kept for them."""
        while True:
            if self._stopping.is_set():
                raise _StoppedError
            try:
                self.allowance.reserve(most)
            except BudgetError:
                if not self._under_way:
                    raise
                self._settled.clear()
                await self._settled.wait()
            else:
                self._under_way += 1
                return

    def _explain(self, error: Exception, exchange: _Exchange, prompt: Prompt, secret: str) -> Exception:
        """What a fault is: one that may pass, or the end of the run."""
        who, response = f"{self.entry.name} at {self.entry.host}", exchange.response
        if any(isinstance(link, OversizedAnswerError) for link in _chain(error)):
            return ModelError(f"{who}: its answer is longer than the {exchange.most_bytes:,} bytes that are taken")
        if response is not None and response.status_code != _OK:
            words = _withhold(str(_read_error(response).get("message", "")), prompt, secret)
            return self._explain_refusal(who, response, words)
        if response is not None:
            return _PassingError("its answer cannot be read")
        if any(isinstance(link, ssl.SSLCertVerificationError) for link in _chain(error)):
            return ModelError(f"{who}: its certificate is not trusted")
        if exchange.is_sent:
            return _PassingError("the connection failed")
        words = _withhold(str(error), prompt, secret).partition(" To drop")[0]
        hint = " For models that take none, say temperature: null" if "temperature" in words else " See its entry"
        return ModelError(f"{who}: cannot be asked so: {words}{hint} in {FILE_NAME}")

    def _explain_refusal(self, who: str, response: Any, words: str) -> Exception:
        status: int = response.status_code
        what = f"the server answered {status}" + (f" ({words})" if words else "")
        if is_transient_status(status):
            pause = parse_retry_after(response.headers.get("Retry-After"))
            if pause is not None and pause > _LONGEST_PAUSE:
                return TransientError(f"{who}: {what} and asks to be left alone for {pause:.0f} s; try again then")
            if pause is not None:
                self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
            return _PassingError(what, pause)
        if status in _OF_KEYS:
            # Here servers quote the key, in part at times.
            what = f"the server answered {status}"
        advice = "it leads elsewhere, and is not followed: see url" if status in _REDIRECTS else _ADVICE.get(status)
        return ModelError(f"{who}: {what}: {advice or 'see the entry'} of {self.entry.name} in {FILE_NAME}")


_Sender = Callable[[Prompt, Sampling], Any]


def _load_litellm() -> Any:
    """litellm, told to fetch, load and print nothing of its own; raises ModelError where it is not installed."""
    # Else it fetches a list of prices at import, and reads a .env file.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        import litellm  # noqa: PLC0415 - an extra
    except ImportError:
        raise ModelError("models that answer in words are asked by litellm: pip install 'corpus-audit[chat]'") from None
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    # What it would print may quote prompts.
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Item.* `ReadOnly` qualifier", UserWarning, "pydantic")
    return litellm


def _build_sender(litellm: Any, entry: ChatModel, key: str, http: Any) -> _Sender:
    """A function that sends a prompt to ``entry`` over the connection ``http``."""
    provider, _, model = entry.model.partition("/")
    if provider == "openai":
        from openai import AsyncOpenAI  # noqa: PLC0415 - litellm's, so there only with the extra

        client: Any = AsyncOpenAI(api_key=key, base_url=entry.address, http_client=http, max_retries=0)
    else:
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler  # noqa: PLC0415 - an extra

        client = AsyncHTTPHandler()
        client.client = http
        # Else it sends again what met no connection, over one of its own.
        client.create_client = _refuse_another
    # Without a key a placeholder is given: litellm would send that of the environment.
    fixed = {"api_key": key, "api_base": entry.address, "client": client, "max_retries": 0, "num_retries": 0}

    def send(prompt: Prompt, sampling: Sampling) -> Any:
        given: dict[str, Any] = {**fixed, "max_tokens": sampling.max_tokens, "timeout": 2 * entry.timeout_seconds}
        if sampling.temperature is not None:
            given["temperature"] = sampling.temperature
        if sampling.seed is not None and provider != "anthropic":
            given["seed"] = sampling.seed
        if entry.interface == "completions":
            words = prompt.user if prompt.system is None else f"{prompt.system}\n\n{prompt.user}"
            return litellm.atext_completion(model=f"text-completion-openai/{model}", prompt=words, **given)
        system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        return litellm.acompletion(
            model=entry.model, messages=[*system, {"role": "user", "content": prompt.user}], **given
        )

    return send


def _refuse_another(**_: Any) -> Any:
    raise ConnectionError


async def _note_request(request: Any) -> None:
    for name in _NOT_THE_ENTRYS:
        request.headers.pop(name, None)
    request.headers["Accept-Encoding"] = ACCEPTED
    _EXCHANGE.get().is_sent = True


async def _note_response(response: Any) -> None:
    """Keep the response, bounded and without the key, and set what it counts aside: litellm fails at counts that are
    none."""
    exchange = _EXCHANGE.get()
    exchange.response = response
    try:
        await guard_response_async(response, exchange.most_bytes)
    except Exception:
        # Whoever explains the fault looks at the response.
        put_body(response, b"")
        await response.aread()
        raise
    body = b"".join([chunk async for chunk in response.stream])
    with suppress(ValueError, RecursionError):
        reply = json.loads(body, parse_int=_read_int)
        if response.status_code == _OK and isinstance(reply, dict):
            name, *sides = _COUNTS[exchange.provider]
            usage = reply.get(name)
            if isinstance(usage, dict):
                exchange.counts = tuple(_add_counts(usage, side) for side in sides)
            reply[name] = {count: 0 for side in sides for count in side}
            put_body(response, json.dumps(reply).encode())
            return
    put_body(response, body)


def _read_int(digits: str) -> int:
    # Python refuses to read longer ones.
    return int(digits[:100])


def _add_counts(usage: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The sum of the counts that are there; one that is none as it is, and None where none is there."""
    found = [usage[name] for name in names if usage.get(name) is not None]
    wrong = [count for count in found if type(count) is not int or count < 0]
    return wrong[0] if wrong else sum(found) if found else None


def _clean(said: Any) -> str | None:
    """As a string that a table takes: half a character of UTF-16, which JSON can hold, is replaced."""
    return None if said is None else str(said).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_number(response: Any, body: dict[str, Any]) -> Any:
    """The interface's own number of a request; litellm makes up one for some interfaces."""
    headers = response.headers
    return headers.get("x-request-id") or headers.get("request-id") or body.get("responseId") or body.get("id")


def _read_reply(answer: Any, exchange: _Exchange, entry: ChatModel, asked_at: datetime, seconds: float) -> ChatReply:
    body = exchange.response.json()
    if "choices" in body or entry.interface == "completions":
        native = body["choices"][0].get("finish_reason")
    else:
        # litellm maps these to OpenAI's: what Anthropic calls a refusal would be a filter.
        native = body.get("stop_reason") or next((one.get("finishReason") for one in body.get("candidates", ())), None)
    choice = answer.choices[0]
    return ChatReply(
        _clean(choice.text if entry.interface == "completions" else choice.message.content) or "",
        _clean(native or choice.finish_reason),
        _clean(answer.model),
        _clean(_read_number(exchange.response, body)),
        asked_at,
        seconds,
        None,
        None,
        None,
    )


def _is_filter(error: Exception, exchange: _Exchange) -> bool:
    """Whether the interface says by an error that a filter held the answer back; litellm does not know all of these."""
    if not exchange.is_refusal:
        return False
    code = _read_error(exchange.response).get("code")
    return code in _FILTER_CODES or type(error).__name__ == "ContentPolicyViolationError"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """As fetch.retry.causes, but through what litellm raises without a cause, too."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _read_error(response: Any) -> dict[str, Any]:
    """What a server says of a refusal, as all three interfaces say it; else all that it says, as its message."""
    with suppress(ValueError, KeyError, TypeError):
        return dict(json.loads(response.text)["error"])
    return {"message": response.text}


def _withhold(words: str, prompt: Prompt, secret: str) -> str:
    """``words`` in one line, not too long, less the key, and less what they quote of the prompt."""
    return withhold_quotes(redact(to_one_line(words), [secret])[:_WORDS], "\n".join(filter(None, prompt)))
