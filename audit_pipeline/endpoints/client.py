"""Asking an endpoint: many requests at a time, patiently, within a budget, and without letting the key out.

What belongs here: requests and answers as bytes, when one is sent again, and what a fault is called. What does not:
what is asked and what an answer means (dialects/), which faults may pass and how long is waited (fetch/retry.py).

httpx2 speaks HTTP and tenacity repeats, both of which the project has already. The `openai` package would bring the
same two things and eight packages more; it knows neither the native routes (SGLang's /generate, /models with the
length of the context) nor a budget that counts each attempt, and what servers add to OpenAI's answers comes through it
untyped. Requests run in an event loop of this generator's own, without threads: closing it cancels what is under way
at once, which a thread that waits for a socket does not allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import httpx2

from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.errors import AuditError, ModelError, TransientError, to_one_line, withhold_quotes
from audit_pipeline.fetch.retry import RetryPolicy, build_async_retryer, causes, is_transient_status, parse_retry_after
from audit_pipeline.fetch.server_answers import (
    DamagedAnswerError,
    OversizedAnswerError,
    guard_response_async,
    redact,
)
from audit_pipeline.models.config import Endpoint

PATIENCE = RetryPolicy(attempts=8, first=0.5, longest=60.0, jitter=1.0)
"""About two minutes in all: what a server needs to be started again."""
_LONGEST_PAUSE = 300.0
_WORDS = 300
_FEW_WORDS = 80
# Ids in a row: no message has as many of its own.
_IDS = re.compile(r"(?:\d+,\s*){4,}\d*")
_OK = 200
_CONFLICT = 409

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class ServerRequest:
    """One request: ``path`` below the endpoint's address, ``body`` to be posted as JSON (None: a GET request).

    ``root``: the path is below the server's root instead, for servers whose own routes are not among OpenAI's.
    ``tokens`` is what it costs: those of the prompt, and the one that is generated. ``most_bytes``: no answer that is
    longer is read.
    """

    path: str
    body: Mapping[str, Any] | None = None
    tokens: int = 0
    root: bool = False
    most_bytes: int = 4 << 20


class RefusedError(ModelError):
    """A request that the server will never answer: ``status``, and what it says of it in ``words``."""

    def __init__(self, message: str, status: int, words: str) -> None:
        super().__init__(message)
        self.status = status
        self.words = words


class OversizedError(ModelError):
    """An answer that is longer than it can be."""


class UnansweredError(TransientError):
    """A request that has not been answered in spite of all attempts; ``status`` where there was one."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class _PassingError(Exception):
    def __init__(self, reason: str, status: int | None = None, pause: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.pause = pause


class _StoppedError(Exception):
    """Not sent, because another request has ended the run."""


class Client:
    """Asks the endpoint of the model called ``name``.

    The key is read from the environment when something is asked, and is in no attribute, message or log. Redirects are
    not followed: the key stays with the host that the entry names. Raises ModelError where the variable is not set.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        budget: Budget,
        *,
        tell: Callable[[str], None] = lambda words: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        self.endpoint = endpoint
        self.who = f"{name} at {endpoint.url}"
        self.budget = budget
        self.tell = tell
        self.patience = patience

    def ask(self, http_request: ServerRequest, *, patience: RetryPolicy | None = None) -> bytes:
        """The body of the answer to one request. Raises as :meth:`iterate_answers` does."""
        with closing(
            self.iterate_answers([http_request], lambda request: request, lambda _, body: body, patience=patience)
        ) as answers:
            return next(answers)[0]

    def iterate_answers(
        self,
        requests: Iterable[R],
        ask: Callable[[R], ServerRequest],
        read: Callable[[R, bytes], T],
        *,
        patience: RetryPolicy | None = None,
    ) -> Generator[list[T]]:
        """What ``read`` makes of the answer to each request, as answers come, in whatever order.

        ``requests`` are taken when there is room for one more. Raises ModelError within a running event loop, which
        cannot wait for another one; RefusedError where the server refuses one,
        UnansweredError where it does not answer, BudgetError where one would exceed the budget, and what ``ask`` and
        ``read`` raise; what is under way then is waited for and yielded first, since it is paid for. Closing the
        generator cancels what is under way.
        """
        _require_no_event_loop(self.who)
        with asyncio.Runner() as runner:
            session = _Session(self, read_api_key(self.endpoint), patience or self.patience)
            waiting = iter(requests)
            try:
                while True:
                    found = runner.run(session.some(waiting, ask, read))
                    if found:
                        yield found
                    elif session.ended:
                        break
            finally:
                runner.run(session.close())
        if session.fault is not None:
            raise session.fault


class _Session:
    """The requests of one run: those under way, and what has stopped it."""

    def __init__(self, client: Client, key: str | None, patience: RetryPolicy) -> None:
        self.fault: AuditError | None = None
        self._client = client
        self._key = key
        self._patience = patience
        self._under_way: set[asyncio.Task[Any]] = set()
        self._exhausted = False
        self._stopping = asyncio.Event()
        self._not_before = 0.0
        self._http: httpx2.AsyncClient | None = None

    @property
    def ended(self) -> bool:
        return not self._under_way and (self._exhausted or self.fault is not None)

    async def some(
        self, requests: Iterator[R], ask: Callable[[R], ServerRequest], read: Callable[[R, bytes], T]
    ) -> list[T]:
        """Keep as many requests under way as may be, and what the next ones have brought; empty at the end."""
        while True:
            self._start_requests(requests, ask, read)
            if not self._under_way:
                return []
            done, self._under_way = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            found = [task.result() for task in done if not self._record_failure(task)]
            if found:
                return found

    async def close(self) -> None:
        """Cancel what is under way, and close the connections."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    def _start_requests(
        self, requests: Iterator[R], ask: Callable[[R], ServerRequest], read: Callable[[R, bytes], T]
    ) -> None:
        while len(self._under_way) < self._client.endpoint.concurrency and not self._exhausted and self.fault is None:
            try:
                request = next(requests)
                http_request = ask(request)
            except StopIteration:
                self._exhausted = True
            except AuditError as error:
                self._stop(error)
            else:
                self._under_way.add(asyncio.create_task(self._answered(request, http_request, read)))

    def _record_failure(self, task: asyncio.Task[Any]) -> bool:
        error = task.exception()
        if isinstance(error, AuditError):
            self._stop(error)
        elif error is not None and not isinstance(error, _StoppedError):
            raise error
        return error is not None

    def _stop(self, error: AuditError) -> None:
        self.fault = self.fault or error
        self._stopping.set()

    async def _answered(self, request: R, http_request: ServerRequest, read: Callable[[R, bytes], T]) -> T:
        again = build_async_retryer(
            self._patience,
            lambda error: isinstance(error, _PassingError),
            requested_pause=lambda error: error.pause if isinstance(error, _PassingError) else None,
            on_retry=lambda state: self._client.tell(
                f"{self._client.who}: {state.outcome.exception() if state.outcome else ''}; trying again"
            ),
            sleep=self._sleep,
        )
        try:
            body: bytes = await again(self._attempt, http_request)
        except _PassingError as fault:
            tries = self._patience.attempts
            raise UnansweredError(
                f"{self._client.who}: {fault} (after {tries} attempt{'s' if tries > 1 else ''}); try again later",
                fault.status,
            ) from fault
        return read(request, body)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, http_request: ServerRequest) -> bytes:
        loop = asyncio.get_running_loop()
        # A Retry-After header pauses all requests: each of the others would only meet the same refusal, and pay.
        while not self._stopping.is_set() and (wait := self._not_before - loop.time()) > 0:
            await self._sleep(wait)
        if self._stopping.is_set():
            raise _StoppedError
        self._client.budget.reserve(http_request.tokens)
        try:
            async with asyncio.timeout(self._client.endpoint.timeout_seconds):
                return await self._exchange(http_request)
        except TimeoutError as error:
            raise _PassingError("no answer in time") from error
        except httpx2.TransportError as error:
            if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
                raise ModelError(f"{self._client.who}: its certificate is not trusted") from error
            if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
                words = redact(to_one_line(error), [self._key] if self._key else [])[:_WORDS]
                raise ModelError(f"{self._client.who}: cannot be asked ({words})") from error
            raise _PassingError(_BROKEN.get(type(error), "the connection failed")) from error
        except DamagedAnswerError as error:
            raise _PassingError(str(error)) from error
        except OversizedAnswerError as error:
            raise OversizedError(f"{self._client.who}: {error}") from error

    async def _exchange(self, http_request: ServerRequest) -> bytes:
        if self._http is None:
            # The time limit is for a request as a whole, above.
            self._http = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
        request = self._http.build_request(
            "GET" if http_request.body is None else "POST",
            _build_request_url(self._client.endpoint, http_request),
            content=None
            if http_request.body is None
            else json.dumps(http_request.body, separators=(",", ":")).encode(),
            headers={
                "Content-Type": "application/json",
                # A server on this machine or the next would compress for nothing.
                "Accept-Encoding": "identity",
                **({} if self._key is None else {"Authorization": f"Bearer {self._key}"}),
            },
        )
        response = await self._http.send(request, stream=True)
        try:
            await guard_response_async(response, http_request.most_bytes)
            body = await response.aread()
        finally:
            await response.aclose()
        if response.status_code != _OK:
            self._refuse(response, body, http_request)
        return body

    def _refuse(self, response: httpx2.Response, body: bytes, http_request: ServerRequest) -> NoReturn:
        status = response.status_code
        words = _remove_prompt_quotes(http_request, to_one_line(_extract_error_message(body))[:_WORDS])
        what = f"the server answered {status}" + (f" ({words})" if words else "")
        if status == _CONFLICT or is_transient_status(status):
            pause = parse_retry_after(response.headers.get("Retry-After"))
            if pause is not None and pause > _LONGEST_PAUSE:
                raise UnansweredError(
                    f"{self._client.who}: {what} and asks to be left alone for {pause:.0f} s; try again then", status
                )
            if pause is not None:
                self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
            raise _PassingError(what, status, pause)
        advice = _ADVICE.get(status, "")
        if response.has_redirect_location:
            advice = ": it leads elsewhere, and is not followed: name the address that it leads to as url"
        raise RefusedError(f"{self._client.who}: {what} to /{http_request.path}{advice}", status, words)


