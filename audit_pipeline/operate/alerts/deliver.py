"""Delivery of an alert: to a webhook, or into a file where there is none.

What belongs here: one alert, the request that carries it, the file of alerts. What does not: what is worth an alert
(changes.py, operate/dagster/alerting.py).

The webhook's address is a secret with most chat services, so nothing here prints, logs or raises more of it than its
host.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import requests
from filelock import FileLock, Timeout
from urllib3.exceptions import HTTPError

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import ConfigError, TransientError
from audit_pipeline.fetch.retry import RetryPolicy, may_pass, retrying, seconds_asked_for, status_may_pass

WEBHOOK = "CORPUS_AUDIT_WEBHOOK"
INSECURE = "CORPUS_AUDIT_WEBHOOK_INSECURE"

_LINES_OF_TEXT = 30
TIMEOUT = 10.0
SHORT_TIMEOUT = 5.0
LOCK_TIMEOUT = 30.0
_OK, _REDIRECTED = 200, 300
RETRY_POLICY = RetryPolicy(attempts=4, first=0.5, longest=5.0)
_ONCE = RetryPolicy(attempts=1, first=0.0)
# The loggers that name the path of a request, which holds the secret.
_TALKATIVE = ("urllib3.connectionpool", "urllib3.util.retry")


@dataclass(frozen=True)
class Alert:
    """What people are to know: a title, lines below it, and the same as values for a program.

    ``kind`` is for programs, such as "run_failed"; whoever makes the alert names it.
    """

    kind: str
    title: str
    lines: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class NotKeptError(TransientError):
    """An alert that could not even be written to the file: whoever has it must send it again."""


class _BusyError(TransientError):
    """An answer that may be another in a moment; ``pause`` is what the webhook asks for, in seconds."""

    def __init__(self, status: int, pause: float | None) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.pause = pause


@dataclass(frozen=True)
class _NotDelivered:
    """Why an alert did not arrive; ``lasting`` where asking again will not help."""

    words: str
    lasting: bool


def payload(alert: Alert) -> dict[str, object]:
    """What is sent: ``text``, which chat services show, and the alert's fields."""
    shown = list(alert.lines[:_LINES_OF_TEXT])
    if len(alert.lines) > len(shown):
        shown.append(f"... and {len(alert.lines) - len(shown)} more")
    return {
        "text": "\n".join([alert.title, *shown]),
        "kind": alert.kind,
        "title": alert.title,
        "lines": list(alert.lines),
        "details": dict(alert.details),
        "at": alert.at.astimezone(UTC).isoformat(timespec="seconds"),
    }


def deliver(alert: Alert, paths: DataPaths, *, patient: bool = True) -> str:
    """Send the alert to the webhook in CORPUS_AUDIT_WEBHOOK, or append it to the file of alerts; says where it went.

    ``patient=False`` tries once, for five seconds at most: for somebody who has many to send and little time.
    Requests that fail for a passing reason are repeated with growing pauses, so an alert may arrive twice. One that
    does not arrive is appended to the file, with the reason, before the error is raised: TransientError where the
    webhook did not answer or was too busy, ConfigError where its address is refused, here or by its host. Where the
    file cannot be written either, NotKeptError: then, and only then, the alert is nowhere.
    """
    url = os.environ.get(WEBHOOK, "").strip()
    if not url:
        _append(paths.alerts, payload(alert))
        return f"written to {paths.alerts} ({WEBHOOK} is not set)"
    refused = _refusal(url)
    fault = _NotDelivered(f"{WEBHOOK} {refused}", True) if refused else _post(url, payload(alert), patient)
    if fault is None:
        return f"sent to {urlsplit(url).hostname}"
    _append(paths.alerts, {**payload(alert), "not_delivered": fault.words})
    # Raised here, outside of any handler: the library's exceptions, which a traceback would show, name the address.
    kind = ConfigError if fault.lasting else TransientError
    raise kind(f"the alert was not delivered: {fault.words}; it is kept in {paths.alerts}")


def _refusal(url: str) -> str | None:
    """Why ``url`` must not be posted to; None where it may."""
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname, parts.scheme
        _ = parts.port
    except ValueError:
        return "is not an address: set it to one that begins with https://"
    if not host or scheme not in ("https", "http"):
        return "is not an address: set it to one that begins with https://"
    if scheme == "http" and not _is_loopback(host) and os.environ.get(INSECURE) != "1":
        return f"names {host} without encryption: use https, or set {INSECURE}=1 where that network is trusted"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _post(url: str, content: Mapping[str, object], patient: bool) -> _NotDelivered | None:
    """Post JSON with retries; what went wrong in words of our own, or None."""
    host = urlsplit(url).hostname
    patience, timeout = (RETRY_POLICY, TIMEOUT) if patient else (_ONCE, SHORT_TIMEOUT)

    with _quiet():
        try:
            status = retrying(patience, may_pass, asked_for=_pause_asked_for)(_ask, url, content, timeout)
        except _BusyError as error:
            status = error.status
        except requests.exceptions.SSLError:
            return _NotDelivered(f"the certificate of {host} is not trusted", True)
        except requests.Timeout:
            return _NotDelivered(f"{host} did not answer within {timeout:.0f} seconds", False)
        except requests.ConnectionError:
            return _NotDelivered(f"{host} cannot be reached, or does not answer", False)
        except (requests.RequestException, HTTPError) as error:
            return _NotDelivered(f"the request to {host} failed ({type(error).__name__}): check {WEBHOOK}", True)
    if _OK <= status < _REDIRECTED:
        return None
    words = f"{host} answered with status {status}"
    return _NotDelivered(words, False) if status_may_pass(status) else _NotDelivered(f"{words}: check {WEBHOOK}", True)


def _pause_asked_for(error: BaseException) -> float | None:
    asked_for = error.pause if isinstance(error, _BusyError) else None
    # Whoever waits for this alert's delivery is not kept for an hour.
    return None if asked_for is None else min(asked_for, RETRY_POLICY.longest)


def _ask(url: str, content: Mapping[str, object], timeout: float) -> int:
    """Post JSON once; the answer's status, or _BusyError where it may be another in a moment."""
    headers = {"Content-Type": "application/json"}
    answer = requests.post(url, data=_json(content).encode(), headers=headers, timeout=timeout, allow_redirects=False)
    if status_may_pass(answer.status_code):
        raise _BusyError(answer.status_code, seconds_asked_for(answer.headers.get("Retry-After")))
    return answer.status_code


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from logging the address of this thread's requests."""
    here = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)


def _append(path: Path, content: Mapping[str, object]) -> None:
    """Append one line of JSON, whole and on disk when this returns; raises NotKeptError where it cannot be."""
    line = _json(content).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_TIMEOUT), path.open("ab+") as file:
            # A writer that was killed left a line without an end; it must not swallow this one.
            if file.tell() and _last_byte(file.fileno(), file.tell()) != b"\n":
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, Timeout) as error:
        reason = " ".join(str(error).split())
        raise NotKeptError(f"the alert cannot be written to {path} ({reason}): {content['title']}") from error


def _last_byte(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, 1, size - 1)


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, default=str)
