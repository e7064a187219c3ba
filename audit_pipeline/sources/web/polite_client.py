"""A polite client for crawls: robots.txt, pauses, retries, and a cache of every answer.

requests-cache keeps the answers, each in a transaction of its own, so a crawl that is killed goes on where it was. All
else lies below the cache (an adapter of requests): an answer that is kept costs neither a request nor a pause. tenacity
repeats (readers/retry.py), protego reads robots.txt, and answers are bounded (readers/guarded_responses.py).
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import requests
from filelock import FileLock
from protego import Protego
from requests_cache import CachedSession
from requests_cache.models.response import CachedResponse

from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.readers.charsets import decode_page
from audit_pipeline.readers.file_bytes import MEBIBYTE
from audit_pipeline.readers.guarded_responses import ACCEPTED, DamagedAnswerError, GuardedAdapter, OversizedAnswerError
from audit_pipeline.readers.retry import (
    RetryableError,
    RetryPolicy,
    build_retryer,
    format_public_error,
    format_request_error,
    is_transient_status,
    parse_retry_after,
    redact_passwords,
)

CACHE_NAME = "responses.sqlite"
MOST_FAILURES = 3
"""After so many requests in a row that fail, the site is out of reach, or wants none of this: it is left alone."""

_MOST_BYTES = 128 * MEBIBYTE
_MOST_REDIRECTS = 10
_PAGE_STATUSES = frozenset((400, 404, 410))
_ROBOTS = "/robots.txt"
_ROBOTS_AGE = timedelta(days=1)  # RFC 9309, section 2.4


class FetchError(SourceError):
    """A page that cannot be fetched; ``status`` is the HTTP status where the server gave one."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{redact_passwords(url)}: {reason}")
        self.status = status


@dataclass(frozen=True)
class Politeness:
    """Who asks, and how patiently; times in seconds.

    ``contact`` is an address at which a site can reach the user: it goes into the user agent. ``timeout`` is the
    longest silence, ``most_pause`` the longest back-off: a server that asks for a longer one is left alone.
    """

    contact: str
    seconds_between: float = 1.0
    attempts: int = 5
    timeout: float = 60.0
    most_pause: float = 120.0
    obey_robots: bool = True

    @property
    def user_agent(self) -> str:
        return f"corpus-audit/{version('corpus-audit')} ({self.contact})"


@dataclass(frozen=True)
class FetchedPage:
    """An answer: ``url`` after redirects, ``content`` decompressed, ``charset`` as its header declares it."""

    url: str
    content: bytes
    charset: str | None = None

    def text(self) -> str:
        """Return the content as text; raises SourceError, naming the page, where its charset is unknown."""
        try:
            return decode_page(self.content, self.charset)
        except DataError as error:
            raise SourceError(f"{redact_passwords(self.url)}: {error}") from error


