"""A polite client for the web: one request at a time, with pauses, robots.txt, retries and a store of every answer.

What belongs here: how a page is requested, how often, and how much of it is read. What does not: which pages a source
requests, and what they say (one module per source), and where answers are kept (answer_store.py).

requests speaks HTTP, tenacity repeats (fetch/retry.py), protego reads robots.txt, SQLite keeps the answers (a
transaction each, so a killed crawl loses none of them), filelock keeps two processes from asking at once. Ours is
their wiring, and the limits: size before and after decompression, time, redirects. requests-cache would do
none of that: it stores what was read already, and paces and limits nothing (answer_store.py says more).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
import urllib3
from filelock import FileLock
from protego import Protego

from audit_pipeline.connectors.answer_store import FetchedPage, ResponseStore
from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.file_bytes import MEBIBYTE
from audit_pipeline.fetch.retry import (
    RetryPolicy,
    build_retryer,
    format_public_error,
    is_transient_status,
    parse_retry_after,
    redact_passwords,
)
from audit_pipeline.fetch.server_answers import ACCEPTED, DamagedAnswerError, OversizedAnswerError, Unpacker

STORE_NAME = "responses.sqlite"
ROBOTS_AGE = timedelta(days=1)  # RFC 9309, section 2.4
_LOCK_NAME = "crawl.lock"
_CHUNK = 65536
_MOST_REDIRECTS = 10
_ROBOTS_LIMIT = MEBIBYTE
# The whole answer may take this many times the timeout, which is for one silence.
_WHOLE_ANSWER = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class FetchError(SourceError):
    """A page that cannot be fetched; ``status`` is the HTTP status where the server gave one."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{redact_passwords(url)}: {reason}")
        self.url = url
        self.status = status


class _PassingError(Exception):
    """A fault that may be gone the next time; ``retry_after`` is the pause that the server asks for, in seconds."""

    def __init__(self, reason: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True)
class Politeness:
    """Who asks, and how patiently; times in seconds.

    ``user_agent`` names the program and a contact: ``corpus-audit/0.1 (ann@example.org)``. ``timeout`` is the longest
    silence, ``most_pause`` the longest back-off: a server that asks for a longer one is left alone. Raises SourceError
    for values that make no sense.
    """

    user_agent: str
    seconds_between: float = 1.0
    attempts: int = 5
    timeout: float = 60.0
    most_pause: float = 120.0
    obey_robots: bool = True

    def __post_init__(self) -> None:
        if not self.user_agent.strip():
            raise SourceError("a user agent that says who asks is needed")
        if self.attempts < 1 or self.seconds_between < 0 or self.timeout <= 0 or self.most_pause < 0:
            raise SourceError("a polite client needs attempts of 1 or more, a timeout above 0 and no negative pause")


def user_agent(contact: str) -> str:
    """Who asks: the program, its version, and an address at which a site can reach the user."""
    return f"corpus-audit/{version('corpus-audit')} ({contact})"


