"""Jobs that the UI offers and the command line runs.

What belongs here: selections of assets and how they execute. What does not: when they run by themselves.
"""

import dagster as dg

from audit_pipeline.operate.dagster.groups import BENCHMARKS, REPORTS, SOURCES, SOURCES_ON_REQUEST

JOBS = [
    dg.define_asset_job(
        "refresh_sources",
        selection=dg.AssetSelection.groups(SOURCES, SOURCES_ON_REQUEST),
        description="Fetch the documents of every source.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "build_benchmarks",
        selection=dg.AssetSelection.groups(BENCHMARKS),
        description="Build benchmarks from their sources' documents.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "count_tokens",
        selection=dg.AssetSelection.assets("token_frequencies"),
        description="Count the tokens of reference corpora, for dc_pdd.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "train_controls",
        selection=dg.AssetSelection.assets("controlled_contamination"),
        description="Train the models of controls with known truth.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "run_studies",
        selection=dg.AssetSelection.assets("control_study"),
        description="Train controls again and again: what makes members easier to detect.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "audit_pairs",
        selection=dg.AssetSelection.assets("token_statistics", "extraction", "scores", "evaluations"),
        description="Run models on benchmarks: token statistics, scores, evaluations; extraction from whole "
        "documents where the benchmark asks for it.",
        # One process: every further one would import torch and load the model again.
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "extract",
        selection=dg.AssetSelection.assets("extraction"),
        description="Search the whole documents of benchmarks for passages that models give word for word.",
        config={"ops": {"extraction": {"config": {"every_pair": True}}}},
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "publish",
        selection=dg.AssetSelection.groups(REPORTS),
        description="Bring the warehouse and the report up to date with what has been audited.",
        executor_def=dg.in_process_executor,
    ),
]
