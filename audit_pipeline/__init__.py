"""Corpus Audit: was this text in that language model's pretraining data, and how sure can we be?

The domain packages (sources, benchmarks, references, models, token_statistics, detectors, evaluation,
warehouse) never import dagster: they can be used and tested without it. Orchestration lives in
``audit_pipeline.operate.dagster`` and in the top-level package ``assets``.
"""

__version__ = "0.1.0"
