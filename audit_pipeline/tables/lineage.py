"""Tables of the project's own records: the origin of rows, failed pairs, and sealed plans.

The rows are lines of the ledger (store/ledger.py), except those of the plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, MODEL, RUN_ID, build_run_table
from audit_pipeline.tables.table import Table, int64, moment, string

PairStatus = Literal["failed", "stale", "missing", "done", "not_applicable", "not_requested"]

PAIR_STATES: Mapping[PairStatus, str] = {
    "failed": "the latest run failed, see the reason; the pair must be run again",
    "stale": "there are results, but their inputs have changed since; the pair must be run again",
    "missing": "the pair is to be audited, but no run has audited it yet",
    "done": "there are results, and their inputs have not changed since",
    "not_applicable": "the model or the benchmark belongs to a control and the other does not: nothing to audit",
    "not_requested": "the model or the benchmark is audited on request only, and this pair was not requested",
}
"""The states of a pair of model and benchmark, worst first, with the descriptions in SQL, report, terminal and UI.

A full audit covers pairs in the first four states. Pairs in the first three states must be run.
"""


def describe_states(*names: PairStatus) -> str:
    """Return the description of a column of states. Without names it lists all states."""
    return " | ".join(f"{name} ({PAIR_STATES[name]})" for name in names or PAIR_STATES)


LINEAGE = Table(
    "lineage",
    "the run that wrote each partition, its inputs, its code and its versions",
    key=("table", "partition", "run_id"),
    storage="given",
    columns=(
        string("table", "name of the table that the run wrote to"),
        string("partition", "the partition: a source, a benchmark, or benchmark|model"),
        RUN_ID.with_changes("the run that wrote the rows"),
        string("asset_key", "name of the Dagster asset"),
        string("code_version", "code version of the asset"),
        string("data_version", "version of the written rows, a digest of their content"),
        string("upstream_data_versions", "canonical JSON: upstream table/partition -> data version"),
        string("model_fingerprint", "digest of weights, config, dtype and attention back end", null=True),
        string("tokenizer_fingerprint", "digest of the tokenizer's files", null=True),
        string("benchmark_digest", "digest of the benchmark's config entry and sources", null=True),
        moment("started_at", "time when the step started"),
        moment("finished_at", "time when the rows were written, before the file was moved into place"),
        string("package_versions", "canonical JSON: package -> version"),
        string(
            "settings",
            "canonical JSON of the command's options, for example of evaluate; null if they were not recorded",
            null=True,
        ),
        string(
            "file_sha256",
            "sha256 of the Parquet file with the rows; null if the rows have no file of their own",
            null=True,
        ),
        int64("rows", "number of rows in the file; null if the rows have no file of their own", null=True),
        string("previous_sha256", "row_sha256 of the previous line of the ledger"),
        string("row_sha256", "digest of the entry's line in the ledger"),
    ),
)

OUTCOMES = Table(
    "outcomes",
    "the pairs that a run could not finish, and why; the table coverage has the current state",
    key=("run_id", "benchmark", "model"),
    partitioned_by="pair",
    storage="given",
    columns=(
        MODEL,
        BENCHMARK,
        string("stage", "stage that failed: token_statistics | scores | evaluations"),
        string("status", describe_states("failed", "not_applicable")),
        string("reason", "reason in one line of at most 500 characters"),
        RUN_ID,
        # "at" is a keyword of DuckDB, so every query would have to quote a column with this name.
        moment("at", "time of the failure", stored_as="recorded_at"),
    ),
)


PLANS = build_run_table(
    "plans",
    "sealed plans of audits, with texts, settings, model and code; one row per sealing",
    made_from=("examples",),
    columns=(
        string("plan", "the plan as canonical JSON (docs/exhibit.md)"),
        string("plan_sha256", "sha256 of the plan's UTF-8 bytes, which a timestamp certifies"),
        # "at" is a keyword of DuckDB.
        moment("sealed_at", "time of the sealing, by the clock of this machine"),
        string(
            "timestamp",
            "response of a timestamp authority (RFC 3161), DER in base64; null without a timestamp",
            null=True,
        ),
        moment("timestamped_at", "time that the authority certifies", null=True),
        string("authority", "name of the authority in the timestamp; null if it is missing", null=True),
    ),
)
