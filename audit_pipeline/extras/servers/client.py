"""The client of model servers: many requests at a time, retries, a budget, and a key that no message contains.

It is built on the HTTP client (audit_pipeline/http). It adds concurrency, the budget of each attempt, and advice about
the server's entry. The modules dialects.py and chat/chat_client.py build the requests and read the answers.

Requests run in an event loop of the generator that yields their results, without threads. So closing the generator
cancels all open requests at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from audit_pipeline.errors import (
    AuditError,
    BudgetError,
    ModelError,
    UnansweredError,
    redact_prompt,
    to_one_line,
)
from audit_pipeline.http.client import AsyncHttpClient
from audit_pipeline.http.faults import (
    HttpError,
    OversizedResponseError,
    RetryableError,
    RetryPolicy,
    build_async_retryer,
    is_transient_status,
    parse_retry_after,
)
from audit_pipeline.models.server_settings import ServerSettings
from audit_pipeline.models.usage_budget import Budget, Usage

PATIENCE = RetryPolicy(attempts=8, first_pause=0.5, max_pause=60.0, jitter=1.0)
"""Policy with pauses of about two minutes in total: enough time to restart a server."""
_MAX_REQUESTED_PAUSE = 300.0
_MAX_MESSAGE_LENGTH = 300
_MAX_EXCERPT_LENGTH = 80
# Lists of at least five numbers are token ids of the prompt. A server's own messages contain no such lists.
_TOKEN_IDS = re.compile(r"(?:\d+,\s*){4,}\d*")
_OK = 200
_CONFLICT = 409
_KEY_STATUSES = (401, 403)
_ADVICE: Mapping[int, str] = {
    401: "The API key is missing or not accepted. Check key_env in {}.",
    402: "Payment is required. Check the account of the API key, which key_env names in {}.",
    403: "The API key does not allow this request. Check key_env in {}.",
    404: "The route or the model does not exist. Check url and model in {}.",
}
_REDIRECT_ADVICE = "The client does not follow redirects. Set url in {} to the address of the redirect."

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class ServerRequest:
    """A request to a model server.

    Attributes:
        url: Address.
        body: Body of a POST request, sent as JSON. None: a GET request.
        max_usage: Maximum number of tokens that the request can use.
        max_bytes: Maximum length of the answer, in bytes.
        private: Text of the request that no message may quote.
    """

    url: str
    body: Mapping[str, Any] | None = None
    max_usage: Usage = field(default_factory=Usage)
    max_bytes: int = 4 << 20
    private: str = ""


class ServerAnswer(NamedTuple):
    """An answer of a server. It does not contain the API key, even if the server repeated it.

    Attributes:
        status: HTTP status.
        headers: HTTP headers.
        body: Decompressed body.
        asked_at: Time when the successful attempt was sent.
        seconds: Duration of the successful attempt.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    asked_at: datetime
    seconds: float


class RefusedError(ModelError):
    """The error for a request that the server has refused and would refuse again.

    Attributes:
        status: HTTP status of the answer.
        server_message: Message of the server, shortened and without the prompt.
    """

    def __init__(self, message: str, status: int, server_message: str) -> None:
        super().__init__(message)
        self.status = status
        self.server_message = server_message


class OversizedError(ModelError):
    """The error for an answer that is longer than the limit of its request."""


class _StoppedError(Exception):
    """The error for a request that is not sent, because an error of another request ended the run."""


