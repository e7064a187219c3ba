"""Asking servers of models: many requests at a time, patiently, within a budget, and without letting the key out.

What belongs here: requests and answers as bytes, when one is sent again, and what a fault is called. What does not:
what is asked and what an answer means (dialects/, chat/chat_client.py), which faults may pass (readers/retry.py).

httpx2 speaks HTTP and tenacity repeats, both of which the project has already. Packages of providers, and
litellm, send again by themselves, and no budget counts it. Requests run in an event loop of this
generator's own, without threads: closing it cancels what is under way at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx2

from audit_pipeline.errors import (
    AuditError,
    BudgetError,
    ModelError,
    UnansweredError,
    redact_prompt,
    to_one_line,
)
from audit_pipeline.models.server_settings import ServerSettings
from audit_pipeline.models.usage_budget import Budget, Usage
from audit_pipeline.readers.guarded_responses import DamagedAnswerError, OversizedAnswerError, read_redacted_response
from audit_pipeline.readers.retry import (
    RetryableError,
    RetryPolicy,
    build_async_retryer,
    is_transient_status,
    iterate_causes,
    parse_retry_after,
)

PATIENCE = RetryPolicy(attempts=8, first=0.5, longest=60.0, jitter=1.0)
"""About two minutes in all: what a server needs to be started again."""
_LONGEST_PAUSE = 300.0
_WORDS = 300
_FEW_WORDS = 80
# Ids in a row: no message has as many of its own.
_IDS = re.compile(r"(?:\d+,\s*){4,}\d*")
_OK, _CONFLICT = 200, 409
_OF_KEYS = (401, 403)
_ADVICE: Mapping[int, str] = {
    401: "the key is missing or not accepted: see key_env in {}",
    402: "payment is required: check the account of the key, which key_env names in {}",
    403: "the key does not allow it: see key_env in {}",
    404: "no such route or model: see url and model in {}",
}
_REDIRECTED = "it leads elsewhere, and is not followed: name the address that it leads to as url in {}"

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class ServerRequest:
    """One request: ``body`` to be posted to ``url`` as JSON (None: a GET request).

    ``most``: the tokens that it can take. ``most_bytes``: no answer that is longer is read. ``private``: what no
    message may quote of it.
    """

    url: str
    body: Mapping[str, Any] | None = None
    most: Usage = field(default_factory=Usage)
    most_bytes: int = 4 << 20
    private: str = ""


class ServerAnswer(NamedTuple):
    """An answer, less the key in it. ``asked_at`` and ``seconds`` are those of the attempt that was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    asked_at: datetime
    seconds: float


class RefusedError(ModelError):
    """A request that the server will never answer: ``status``, and what it says of it in ``words``."""

    def __init__(self, message: str, status: int, words: str) -> None:
        super().__init__(message)
        self.status = status
        self.words = words


class OversizedError(ModelError):
    """An answer that is longer than it can be."""


class _StoppedError(Exception):
    """Not sent, because another request has ended the run."""


