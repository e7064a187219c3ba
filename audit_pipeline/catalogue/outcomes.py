"""What became of a pair that a run could not do: one row per partition and run, kept beside the findings.

What belongs here: writing and reading the table outcomes. What does not: deciding what a fault is and what is tried
again (operate/dagster/), how outcomes and findings make up the coverage (operate/coverage.py).

A pair that was done has no outcome: its findings say so. Of the states of a pair (contracts/record.py) an outcome is
``not_applicable`` where the benchmark was made for other models, and ``failed`` after any other error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit_pipeline.catalogue.contracts import OUTCOMES, Pair, PairStatus
from audit_pipeline.catalogue.files import read_rows, table_from_rows, write_table
from audit_pipeline.catalogue.integrity import with_row_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError

MAX_REASON = 500


@dataclass(frozen=True)
class PairOutcome:
    """Why a run left a pair undone, and at which stage; ``at`` is in UTC."""

    pair: Pair
    stage: str
    status: PairStatus
    reason: str
    run_id: str
    at: datetime


def record_outcome(
    paths: DataPaths, pair: Pair, stage: str, status: PairStatus, reason: str, run_id: str
) -> PairOutcome:
    """Write why ``run_id`` could not do the pair, in one line of at most 500 characters; returns what is on record.

    The first outcome of a run stays: the later stages, which merely follow, do not overwrite it. Raises DataError
    where an outcome of the run lies there already and cannot be read.
    """
    first = read_run_outcome(paths, pair, run_id)
    if first is not None:
        return first
    outcome = PairOutcome(pair, stage, status, _clean_reason(reason), run_id, datetime.now(UTC))
    row = {
        "model": pair.model,
        "benchmark": pair.benchmark,
        "stage": outcome.stage,
        "status": outcome.status,
        "reason": outcome.reason,
        "run_id": outcome.run_id,
        "at": outcome.at,
    }
    rows = table_from_rows([with_row_sha256(row)], OUTCOMES)
    write_table(paths.run_file(OUTCOMES.name, pair.partition, run_id), rows)
    return outcome


def read_run_outcome(paths: DataPaths, pair: Pair, run_id: str) -> PairOutcome | None:
    """The outcome that a run recorded for the pair; None where it recorded none.

    Raises DataError where it cannot be read.
    """
    path = paths.run_file(OUTCOMES.name, pair.partition, run_id)
    if not path.exists():
        return None
    (outcome,) = _read_outcomes(path, f"the outcome of {pair.partition} in run {run_id}")
    return outcome


def read_latest_outcome(paths: DataPaths, pair: Pair) -> PairOutcome | None:
    """The outcome recorded last for the pair, whatever was found since; None where every run could do it.

    Raises DataError, naming the file, where one cannot be read.
    """
    folder = paths.run_file(OUTCOMES.name, pair.partition, "any").parent
    outcomes = [outcome for path in sorted(folder.glob("*.parquet")) for outcome in _read_outcomes(path, path.name)]
    return max(outcomes, key=lambda outcome: (outcome.at, outcome.run_id), default=None)


def _read_outcomes(path: Path, label: str) -> list[PairOutcome]:
    """The outcomes in a file; raises DataError where it cannot be read or is not as it was written."""
    try:
        return [_outcome_from_row(row) for row in read_rows(path, label=label)]
    except KeyError as error:
        raise DataError(f"{label} cannot be read ({path}): the column {error} is missing") from error


def _outcome_from_row(row: Mapping[str, Any]) -> PairOutcome:
    return PairOutcome(
        Pair(row["benchmark"], row["model"]), row["stage"], row["status"], row["reason"], row["run_id"], row["at"]
    )


def _clean_reason(reason: str) -> str:
    """``reason`` without line breaks and without characters that a terminal would obey or Parquet cannot hold."""
    flat = " ".join(reason.split()) or "no reason was given"
    printable = "".join(character if character.isprintable() else "\ufffd" for character in flat)
    return printable if len(printable) <= MAX_REASON else printable[: MAX_REASON - 1] + "…"