class Client:
    """A client that sends requests to one server, with retries and within a budget.

    The key is read from the environment when a request is sent. No attribute, message or log contains it. Redirects are
    not followed: the key is only for the host in the entry.

    Attributes:
        server_label: Name of the server in messages.
        entry: Settings of the server.
        budget: Budget that counts each attempt.
        entry_name: Name of the entry in advice.
        notify: Function that receives a message about each retry.
        patience: Policy of retries: how often and after which pauses a failed request is repeated.
    """

    def __init__(
        self,
        server_label: str,
        entry: ServerSettings,
        budget: Budget,
        *,
        entry_name: str,
        notify: Callable[[str], None] = lambda message: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        self.server_label = server_label
        self.entry = entry
        self.budget = budget
        self.entry_name = entry_name
        self.notify = notify
        self.patience = patience

    def send_request(self, request: ServerRequest, *, patience: RetryPolicy | None = None) -> bytes:
        """Send one request and return the body of its answer. Raise the errors of :meth:`iterate_answers`."""
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
        """Send requests and yield their results in the order in which answers arrive.

        If an error ends the run, open requests are finished and yielded first, because they are paid for. Closing the
        generator cancels open requests.

        Args:
            requests: Pairs of an identifier that the caller chooses and a request. A pair is read as soon as the
                entry's concurrency allows its request.
            read: Function that turns an identifier and the answer into a result. It raises RetryableError to repeat a
                request.
            read_refusal: Function that may turn an answer with an error status into a result.
            patience: Policy of retries. None: the policy of the client.

        Raises:
            ModelError: If an event loop is running, or the environment lacks the API key.
            RefusedError: If the server refuses a request.
            UnansweredError: If the server does not answer.
            BudgetError: If a request could exceed the budget.
            AuditError: If ``requests`` or ``read`` raises it.
        """
        _require_no_event_loop(self.server_label)
        with asyncio.Runner() as runner:
            session = _Session(self, iter(requests), read, read_refusal, patience or self.patience)
            try:
                while results := runner.run(session.collect_results()):
                    yield results
            finally:
                runner.run(session.close())
        if session.fault is not None:
            raise session.fault


class _Session(Generic[K, T]):
    """The state of one call of ``Client.iterate_answers``: open requests, and the error that ends the call.

    Attributes:
        fault: First error, or None.
    """

    def __init__(
        self,
        client: Client,
        requests: Iterator[tuple[K, ServerRequest]],
        read: Callable[[K, ServerAnswer], T],
        read_refusal: Callable[[K, ServerAnswer], T | None],
        patience: RetryPolicy,
    ) -> None:
        self.fault: AuditError | None = None
        self._client = client
        self._api_key = read_api_key(client.entry)
        self._requests = requests
        self._read = read
        self._read_refusal = read_refusal
        self._attempts = patience.attempts
        self._retry = build_async_retryer(patience, on_retry=self._report_retry, sleep=self._sleep)
        self._open_tasks: set[asyncio.Task[T]] = set()
        self._n_sent = 0
        self._is_exhausted = False
        self._stopping = asyncio.Event()
        self._settled = asyncio.Event()
        # Time of the event loop before which nothing is sent.
        self._not_before = 0.0
        self._http: AsyncHttpClient | None = None

    def _report_retry(self, state: Any) -> None:
        self._client.notify(f"{self._client.server_label}: {state.outcome.exception()}. The request is sent again.")

    async def collect_results(self) -> list[T]:
        """Start requests and return the results that arrive next, or an empty list at the end."""
        while True:
            self._start_requests()
            if not self._open_tasks:
                return []
            done, self._open_tasks = await asyncio.wait(self._open_tasks, return_when=asyncio.FIRST_COMPLETED)
            results = [task.result() for task in done if not self._record_failure(task)]
            if results:
                return results

    async def close(self) -> None:
        """Cancel open requests and close the connections."""
        for task in self._open_tasks:
            task.cancel()
        await asyncio.gather(*self._open_tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    def _start_requests(self) -> None:
        concurrency = self._client.entry.concurrency
        while len(self._open_tasks) < concurrency and not self._is_exhausted and self.fault is None:
            try:
                key, request = next(self._requests)
            except StopIteration:
                self._is_exhausted = True
            except AuditError as error:
                self._stop(error)
            else:
                self._open_tasks.add(asyncio.create_task(self._request_with_retries(key, request)))

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
                f"{self._client.server_label}: {fault} (after {tries}). Try again later.",
                fault.status,
            ) from fault

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, key: K, request: ServerRequest) -> T:
        # A Retry-After header pauses all requests, because the server would refuse the other requests, too.
        while not self._stopping.is_set():
            pause = self._not_before - asyncio.get_running_loop().time()
            if pause <= 0:
                break
            await self._sleep(pause)
        await self._reserve(request.max_usage)
        self._n_sent += 1
        try:
            answer = await self._send(request)
            if answer.status == _OK:
                return self._read(key, answer)
            result = self._read_refusal(key, answer)
            if result is None:
                self._raise_for_status(answer, request)
            return result
        finally:
            self._n_sent -= 1
            self._settled.set()

    async def _reserve(self, max_usage: Usage) -> None:
        """Reserve the maximum usage of an attempt in the budget.

        If the budget is too small, wait for open requests: they may use less than was reserved for them.
        """
        while not self._stopping.is_set():
            try:
                return self._client.budget.reserve(max_usage)
            except BudgetError:
                if not self._n_sent:
                    raise
            self._settled.clear()
            await self._settled.wait()
        raise _StoppedError

    async def _send(self, request: ServerRequest) -> ServerAnswer:
        if self._http is None:
            self._http = AsyncHttpClient()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        method = "GET"
        content = None
        if request.body is not None:
            method = "POST"
            content = json.dumps(request.body, separators=(",", ":")).encode()
        asked_at = datetime.now(UTC)
        started = time.monotonic()
        try:
            response = await self._http.exchange(
                method,
                request.url,
                content=content,
                headers=headers,
                timeout_seconds=self._client.entry.timeout_seconds,
                max_bytes=request.max_bytes,
            )
        except RetryableError:
            raise
        except OversizedResponseError as error:
            raise OversizedError(f"{self._client.server_label}: {error}") from error
        except HttpError as error:
            raise ModelError(f"{self._client.server_label}: {error}") from error
        return ServerAnswer(
            response.status_code, response.headers, response.content, asked_at, time.monotonic() - started
        )

    def _raise_for_status(self, answer: ServerAnswer, request: ServerRequest) -> NoReturn:
        server_label = self._client.server_label
        status = answer.status
        message = _TOKEN_IDS.sub("…", to_one_line(extract_error_message(answer.body))[:_MAX_MESSAGE_LENGTH])
        message = redact_prompt(message, request.private)
        if status in _KEY_STATUSES:
            # Servers quote parts of a rejected key. Redaction recognises whole keys only, so the message is dropped.
            message = ""
        problem = f"the server answered {status}" + (f" ({message})" if message else "")
        if status == _CONFLICT or is_transient_status(status):
            pause = parse_retry_after(answer.headers.get("Retry-After"))
            if pause is not None and pause > _MAX_REQUESTED_PAUSE:
                raise UnansweredError(
                    f"{server_label}: {problem} and requests a pause of {pause:.0f} s. Try again after the pause.",
                    status,
                )
            if pause is not None:
                self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
            raise RetryableError(problem, status, pause)
        advice = _ADVICE.get(status, "Check {}.")
        if 300 <= status < 400:
            advice = _REDIRECT_ADVICE
        route = urlsplit(request.url).path
        advice = advice.format(self._client.entry_name)
        raise RefusedError(f"{server_label}: {problem} to {route}. {advice}", status, message)


