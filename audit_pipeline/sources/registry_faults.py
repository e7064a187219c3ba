"""What went wrong between us and a package registry: whether it may pass, and how it is told.

What belongs here: faults of requests, as package sources (pypi.py, npm.py) tell them. What does not: trying again, and
crawling, whose answers need other care (polite.py).
"""

from __future__ import annotations

import re

import requests

TRANSIENT_STATUS = frozenset((429, 500, 502, 503, 504))


def may_pass(error: BaseException) -> bool:
    """Whether the same request may be answered later: a busy server, a connection that failed; not a certificate."""
    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in TRANSIENT_STATUS
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, passing) and not isinstance(error, requests.exceptions.SSLError)


def cause(error: requests.RequestException) -> str:
    """What happened, in a few words."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError) and not isinstance(error, requests.exceptions.SSLError):
        return "the connection failed"
    return public(error)


def public(error: Exception) -> str:
    """The first line of an error's message, less any password in an address."""
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"//[^/@\s]+@", "//***@", message)
