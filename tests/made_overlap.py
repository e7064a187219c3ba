"""Made-up results of a search of a corpus for a benchmark's texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from made_rows import make_table

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_OVERLAP

FOUND: Mapping[str, Any] = {
    **{"verdict": "found", "covered": 1.0, "covered_by_copies": 1.0, "longest": 60, "found_runs": 48},
    **{"passages": 1, "documents": 1, "contaminated": True},
}
"""The columns of a text that was found."""
_NOT_FOUND: Mapping[str, Any] = {
    **{"rule": "gpt-3", "n": 13, "words": 60, "runs": 48, "covered": 0.0, "covered_by_copies": 0.0},
    **{"verdict": "not found", "contaminated": False, "shards_read": 2, "shards": 2, "is_complete": True},
}


def write_search(
    paths: DataPaths, pool: str, corpus: str, finding_of: Callable[[Mapping[str, Any]], Mapping[str, Any]], **every: Any
) -> str:
    """Write a result for each text of the pool, with the columns of ``finding_of`` and ``every``.

    Returns:
        The data version of the table.
    """
    rows: list[Mapping[str, Any]] = []
    for example in read_built(paths, pool).examples.to_pylist():
        named = {"benchmark": pool, "corpus": corpus, "example_id": example["example_id"], "run_id": "searched"}
        rows.append({**_NOT_FOUND, **named, **finding_of(example), **every})
    step = LineageStep.now("searched", "corpus_overlap", "1")
    return store.write(paths, step, CORPUS_OVERLAP, f"{pool}|{corpus}", make_table(CORPUS_OVERLAP, rows), upstream={})
