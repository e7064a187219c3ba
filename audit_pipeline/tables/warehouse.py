"""Tables of the ledger's records and of sealed plans, and tables that only the warehouse has.

The rows of ``LINEAGE`` and ``OUTCOMES`` are lines of the ledger (store/ledger.py). Other rows are read from JSON
documents and the configuration, or computed from other tables. The tables follow the order in which the build fills
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, DETECTOR, GROUP, MODEL, PARAMETERS, RUN_ID, build_run_table
from audit_pipeline.tables.findings import SCORES
from audit_pipeline.tables.table import Table, boolean, day, double, int32, int64, moment, string

PairStatus = Literal["failed", "stale", "missing", "done", "not_applicable", "not_requested"]

PAIR_STATES: Mapping[PairStatus, str] = {
    "failed": "the latest run failed, see the reason; the pair must be run again",
    "stale": "there are results, but their inputs have changed since; the pair must be run again",
    "missing": "the pair is to be audited, but no run has audited it yet",
    "done": "there are results, and their inputs have not changed since",
    "not_applicable": (
        "the model and the benchmark do not belong together: a control's models are audited only on that control's "
        "texts"
    ),
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
        string("authority", "name of the authority in the timestamp; null if the timestamp has no name", null=True),
    ),
)


_WHEN_BUILT = "at the time of the warehouse's build, including broken entries; empty if the file could not be read"

MODELS = Table(
    "models",
    "the models that were loaded, one row per fingerprint",
    key=("fingerprint",),
    storage="given",
    columns=(
        string(
            "fingerprint",
            "digest of weights, config, dtype and attention back end; for a model on a server, of its address and its "
            "observed properties",
        ),
        string("name", "the model's name in config/models.yaml, hub id or path", null=True),
        string("resolved_from", "hub id, folder or file that the name refers to", null=True),
        string("revision", "commit on the hub", null=True),
        string("dtype", "number format of the weights during the forward pass", null=True),
        string("attention", "attention back end", null=True),
        boolean("compile", "whether the layers were compiled", null=True),
        string("weights_digest", "digest of the weights; null if the weights are on a server", null=True),
        string(
            "weights_format",
            "quantisation format of the published weights; null if the weights are not quantised",
            null=True,
        ),
        LINEAGE.column("tokenizer_fingerprint"),
        string("start_token", "token that is put before every text", null=True),
        int64("start_token_id", "id of the start token", null=True),
        int64("context_length", "maximum number of tokens that the model reads at once", null=True),
        int64("vocab_size", "number of tokens in the vocabulary", null=True),
        int64("parameters", "number of parameters", null=True),
        string("release_date", "release date of the model, as the configuration states it", null=True),
        string("training_cutoff", "end of the training data, as the configuration states it", null=True),
        string("first_loaded_at", "time when the model was first loaded", null=True),
        string("card", "the complete model card", sql_type="JSON"),
    ),
)

BENCHMARKS = Table(
    "benchmarks",
    "the built benchmarks, one row per benchmark",
    key=("benchmark",),
    storage="given",
    columns=(
        BENCHMARK.with_changes("the benchmark's name in config/benchmarks.yaml"),
        string("digest", "digest of the benchmark's config entry and sources", null=True),
        string("design", "design of the two sides", null=True),
        string(
            "design_stated_by",
            "person or publisher who states the design; null if Corpus Audit drew the texts itself",
            null=True,
        ),
        string("words", "window lengths in words (JSON)", null=True),
        string("counts", "numbers of examples by side, split and length", null=True, sql_type="JSON"),
        string("manifest", "the complete manifest, with specification and counts", sql_type="JSON"),
    ),
)

CONFIGURED_MODELS = Table(
    "configured_models",
    f"the models of config/models.yaml {_WHEN_BUILT}",
    key=("name",),
    storage="given",
    columns=(
        string("name", "the model's name"),
        string(
            "title",
            "display title: the title of the entry or the name, with variant, adapter and number format in brackets; "
            "null if the entry is broken",
            null=True,
        ),
        string("origin", "hub id, path, package file or endpoint in the entry; 'unknown' if the entry is broken"),
        day("release_date", "release date of the model, as the entry states it", null=True),
        day("training_cutoff", "end of the training data, as the entry states it", null=True),
        boolean("on_request", "whether the model is audited only if it is named (models of a control)"),
        string("series", "series that the model is a checkpoint of", null=True),
        int64("position", "position in the series, from 1", null=True),
        int64("step", "training step, if file names, trainer_state.json or the entry state it", null=True),
        int64(
            "tokens", "number of training tokens, if file names, trainer_state.json or the entry state it", null=True
        ),
    ),
)

CONFIGURED_BENCHMARKS = Table(
    "configured_benchmarks",
    f"the benchmarks of config/benchmarks.yaml {_WHEN_BUILT}",
    key=("benchmark",),
    storage="given",
    columns=(
        BENCHMARK,
        string("title", "display title in the entry; null without a title", null=True),
        string("family", "name of the entry; a benchmark is an entry at one of its lengths"),
        int32("words", "window length in words; null for texts of any length", null=True),
        string("design", "design of the two sides"),
        string("description", "description of the benchmark"),
        boolean(
            "is_up_to_date",
            "whether the built examples match the current entry and sources; null if the benchmark is not built, or if "
            "a source is missing or unreadable",
            null=True,
        ),
        boolean("on_request", "whether the benchmark is built and audited only if it is named"),
    ),
)

# Keys that are not primary keys are checked by counting. An index on millions of rows would make a build several times
# slower, and the file ten times larger.
KEYS = Table(
    "keys",
    "the key of every table, and whether its values were unique when the warehouse was built",
    key=("table",),
    storage="given",
    columns=(
        string("table", "the table"),
        string("key", "columns whose values are unique per row"),
        boolean("is_enforced", "whether the key is a primary key; if not, every build counts duplicates"),
        int64("doubled", "number of duplicate rows; 0 if the key holds"),
    ),
)

SCORED_SETTINGS = Table(
    "scored_settings",
    "how many texts every run scored, one row per run, detector and setting",
    key=("run_id", "benchmark", "model", "detector", "parameters"),
    made_from=("scores", "examples"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        SCORES.column("is_default"),
        int64("texts", "number of texts that the run tried to score"),
        int64("scored", "number of texts with a score"),
        int64("not_applicable", "number of texts that the detector does not apply to"),
        int64("failed", "number of texts on which the detector failed"),
        int64("audited", "number of evaluated texts that are not known to be non-members, the subject of the audit"),
        RUN_ID.with_changes("the run that wrote the rows; joins to lineage.run_id"),
    ),
)

RUNS = Table(
    "runs",
    "the output of every run: one row per table, partition and run, with its lineage",
    key=("table", "partition", "run_id"),
    made_from=("lineage", "scored_settings"),
    columns=(
        string("table", "the table that the run wrote to"),
        string("partition", "the partition: a source, a benchmark, a study, or benchmark|model"),
        BENCHMARK.with_changes("the benchmark; null if the partition has no benchmark", null=True),
        string("model", "the model; null if the partition has no model", null=True),
        RUN_ID.with_changes("the run"),
        int64("rows", "number of written rows; with 0 rows, earlier rows are no longer current"),
        LINEAGE.column("asset_key"),
        LINEAGE.column("code_version"),
        LINEAGE.column("data_version"),
        LINEAGE.column("benchmark_digest"),
        LINEAGE.column("model_fingerprint"),
        LINEAGE.column("tokenizer_fingerprint"),
        LINEAGE.column("started_at"),
        LINEAGE.column("finished_at"),
        boolean("is_current", "whether the run is the latest of its table and partition"),
    ),
)

# This is a table and not a view. A view would need an as-of join, which the recursive views over it cannot read.
LINEAGE_EDGES = Table(
    "lineage_edges",
    "the inputs of every run: one row per input, with the run that wrote the input",
    key=("table", "partition", "run_id", "upstream_table", "upstream_partition"),
    made_from=("lineage",),
    columns=(
        LINEAGE.column("table"),
        LINEAGE.column("partition"),
        LINEAGE.column("run_id"),
        string("upstream_table", "table or kind of input (reference_model, token_frequencies, …)"),
        string("upstream_partition", "partition, or name of the input"),
        string("upstream_version", "data version of the input", null=True),
        string(
            "upstream_run_id",
            "run that wrote the input; null for an external input, whose version is in no lineage entry",
            null=True,
        ),
    ),
)

FILES_GONE = Table(
    "files_gone",
    "lineage entries whose file is missing or was skipped; for a partition with one file, which every run replaces, "
    "only the last entry",
    key=("table", "partition", "run_id"),
    made_from=("lineage",),
    columns=(
        LINEAGE.column("table"),
        LINEAGE.column("partition"),
        LINEAGE.column("run_id").with_changes("the run that wrote the entry"),
        boolean(
            "run_went_on",
            "whether the same step of the run wrote a later entry, so the file existed and was deleted afterwards",
        ),
        string(
            "left_out",
            "why the build skipped an existing file, which is corrupt or unreadable; null if the file is missing",
            null=True,
        ),
    ),
)

# This is a table and not a view, because a view would read all scores for every query.
GROUP_SCORES = Table(
    "group_scores",
    "scores of the latest runs by group: the book, patent, article or release",
    key=("benchmark", "model", "detector", "parameters", "group"),
    made_from=("scores", "examples", "runs"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        GROUP,
        DETECTOR,
        PARAMETERS,
        int64("texts", "number of texts of the group with a score"),
        double("mean_score", "mean score of the texts", null=True),
        double("median_score", "median score of the texts", null=True),
        double("highest_score", "highest score of the texts", null=True),
        double("lowest_score", "lowest score of the texts", null=True),
        int64("rank_in_benchmark", "rank among the benchmark's groups by mean score, 1 for the highest"),
    ),
)

COVERAGE = Table(
    "coverage",
    "the state of every model on every benchmark, for all configured pairs and all pairs of earlier runs",
    key=("model", "benchmark"),
    storage="given",
    made_from=("runs", "corpus_tests", "outcomes", "files_gone"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        boolean(
            "is_configured",
            "whether model and benchmark are in the configuration; if not, the pair is known from an earlier run",
        ),
        string("status", describe_states()),
        string("reason", "why the status is not done; null if the status is done", null=True),
        boolean(
            "has_results",
            "whether the latest runs have results, stale or not: an evaluation, a search for passages, answers of a "
            "chat model, or a test of the whole set that was not refused",
        ),
        string(
            "stage",
            "stage at which a run failed after the latest audit; null if no run failed",
            null=True,
        ),
        moment(
            "last_audited_at",
            "time of the latest evaluation, or of the latest search for passages if there is no evaluation; null if "
            "there is neither",
            null=True,
        ),
        moment(
            "outcome_at",
            "time when a run failed last, even before the latest audit; null if no run failed",
            null=True,
        ),
        RUN_ID.with_changes("run that determines the status; null without a run", null=True),
    ),
)
