"""The tables that the warehouse alone has: of JSON documents, of the configuration, and derived from other tables.

What belongs here: their declarations, in the order in which they are filled. What does not: filling them
(warehouse/given_rows.py, warehouse/sql/fills/).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, DETECTOR, GROUP, PARAMETERS, RUN_ID
from audit_pipeline.catalogue.contracts.record import LINEAGE, describe_states
from audit_pipeline.catalogue.contracts.scores import SCORES
from audit_pipeline.catalogue.table import Column, Table

_WHEN_BUILT = (
    "when the warehouse was built, broken entries as far as they are known; empty where the file could not be read"
)

MODELS = Table(
    "models",
    "the models that have been loaded, one row per fingerprint",
    key=("fingerprint",),
    kept="given",
    columns=(
        Column(
            "fingerprint",
            pa.string(),
            "weights, config, dtype and attention back end; of a model behind an interface its address and what was "
            "seen there",
        ),
        Column("name", pa.string(), "the model's name in config/models.yaml, hub id or path", null=True),
        Column("resolved_from", pa.string(), "the hub id, folder or file that the name stood for", null=True),
        Column("revision", pa.string(), "the hub commit", null=True),
        Column("dtype", pa.string(), "the number format of the weights during the pass", null=True),
        Column("attention", pa.string(), "the attention back end", null=True),
        Column("compile", pa.bool_(), "whether its layers were compiled", null=True),
        Column("weights_digest", pa.string(), "digest of the weights; null: they are behind an interface", null=True),
        Column("weights_format", pa.string(), "how they were published in few bits; null: they are plain", null=True),
        LINEAGE.column("tokenizer_fingerprint"),
        Column("start_token", pa.string(), "the token put in front of every text", null=True),
        Column("start_token_id", pa.int64(), "its id", null=True),
        Column("context_length", pa.int64(), "tokens that the model can read at once", null=True),
        Column("vocab_size", pa.int64(), "tokens in the model's vocabulary", null=True),
        Column("parameters", pa.int64(), "number of parameters", null=True),
        Column("release_date", pa.string(), "when the model was released, as the configuration states it", null=True),
        Column(
            "training_cutoff", pa.string(), "the end of its training data, as the configuration states it", null=True
        ),
        Column("first_loaded_at", pa.string(), "when it was first loaded here", null=True),
        Column("card", pa.string(), "the whole card, with whatever else it holds", sql_type="JSON"),
    ),
)

BENCHMARKS = Table(
    "benchmarks",
    "the benchmarks that have been built, one row per benchmark",
    key=("benchmark",),
    kept="given",
    columns=(
        BENCHMARK.with_changes("the benchmark's name in config/benchmarks.yaml"),
        Column("digest", pa.string(), "config entry and sources of the benchmark", null=True),
        Column("design", pa.string(), "how the two sides came about", null=True),
        Column(
            "design_stated_by",
            pa.string(),
            "who says how they came about; null where it follows from how the texts were drawn here",
            null=True,
        ),
        Column("words", pa.string(), "window lengths in words (JSON)", null=True),
        Column(
            "counts",
            pa.string(),
            "examples by side, split and length, as the builder counted them",
            null=True,
            sql_type="JSON",
        ),
        Column("manifest", pa.string(), "the whole manifest, with its specification and counts", sql_type="JSON"),
    ),
)

CONFIGURED_MODELS = Table(
    "configured_models",
    f"the models of config/models.yaml {_WHEN_BUILT}",
    key=("name",),
    kept="given",
    columns=(
        Column("name", pa.string(), "the model's name"),
        Column("title", pa.string(), "its name for people, as its entry gives it; null: it gives none", null=True),
        Column(
            "origin",
            pa.string(),
            "the hub id, path, package file or endpoint that the entry names; unknown: the entry is broken",
        ),
        Column("release_date", pa.date32(), "when the model was released, as the entry states it", null=True),
        Column("training_cutoff", pa.date32(), "the end of its training data, as the entry states it", null=True),
        Column("on_request", pa.bool_(), "audited only where it is named (a control's models)"),
    ),
)

CONFIGURED_BENCHMARKS = Table(
    "configured_benchmarks",
    f"the benchmarks of config/benchmarks.yaml {_WHEN_BUILT}",
    key=("benchmark",),
    kept="given",
    columns=(
        BENCHMARK,
        Column("title", pa.string(), "its name for people, as its entry gives it; null: it gives none", null=True),
        Column("family", pa.string(), "the entry that it comes from, at one of its lengths"),
        Column("words", pa.int32(), "window length in words; null: texts of any length", null=True),
        Column("design", pa.string(), "how the two sides come about"),
        Column("description", pa.string(), "what it is, in words"),
        Column(
            "is_up_to_date",
            pa.bool_(),
            "whether the built examples are those that entry and sources give now; null where it is not built, or a "
            "source is missing or cannot be read",
            null=True,
        ),
        Column("on_request", pa.bool_(), "built and audited only where it is named"),
    ),
)

# A key of millions of rows is counted, not enforced: an index on it makes a build several times as long and the file
# ten times as large.
KEYS = Table(
    "keys",
    "the key of every table, and whether it held when the warehouse was built",
    key=("table",),
    kept="given",
    columns=(
        Column("table", pa.string(), "the table"),
        Column("key", pa.string(), "the columns that no two rows have in common"),
        Column("is_enforced", pa.bool_(), "whether it is a primary key; if not, it is counted by every build"),
        Column("doubled", pa.int64(), "rows too many: 0 as it should be"),
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
        Column("texts", pa.int64(), "texts that the run tried"),
        Column("scored", pa.int64(), "of them, with a score"),
        Column("not_applicable", pa.int64(), "of them, texts that the detector does not apply to"),
        Column("failed", pa.int64(), "of them, texts on which it failed"),
        Column(
            "audited", pa.int64(), "of them, evaluated texts that are not known to be non-members: those asked about"
        ),
        RUN_ID.with_changes("the run that wrote the rows; joins to lineage.run_id"),
    ),
)

RUNS = Table(
    "runs",
    "what every run wrote: one row per table, partition and run, with what the lineage says of it",
    key=("table", "partition", "run_id"),
    made_from=("lineage", "scored_settings"),
    columns=(
        Column("table", pa.string(), "the table that the run wrote to"),
        Column("partition", pa.string(), "the partition: a source, a benchmark, a study, or benchmark|model"),
        BENCHMARK.with_changes("the benchmark; null where the partition is none and of none", null=True),
        Column("model", pa.string(), "the model; null where the partition is of none", null=True),
        RUN_ID.with_changes("the run"),
        Column(
            "rows",
            pa.int64(),
            "how many rows it wrote; 0 where its file holds none, so that earlier rows are not current",
        ),
        LINEAGE.column("asset_key"),
        LINEAGE.column("code_version"),
        LINEAGE.column("data_version"),
        LINEAGE.column("benchmark_digest"),
        LINEAGE.column("model_fingerprint"),
        LINEAGE.column("tokenizer_fingerprint"),
        LINEAGE.column("started_at"),
        LINEAGE.column("finished_at"),
        Column(
            "is_current",
            pa.bool_(),
            "whether it is the latest of its table and partition",
        ),
    ),
)

# A view of this would join as-of, which no recursive view may read.
LINEAGE_EDGES = Table(
    "lineage_edges",
    "what every run's rows were made of: one row per input, with the run that had written it last before",
    key=("table", "partition", "run_id", "upstream_table", "upstream_partition"),
    made_from=("lineage",),
    columns=(
        LINEAGE.column("table"),
        LINEAGE.column("partition"),
        LINEAGE.column("run_id"),
        Column(
            "upstream_table",
            pa.string(),
            "the table, or sort of input (reference_model, token_frequencies, …), that was read",
        ),
        Column("upstream_partition", pa.string(), "its partition, or the input's name"),
        Column("upstream_version", pa.string(), "its data version", null=True),
        Column(
            "upstream_run_id",
            pa.string(),
            "the run that wrote it; null where no lineage entry names that version: an input from outside",
            null=True,
        ),
    ),
)

FILES_GONE = Table(
    "files_gone",
    "lineage entries whose file is not there, or was left out; of a partition that every run writes anew, the last "
    "entry alone",
    key=("table", "partition", "run_id"),
    made_from=("lineage",),
    columns=(
        LINEAGE.column("table"),
        LINEAGE.column("partition"),
        LINEAGE.column("run_id").with_changes("the run that wrote the entry"),
        Column(
            "run_went_on",
            pa.bool_(),
            "whether the same step of the run wrote a later entry: its file was there then, and was deleted since",
        ),
        Column(
            "left_out",
            pa.string(),
            "why the build left the file out, which is there: it is damaged, or cannot be read; null: it is not there",
            null=True,
        ),
    ),
)

# As a view it would read every score for every answer.
GROUP_SCORES = Table(
    "group_scores",
    "scores of the latest runs by the group that texts belong to: the book, patent, article or release",
    key=("benchmark", "model", "detector", "parameters", "group"),
    made_from=("scores", "examples", "runs"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        GROUP,
        DETECTOR,
        PARAMETERS,
        Column("texts", pa.int64(), "texts of the group with a score"),
        Column("mean_score", pa.float64(), "their mean", null=True),
        Column("median_score", pa.float64(), "their median", null=True),
        Column("highest_score", pa.float64(), "the highest", null=True),
        Column("lowest_score", pa.float64(), "the lowest", null=True),
        Column("rank_in_benchmark", pa.int64(), "place among the benchmark's groups by mean score, 1 the highest"),
    ),
)

COVERAGE = Table(
    "coverage",
    "the state of every model on every benchmark: of the configuration, and of every run of any kind",
    key=("model", "benchmark"),
    kept="given",
    made_from=("runs", "corpus_tests", "outcomes", "files_gone"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        Column("is_configured", pa.bool_(), "whether both are in the configuration; if not, an earlier run named them"),
        Column("status", pa.string(), describe_states()),
        Column("reason", pa.string(), "why the status is not done; null where it is", null=True),
        Column(
            "has_results",
            pa.bool_(),
            "whether the latest runs left results, be they stale: an evaluation, a search for passages, answers of a "
            "chat model, or a test of the whole set that was not refused",
        ),
        Column(
            "stage",
            pa.string(),
            "the stage at which the run gave the pair up; null where none did since the latest audit",
            null=True,
        ),
        Column(
            "last_audited_at",
            pa.timestamp("us", tz="UTC"),
            "when the latest evaluation, or else search for passages, was ready; null where there is none",
            null=True,
        ),
        Column(
            "outcome_at",
            pa.timestamp("us", tz="UTC"),
            "when a run gave the pair up last, be it before the latest audit; null where none ever did",
            null=True,
        ),
        RUN_ID.with_changes("the run that the status rests on; null where there is none", null=True),
    ),
)