_BROKEN: Mapping[type[Exception], str] = {
    httpx2.RemoteProtocolError: "its answer was cut short",
    httpx2.ReadError: "its answer was cut short",
    httpx2.ConnectError: "it cannot be reached",
    httpx2.ProxyError: "the proxy in between refuses",
}
_ADVICE: Mapping[int, str] = {
    401: ": the key is missing or not accepted: see key_env of the endpoint in config/models.yaml",
    402: ": payment is required: see the account of the key in key_env of the endpoint in config/models.yaml",
    403: ": the key does not allow it: see key_env of the endpoint in config/models.yaml",
    404: ": no such route or model: see url and model of the endpoint in config/models.yaml",
}


def _require_no_event_loop(client_name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ModelError(
        f"{client_name}: cannot be asked from within an event loop (a notebook): run it in a thread of its own"
    )


def read_api_key(endpoint: Endpoint) -> str | None:
    """The key that the entry names; raises ModelError where it names one that is not there."""
    if endpoint.key_env is None:
        return None
    key = os.environ.get(endpoint.key_env, "").strip()
    if not key:
        raise ModelError(f"the environment variable {endpoint.key_env} is not set: it holds the key of {endpoint.url}")
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"the environment variable {endpoint.key_env} holds what cannot be a key")
    return key


