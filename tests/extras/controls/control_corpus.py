"""A made-up corpus and a control over it that is trained in seconds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

import pyarrow as pa
from ledger_lines import write_explained
from made_rows import make_table

from audit_pipeline.extras.controls.build import ControlReport, ensure_control_trained
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENTS, text_sha256

_WORDS = "lamp harbour tide rope gull stone market ladder window river candle bridge garden letter winter"
WORDS = _WORDS.split()


def entry(**changes: object) -> ControlEntry:
    return ENTRY.model_copy(update=changes)


ENTRY = ControlEntry(
    name="c",
    description="made up",
    sources=("made",),
    words=12,
    members=24,
    held_out=24,
    occurrences=1,
    epochs=8,
    learning_rate=0.01,
    batch_size=8,
    architecture=Architecture(hidden_size=32, layers=2, heads=2, intermediate_size=64, context=64, vocabulary=320),
    seed=5,
)


def documents(count: int = 8, words: int = 180) -> pa.Table:
    """Documents of random words, the same every time."""
    draw = random.Random(11)
    return table_of([" ".join(draw.choice(WORDS) for _ in range(words)) for _ in range(count)])


def table_of(texts: Sequence[str]) -> pa.Table:
    """One document per text."""
    rows = [
        {
            **{"document_id": f"made:c:{number}", "source": "made", "collection": "c", "group": f"g{number}"},
            **{"title": str(number), "text": text, "sha256": text_sha256(text), "published": date(2020, 1, 1)},
        }
        for number, text in enumerate(texts)
    ]
    return make_table(DOCUMENTS, rows)


def step() -> LineageStep:
    return LineageStep.now("run", "controlled_contamination", "1")


def build(paths: DataPaths) -> ControlReport:
    """The control, trained from the made-up corpus under ``paths``."""
    write_explained(paths, DOCUMENTS, "made", documents())
    return ensure_control_trained(ENTRY, paths, step(), device="cpu")
