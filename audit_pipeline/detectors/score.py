"""Scoring many texts under many settings.

What belongs here: the loop over texts and the columns it fills. What does not: what a detector computes (its family's
module), and where scores are written (assets/scores.py, the command line).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import SCORES
from audit_pipeline.detectors.detector import Detector, Outcome, Settings
from audit_pipeline.detectors.statistics import TextStatistics

COLUMNS = ("example_id", "detector", "parameters", "score", "status", "reason")
SCORE_COLUMNS = pa.schema([SCORES.field(name) for name in COLUMNS])
"""The columns of SCORES that scoring fills; the caller knows model, benchmark, overrides and run_id."""

_MISSING = Outcome.failed("there are no token statistics for the text: run the model on it first")


def score_texts(
    texts: Iterable[tuple[str, TextStatistics | None]],
    selection: Sequence[tuple[Detector, Sequence[Settings]]],
) -> pa.Table:
    """Every text (example_id, statistics) under every setting of every detector: a table of ``SCORE_COLUMNS``.

    One row per text, detector and setting, text by text in the given order. A text without statistics (None) gets rows
    with status ``failed``: no text is dropped. ``selection`` is what registry.select returns.
    """
    labels = [(detector.name, detector.label(one)) for detector, settings in selection for one in settings]
    missing = [_MISSING] * len(labels)
    example_ids: list[str] = []
    columns: dict[str, list[Any]] = {name: [] for name in Outcome._fields}
    for example_id, statistics in texts:
        example_ids.append(example_id)
        rows = missing
        if statistics is not None:
            rows = [row for detector, settings in selection for row in detector.score(statistics, settings)]
        # No row is kept: hundreds of thousands of them would keep Python's garbage collector busy.
        for place, values in enumerate(columns.values()):
            values.extend([row[place] for row in rows])
    text_of_row = np.repeat(np.arange(len(example_ids)), len(labels))
    label_of_row = np.tile(np.arange(len(labels)), len(example_ids))
    return pa.table(
        {
            "example_id": pa.array(example_ids, pa.string()).take(pa.array(text_of_row)),
            "detector": pa.array([name for name, _ in labels], pa.string()).take(pa.array(label_of_row)),
            "parameters": pa.array([parameters for _, parameters in labels], pa.string()).take(pa.array(label_of_row)),
            **{name: pa.array(values, SCORES.field(name).type) for name, values in columns.items()},
        },
        schema=SCORE_COLUMNS,
    )
