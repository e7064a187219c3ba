"""A polite client for crawls: robots.txt, pauses, retries, and a cache of all pages.

requests-cache stores each page in a transaction of its own, so a killed crawl resumes from its last page. For pages
that are not cached, it calls an adapter. The adapter obeys robots.txt, which Protego parses. It sends requests with
pauses and retries through the project's HTTP client (audit_pipeline/http).
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
from audit_pipeline.http import faults
from audit_pipeline.http.client import HttpClient, Pacer
from audit_pipeline.http.faults import RetryPolicy, build_retryer, parse_retry_after
from audit_pipeline.http.requests_adapter import ClientAdapter
from audit_pipeline.http.response_guard import ACCEPTED_ENCODING
from audit_pipeline.readers.charsets import decode_page
from audit_pipeline.readers.file_bytes import MEBIBYTE
from audit_pipeline.sources.base import FetchError

CACHE_NAME = "responses.sqlite"
MAX_FAILURES = 3
"""Number of failed requests in a row after which no more requests are sent, because the site is probably down."""

_MAX_BYTES = 128 * MEBIBYTE
_MAX_REDIRECTS = 10
# These statuses concern a single page, so they do not count as failures of the site.
_PAGE_STATUSES = frozenset((400, 404, 410))
_ROBOTS_PATH = "/robots.txt"
_MAX_ROBOTS_AGE = timedelta(days=1)  # RFC 9309, section 2.4


@dataclass(frozen=True)
class Politeness:
    """The identity of a crawl, and its pauses, attempts and time limits.

    Attributes:
        contact: Address at which a site can reach the user. It is part of the user agent.
        seconds_between: Minimum pause between two requests, in seconds.
        attempts: Maximum number of attempts per request.
        timeout: Maximum time without data from a server, in seconds.
        max_pause_seconds: Maximum pause before a retry. If a server requests a longer pause, the request fails.
        obey_robots: True if robots.txt is obeyed.
    """

    contact: str
    seconds_between: float = 1.0
    attempts: int = 5
    timeout: float = 60.0
    max_pause_seconds: float = 120.0
    obey_robots: bool = True

    @property
    def user_agent(self) -> str:
        """Return the value of the User-Agent header."""
        return f"corpus-audit/{version('corpus-audit')} ({self.contact})"


@dataclass(frozen=True)
class FetchedPage:
    """A page from the cache or the web.

    Attributes:
        url: Address after redirects.
        content: Decompressed body.
        charset: Charset in the Content-Type header, or None.
    """

    url: str
    content: bytes
    charset: str | None = None

    def text(self) -> str:
        """Return the content as text.

        Raises:
            SourceError: If the charset is unknown.
        """
        try:
            return decode_page(self.content, self.charset)
        except DataError as error:
            raise SourceError(f"{faults.redact_passwords(self.url)}: {error}") from error


class PoliteClient:
    """A client that requests one page at a time and caches all pages in a folder; a context manager.

    Only one process can use the folder at a time.
    """

    def __init__(
        self,
        folder: Path,
        politeness: Politeness,
        *,
        find_retry_reason: Callable[[FetchedPage], str | None] = lambda page: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until no other process uses the folder, and open its cache.

        Args:
            folder: Folder of the cache.
            politeness: Identity, pauses and limits of the crawl.
            find_retry_reason: Function that returns the reason why a response with status 200 is not the page, such as
                "the server is busy", or None if the response is the page. If there is a reason, the request is repeated
                as after the status 503. The function may raise FetchError if a repetition is useless.
            sleep: Function that pauses. Tests replace it.

        Raises:
            SourceError: If the cache is damaged.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._cache = folder / CACHE_NAME
        self._lock = FileLock(folder / "crawl.lock")
        self._lock.acquire()
        try:
            self._session = CachedSession(self._cache, backend="sqlite", serializer="json", allowable_codes=(200,))
        except sqlite3.DatabaseError as error:
            self._lock.release()
            raise self._build_cache_error(error) from error
        self._session.max_redirects = _MAX_REDIRECTS
        self._session.headers.update({"User-Agent": politeness.user_agent, "Accept-Encoding": ACCEPTED_ENCODING})
        client = HttpClient(timeout_seconds=politeness.timeout, max_bytes=_MAX_BYTES)
        pacer = Pacer(folder / "last_request", sleep)
        adapter = _PoliteAdapter(client, self._session, politeness, pacer, find_retry_reason, sleep)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and cache. No request is possible afterwards."""
        self._session.close()  # type: ignore[no-untyped-call]
        self._lock.release()

    def get(
        self, url: str, params: Mapping[str, str] | None = None, *, max_age: timedelta | None = None
    ) -> FetchedPage:
        """Return a page from the cache. If the page is missing there, fetch it and store it in the cache.

        Requests are repeated with growing pauses after the statuses 408, 425, 429 and 5xx, after timeouts and after
        truncated responses. Failures are not cached.

        Args:
            url: Address of the page.
            params: Parameters of the query.
            max_age: Maximum age of a cached page. An older page is fetched again.

        Raises:
            FetchError: If no attempt was successful. There is no further attempt after a status such as 404, after a
                response that is too long, or if the server requests a pause longer than ``max_pause_seconds``. No
                request is sent if robots.txt forbids the page, or after MAX_FAILURES failed requests in a row.
        """
        try:
            response = self._session.get(url, params)
            if isinstance(response, CachedResponse) and max_age is not None and response.is_older_than(max_age):
                response = self._session.get(url, params, force_refresh=True)
        except requests.RequestException as error:
            raise FetchError(url, f"the page cannot be requested ({faults.format_public_error(error)})") from error
        except sqlite3.DatabaseError as error:
            raise self._build_cache_error(error) from error
        return _build_fetched_page(response)

    def _build_cache_error(self, error: Exception) -> SourceError:
        return SourceError(
            f"{self._cache}: the stored responses cannot be used ({error}). If the file is damaged, delete it. "
            "Then the pages are fetched again."
        )


