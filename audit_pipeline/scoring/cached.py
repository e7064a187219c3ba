"""Scores of texts from their cached statistics.

What belongs here: handing cached statistics to detectors. What does not: filling the cache (passes.py), and writing
scores (operate/stages/scores.py, file.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors.score import score_texts
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.passes import Passes, Selection, Statistics


def score_from_cache(
    model: TokenizedModel,
    ids: Sequence[str],
    texts: Sequence[str],
    paths: DataPaths,
    selection: Selection,
    passes: Passes,
    contexts: Sequence[str | None] | None = None,
) -> pa.Table:
    """Scores of ``texts``, behind their ``contexts`` where given, from their cached statistics.

    ``ids`` name the texts in the column example_id.
    """
    before = [None] * len(texts) if contexts is None else contexts
    whole = [(context or "") + text for context, text in zip(before, texts, strict=True)]
    statistics = Statistics(model, whole, paths, passes)
    if texts and not len(statistics):
        raise DataError(f"{model.entry.name} has been run on none of these texts: run token_statistics first")
    return score_texts(statistics.of_examples_in_context(zip(ids, texts, before, strict=True)), selection)
