"""Token frequencies before an audit: counted where that is cheap, so that dc_pdd has what it is calibrated with.

What belongs here: whether a table is missing, and the runs that make it. What does not: counting (references/), and
corpora of the hub, which are gigabytes: those are counted when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import dagster as dg

from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.orchestration import in_process
from audit_pipeline.orchestration.documents import Jobs, ensure_documents
from audit_pipeline.paths import DataPaths
from audit_pipeline.references.config import load_references
from audit_pipeline.references.frequencies import frequencies_of


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
    corpus = model.entry.reference_corpus
    references = load_references()
    if corpus is None or model.entry.start_token_policy != "always" or not references.names:
        # Without a file of corpora nobody has asked for any; the scores of dc_pdd say what is missing.
        return runs
    entry = references.named(corpus)
    if entry.hub is not None or _is_there(corpus, model, paths):
        return runs
    if entry.package is not None:
        runs |= ensure_documents([entry.package], jobs, instance, paths, tell, tags)
    tell(f"counting tokens of {corpus} for {model.entry.name}")
    runs[f"token_frequencies/{corpus}"] = in_process.run_job(
        jobs("count_tokens"), instance, partition_key=f"{corpus}|{model.entry.name}", tags=tags, on_wait=tell
    )
    return runs


def _is_there(corpus: str, model: TokenizedModel, paths: DataPaths) -> bool:
    try:
        return frequencies_of(corpus, model, paths).frequencies is not None
    except DataError:
        # A damaged table is counted again.
        return False
