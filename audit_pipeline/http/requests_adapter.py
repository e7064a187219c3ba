"""An adapter that sends the requests of a ``requests`` session through the HTTP client of this package.

requests-cache stores the pages of crawls, and works only with sessions of ``requests``. With this adapter its requests
have the same limits, redaction and errors as all other requests of the project.
"""

from __future__ import annotations

import io
from typing import Any

import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter

from audit_pipeline.http.client import HttpClient


class ClientAdapter(BaseAdapter):
    """A transport adapter that sends the requests of a ``requests`` session with an HttpClient, if they have no body.

    The session still follows redirects and uses its cache. The client's time limits, certificates and proxies apply
    instead of those of the session.
    """

    def __init__(self, client: HttpClient) -> None:
        super().__init__()
        self._client = client
        self._response_builder = HTTPAdapter()

    def send(self, request: requests.PreparedRequest, *_options: Any, **_named_options: Any) -> requests.Response:
        """Send a request once.

        Raises:
            HttpError: If there is no usable response.
        """
        # The cache sends GET requests only, which have no body.
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            headers[name] = value if isinstance(value, str) else value.decode("latin-1")
        response = self._client.exchange(request.method or "GET", request.url or "", headers=headers)
        raw = urllib3.HTTPResponse(
            io.BytesIO(response.content),
            headers=urllib3.HTTPHeaderDict(response.headers.multi_items()),
            status=response.status_code,
            reason=response.reason_phrase,
            preload_content=False,
            request_url=request.url,
        )
        return self._response_builder.build_response(request, raw)

    def close(self) -> None:
        """Close the connections of the client."""
        self._client.close()
