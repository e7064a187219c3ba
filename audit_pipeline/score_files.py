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
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.paths import DataPaths
from audit_pipeline.stages import score_from_cache
from audit_pipeline.tables import write_table
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
    rows, skipped = read_texts(file, text_column)
    texts = [row.text for row in rows]
    summary = compute(model, texts, paths, forward, on_progress=on_progress)
    scored = score_from_cache(model, [str(row.index) for row in rows], texts, paths, selection)
    index = pc.cast(scored.column("example_id"), pa.int64())
    table = scored.drop_columns("example_id").add_column(0, "example_index", index)
    write_table(out, table)
    return FileScores(table, skipped, _labels(rows, label_column), summary)


def _labels(rows: Sequence[TextRow], column: str) -> dict[int, int | None] | None:
    """The labels 1 and 0, however the file spells them; anything else is unknown. None without the column."""
    if not any(column in row.values for row in rows):
        return None
    known = {"1": MEMBER, "1.0": MEMBER, "true": MEMBER, "0": NON_MEMBER, "0.0": NON_MEMBER, "false": NON_MEMBER}
    return {row.index: known.get(str(row.values.get(column)).strip().lower()) for row in rows}
