"""A made-up corpus, and a control over it that is trained in seconds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
from ledger_lines import write_explained
from made_rows import make_table
from made_workspace import tiny_control

from audit_pipeline.extras.controls.build import ControlReport, ensure_control_trained
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENTS, text_sha256

WORDS = "lamp harbour tide rope gull stone market ladder window river candle bridge garden letter winter".split()  # noqa: SIM905
ENTRY = ControlEntry.model_validate({"name": "c", **tiny_control(sources=["made"], occurrences=1, epochs=8)})


def entry(**changes: object) -> ControlEntry:
    return ENTRY.model_copy(update=changes)


def table_of(texts: Sequence[str]) -> pa.Table:
    rows = [{"document_id": f"made:c:{at}", "text": text, "sha256": text_sha256(text)} for at, text in enumerate(texts)]
    return make_table(DOCUMENTS, [{"source": "made", "group": row["document_id"], **row} for row in rows])


def documents() -> pa.Table:
    """Return documents of random words, the same every time."""
    draw = random.Random(11)
    return table_of([" ".join(draw.choice(WORDS) for _ in range(180)) for _ in range(8)])


def step() -> LineageStep:
    return LineageStep.now("run", "controlled_contamination", "1")


def build(paths: DataPaths) -> ControlReport:
    """Store the corpus, and train the control."""
    write_explained(paths, DOCUMENTS, "made", documents())
    return ensure_control_trained(ENTRY, paths, step(), device="cpu")
