"""Scoring a user's own file without Dagster: texts in, one long table of scores out.

What belongs here: the file's rows, the model's pass over them, the output table. What does not: the pass and its cache
(token_statistics/), detectors (detectors/), the command's options (cli.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.contracts import MEMBER, NON_MEMBER
from audit_pipeline.detectors.detector import Detector, Settings
from audit_pipeline.detectors.registry import is_default
from audit_pipeline.evaluation.intervals import Interval, metric_intervals
from audit_pipeline.evaluation.metrics import metrics, undefined
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.paths import DataPaths
from audit_pipeline.stages import score_from_cache
from audit_pipeline.tables import require_output, write_table
from audit_pipeline.text_rows import Skipped, TextRow, read_texts
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import Progress, RunSummary, compute

Selection = Sequence[tuple[Detector, Sequence[Settings]]]


@dataclass(frozen=True)
class FileScores:
    """The long table that was written, the rows left out, and what running the model came to.

    ``labels`` are the rows' labels (1, 0 or None), by position in the file, where the file has the label column.
    """

    table: pa.Table
    skipped: Sequence[Skipped]
    labels: dict[int, int | None] | None
    summary: RunSummary


def score_file(
    file: Path,
    out: Path,
    model: TokenizedModel,
    selection: Selection,
    paths: DataPaths,
    forward: Callable[[], ForwardPass],
    *,
    text_column: str | None = None,
    label_column: str = "label",
    on_progress: Callable[[Progress], None] | None = None,
) -> FileScores:
    """Score every readable text of ``file`` and write ``out`` (Parquet).

    Columns: example_index (int64, the row's 0-based position in the file), detector, parameters (canonical JSON),
    score (float64), status, reason. Raises DataError where the file holds no readable text; rows that cannot be read
    are returned in ``skipped`` and have no rows in the table.
    """
    require_output(out, file)
    rows, skipped = read_texts(file, text_column)
    texts = [row.text for row in rows]
    summary = compute(model, texts, paths, forward, on_progress=on_progress)
    scored = score_from_cache(model, [str(row.index) for row in rows], texts, paths, selection)
    index = pc.cast(scored.column("example_id"), pa.int64())
    table = scored.drop_columns("example_id").add_column(0, "example_index", index)
    write_table(out, table)
    return FileScores(table, skipped, _labels(rows, label_column), summary)


@dataclass(frozen=True)
class Separation:
    """How well one detector setting separates a file's labelled texts, each text a group of its own."""

    detector: str
    parameters: str
    auroc: float
    interval: Interval
    n_members: int
    n_nonmembers: int


def separation(scores: FileScores) -> list[Separation]:
    """AUROC of every detector's default setting on the labelled texts; nothing where one side has no score."""
    if scores.labels is None:
        return []
    columns: dict[tuple[str, str], list[tuple[float, int, str]]] = {}
    for row in scores.table.to_pylist():
        label = scores.labels[row["example_index"]]
        if row["status"] == "ok" and label is not None and is_default(row["detector"], row["parameters"]):
            entry = (row["score"], label, str(row["example_index"]))
            columns.setdefault((row["detector"], row["parameters"]), []).append(entry)
    found = []
    for (detector, parameters), entries in columns.items():
        values, labels, groups = (list(column) for column in zip(*entries, strict=True))
        if undefined(labels) is not None:
            continue
        interval = metric_intervals(values, labels, groups)["auroc"]
        members = sum(labels)
        auroc = metrics(values, labels)["auroc"]
        found.append(Separation(detector, parameters, auroc, interval, members, len(labels) - members))
    return found


def _labels(rows: Sequence[TextRow], column: str) -> dict[int, int | None] | None:
    """The labels 1 and 0, however the file spells them; anything else is unknown. None without the column."""
    if not any(column in row.values for row in rows):
        return None
    known = {"1": MEMBER, "1.0": MEMBER, "true": MEMBER, "0": NON_MEMBER, "0.0": NON_MEMBER, "false": NON_MEMBER}
    return {row.index: known.get(str(row.values.get(column)).strip().lower()) for row in rows}
