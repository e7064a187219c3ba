"""Alerts: which findings changed since the last look, and the delivery of a message to a webhook or a file.

The webhook's address is a secret with most chat services: of it, only the host is ever shown.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from audit_pipeline.http.client import HttpClient, require_success
from audit_pipeline.http.faults import HttpError
from audit_pipeline.http.retry import RetryPolicy, build_retryer
from audit_pipeline.statistics.claims import find_claim_source, format_claim_level
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.warehouse.query import open_read_only

WEBHOOK = "CORPUS_AUDIT_WEBHOOK"
SMALLEST_MOVE = 0.02
"""An AUROC that moved by no more than this is the same, however narrow its interval was."""

# Five failed runs, the most that Dagster looks at in a tick, are reported within its minute.
RETRY_POLICY = RetryPolicy(attempts=2, first_pause=1.0)
TIMEOUT = 5.0
_LINES_OF_TEXT = 30
_ROWS = """
SELECT model, benchmark, if(parameters = '{}', detector, detector || ' ' || parameters), auroc, auroc_low, auroc_high,
    split_verdict, is_current, claim_level, design_stated_by, blind_auroc
FROM leaderboard ORDER BY ALL
"""


class WatchedFinding(NamedTuple):
    """A row of the leaderboard: an AUROC with its 95% interval (None where it was not computed), and its context.

    ``setting`` is the detector with its parameters. ``is_current`` is false where the benchmark has been rebuilt
    since. ``claim_level`` says whose word it rests on, where it is only stated.
    """

    model: str
    benchmark: str
    setting: str
    auroc: float | None
    low: float | None
    high: float | None
    split_verdict: str
    is_current: bool
    claim_level: str


def read_findings(warehouse: Path) -> list[WatchedFinding]:
    """Return the findings on the leaderboard; raises DataError where there is no warehouse or it cannot be read."""
    with open_read_only(warehouse) as connection:
        rows = connection.execute(_ROWS).fetchall()
    return [
        WatchedFinding._make([*values, format_claim_level(level, find_claim_source(level, stated_by, blind_auroc))])
        for *values, level, stated_by, blind_auroc in rows
    ]


def compare_findings(old: Iterable[WatchedFinding], new: Iterable[WatchedFinding]) -> dict[tuple[str, str], str]:
    """Return what changed about each pair of model and benchmark that differs, in their order, in one line of words.

    A pair differs by a first finding, one that is gone or became stale, another claim level or split verdict, or an
    AUROC outside of its old interval by which it moved more than ``SMALLEST_MOVE``. An audit that was repeated with
    nearly the same result is no change, nor is a stale finding that is current again.
    """
    before, after = _group_by_pair(old), _group_by_pair(new)
    changes: dict[tuple[str, str], str] = {}
    for pair in sorted(before.keys() | after.keys()):
        if parts := _describe_pair_changes(before.get(pair, {}), after.get(pair, {})):
            changes[pair] = f"{' on '.join(pair)}: {'; '.join(parts)}"
    return changes


def _group_by_pair(findings: Iterable[WatchedFinding]) -> dict[tuple[str, str], dict[str, WatchedFinding]]:
    pairs: dict[tuple[str, str], dict[str, WatchedFinding]] = defaultdict(dict)
    for finding in findings:
        pairs[finding.model, finding.benchmark][finding.setting] = finding
    return pairs


def _describe_pair_changes(old: Mapping[str, WatchedFinding], new: Mapping[str, WatchedFinding]) -> list[str]:
    if not new:
        return ["its findings are gone"]
    if not old:
        first = next(iter(new.values()))
        listing = ", ".join(map(_format_finding, new.values()))
        return [f"first findings: {listing}; split: {first.split_verdict}; claim: {first.claim_level}"]
    parts: list[str] = []
    if any(old[setting].is_current and not new[setting].is_current for setting in old.keys() & new.keys()):
        parts.append("became stale: its benchmark has been rebuilt since")
    # A pair has one of each, unless detectors came and went.
    for name, column in (("claim level", "claim_level"), ("split verdict", "split_verdict")):
        was, now = (dict.fromkeys(getattr(row, column) for row in rows.values()) for rows in (old, new))
        if was.keys() != now.keys():
            parts.append(f"{name} is {' and '.join(now)}, was {' and '.join(was)}")
    for setting, finding in new.items():
        if setting not in old:
            parts.append(f"first finding of {_format_finding(finding)}")
        elif _has_auroc_moved(old[setting], finding):
            parts.append(f"{_format_finding(finding)}, was {_format_auroc(old[setting])}")
    return [*parts, *(f"no finding of {setting} any more" for setting in old if setting not in new)]


def _has_auroc_moved(old: WatchedFinding, new: WatchedFinding) -> bool:
    if old.auroc is None or new.auroc is None:
        return old.auroc is not new.auroc
    low = old.auroc if old.low is None else old.low
    high = old.auroc if old.high is None else old.high
    return not low <= new.auroc <= high and abs(new.auroc - old.auroc) > SMALLEST_MOVE


def _format_finding(finding: WatchedFinding) -> str:
    return f"{finding.setting} AUROC {_format_auroc(finding)}"


def _format_auroc(finding: WatchedFinding) -> str:
    if finding.auroc is None:
        return "not computed"
    if finding.low is None or finding.high is None:
        return f"{finding.auroc:.3f} (no interval)"
    return f"{finding.auroc:.3f} (95% interval {finding.low:.3f} to {finding.high:.3f})"


@dataclass(frozen=True)
class Alert:
    """A message to people: a title, lines below it, and the same as values for a program.

    ``kind`` is for programs, such as "run_failed"; each kind of alert has its own.
    """

    kind: str
    title: str
    lines: tuple[str, ...]
    details: Mapping[str, object]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def build_payload(alert: Alert) -> dict[str, object]:
    """Return what is sent: ``text``, which chat services show, and the alert's fields."""
    shown = list(alert.lines[:_LINES_OF_TEXT])
    if len(alert.lines) > len(shown):
        shown.append(f"... and {len(alert.lines) - len(shown)} more")
    return {"text": "\n".join([alert.title, *shown]), **asdict(alert)}


def deliver(alert: Alert, paths: DataPaths) -> str:
    """Send the alert to the webhook in CORPUS_AUDIT_WEBHOOK and return where it went, in words.

    A request that fails for a passing reason is repeated, so an alert may arrive twice. Where no webhook is set, or the
    alert does not arrive, it is appended to the file of alerts, with the reason.
    """
    url = os.environ.get(WEBHOOK, "").strip()
    content = build_payload(alert)
    fault = f"{WEBHOOK} is not set"
    if url:
        host = urlsplit(url).hostname
        try:
            build_retryer(RETRY_POLICY)(_post, url, content)
        except HttpError as error:
            fault = f"{host} answered with status {error.status}: check {WEBHOOK}"
            if error.status is None:
                # The message of the cause could contain the address, which is a secret.
                cause = type(error.__cause__ or error).__name__
                fault = f"the request to {host} failed ({cause}): check {WEBHOOK}"
        else:
            return f"sent to {host}"
    paths.alerts.parent.mkdir(parents=True, exist_ok=True)
    with paths.alerts.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**content, "not_delivered": fault}) + "\n")
    return f"written to {paths.alerts}: {fault}"


def _post(url: str, content: Mapping[str, object]) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps(content).encode()
    with (
        HttpClient(timeout_seconds=TIMEOUT) as client,
        client.stream("POST", url, content=body, headers=headers) as response,
    ):
        # Nothing in the body of the response is needed, so it is not read.
        require_success(response)
