"""Alerts: which findings changed since they were last looked at, and the delivery of what people are to know.

What belongs here: findings as the leaderboard has them, comparing two states of it in words that claim no more than the
findings do, the state as text, which a sensor keeps; one alert, the request that carries it to a webhook,
and the file of alerts where there is none. What does not: the sensors, which say when to look and what an alert says of
a run (operate/dagster/sensors.py), and what a claim level means (metrics/claims.py).

Another kind of change of findings is made here alone; an alert about something else is a sensor, and what works out
what it says.

The webhook's address is a secret with most chat services, so nothing here prints, logs or raises more of it than its
host.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import requests
from filelock import FileLock, Timeout
from urllib3.exceptions import HTTPError

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import ConfigError, DataError, TransientError
from audit_pipeline.fetch.retry import (
    RetryPolicy,
    build_retryer,
    is_transient_fault,
    is_transient_status,
    parse_retry_after,
)
from audit_pipeline.metrics.claims import find_claim_source, format_claim_level
from audit_pipeline.operate.console import to_json_value
from audit_pipeline.warehouse.query import open_read_only

SMALLEST_MOVE = 0.02
"""An AUROC that moved by no more than this is the same, however narrow its interval was."""

ChangeKind = Literal["first", "gone", "stale", "claim_level", "split_verdict", "auroc"]

_DECIMALS = 4
_STATE = 1
_ROWS = """
SELECT model, benchmark, detector, parameters, auroc, auroc_low, auroc_high, claim_level, split_verdict, is_current,
    design_stated_by, blind_auroc