class PoliteClient:
    """Asks for pages one at a time and keeps every answer in ``folder``, which one process has at a time.

    ``find_refusal`` says why an answer with status 200 is no page (a server that is busy, in words): the request is
    repeated as after a 503, and the answer not kept. If repeating is no use, it may raise FetchError.

    Use it as a context manager. ``sleep`` is for tests.
    """

    def __init__(
        self,
        folder: Path,
        politeness: Politeness,
        *,
        find_refusal: Callable[[FetchedPage], str | None] = lambda page: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until no other process has ``folder``, and open its cache; raises SourceError where it is damaged."""
        folder.mkdir(parents=True, exist_ok=True)
        self._cache = folder / CACHE_NAME
        self._timeout = politeness.timeout
        self._lock = FileLock(folder / "crawl.lock")
        self._lock.acquire()
        try:
            self._session = CachedSession(self._cache, backend="sqlite", serializer="json", allowable_codes=(200,))
        except sqlite3.DatabaseError as error:
            self._lock.release()
            raise self._build_cache_error(error) from error
        self._session.max_redirects = _MOST_REDIRECTS
        self._session.headers.update({"User-Agent": politeness.user_agent, "Accept-Encoding": ACCEPTED})
        adapter = _PoliteAdapter(self._session, folder, politeness, find_refusal, sleep)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and cache; no request is possible afterwards."""
        self._session.close()  # type: ignore[no-untyped-call]
        self._lock.release()

    def get(
        self, url: str, params: Mapping[str, str] | None = None, *, max_age: timedelta | None = None
    ) -> FetchedPage:
        """Return the page at ``url`` with ``params``, from the cache or from the web; then it is in the cache.

        An answer older than ``max_age`` is fetched again. Raises FetchError: after several attempts with growing
        pauses for 408, 425, 429, 5xx, time-outs and answers cut short, or at once where the server asks for a longer
        pause than ``most_pause``; at once for any other status but 200, for over-long answers, for pages that
        robots.txt refuses, and once MOST_FAILURES requests in a row failed. No failure is kept.
        """
        try:
            answer = self._session.get(url, params, timeout=self._timeout)
            if isinstance(answer, CachedResponse) and max_age is not None and answer.is_older_than(max_age):
                answer = self._session.get(url, params, timeout=self._timeout, force_refresh=True)
        except requests.RequestException as error:
            raise FetchError(url, f"cannot be asked for ({format_public_error(error)})") from error
        except sqlite3.DatabaseError as error:
            raise self._build_cache_error(error) from error
        return _to_page(answer)

    def _build_cache_error(self, error: Exception) -> SourceError:
        return SourceError(f"{self._cache}: the cache cannot be used ({error}); if it is damaged, delete the file")


class _PoliteAdapter(GuardedAdapter):
    """Sends the requests that the cache cannot answer, redirects and robots.txt too."""

    def __init__(
        self,
        session: CachedSession,
        folder: Path,
        politeness: Politeness,
        find_refusal: Callable[[FetchedPage], str | None],
        sleep: Callable[[float], None],
    ) -> None:
        super().__init__(_MOST_BYTES)
        self._session = session
        self._stamp = folder / "last_request"
        self._politeness = politeness
        self._find_refusal = find_refusal
        self._sleep = sleep
        self._robots: dict[str, Protego | FetchError] = {}
        self._failures = 0
        self._last_failure = ""

    def send(self, request: requests.PreparedRequest, *options: Any, **named: Any) -> requests.Response:
        """See the base class; raises FetchError."""
        url, polite = request.url or "", self._politeness
        if self._failures >= MOST_FAILURES:
            raise FetchError(
                url, f"not fetched after {self._failures} failures in a row; the last: {self._last_failure}"
            )
        delay = self._require_allowed(url) if polite.obey_robots and urlsplit(url).path != _ROBOTS else 0.0
        # Twice the usual pause, then twice as long each time; never less than the server asks for.
        retry = build_retryer(
            RetryPolicy(polite.attempts, 2 * polite.seconds_between, polite.most_pause),
            lambda error: isinstance(error, RetryableError),
            sleep=self._sleep,
        )
        try:
            response = retry(self._send_once, request, max(delay, polite.seconds_between), options, named)
        except (RetryableError, FetchError) as fault:
            error = fault
            if isinstance(fault, RetryableError):
                error = FetchError(url, f"{fault} (after {polite.attempts} attempts); try again later", fault.status)
            self._failures += error.status not in _PAGE_STATUSES
            self._last_failure = str(error)
            raise error from fault
        self._failures = 0
        return response

    def _require_allowed(self, url: str) -> float:
        """Return the pause that robots.txt asks for; raises FetchError where it forbids the page or is out of reach."""
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        if host not in self._robots:
            self._robots[host] = Protego.parse("")
            self._robots[host] = self._fetch_rules(f"{host}{_ROBOTS}")
        rules, agent = self._robots[host], self._politeness.user_agent
        if isinstance(rules, FetchError):
            raise FetchError(url, f"not fetched, because robots.txt cannot be reached: {rules}") from rules
        if not rules.can_fetch(url, agent):
            raise FetchError(url, f"robots.txt of {redact_passwords(host)} does not allow this page to be fetched")
        rate = rules.request_rate(agent)
        return max(rules.crawl_delay(agent) or 0.0, rate.seconds / rate.requests if rate else 0.0)

    def _fetch_rules(self, url: str) -> Protego | FetchError:
        try:
            answer = self._session.get(url, timeout=self._politeness.timeout, expire_after=_ROBOTS_AGE)
        except FetchError as error:
            # RFC 9309, section 2.3.1: what a server says it does not have forbids nothing; its silence does.
            absent = error.status is not None and 400 <= error.status < 500 and not is_transient_status(error.status)
            return Protego.parse("") if absent else error
        return Protego.parse(answer.content.decode("utf-8", errors="replace"))

    def _send_once(
        self, request: requests.PreparedRequest, pause: float, options: Any, named: Mapping[str, Any]
    ) -> requests.Response:
        url = request.url or ""
        if self._stamp.exists():
            # A last request in the future is a clock that was set back: no reason to wait for hours.
            remaining = min(self._stamp.stat().st_mtime + pause - time.time(), pause)
            if remaining > 0:
                self._sleep(remaining)
        try:
            response = super().send(request, *options, **named)
        except OversizedAnswerError as error:
            raise FetchError(url, str(error)) from error
        except DamagedAnswerError as error:
            raise RetryableError(str(error)) from error
        except requests.exceptions.SSLError as error:
            raise FetchError(url, f"its certificate is not trusted ({format_public_error(error)})") from error
        except (requests.Timeout, requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise RetryableError(format_request_error(error)) from error
        finally:
            # Counted from the end of the answer: a slow server gets its pause too.
            self._stamp.touch()
        # Every request has the same headers: none of them chooses another answer.
        response.headers.pop("Vary", None)
        self._require_page(url, response)
        return response

    def _require_page(self, url: str, response: requests.Response) -> None:
        """Raise unless the response is a page or a redirect."""
        status = response.status_code
        problem = f"the server answered {status}" if is_transient_status(status) else None
        if status == 200 and urlsplit(url).path != _ROBOTS:
            problem = self._find_refusal(_to_page(response))
        if problem is not None:
            requested = parse_retry_after(response.headers.get("Retry-After"))
            if requested is not None and requested > self._politeness.most_pause:
                raise FetchError(
                    url, f"{problem}, and asks to be left alone for {requested:.0f} s; try again then", status
                )
            raise RetryableError(problem, status, requested)
        if status != 200 and not response.is_redirect:
            raise FetchError(url, f"the server answered {status} {response.reason or ''}".rstrip(), status)


def _to_page(response: requests.Response) -> FetchedPage:
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:+-]+)", response.headers.get("Content-Type", ""), re.IGNORECASE)
    return FetchedPage(response.url, response.content, charset[1] if charset else None)
