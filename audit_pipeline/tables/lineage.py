"""What the project records of itself: where rows came from, pairs that could not be done, plans that were sealed.

But for the plans their rows are lines of the ledger (store/ledger.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, MODEL, RUN_ID, build_run_table
from audit_pipeline.tables.table import Table, int64, moment, string

PairStatus = Literal["failed", "stale", "missing", "done", "not_applicable", "not_requested"]

PAIR_STATES: Mapping[PairStatus, str] = {
    "failed": "the latest run could not do it; the reason says why, and it is to be run again",
    "stale": "there are results, but what they rest on has changed since; to be run again",
    "missing": "it is to be audited, and no run has done it yet",
    "done": "there are results, and what they rest on has not changed since",
    "not_applicable": "the model or the benchmark belongs to a control and the other does not: nothing to audit",
    "not_requested": "the model or the benchmark is audited on request only, and this pair was not requested",
}
"""What can become of a model on a benchmark, worst first, in the words that SQL, report, terminal and UI share. To be
audited are the first four, and the first three of these are not audited."""


def describe_states(*names: PairStatus) -> str:
    """The meanings of some states as the description of a column, or of all."""
    return " | ".join(f"{name} ({PAIR_STATES[name]})" for name in names or PAIR_STATES)


LINEAGE = Table(
    "lineage",
    "which run wrote which rows from what, with which code and versions",
    key=("table", "partition", "run_id"),
    storage="given",
    columns=(
        string("table", "the table whose rows the entry explains"),
        string("partition", "the partition: a source, a benchmark, or benchmark|model"),
        RUN_ID.with_changes("the run that wrote the rows"),
        string("asset_key", "the Dagster asset"),
        string("code_version", "the asset's code version"),
        string("data_version", "digest of what was written"),
        string("upstream_data_versions", "canonical JSON: upstream table/partition -> data version"),
        string("model_fingerprint", "weights, config, dtype and attention back end", null=True),
        string("tokenizer_fingerprint", "the tokenizer's files", null=True),
        string("benchmark_digest", "config entry and sources of the benchmark", null=True),
        moment("started_at", "when the step started"),
        moment("finished_at", "when the rows were ready to be moved into place"),
        string("package_versions", "canonical JSON: package -> version"),
        string(
            "settings",
            "canonical JSON of the options that the command was given, as in the scores of evaluate; null: not kept",
            null=True,
        ),
        string(
            "file_sha256",
            "sha256 of the Parquet file that holds the rows; null: they are in no file of their own",
            null=True,
        ),
        int64("rows", "how many rows the file holds; null: they are in no file of their own", null=True),
        string("previous_sha256", "row_sha256 of the line before it in the ledger of the data folder"),
        string("row_sha256", "digest of its line in the ledger"),
    ),
)

OUTCOMES = Table(
    "outcomes",
    "the pairs that a run could not do, and why; the table coverage says what counts now",
    key=("run_id", "benchmark", "model"),
    partitioned_by="pair",
    storage="given",
    columns=(
        MODEL,
        BENCHMARK,
        string("stage", "token_statistics | scores | evaluations: where the run gave the pair up"),
        string("status", describe_states("failed", "not_applicable")),
        string("reason", "why, in one line of at most 500 characters"),
        RUN_ID,
        # "at" is a word of DuckDB's grammar: a column of that name would have to be quoted in every query.
        moment("at", "when the run gave the pair up", stored_as="recorded_at"),
    ),
)


PLANS = build_run_table(
    "plans",
    "what was said beforehand of an audit: texts, settings, model, code; of every sealing",
    made_from=("examples",),
    columns=(
        string("plan", "the plan as canonical JSON (docs/exhibit.md)"),
        string("plan_sha256", "sha256 of its UTF-8 bytes: what a timestamp is of"),
        # "at" is a word of DuckDB's grammar.
        moment("sealed_at", "when it was sealed, by the clock of this machine"),
        string(
            "timestamp",
            "the answer of a timestamp authority (RFC 3161), DER in base64; null where there is none",
            null=True,
        ),
        moment("timestamped_at", "the time that the authority gives", null=True),
        string("authority", "the authority's name in the timestamp; null where it has none", null=True),
    ),
)
