"""Run by test_hub_corpora.py: configured corpora counted with the tokenizer of a model on disk.

Each argument is [corpus, model's folder, killed after so many documents or null]. A process that is to be killed kills
itself, as hard as anybody can, right behind a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenizer
from audit_pipeline.references import count
from audit_pipeline.references.config import load_references
from audit_pipeline.references.frequencies import build_frequencies

# A checkpoint behind every document: where it is killed, the next run must go on.
count.CHECKPOINT_SECONDS = 0.0


def counted(corpus: str, folder: str, killed_after: int | None) -> dict[str, object]:
    paths = DataPaths.from_environment()
    model = load_tokenizer(ModelEntry(name="tiny", path=Path(folder)), paths)
    first: list[int] = []

    def watch(so_far: count.CorpusCount) -> None:
        first.append(so_far.documents)
        if killed_after is not None and so_far.documents >= killed_after:
            os.kill(os.getpid(), signal.SIGKILL)

    step = LineageStep.now("run", "token_frequencies", "1")
    report = build_frequencies(load_references()[corpus], model, paths, step, on_progress=watch)
    assert report.count is not None
    return {
        "counts": report.count.counts.tolist(),
        "documents": report.documents,
        "skipped": report.skipped_rows,
        "began_behind": first[0] - 1,
    }


print(json.dumps([counted(*one) for one in json.loads(sys.argv[1])]))