FROM leaderboard ORDER BY model, benchmark, detector, parameters
"""


class FindingKey(NamedTuple):
    """What one finding is about."""

    model: str
    benchmark: str
    detector: str
    parameters: str


@dataclass(frozen=True)
class WatchedFinding:
    """One row of the leaderboard: an AUROC with its 95% interval (None where it was not computed), and its context.

    ``is_current`` is false where the benchmark has been rebuilt since. ``claim_level`` says whose word it rests on,
    where it is only stated. Numbers have four decimals.
    """

    model: str
    benchmark: str
    detector: str
    parameters: str
    auroc: float | None
    low: float | None
    high: float | None
    claim_level: str
    split_verdict: str
    is_current: bool

    @property
    def key(self) -> FindingKey:
        return FindingKey(self.model, self.benchmark, self.detector, self.parameters)

    @property
    def setting(self) -> str:
        """The detector, with its parameters where it has any."""
        return self.detector if self.parameters == "{}" else f"{self.detector} {self.parameters}"


State = Mapping[FindingKey, WatchedFinding]


@dataclass(frozen=True)
class FindingChange:
    """What changed about one model on one benchmark, in one line of words."""

    model: str
    benchmark: str
    kinds: tuple[ChangeKind, ...]
    words: str


def read_findings(warehouse: Path) -> dict[FindingKey, WatchedFinding]:
    """The findings on the leaderboard; raises DataError where there is no warehouse or it cannot be read."""
    with open_read_only(warehouse) as connection:
        rows = connection.execute(_ROWS).fetchall()
    found = (_from_row(row) for row in rows)
    return {finding.key: finding for finding in found}


def compare_findings(old: State, new: State) -> list[FindingChange]:
    """One change per pair that differs, by model and benchmark.

    A pair differs by a first finding, one that is gone or became stale, another claim level or split verdict, or an
    AUROC outside of its old interval by which it moved more than ``SMALLEST_MOVE``. That an audit was repeated with
    nearly the same result is no change, nor is that a stale finding is current again.
    """
    found: list[FindingChange] = []
    for (model, benchmark), keys in groupby(sorted(old.keys() | new.keys()), key=lambda key: key[:2]):
        both = list(keys)
        before = [old[key] for key in both if key in old]
        after = [new[key] for key in both if key in new]
        parts = _describe_pair_changes(before, after)
        if parts:
            words = _collapse_whitespace(f"{model} on {benchmark}: " + "; ".join(part for _, part in parts))
            found.append(FindingChange(model, benchmark, tuple(dict.fromkeys(kind for kind, _ in parts)), words))
    return found


def findings_to_text(state: State) -> str:
    """The state as compact JSON, about 30 bytes a finding; :func:`findings_from_text` reads it."""
    names: dict[object, int] = {}

    def number(value: object) -> int:
        return names.setdefault(value, len(names))

    pairs = []
    for (model, benchmark), keys in groupby(sorted(state), key=lambda key: key[:2]):
        pair: list[object] = [number(model), number(benchmark)]
        for finding in (state[key] for key in keys):
            pair += [
                number((finding.detector, finding.parameters)),
                number((finding.claim_level, finding.split_verdict, finding.is_current)),
                finding.auroc,
                finding.low,
                finding.high,
            ]
        pairs.append(pair)
    return json.dumps(
        {"state": _STATE, "names": list(names), "pairs": pairs}, separators=(",", ":"), ensure_ascii=False
    )


def findings_from_text(text: str) -> dict[FindingKey, WatchedFinding]:
    """The state that :func:`findings_to_text` wrote; raises DataError for anything else."""
    try:
        content = json.loads(text)
        if content["state"] != _STATE:
            raise ValueError(f"written in form {content['state']!r}, not {_STATE}")
        found = [finding for pair in content["pairs"] for finding in _decode_pair(pair, content["names"])]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(
            f"the findings that were last seen cannot be read ({_collapse_whitespace(str(error))}): reset the "
            "sensor's cursor, "
            "and comparing starts again"
        ) from error
    return {finding.key: finding for finding in found}


def _decode_pair(pair: list[Any], names: list[Any]) -> Iterable[WatchedFinding]:
    model, benchmark = names[pair[0]], names[pair[1]]
    for start in range(2, len(pair), 5):
        setting, context, auroc, low, high = pair[start : start + 5]
        detector, parameters = names[setting]
        claim_level, split_verdict, is_current = names[context]
        yield WatchedFinding(
            model, benchmark, detector, parameters, auroc, low, high, claim_level, split_verdict, bool(is_current)
        )


def _from_row(row: tuple[Any, ...]) -> WatchedFinding:
    model, benchmark, detector, parameters, auroc, low, high, claim_level, split_verdict, is_current, *word = row
    stated_by, blind_auroc = word
    return WatchedFinding(
        model=model,
        benchmark=benchmark,
        detector=detector,
        parameters=parameters,
        auroc=_round_value(auroc),
        low=_round_value(low),
        high=_round_value(high),
        claim_level=format_claim_level(claim_level, find_claim_source(claim_level, stated_by, blind_auroc)),
        split_verdict=split_verdict,
        is_current=is_current,
    )


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _describe_pair_changes(before: list[WatchedFinding], after: list[WatchedFinding]) -> list[tuple[ChangeKind, str]]:
    """What changed about one pair, by kind."""
    if not after:
        return [("gone", "its findings are gone")]
    context = f"split: {after[0].split_verdict}; claim: {after[0].claim_level}"
    if not before:
        return [("first", f"first findings: {', '.join(_format_finding(finding) for finding in after)}; {context}")]
    was, now = {one.key: one for one in before}, {one.key: one for one in after}
    parts: list[tuple[ChangeKind, str]] = []
    if any(was[key].is_current and not now[key].is_current for key in was.keys() & now.keys()):
        parts.append(("stale", "became stale: its benchmark has been rebuilt since"))
    parts += _describe_context_change("claim_level", "claim level", before, after)
    parts += _describe_context_change("split_verdict", "split verdict", before, after)
    for key, finding in now.items():
        if key not in was:
            parts.append(("first", f"first finding of {_format_finding(finding)}"))
        elif _has_auroc_moved(was[key], finding):
            parts.append(("auroc", f"{_format_finding(finding)}, was {_format_auroc(was[key])}"))
    parts += [("gone", f"no finding of {finding.setting} any more") for key, finding in was.items() if key not in now]
    return parts


def _describe_context_change(
    kind: Literal["claim_level", "split_verdict"], name: str, before: list[WatchedFinding], after: list[WatchedFinding]
) -> list[tuple[ChangeKind, str]]:
    """One part where the values of ``kind`` differ; a pair has one, unless detectors came and went."""
    old, new = ([getattr(one, kind) for one in findings] for findings in (before, after))
    if set(old) == set(new):
        return []
    return [(kind, f"{name} is {' and '.join(dict.fromkeys(new))}, was {' and '.join(dict.fromkeys(old))}")]


def _has_auroc_moved(before: WatchedFinding, after: WatchedFinding) -> bool:
    if before.auroc is None or after.auroc is None:
        return before.auroc is not after.auroc
    low = before.auroc if before.low is None else before.low
    high = before.auroc if before.high is None else before.high
    return not low <= after.auroc <= high and round(abs(after.auroc - before.auroc), _DECIMALS) > SMALLEST_MOVE


def _format_finding(finding: WatchedFinding) -> str:
    return f"{finding.setting} AUROC {_format_auroc(finding)}"


def _format_auroc(finding: WatchedFinding) -> str:
    if finding.auroc is None:
        return "not computed"
    if finding.low is None or finding.high is None:
        return f"{finding.auroc:.3f} (no interval)"
    return f"{finding.auroc:.3f} (95% interval {finding.low:.3f} to {finding.high:.3f})"


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


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

    ``kind`` is for programs, such as "run_failed"; each kind of alert has its own.
    """

    kind: str
    title: str
    lines: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class NotKeptError(TransientError):
    """An alert that could not even be written to the file: the caller must send it again."""


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

    ``patient=False`` tries once, for five seconds at most: for a caller with many to send and little time.
    Requests that fail for a passing reason are repeated with growing pauses, so an alert may arrive twice. One that
    does not arrive is appended to the file, with the reason, before the error is raised: TransientError where the
    webhook did not answer or was too busy, ConfigError where its address is refused, here or by its host. Where the
    file cannot be written either, NotKeptError: then, and only then, the alert is nowhere.
    """
    url = os.environ.get(WEBHOOK, "").strip()
    if not url:
        _append(paths.alerts, payload(alert))
        return f"written to {paths.alerts} ({WEBHOOK} is not set)"
    refused = _explain_refused_url(url)
    fault = _NotDelivered(f"{WEBHOOK} {refused}", True) if refused else _post(url, payload(alert), patient)
    if fault is None:
        return f"sent to {urlsplit(url).hostname}"
    _append(paths.alerts, {**payload(alert), "not_delivered": fault.words})
    # Raised here, outside of any handler: the library's exceptions, which a traceback would show, name the address.
    kind = ConfigError if fault.lasting else TransientError
    raise kind(f"the alert was not delivered: {fault.words}; it is kept in {paths.alerts}")


def _explain_refused_url(url: str) -> str | None:
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

    with _silence_request_logs():
        try:
            status = build_retryer(patience, is_transient_fault, requested_pause=_pause_asked_for)(
                _post_once, url, content, timeout
            )
        except _BusyError as error:
            status = error.status
        except requests.exceptions.SSLError:
            return _NotDelivered(f"the certificate of {host} is not trusted", True)
        except requests.Timeout:
            return _NotDelivered(f"{host} did not answer within {timeout:.0f} seconds", False)
        except requests.ConnectionError:
            return _NotDelivered(f"{host} cannot be reached, or does not answer", False)
        except (requests.RequestException, HTTPError):
            return _NotDelivered(f"the request to {host} failed: check {WEBHOOK}", True)
    if _OK <= status < _REDIRECTED:
        return None
    words = f"{host} answered with status {status}"
    return (
        _NotDelivered(words, False) if is_transient_status(status) else _NotDelivered(f"{words}: check {WEBHOOK}", True)
    )


def _pause_asked_for(error: BaseException) -> float | None:
    asked_for = error.pause if isinstance(error, _BusyError) else None
    # The caller waits for the delivery, and not for an hour.
    return None if asked_for is None else min(asked_for, RETRY_POLICY.longest)


def _post_once(url: str, content: Mapping[str, object], timeout: float) -> int:
    """Post JSON once; the answer's status, or _BusyError where it may be another in a moment."""
    headers = {"Content-Type": "application/json"}
    # Its body says nothing that is needed, and is not read.
    with requests.post(
        url, data=_to_json(content).encode(), headers=headers, timeout=timeout, allow_redirects=False, stream=True
    ) as answer:
        if is_transient_status(answer.status_code):
            raise _BusyError(answer.status_code, parse_retry_after(answer.headers.get("Retry-After")))
        return answer.status_code


@contextmanager
def _silence_request_logs() -> Iterator[None]:
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
    line = _to_json(content).encode() + b"\n"
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


def _to_json(content: Mapping[str, object]) -> str:
    return json.dumps(to_json_value(content), allow_nan=False)