def _require_no_event_loop(server_label: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ModelError(
            f"{server_label}: No request can be sent within a running event loop, such as in a notebook. Call the "
            "function in another thread."
        )


def read_api_key(entry: ServerSettings) -> str | None:
    """Return the API key of a server, or None if its entry names none.

    Raises:
        ModelError: If the environment variable is empty or contains no valid key.
    """
    if entry.key_env is None:
        return None
    key = os.environ.get(entry.key_env, "").strip()
    if not key:
        raise ModelError(f"The environment variable {entry.key_env} is not set. Set it to the API key of the server.")
    if not (key.isascii() and key.isprintable()):
        raise ModelError(
            f"The environment variable {entry.key_env} contains no valid API key, because a key consists of printable "
            "ASCII characters only. Correct the variable."
        )
    return key


def extract_error_message(body: bytes) -> str:
    """Return the error message in a server's answer, or the start of the body.

    OpenAI's interface has the message in ``error.message``, FastAPI in ``detail``.
    """
    text = body[: 1 << 16].decode("utf-8", errors="replace")
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return to_one_line(text)[:_MAX_EXCERPT_LENGTH]
    if isinstance(reply, dict):
        reply = reply.get("error", reply)
    if isinstance(reply, dict):
        reply = reply.get("message") or reply.get("detail") or reply
    if isinstance(reply, list) and all(isinstance(problem, dict) and "msg" in problem for problem in reply):
        # pydantic's errors also contain their input, which is the prompt. Only place and message are used.
        return "; ".join(f"{problem.get('loc')}: {problem['msg']}" for problem in reply)
    return reply if isinstance(reply, str) else json.dumps(reply)[:_MAX_EXCERPT_LENGTH]