class Client:
    """Asks one server. ``who`` names it in messages, ``place`` the entry that advice refers to.

    The key is read from the environment when something is asked, and is in no attribute, message or log. Redirects are
    not followed: the key stays with the host that the entry names. Raises ModelError where the variable is not set.
    """

    def __init__(
        self,
        who: str,
        entry: ServerSettings,
        budget: Budget,
        *,
        place: str,
        notify: Callable[[str], None] = lambda words: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        self.who = who
        self.entry = entry
        self.budget = budget
        self.place = place
        self.notify = notify
        self.patience = patience

    def ask(self, request: ServerRequest, *, patience: RetryPolicy | None = None) -> bytes:
        """Return the body of the answer to one request. Raises as :meth:`iterate_answers` does."""
        answers = self.iterate_answers([(None, request)], lambda _, answer: answer.body, patience=patience)
        with closing(answers):
            return next(answers)[0]

    def iterate_answers(
        self,
        requests: Iterable[tuple[K, ServerRequest]],
        read: Callable[[K, ServerAnswer], T],
        *,
        read_refusal: Callable[[K, ServerAnswer], T | None] = lambda key, answer: None,
        patience: RetryPolicy | None = None,
    ) -> Generator[list[T]]:
        """Yield what ``read`` makes of each request's key and answer, as answers come, in whatever order.

        ``requests`` are taken when there is room for one more. ``read`` raises PassingError for an answer that is asked
        for again; ``read_refusal`` may make something of an answer of another status than 200.

        Raises ModelError within a running event loop, which cannot wait for another one; RefusedError where the server
        refuses one, UnansweredError where it does not answer, BudgetError where one would exceed the budget, and what
        ``requests`` and ``read`` raise; what is under way then is waited for and yielded first, since it is paid for.
        Closing the generator cancels what is under way.
        """
        _require_no_event_loop(self.who)
        with asyncio.Runner() as runner:
            session = _Session(self, iter(requests), read, read_refusal, patience or self.patience)
            try:
                while found := runner.run(session.collect_results()):
                    yield found
            finally:
                runner.run(session.close())
        if session.fault is not None:
            raise session.fault


class _Session(Generic[K, T]):
    """The requests of one run: those under way, and what has stopped it."""

    def __init__(
        self,
        client: Client,
        requests: Iterator[tuple[K, ServerRequest]],
        read: Callable[[K, ServerAnswer], T],
        read_refusal: Callable[[K, ServerAnswer], T | None],
        patience: RetryPolicy,
    ) -> None:
        self.fault: AuditError | None = None
        self._client, self._api_key = client, read_api_key(client.entry)
        self._requests, self._read, self._read_refusal = requests, read, read_refusal
        self._retry = build_async_retryer(
            patience,
            lambda error: isinstance(error, RetryableError),
            on_retry=lambda state: client.notify(
                f"{client.who}: {state.outcome.exception() if state.outcome else ''}; trying again"
            ),
            sleep=self._sleep,
        )
        self._attempts = patience.attempts
        self._under_way: set[asyncio.Task[T]] = set()
        self._n_sent = 0
        self._exhausted = False
        self._stopping, self._settled = asyncio.Event(), asyncio.Event()
        self._not_before = 0.0
        self._http: httpx2.AsyncClient | None = None

    async def collect_results(self) -> list[T]:
        """Keep as many requests under way as may be, and return what the next ones have brought; empty at the end."""
        while True:
            self._start_requests()
            if not self._under_way:
                return []
            done, self._under_way = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            if found := [task.result() for task in done if not self._record_failure(task)]:
                return found

    async def close(self) -> None:
        """Cancel what is under way, and close the connections."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    def _start_requests(self) -> None:
        while len(self._under_way) < self._client.entry.concurrency and not self._exhausted and self.fault is None:
            try:
                key, request = next(self._requests)
            except StopIteration:
                self._exhausted = True
            except AuditError as error:
                self._stop(error)
            else:
                self._under_way.add(asyncio.create_task(self._request_with_retries(key, request)))

    def _record_failure(self, task: asyncio.Task[T]) -> bool:
        error = task.exception()
        if isinstance(error, AuditError):
            self._stop(error)
        elif error is not None and not isinstance(error, _StoppedError):
            raise error
        return error is not None

    def _stop(self, error: AuditError) -> None:
        self.fault = self.fault or error
        self._stopping.set()
        self._settled.set()

    async def _request_with_retries(self, key: K, request: ServerRequest) -> T:
        try:
            return await self._retry.copy()(self._attempt, key, request)
        except RetryableError as fault:
            tries = f"{self._attempts} attempt{'s' if self._attempts > 1 else ''}"
            raise UnansweredError(
                f"{self._client.who}: {fault} (after {tries}); try again later",
                fault.status,
            ) from fault

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, key: K, request: ServerRequest) -> T:
        loop = asyncio.get_running_loop()
        # A Retry-After header pauses all requests: each of the others would only meet the same refusal, and pay.
        while not self._stopping.is_set() and (wait := self._not_before - loop.time()) > 0:
            await self._sleep(wait)
        await self._reserve(request.most)
        self._n_sent += 1
        try:
            answer = await self._send(request)
            if answer.status == _OK:
                return self._read(key, answer)
            found = self._read_refusal(key, answer)
            return self._raise_for_status(answer, request) if found is None else found
        finally:
            self._n_sent -= 1
            self._settled.set()

    async def _reserve(self, most: Usage) -> None:
        """Count the attempt; where that fails, first wait for others that may take less than is kept for them."""
        while not self._stopping.is_set():
            try:
                return self._client.budget.reserve(most)
            except BudgetError:
                if not self._n_sent:
                    raise
            self._settled.clear()
            await self._settled.wait()
        raise _StoppedError

    async def _send(self, request: ServerRequest) -> ServerAnswer:
        who = self._client.who
        try:
            async with asyncio.timeout(self._client.entry.timeout_seconds):
                return await self._exchange(request)
        except TimeoutError as error:
            raise RetryableError("no answer in time") from error
        except httpx2.TransportError as error:
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in iterate_causes(error)):
                raise ModelError(f"{who}: its certificate is not trusted") from error
            is_away = isinstance(error, httpx2.ConnectError)
            raise RetryableError("it cannot be reached" if is_away else "the connection failed") from error
        except DamagedAnswerError as error:
            raise RetryableError(str(error)) from error
        except OversizedAnswerError as error:
            raise OversizedError(f"{who}: {error}") from error

    async def _exchange(self, request: ServerRequest) -> ServerAnswer:
        if self._http is None:
            # The time limit is for a request as a whole, above.
            self._http = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        body = None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode()
        sent = self._http.build_request("GET" if body is None else "POST", request.url, content=body, headers=headers)
        asked_at, begun = datetime.now(UTC), time.monotonic()
        response = await self._http.send(sent, stream=True)
        try:
            await read_redacted_response(response, request.most_bytes)
            content = await response.aread()
        finally:
            await response.aclose()
        return ServerAnswer(response.status_code, response.headers, content, asked_at, time.monotonic() - begun)

    def _raise_for_status(self, answer: ServerAnswer, request: ServerRequest) -> NoReturn:
        who, status = self._client.who, answer.status
        words = _IDS.sub("…", to_one_line(extract_error_message(answer.body))[:_WORDS])
        # Of keys servers quote parts.
        words = "" if status in _OF_KEYS else redact_prompt(words, request.private)
        what = f"the server answered {status}" + (f" ({words})" if words else "")
        if status == _CONFLICT or is_transient_status(status):
            pause = parse_retry_after(answer.headers.get("Retry-After"))
            if pause is not None and pause > _LONGEST_PAUSE:
                raise UnansweredError(
                    f"{who}: {what} and asks to be left alone for {pause:.0f} s; try again then", status
                )
            if pause is not None:
                self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
            raise RetryableError(what, status, pause)
        advice = _REDIRECTED if 300 <= status < 400 else _ADVICE.get(status, "see {}")
        raise RefusedError(
            f"{who}: {what} to {urlsplit(request.url).path}: {advice.format(self._client.place)}", status, words
        )


def _require_no_event_loop(who: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ModelError(
            f"{who}: cannot be asked from within an event loop (a notebook): run it in a thread of its own"
        )


def read_api_key(entry: ServerSettings) -> str | None:
    """Return the key that the entry names; raises ModelError where it names one that is not there."""
    if entry.key_env is None:
        return None
    key = os.environ.get(entry.key_env, "").strip()
    if not key:
        raise ModelError(f"the environment variable {entry.key_env} is not set: it holds the key of the server")
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"the environment variable {entry.key_env} holds what cannot be a key")
    return key


def extract_error_message(body: bytes) -> str:
    """Return what a server says of a fault: OpenAI's error.message, FastAPI's detail, or a few words of the body."""
    text = body[: 1 << 16].decode("utf-8", errors="replace")
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return to_one_line(text)[:_FEW_WORDS]
    if isinstance(reply, dict):
        error = reply.get("error", reply)
        reply = error if not isinstance(error, dict) else error.get("message") or error.get("detail") or error
    if isinstance(reply, list) and all(isinstance(problem, dict) and "msg" in problem for problem in reply):
        # Of pydantic's faults only where and what: their input is the prompt.
        return "; ".join(f"{problem.get('loc')}: {problem['msg']}" for problem in reply)
    return reply if isinstance(reply, str) else json.dumps(reply)[:_FEW_WORDS]