def _build_request_url(endpoint: Endpoint, http_request: ServerRequest) -> str:
    base = endpoint.url.rstrip("/")
    return f"{base.removesuffix('/v1') if http_request.root else base}/{http_request.path}"


def _extract_error_message(body: bytes) -> str:
    """What a server says of a fault: OpenAI's error.message, FastAPI's detail, or a few words of the body.

    Of pydantic's faults only where and what: their input is the prompt.
    """
    text = body[: 1 << 16].decode("utf-8", errors="replace")
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return to_one_line(text)[:_FEW_WORDS]
    if isinstance(reply, dict):
        error = reply.get("error", reply)
        reply = error if not isinstance(error, dict) else error.get("message") or error.get("detail") or error
    if isinstance(reply, list) and all(isinstance(problem, dict) and "msg" in problem for problem in reply):
        locations = [problem.get("loc") for problem in reply]
        places = [".".join(map(str, loc)) if isinstance(loc, list) else "" for loc in locations]
        return "; ".join(f"{place}: {problem['msg']}" for place, problem in zip(places, reply, strict=True))
    return reply if isinstance(reply, str) else json.dumps(reply)[:_FEW_WORDS]


def _remove_prompt_quotes(http_request: ServerRequest, words: str) -> str:
    """``words`` without what they quote of the prompt, as a string or as ids."""
    words = _IDS.sub("…", words)
    prompt = (http_request.body or {}).get("prompt")
    if not isinstance(prompt, str):
        return words
    return withhold_quotes(words, prompt)
