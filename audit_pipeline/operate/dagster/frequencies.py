"""Token frequencies before an audit: counted where that is cheap, so that dc_pdd has what it is calibrated with.

What belongs here: whether a table is missing, and the runs that make it. What does not: counting (references/), and
corpora of the hub, which are gigabytes: those are counted when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import dagster as dg

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.operate.dagster import in_process
from audit_pipeline.operate.dagster.documents import Jobs, ensure_documents
from audit_pipeline.references.frequencies import corpus_to_count


def ensure_frequencies(
    jobs: Jobs,
    instance: dg.DagsterInstance,
    model: TokenizedModel,
    paths: DataPaths,
    tell: Callable[[str], None],
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Count the model's reference corpus with its tokenizer, where there is no table of it and it is not on the hub.

    Returns the runs that this took, by what they were for. Raises the AuditError that kept it from being counted.
    """
    runs: dict[str, str] = {}
    entry = corpus_to_count(model, paths)
    if entry is None:
        return runs
    if entry.package is not None:
        runs |= ensure_documents([entry.package], jobs, instance, paths, tell, tags)
    tell(f"counting tokens of {entry.name} for {model.entry.name}")
    runs[f"token_frequencies/{entry.name}"] = in_process.run_job(
        jobs("count_tokens"), instance, partition_key=f"{entry.name}|{model.entry.name}", tags=tags, on_wait=tell
    )
    return runs