class PoliteClient:
    """Asks for pages one at a time and keeps every answer in ``folder`` (one folder per source).

    ``seconds_between`` two requests to a host, counted across processes that share the folder; longer where the
    host's robots.txt says so. Use it as a context manager. ``sleep`` is for tests.
    """

    def __init__(self, folder: Path, politeness: Politeness, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Open, or make, the store in ``folder``; raises SourceError where it cannot be read."""
        self._politeness = politeness
        self._sleep = sleep
        self._robots: dict[str, Protego | FetchError] = {}
        self._session = requests.Session()
        self._session.headers["User-Agent"] = politeness.user_agent
        # Only what is decompressed below, with a limit and a look at whether it is whole.
        self._session.headers["Accept-Encoding"] = ACCEPTED
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / _LOCK_NAME)
        self._store = ResponseStore(folder / STORE_NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and store; no request is possible afterwards."""
        self._session.close()
        self._store.close()

    def get(
        self,
        url: str,
        params: Mapping[str, str] | None = None,
        *,
        limit: int = 20 * MEBIBYTE,
        fresh: bool = False,
        max_age: timedelta | None = None,
        find_refusal: Callable[[FetchedPage], str | None] | None = None,
    ) -> FetchedPage:
        """The page at ``url`` with ``params``, from the store or from the web; then it is in the store.

        At most ``limit`` bytes are taken, before and after decompression. With ``fresh``, or once the stored answer is
        older than ``max_age``, it is fetched again. ``find_refusal`` says why an answer with status 200 is no page (a
        server that is busy, in words): the request is repeated as after a 503, and the answer not kept. If repeating is
        no use, it may raise FetchError.

        Raises FetchError: after ``attempts`` with growing pauses for 408, 425, 429, 5xx, time-outs and answers cut
        short, or at once where the server asks for a longer pause than ``most_pause``; at once for any other status
        but 200, redirects in a circle, over-long answers, and pages that robots.txt refuses. No failure is kept.
        """
        address = _normalise_address(url, params)
        found = None if fresh else self._store.page(address, max_age)
        if found is not None:
            return found
        with self._lock:
            # Another process may have fetched it while this one waited.
            found = None if fresh else self._store.page(address, max_age)
            if found is None:
                found = self._fetch_with_retries(address, limit, find_refusal, obey_robots=self._politeness.obey_robots)
                self._store.keep(address, found)
        return found

    def _fetch_with_retries(
        self, url: str, limit: int, find_refusal: Callable[[FetchedPage], str | None] | None, *, obey_robots: bool
    ) -> FetchedPage:
        polite = self._politeness
        # Twice the usual pause, then twice as long each time; never less than the server asks for.
        again = build_retryer(
            RetryPolicy(polite.attempts, 2 * polite.seconds_between, polite.most_pause),
            lambda error: isinstance(error, _PassingError),
            requested_pause=lambda error: error.retry_after if isinstance(error, _PassingError) else None,
            sleep=self._sleep,
        )
        try:
            return again(self._fetch_following_redirects, url, limit, find_refusal, obey_robots)
        except _PassingError as fault:
            tries = "1 attempt" if polite.attempts == 1 else f"{polite.attempts} attempts"
            raise FetchError(url, f"{fault.reason} (after {tries}); try again later", fault.status) from fault

    def _fetch_following_redirects(
        self, url: str, limit: int, find_refusal: Callable[[FetchedPage], str | None] | None, obey_robots: bool
    ) -> FetchedPage:
        """One attempt, through redirects; each host on the way is asked politely."""
        visited: set[str] = set()
        address = url
        while len(visited) < _MOST_REDIRECTS:
            visited.add(address)
            if urlsplit(address).scheme not in {"http", "https"}:
                raise FetchError(url, f"leads to {redact_passwords(address)}, which is no web address")
            rules = self._get_robots_rules(address) if obey_robots else None
            if rules is not None and not rules.can_fetch(address, self._politeness.user_agent):
                raise FetchError(
                    url, f"robots.txt of {_host(address)} does not allow {redact_passwords(address)} to be fetched"
                )
            self._wait_for_turn(_host(address), rules)
            try:
                answer, retry_after = self._ask(address, limit)
            finally:
                # Counted from the end of the answer: a slow server gets its pause too.
                self._store.record_request_time(_host(address), time.time())
            if isinstance(answer, FetchedPage):
                problem = find_refusal(answer) if find_refusal is not None else None
                if problem is not None:
                    self._raise_retryable_error(url, problem, answer.status, retry_after)
                return answer
            address = answer
            if address in visited:
                raise FetchError(url, f"redirects in a circle, back to {redact_passwords(address)}")
        raise FetchError(url, f"redirects more than {_MOST_REDIRECTS} times")

    def _get_robots_rules(self, url: str) -> Protego:
        """The rules in robots.txt of the host: none where there is no such file; raises FetchError if out of reach."""
        host = _host(url)
        if host not in self._robots:
            self._robots[host] = self._fetch_robots_rules(urljoin(host, "/robots.txt"))
        rules = self._robots[host]
        if isinstance(rules, FetchError):
            raise FetchError(url, f"not fetched, because robots.txt cannot be reached: {rules}") from rules
        return rules

    def _fetch_robots_rules(self, url: str) -> Protego | FetchError:
        page = self._store.page(url, ROBOTS_AGE)
        if page is None:
            try:
                page = self._fetch_with_retries(url, _ROBOTS_LIMIT, None, obey_robots=False)
            except FetchError as error:
                # RFC 9309, section 2.3.1: what a server says it does not have forbids nothing; its silence does.
                if error.status is not None and 400 <= error.status < 500 and not is_transient_status(error.status):
                    page = FetchedPage(url, error.status, b"", "text/plain", datetime.now(UTC), from_cache=False)
                else:
                    return error
            self._store.keep(url, page)
        return Protego.parse(page.content.decode("utf-8", errors="replace"))

    def _wait_for_turn(self, host: str, rules: Protego | None) -> None:
        agent = self._politeness.user_agent
        delay = rules.crawl_delay(agent) if rules is not None else None
        rate = rules.request_rate(agent) if rules is not None else None
        between = max(self._politeness.seconds_between, delay or 0.0, rate.seconds / rate.requests if rate else 0.0)
        last = self._store.last_request_time(host)
        # A last request in the future is a clock that was set back: no reason to wait for hours.
        wait = min(last + between - time.time(), between) if last is not None else 0.0
        if wait > 0:
            self._sleep(wait)
        self._store.record_request_time(host, time.time())

    def _ask(self, url: str, limit: int) -> tuple[FetchedPage | str, str | None]:
        """One request: the page, or the address that it redirects to; and the Retry-After header."""
        until = time.monotonic() + _WHOLE_ANSWER * self._politeness.timeout
        try:
            request = self._session.prepare_request(requests.Request("GET", url))
            settings = self._session.merge_environment_settings(url, {}, True, None, None)
            # Not session.send, which reads the body of a redirect without a limit.
            adapter = self._session.get_adapter(url)
            response = adapter.send(
                request,
                stream=True,
                timeout=self._politeness.timeout,
                verify=True if settings["verify"] is None else settings["verify"],
                cert=settings["cert"],
                proxies=settings["proxies"],
            )
            try:
                return self._answer(url, response, limit, until), response.headers.get("Retry-After")
            finally:
                response.close()
        except requests.exceptions.SSLError as error:
            raise FetchError(url, f"its certificate is not trusted ({format_public_error(error)})") from error
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise _PassingError("no answer in time") from error
        except (urllib3.exceptions.ProtocolError, requests.exceptions.ChunkedEncodingError) as error:
            raise _PassingError("its answer was cut short") from error
        except requests.ConnectionError as error:
            raise _PassingError("the connection failed") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise FetchError(url, f"cannot be asked for ({format_public_error(error)})") from error

    def _answer(self, url: str, response: requests.Response, limit: int, deadline: float) -> FetchedPage | str:
        status, headers = response.status_code, response.headers
        if status in _REDIRECTS and "Location" in headers:
            target = self._session.get_redirect_target(response) or ""
            return _normalise_address(urljoin(url, target), None)
        if is_transient_status(status):
            self._raise_retryable_error(url, f"the server answered {status}", status, headers.get("Retry-After"))
        if status != 200:
            raise FetchError(url, f"the server answered {status} {response.reason or ''}".rstrip(), status)
        content = _read_body(url, response, limit, deadline)
        media_type, charset = _parse_content_type(headers.get("Content-Type", ""))
        return FetchedPage(url, status, content, media_type, datetime.now(UTC), from_cache=False, charset=charset)

    def _raise_retryable_error(self, url: str, problem: str, status: int, retry_after: str | None) -> NoReturn:
        pause = parse_retry_after(retry_after)
        if pause is not None and pause > self._politeness.most_pause:
            raise FetchError(url, f"{problem}, and asks to be left alone for {pause:.0f} s; try again then", status)
        raise _PassingError(problem, status, pause)


def _read_body(url: str, response: requests.Response, limit: int, deadline: float) -> bytes:
    """The body, unpacked; at most ``limit`` bytes of it."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise FetchError(url, f"its answer is {int(announced)} bytes long, more than the {limit} that are taken")
    try:
        unpacker = Unpacker(response.headers.get("Content-Encoding", ""), limit)
    except DamagedAnswerError as error:
        raise FetchError(url, str(error)) from error
    try:
        # read1 comes back with what there is, so a server that drips cannot hold us for ever.
        while chunk := response.raw.read1(_CHUNK, decode_content=False):
            unpacker.feed(chunk)
            if time.monotonic() > deadline:
                raise _PassingError("its answer took too long")
        return unpacker.finish()
    except OversizedAnswerError as error:
        raise FetchError(url, str(error)) from error
    except DamagedAnswerError as error:
        raise _PassingError(str(error)) from error


def _parse_content_type(header: str) -> tuple[str, str | None]:
    """Media type in lower case, and charset, of a Content-Type header."""
    media_type, _, parameters = header.partition(";")
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:+-]+)", parameters, re.IGNORECASE)
    return media_type.strip().lower(), charset.group(1) if charset else None


def _normalise_address(url: str, params: Mapping[str, str] | None) -> str:
    """The address that is asked for, in one spelling: parameters sorted, without fragment."""
    try:
        prepared = requests.Request("GET", url, params=sorted((params or {}).items())).prepare().url or url
    except requests.RequestException as error:
        raise FetchError(url, f"is no address that can be asked for ({format_public_error(error)})") from error
    return urlunsplit(urlsplit(prepared)._replace(fragment=""))


def _host(url: str) -> str:
    """Scheme and host, as in https://example.org."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
