"""The stage that runs the model: the cache of token statistics of a pair, and of its reference model.

What belongs here: the order of read, run and record, and the data version of what was run. What does not: the forward
pass (token_statistics/), and what detectors need besides (scoring/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from audit_pipeline.benchmarks.build import read_examples, read_manifest
from audit_pipeline.catalogue.contracts import TOKEN_STATISTICS, Pair, digest
from audit_pipeline.catalogue.lineage import Step, record
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError, DataError, TransientError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.operate.stages.benchmarks import require_belonging, texts_of
from audit_pipeline.scoring.passes import PassesSummary, in_context, passes_for, run_passes
from audit_pipeline.scoring.selection import audit_selection, overrides_of, reference_model_of
from audit_pipeline.token_statistics.encode import KIND_VERSIONS, window_and_stride
from audit_pipeline.token_statistics.run import Kind, Progress, compute

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass


def run_reference(
    pairs: Sequence[Pair],
    model: TokenizedModel,
    paths: DataPaths,
    forward_of: Callable[[TokenizedModel], ForwardPass],
) -> str | None:
    """Run the model's reference model over the texts of ``pairs``; why that could not be, where it could not.

    One detector goes without then. Pairs that cannot be audited are left to their own run to tell. Raises the error of
    a hub that could not be reached: it may be reached later.
    """
    try:
        reference = reference_model_of(model, paths)
        compute(reference, _texts_of_all(pairs, model, paths), paths, partial(forward_of, reference))
    except AuditError as error:
        if isinstance(error, TransientError):
            raise
        return str(error)
    return None


def _texts_of_all(pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> list[str]:
    texts: list[str] = []
    for pair in pairs:
        with suppress(DataError):
            require_belonging(pair, model, paths)
            texts.extend(texts_of(pair, paths))
    return texts


def run_tokens(
    pair: Pair,
    model: TokenizedModel,
    paths: DataPaths,
    forward: Callable[[], ForwardPass],
    step: Step,
    *,
    kinds: Sequence[Kind],
    logits_budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> PassesSummary:
    """Bring the caches of token statistics up to the benchmark's texts, and to what detectors need besides.

    The reference model's passes are not among them: see :func:`run_reference`.
    """
    texts = texts_of(pair, paths)
    require_belonging(pair, model, paths)
    benchmark = read_manifest(paths, pair.benchmark)["digest"]
    passes = passes_for(audit_selection(overrides_of(pair.benchmark, paths)))
    passes = in_context(passes, read_examples(paths, pair.benchmark).column("context").to_pylist())
    summary = run_passes(
        model,
        texts,
        paths,
        forward,
        passes,
        kinds=kinds,
        logits_budget=logits_budget,
        on_progress=on_progress,
    )
    record(
        paths,
        step,
        TOKEN_STATISTICS,
        pair,
        data_version=statistics_version(model, benchmark),
        upstream={f"examples/{pair.benchmark}": benchmark},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark,
    )
    return summary


def statistics_version(model: TokenizedModel, benchmark_digest: str) -> str:
    """The data version of a pair's token statistics: what they were computed from.

    The length of branches is the benchmark's, so its digest stands for it.
    """
    policy = model.entry.start_token_policy
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        model.start_token if policy == "always" else None,
        *window_and_stride(model),
        KIND_VERSIONS["base"],
        KIND_VERSIONS["branches"],
    )[:16]
