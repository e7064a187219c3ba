"""The groups of assets, the jobs that run selections of them, and when assets follow by themselves or are late.

What belongs here: the names of the groups in the UI, numbered in the order of the flow (what every week runs, and then,
apart, what runs only on request: further sources, and controls with studies of them); jobs that the UI offers and the
command line runs; automation conditions and freshness policies that several assets share. What does not: which asset is
in which group (assets/), the weekly schedule (weekly.py), and sensors that look at files (sensors.py).
"""

from datetime import timedelta

import dagster as dg

SOURCES = "1_sources"
BENCHMARKS = "2_benchmarks"
MODEL_RUNS = "3_model_runs"
FINDINGS = "4_findings"
REPORTS = "5_reports"
SOURCES_ON_REQUEST = "6_sources_on_request"
CONTROLS_ON_REQUEST = "7_controls_on_request"

GROUPS = (SOURCES, BENCHMARKS, MODEL_RUNS, FINDINGS, REPORTS, SOURCES_ON_REQUEST, CONTROLS_ON_REQUEST)


REBUILT = (
    dg.AutomationCondition.any_deps_match(dg.AutomationCondition.newly_updated()).since(
        dg.AutomationCondition.newly_requested()
    )
    & ~dg.AutomationCondition.in_progress()
).with_label("rebuilt when anything upstream was")
"""For what is rebuilt whole, however much is missing upstream: eager() would wait for every partition, so for ever.

Not any_deps_updated().since_last_handled() either: the two are made of "and" and "or", which forget when a thing
happened, so that what is updated while a rebuild runs would be taken for handled by it. Without them the later of
update and request decides, and the last pair of an audit is never left out, nor a
warehouse that is built while the report is made.
"""

WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=15), warn_window=timedelta(days=8))
"""For what every weekly audit materialises, sources, warehouse and report: late after a week and a day."""

QUARTERLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=184), warn_window=timedelta(days=92))
"""For findings, which are materialised only where something was new: so long without any, somebody should look why."""

publish_sensor = dg.AutomationConditionSensorDefinition(
    "publish_what_is_new",
    target=dg.AssetSelection.groups(REPORTS),
    minimum_interval_seconds=30,
    description="Rebuilds the warehouse after any audit, and then the report.",
)


JOBS = [
    dg.define_asset_job(
        "refresh_sources",
        selection=dg.AssetSelection.groups(SOURCES, SOURCES_ON_REQUEST),
        description="Fetch the documents of every source.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "build_benchmarks",
        selection=dg.AssetSelection.groups(BENCHMARKS) - dg.AssetSelection.assets("corpus_overlap"),
        description="Build benchmarks from their sources' documents.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "search_corpora",
        selection=dg.AssetSelection.assets("corpus_overlap"),
        description="Look for the texts of benchmarks in open corpora, word for word.",
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
        "ask",
        selection=dg.AssetSelection.assets("chat_answers"),
        description="Ask models that answer in words about the documents of benchmarks.",
        executor_def=dg.in_process_executor,
    ),
    dg.define_asset_job(
        "publish",
        selection=dg.AssetSelection.groups(REPORTS),
        description="Bring the warehouse and the report up to date with what has been audited.",
        executor_def=dg.in_process_executor,
    ),
]
