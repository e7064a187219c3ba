"""The sensor that posts changed findings to a webhook.

The sensor compares two versions of the leaderboard. The address of a webhook is a secret at most chat services, so no
message contains it.

Messages about failed runs need no code of this project. Dagster has sensors that send them by mail or to Slack
(docs/scheduled-audits.md).
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from audit_pipeline.errors import DataError
from audit_pipeline.http.client import HttpClient
from audit_pipeline.http.faults import HttpError
from audit_pipeline.pipeline.dagster.resources import AuditData
from audit_pipeline.statistics.claims import find_claim_source, format_claim_level
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.warehouse.query import open_read_only

WEBHOOK = "CORPUS_AUDIT_WEBHOOK"
"""The environment variable with the address that changes are posted to."""
SMALLEST_MOVE = 0.02
"""Maximum change of an AUROC that is never reported, even if the new AUROC is outside the old interval."""

_TIMEOUT_SECONDS = 5.0
_ROWS = """
SELECT model, benchmark, if(parameters = '{}', detector, detector || ' ' || parameters), auroc, auroc_low, auroc_high,
    split_verdict, is_current, claim_level, design_stated_by, blind_auroc
FROM leaderboard ORDER BY ALL
"""


@dg.sensor(
    minimum_interval_seconds=60,
    description="Posts findings that are new, gone or different to the address in CORPUS_AUDIT_WEBHOOK.",
)
def alert_finding_changed(context: dg.SensorEvaluationContext, data: AuditData) -> dg.SensorResult:
    """Send the findings that changed since the last tick, and store all findings. The first tick sends nothing.

    If the webhook does not accept the changes, the tick (one evaluation of the sensor) fails. The next tick posts the
    changes again.

    Raises:
        DataError: If the webhook does not accept the changes, or the stored findings are corrupt.
    """
    paths = data.paths
    url = os.environ.get(WEBHOOK, "").strip()
    if not url:
        return dg.SensorResult(skip_reason=f"The environment variable {WEBHOOK} is not set, so nothing is posted.")
    if not paths.warehouse.exists():
        return dg.SensorResult(skip_reason="The warehouse is not built yet.")
    # Dagster stores the cursor with every tick, so it must be short, and the findings are in a file.
    cursor = str(paths.warehouse.stat().st_mtime_ns)
    if context.cursor == cursor:
        return dg.SensorResult(skip_reason="The warehouse has not changed since the last tick.")
    findings = read_findings(paths.warehouse)
    if not paths.reported_findings.exists():
        write_json(paths.reported_findings, {"findings": findings})
        reason = f"This is the first tick. It stored {len(findings)} findings, and later ticks post their changes."
        return dg.SensorResult(skip_reason=reason, cursor=cursor)
    try:
        before = [WatchedFinding(*row) for row in read_json(paths.reported_findings)["findings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{paths.reported_findings} is corrupt ({error}). Delete the file. The next tick stores the current "
            "findings."
        ) from error
    changes = compare_findings(before, findings)
    if not changes:
        return dg.SensorResult(skip_reason=f"None of {len(findings)} findings changed.", cursor=cursor)
    post_changes(changes, url)
    write_json(paths.reported_findings, {"findings": findings})
    return dg.SensorResult(skip_reason=f"Posted the changes of {len(changes)} pairs.", cursor=cursor)


class WatchedFinding(NamedTuple):
    """A row of the leaderboard.

    Attributes:
        model: Name of the model.
        benchmark: Name of the benchmark.
        setting: Detector with its parameters.
        auroc: AUROC, or None if it was not computed.
        low: Lower end of its 95% interval, or None without an interval.
        high: Upper end of its 95% interval, or None without an interval.
        split_verdict: Verdict on the split of the benchmark.
        is_current: False if the benchmark has been rebuilt since.
        claim_level: Level of the claim, and its source if the level is only stated.
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
    """Return the findings on the leaderboard.

    Raises:
        DataError: If the warehouse is missing or unreadable.
    """
    with open_read_only(warehouse) as connection:
        rows = connection.execute(_ROWS).fetchall()
    findings: list[WatchedFinding] = []
    for *values, level, stated_by, blind_auroc in rows:
        claim_level = format_claim_level(level, find_claim_source(level, stated_by, blind_auroc))
        findings.append(WatchedFinding._make([*values, claim_level]))
    return findings


