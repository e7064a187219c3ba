"""What the Dagster instance of a running installation says, asked through the interface that the UI itself uses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from live_workspace import graphql

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "corpus_audit"}
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")

_RUN = "runId jobName status endTime tags { key value }"
_RUNS = f"{{ runsOrError(limit: 200) {{ ... on Runs {{ results {{ {_RUN} }} }} }} }}"
_BACKFILLS = (
    "{ partitionBackfillsOrError(limit: 20) { ... on PartitionBackfills { results"
    f" {{ id status numPartitions runs {{ {_RUN} }} }} }} }} }}"
)
_LOG = """query($run: ID!, $after: String) { logsForRun(runId: $run, afterCursor: $after) {
  ... on EventConnection { cursor hasMore events { ... on MessageEvent { message } } } } }"""
_TICKS = """query($one: SensorSelector!) { sensorOrError(sensorSelector: $one) { ... on Sensor { sensorState {
  status ticks(limit: 20) { timestamp status skipReason runIds
    error { message causes { message } } } } } } }"""
_SCHEDULE = """query($one: ScheduleSelector!) { scheduleOrError(scheduleSelector: $one) { ... on Schedule {
  scheduleState { status } } } }"""
_PARTITIONS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numPartitions numMaterialized numFailed numMaterializing } } } }"""
_STALE = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  staleStatusByPartition } } }"""
_CHECKS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError {
  ... on AssetChecks { checks { name executionForLatestMaterialization { runId evaluation { success severity
    metadataEntries { label ... on JsonMetadataEntry { jsonString } } } } } } } } } }"""
_ASSETS = "{ assetNodes { assetKey { path } } }"


@dataclass(frozen=True)
class Run:
    """A run. ``ended_at`` is in seconds since 1970, and None if the run is unfinished."""

    id: str
    job: str
    status: str
    ended_at: float | None
    tags: dict[str, str]

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def range(self) -> tuple[str, str] | None:
        """The first and the last partition of a run over a range."""
        first = self.tags.get("dagster/asset_partition_range_start")
        return (first, self.tags["dagster/asset_partition_range_end"]) if first else None


@dataclass(frozen=True)
class Backfill:
    """One backfill and its runs."""

    id: str
    status: str
    partitions: int
    runs: list[Run]

    @property
    def is_finished(self) -> bool:
        return self.status.startswith(("COMPLETED", "FAILED", "CANCELED"))


@dataclass(frozen=True)
class Tick:
    """One tick of a sensor."""

    at: float
    status: str
    reason: str
    runs: list[str]


@dataclass(frozen=True)
class Check:
    """The latest result of an asset check; ``said`` are its metadata."""

    run_id: str
    passed: bool
    said: dict[str, Any]


class Instance:
    """The instance behind one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def _ask(self, query: str, **variables: Any) -> Any:
        return graphql(self._address, query, **variables)

    def runs(self, job: str | None = None) -> list[Run]:
        """All runs, or those of a job, the latest first."""
        found = _runs(self._ask(_RUNS)["runsOrError"]["results"])
        return [run for run in found if job is None or run.job == job]

    def unfinished(self) -> list[Run]:
        return [run for run in self.runs() if not run.is_finished]

    def backfills(self) -> list[Backfill]:
        """All backfills, the latest first."""
        found = self._ask(_BACKFILLS)["partitionBackfillsOrError"]["results"]
        return [Backfill(one["id"], one["status"], one["numPartitions"], _runs(one["runs"])) for one in found]

    def log(self, run_id: str) -> list[str]:
        """The messages of a run, in order."""
        messages: list[str] = []
        after: str | None = None
        while True:
            page = self._ask(_LOG, run=run_id, after=after)["logsForRun"]
            messages += [event["message"] for event in page["events"] if event.get("message")]
            if not page["hasMore"]:
                return messages
            after = page["cursor"]

    def ticks(self, sensor: str) -> list[Tick]:
        """The finished ticks of a sensor, the latest first."""
        found = self._sensor(sensor)["ticks"]
        return [
            Tick(one["timestamp"], one["status"], _reason(one), one["runIds"])
            for one in found
            if one["status"] != "STARTED"
        ]

    def is_on(self, name: str, kind: str) -> bool:
        """Whether a sensor or a schedule is switched on."""
        if kind == "sensor":
            return bool(self._sensor(name)["status"] == "RUNNING")
        answer = self._ask(_SCHEDULE, one={**REPOSITORY, "scheduleName": name})
        return bool(answer["scheduleOrError"]["scheduleState"]["status"] == "RUNNING")

    def _sensor(self, name: str) -> dict[str, Any]:
        answer = self._ask(_TICKS, one={**REPOSITORY, "sensorName": name})
        state: dict[str, Any] = answer["sensorOrError"]["sensorState"]
        return state

    def partitions(self, asset: str) -> tuple[int, int]:
        """How many partitions of an asset are materialised, and how many there are."""
        answer = self._ask(_PARTITIONS, key={"path": [asset]})["assetNodeOrError"]["partitionStats"]
        return answer["numMaterialized"], answer["numPartitions"]

    def stale_cells(self, asset: str) -> int:
        """Return how many partitions of an asset the UI marks as stale because of their data or code."""
        answer = self._ask(_STALE, key={"path": [asset]})["assetNodeOrError"]
        return sum(status == "STALE" for status in answer["staleStatusByPartition"])

    def check(self, asset: str, name: str) -> Check | None:
        """The latest result of a check; None where it has none."""
        found = self._ask(_CHECKS, key={"path": [asset]})["assetNodeOrError"]["assetChecksOrError"]["checks"]
        latest = next(one["executionForLatestMaterialization"] for one in found if one["name"] == name)
        if latest is None or latest["evaluation"] is None:
            return None
        entries = latest["evaluation"]["metadataEntries"]
        said = {one["label"]: json.loads(one["jsonString"]) for one in entries if "jsonString" in one}
        return Check(latest["runId"], latest["evaluation"]["success"], said)

    def assets(self) -> list[str]:
        """The last word of every asset's key."""
        return [one["assetKey"]["path"][-1] for one in self._ask(_ASSETS)["assetNodes"]]


def _runs(found: Iterable[dict[str, Any]]) -> list[Run]:
    return [
        Run(
            one["runId"],
            one["jobName"],
            one["status"],
            one["endTime"],
            {tag["key"]: tag["value"] for tag in one["tags"]},
        )
        for one in found
    ]


def _reason(tick: dict[str, Any]) -> str:
    """Why a tick asked for nothing, or the errors that ended it."""
    error = tick["error"]
    if error is None:
        return tick["skipReason"] or ""
    return " ".join([error["message"], *(cause["message"] for cause in error["causes"])])
