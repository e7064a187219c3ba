"""The HTTP client: one request at a time (:class:`HttpClient`), or many in an event loop (:class:`AsyncHttpClient`).

Both send requests with httpx2 and raise the errors of faults.py. Both have time limits, guarded responses
(response_guard.py) and no cookies. Provider packages and litellm are not used: they retry by themselves, so their
attempts could not be counted in a budget.
"""

from __future__ import annotations

import asyncio
import logging
import netrc
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Self

import httpx2

from audit_pipeline.http import faults
from audit_pipeline.http.faults import NO_RETRY, RetryPolicy, build_retryer, parse_retry_after
from audit_pipeline.http.response_guard import (
    ACCEPTED_ENCODING,
    LIMIT_EXTENSION,
    MAX_JSON_BYTES,
    guard_async_response,
    guard_response,
)

# These packages log the whole address of each request, and the address of a webhook is a secret.
for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class Pacer:
    """A timer for pauses between requests, even if different processes send them.

    The modification time of a file records the time of the last request. A crawl uses one file for all hosts, so it
    also pauses between requests to two hosts.
    """

    def __init__(self, stamp: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._stamp = stamp
        self._sleep = sleep

    def wait(self, pause_seconds: float) -> None:
        """Sleep until the pause since the last request is over."""
        if not self._stamp.exists():
            return
        remaining = self._stamp.stat().st_mtime + pause_seconds - time.time()
        # A last request in the future means that the clock was set back. That is no reason to wait for hours.
        remaining = min(remaining, pause_seconds)
        if remaining > 0:
            self._sleep(remaining)

    def record_request(self) -> None:
        """Record the end of a request, because the pause begins after the response."""
        self._stamp.touch()


class HttpClient:
    """A client that sends one request at a time; a context manager.

    Certificates come from the environment: SSL_CERT_FILE and SSL_CERT_DIR, then REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE,
    then the system. Proxies (HTTP_PROXY and others) and passwords of hosts (~/.netrc or NETRC) come from the
    environment, too.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float,
        max_bytes: int = MAX_JSON_BYTES,
        follow_redirects: bool = False,
        certificates: str | None = None,
        proxy: str | None = None,
    ) -> None:
        """Create the client without a connection.

        Args:
            timeout_seconds: Maximum time to connect, and maximum time without data from the server.
            max_bytes: Maximum length of a response.
            follow_redirects: Follow redirects instead of raising StatusError.
            certificates: File or folder of certificates to trust. None: the certificates of the environment.
            proxy: Address of a proxy. None: the proxy of the environment.

        Raises:
            HttpError: If the certificates or the proxy are unusable.
        """
        self._max_bytes = max_bytes
        self._netrc = _read_netrc()
        try:
            self._client = httpx2.Client(
                timeout=timeout_seconds,
                follow_redirects=follow_redirects,
                proxy=proxy,
                event_hooks={"response": [guard_response]},
                **_build_common_options(certificates),
            )
        except (OSError, ValueError) as error:
            raise faults.HttpError(
                f"the certificates or the proxy cannot be used ({faults.format_public_error(error)})"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        policy: RetryPolicy = NO_RETRY,
    ) -> httpx2.Response:
        """Send a request, repeat it as the policy allows, and return the successful response.

        Raises:
            RetryableError: If no attempt was successful.
            HttpError: If the server refuses the request, or the response is unusable.
        """

        def attempt() -> httpx2.Response:
            response = self.exchange(method, url, content=content, headers=headers)
            require_success(response)
            return response

        return build_retryer(policy)(attempt)

    def exchange(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a request once and return its response, even if the response has an error status.

        Raises:
            HttpError: If there is no usable response.
        """
        with translate_http_errors():
            request = self._build_request(method, url, content, headers, self._max_bytes)
            return self._client.send(request, auth=self._choose_auth(request))

    @contextmanager
    def stream(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """Send a request once, and yield its response without reading the body.

        The response guard does not read this body, so the caller must limit or verify it.

        Raises:
            HttpError: If there is no usable response, also while the caller reads the body.
        """
        with translate_http_errors():
            request = self._build_request(method, url, content, headers, None)
            response = self._client.send(request, auth=self._choose_auth(request), stream=True)
            try:
                yield response
            finally:
                response.close()

    def download(self, url: str, path: Path, *, policy: RetryPolicy = NO_RETRY) -> None:
        """Write the body of a successful response to a file. The caller verifies the file.

        Raises:
            RetryableError: If no attempt was successful.
            HttpError: If the server refuses the request, or the response is unusable.
        """

        def attempt() -> None:
            with self.stream("GET", url) as response, path.open("wb") as file:
                require_success(response)
                for chunk in response.iter_bytes():
                    file.write(chunk)

        build_retryer(policy)(attempt)

    def _build_request(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str] | None, max_bytes: int | None
    ) -> httpx2.Request:
        extensions = {LIMIT_EXTENSION: max_bytes}
        return self._client.build_request(method, url, content=content, headers=headers, extensions=extensions)

    def _choose_auth(self, request: httpx2.Request) -> Any:
        # A header, or a user name in the address, takes precedence over the entry of the host in the netrc file.
        if self._netrc is None or request.url.userinfo or "Authorization" in request.headers:
            return httpx2.USE_CLIENT_DEFAULT
        return self._netrc


class AsyncHttpClient:
    """A client for many requests at a time, to be used in an event loop. It follows no redirects."""

    def __init__(self) -> None:
        # Each call of ``exchange`` sets a time limit for its whole request.
        self._client = httpx2.AsyncClient(
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
            event_hooks={"response": [guard_async_response]},
            **_build_common_options(None),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
        max_bytes: int,
    ) -> httpx2.Response:
        """Send a request once and return its response, even if the response has an error status.

        Args:
            method: HTTP method.
            url: Address.
            content: Body of the request.
            headers: Headers of the request.
            timeout_seconds: Maximum duration of the request, from connecting to the last byte of the response.
            max_bytes: Maximum length of the response.

        Raises:
            HttpError: If there is no usable response.
        """
        extensions = {LIMIT_EXTENSION: max_bytes}
        with translate_http_errors():
            request = self._client.build_request(method, url, content=content, headers=headers, extensions=extensions)
            async with asyncio.timeout(timeout_seconds):
                return await self._client.send(request)


def build_library_client(
    timeout_seconds: float,
    request_hooks: list[Callable[..., Any]],
    limit_response: Callable[[httpx2.Response], None],
) -> httpx2.Client:
    """Return a client of httpx2 with guarded responses, for a library that accepts such a client. It follows redirects.

    Args:
        timeout_seconds: Maximum time without data from the server, unless the library sets a time limit for a request.
        request_hooks: Hooks of the library that run before each request.
        limit_response: Hook that sets LIMIT_EXTENSION in ``response.request.extensions`` before the body is read.
    """
    return httpx2.Client(
        timeout=timeout_seconds,
        follow_redirects=True,
        event_hooks={"request": request_hooks, "response": [limit_response, guard_response]},
        **_build_common_options(None),
    )


def _build_common_options(certificates: str | None) -> dict[str, Any]:
    """Return the options that all clients of this module share."""
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    return {
        "headers": {"Accept-Encoding": ACCEPTED_ENCODING},
        "cookies": no_cookies,
        "verify": _load_certificates(certificates),
    }


def _load_certificates(certificates: str | None) -> ssl.SSLContext | bool:
    if certificates is None and not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        certificates = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if not certificates:
        return True
    if Path(certificates).is_dir():
        return ssl.create_default_context(capath=certificates)
    return ssl.create_default_context(cafile=certificates)


def _read_netrc() -> httpx2.NetRCAuth | None:
    try:
        return httpx2.NetRCAuth(os.environ.get("NETRC"))
    except (OSError, netrc.NetrcParseError):
        return None


@contextmanager
def translate_http_errors() -> Iterator[None]:
    """Convert errors of httpx2 that the block raises to the errors of faults.py.

    Raises:
        HttpError: If the block raises an error of httpx2, or a time limit passes.
    """
    try:
        yield
    except (httpx2.TimeoutException, TimeoutError) as error:
        raise faults.RetryableError("the server did not respond in time") from error
    except (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError) as error:
        if faults.is_certificate_fault(error):
            raise faults.CertificateError("the server's certificate is not trusted") from error
        is_unreached = isinstance(error, (httpx2.ConnectError, httpx2.ProxyError))
        raise faults.RetryableError(
            "the server cannot be reached" if is_unreached else "the connection failed"
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise faults.HttpError(
            f"the server returned no usable response ({faults.format_public_error(error)})"
        ) from error


def require_success(response: httpx2.Response) -> None:
    """Raise an error unless the response has a status of success.

    Raises:
        RetryableError: If the server may respond with another status later.
        StatusError: If another attempt would get the same status.
    """
    if response.is_success:
        return
    status = response.status_code
    problem = f"the server responded with status {status} {response.reason_phrase}".rstrip()
    if faults.is_transient_status(status):
        raise faults.RetryableError(problem, status, parse_retry_after(response.headers.get("Retry-After")))
    raise faults.StatusError(problem, status)