class _PoliteAdapter(ClientAdapter):
    """An adapter that sends the requests for pages that are not cached. It obeys robots.txt."""

    def __init__(
        self,
        client: HttpClient,
        session: CachedSession,
        politeness: Politeness,
        pacer: Pacer,
        find_retry_reason: Callable[[FetchedPage], str | None],
        sleep: Callable[[float], None],
    ) -> None:
        super().__init__(client)
        self._session = session
        self._politeness = politeness
        self._pacer = pacer
        self._find_retry_reason = find_retry_reason
        # The first retry waits for twice the usual pause.
        policy = RetryPolicy(politeness.attempts, 2 * politeness.seconds_between, politeness.max_pause_seconds)
        self._retry = build_retryer(policy, sleep=sleep)
        self._robots: dict[str, Protego | FetchError] = {}
        self._n_failures = 0
        self._last_failure = ""

    def send(self, request: requests.PreparedRequest, *_options: Any, **_named_options: Any) -> requests.Response:
        """Send a request with pauses and retries, if robots.txt allows it.

        Raises:
            FetchError: If the response is neither a page nor a redirect, or if no request may be sent.
        """
        url = request.url or ""
        if self._n_failures >= MAX_FAILURES:
            raise FetchError(
                url,
                f"the page was not requested, because {self._n_failures} requests in a row failed. Try again later. "
                f"The last failure: {self._last_failure}",
            )
        pause = self._politeness.seconds_between
        if self._politeness.obey_robots and urlsplit(url).path != _ROBOTS_PATH:
            pause = max(pause, self._require_allowed_page(url))
        try:
            response = self._retry.copy()(self._send_once, request, pause)
        except faults.RetryableError as fault:
            error = FetchError(
                url, f"{fault} (after {self._politeness.attempts} attempts). Try again later.", fault.status
            )
            self._record_failure(error)
            raise error from fault
        except faults.HttpError as fault:
            error = FetchError(url, str(fault), fault.status)
            self._record_failure(error)
            raise error from fault
        except FetchError as error:
            self._record_failure(error)
            raise
        self._n_failures = 0
        return response

    def _record_failure(self, error: FetchError) -> None:
        if error.status not in _PAGE_STATUSES:
            self._n_failures += 1
        self._last_failure = str(error)

    def _require_allowed_page(self, url: str) -> float:
        """Check that robots.txt allows a page. Return the pause that it requires between two requests, in seconds.

        Raises:
            FetchError: If robots.txt forbids the page or cannot be fetched.
        """
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        if host not in self._robots:
            # If robots.txt redirects, this function is called for it again. The empty rules allow the redirect.
            self._robots[host] = Protego.parse("")
            self._robots[host] = self._fetch_rules(f"{host}{_ROBOTS_PATH}")
        rules = self._robots[host]
        agent = self._politeness.user_agent
        if isinstance(rules, FetchError):
            raise FetchError(url, f"the page was not requested, because robots.txt cannot be read: {rules}") from rules
        if not rules.can_fetch(url, agent):
            raise FetchError(
                url, f"robots.txt of {faults.redact_passwords(host)} does not allow programs to fetch this page"
            )
        pause = rules.crawl_delay(agent) or 0.0
        rate = rules.request_rate(agent)
        if rate:
            pause = max(pause, rate.seconds / rate.requests)
        return pause

    def _fetch_rules(self, url: str) -> Protego | FetchError:
        try:
            response = self._session.get(url, expire_after=_MAX_ROBOTS_AGE)
        except FetchError as error:
            # RFC 9309, section 2.3.1: a missing robots.txt allows everything, an unreachable one forbids everything.
            status = error.status or 0
            is_missing = 400 <= status < 500 and not faults.is_transient_status(status)
            return Protego.parse("") if is_missing else error
        return Protego.parse(response.content.decode("utf-8", errors="replace"))

    def _send_once(self, request: requests.PreparedRequest, pause: float) -> requests.Response:
        self._pacer.wait(pause)
        try:
            response = super().send(request)
        finally:
            self._pacer.record_request()
        # The header Vary would make the cache compare the headers of requests, but all requests have the same headers.
        response.headers.pop("Vary", None)
        self._require_page(request.url or "", response)
        return response

    def _require_page(self, url: str, response: requests.Response) -> None:
        """Check that a response is a page or a redirect.

        Raises:
            faults.RetryableError: If the request may succeed after a pause.
            FetchError: If a repetition is useless.
        """
        status = response.status_code
        problem = None
        if faults.is_transient_status(status):
            problem = f"the server responded with status {status}"
        elif status == 200 and urlsplit(url).path != _ROBOTS_PATH:
            problem = self._find_retry_reason(_build_fetched_page(response))
        if problem is not None:
            pause = parse_retry_after(response.headers.get("Retry-After"))
            if pause is not None and pause > self._politeness.max_pause_seconds:
                raise FetchError(
                    url, f"{problem}, and requests a pause of {pause:.0f} s. Try again after this pause.", status
                )
            raise faults.RetryableError(problem, status, pause)
        if status != 200 and not response.is_redirect:
            raise FetchError(url, f"the server responded with status {status} {response.reason or ''}".rstrip(), status)


def _build_fetched_page(response: requests.Response) -> FetchedPage:
    content_type = response.headers.get("Content-Type", "")
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:+-]+)", content_type, re.IGNORECASE)
    return FetchedPage(response.url, response.content, charset[1] if charset else None)