def compare_findings(old: Iterable[WatchedFinding], new: Iterable[WatchedFinding]) -> dict[tuple[str, str], str]:
    """Return a line about each pair of model and benchmark whose findings changed, in alphabetical order.

    A finding changed if it is new, missing or newly stale, or if its pair has another claim level or split verdict. It
    also changed if its AUROC is outside the old interval and moved by more than ``SMALLEST_MOVE``. A repeated audit
    with nearly the same result is no change. Neither is a stale finding that is current again.
    """
    before = _group_by_pair(old)
    after = _group_by_pair(new)
    changes: dict[tuple[str, str], str] = {}
    for pair in sorted(before.keys() | after.keys()):
        parts = _describe_pair_changes(before.get(pair, {}), after.get(pair, {}))
        if parts:
            changes[pair] = f"{' on '.join(pair)}: {'; '.join(parts)}"
    return changes


def _group_by_pair(findings: Iterable[WatchedFinding]) -> dict[tuple[str, str], dict[str, WatchedFinding]]:
    pairs: dict[tuple[str, str], dict[str, WatchedFinding]] = defaultdict(dict)
    for finding in findings:
        pairs[finding.model, finding.benchmark][finding.setting] = finding
    return pairs


def _describe_pair_changes(old: Mapping[str, WatchedFinding], new: Mapping[str, WatchedFinding]) -> list[str]:
    if not new:
        return ["there are no findings any more"]
    if not old:
        first = next(iter(new.values()))
        listing = ", ".join(map(_format_finding, new.values()))
        return [f"first findings: {listing}; split: {first.split_verdict}; claim: {first.claim_level}"]
    parts: list[str] = []
    if any(old[setting].is_current and not new[setting].is_current for setting in old.keys() & new.keys()):
        parts.append("the findings are stale, because the benchmark was rebuilt")
    # A pair has one claim level and one split verdict, unless its detectors changed.
    for name, column in (("claim level", "claim_level"), ("split verdict", "split_verdict")):
        was = dict.fromkeys(getattr(finding, column) for finding in old.values())
        now = dict.fromkeys(getattr(finding, column) for finding in new.values())
        if was.keys() != now.keys():
            parts.append(f"{name} is {' and '.join(now)}, was {' and '.join(was)}")
    for setting, finding in new.items():
        if setting not in old:
            parts.append(f"first finding of {_format_finding(finding)}")
        elif _has_auroc_moved(old[setting], finding):
            parts.append(f"{_format_finding(finding)}, was {_format_auroc(old[setting])}")
    parts += [f"no finding of {setting} any more" for setting in old if setting not in new]
    return parts


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


def post_changes(changes: Mapping[tuple[str, str], str], url: str) -> None:
    """Send the changes of findings to a webhook, as JSON in a POST request.

    The payload has a ``text``, which chat services show, and a list of ``changes`` for programs.

    Args:
        changes: A description of each change, by model and benchmark.
        url: The address of the webhook.

    Raises:
        DataError: If the webhook does not accept the request.
    """
    listed = [{"model": model, "benchmark": benchmark, "change": text} for (model, benchmark), text in changes.items()]
    payload = {"text": "\n".join(changes.values()), "changes": listed}
    try:
        with HttpClient(timeout_seconds=_TIMEOUT_SECONDS) as client:
            client.request(
                "POST", url, content=json.dumps(payload).encode(), headers={"Content-Type": "application/json"}
            )
    except HttpError as error:
        # The causes of the error may contain the address. Its message does not.
        raise DataError(
            f"The webhook did not accept the changes ({error}). Check the address in the environment variable "
            f"{WEBHOOK}. The next tick posts the changes again."
        ) from None
