"""The data version of a model's token statistics on a benchmark, and the origin of rows computed from them."""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel
from audit_pipeline.store.ledger import RowOrigin
from audit_pipeline.tables import KINDS, digest
from audit_pipeline.token_statistics.tokens import window_and_stride


def build_pair_origin(
    model: TokenizedModel, benchmark: BuiltBenchmark, settings: Mapping[str, object] | None = None
) -> RowOrigin:
    """Return the origin of a model's rows on a benchmark, for the ledger: fingerprints, digest and settings."""
    return RowOrigin(
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        benchmark_digest=benchmark.digest,
        settings=settings,
    )


def compute_statistics_version(model: KnownModel, benchmark_digest: str) -> str:
    """Return the data version of the token statistics of a model on a benchmark: a digest of all their inputs.

    The length of branches belongs to the benchmark, so the benchmark's digest covers it.
    """
    policy = model.entry.start_token_policy
    start_token = None
    if policy == "always":
        start_token = model.start_token
    return digest(
        benchmark_digest,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        policy,
        start_token,
        *window_and_stride(model),
        *(kind.version for kind in KINDS.values() if kind.is_read_by_audits),
    )[:16]
