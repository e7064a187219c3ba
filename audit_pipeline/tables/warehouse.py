"""The tables that the warehouse alone has, in the order in which they are filled: of JSON documents, of the
configuration, and derived from other tables."""

from __future__ import annotations

from audit_pipeline.tables.common import BENCHMARK, DETECTOR, GROUP, PARAMETERS, RUN_ID
from audit_pipeline.tables.lineage import LINEAGE, describe_states
from audit_pipeline.tables.scores import SCORES
from audit_pipeline.tables.table import Table, boolean, day, double, int32, int64, moment, string

_WHEN_BUILT = (
    "when the warehouse was built, broken entries as far as they are known; empty where the file could not be read"
)

MODELS = Table(
    "models",
    "the models that have been loaded, one row per fingerprint",
    key=("fingerprint",),
    storage="given",
    columns=(
        string(
            "fingerprint",
            "weights, config, dtype and attention back end; of a model on a server its address and what was seen there",
        ),
        string("name", "the model's name in config/models.yaml, hub id or path", null=True),
        string("resolved_from", "the hub id, folder or file that the name referred to", null=True),
        string("revision", "the hub commit", null=True),
        string("dtype", "the number format of the weights during the pass", null=True),
        string("attention", "the attention back end", null=True),
        boolean("compile", "whether its layers were compiled", null=True),
        string("weights_digest", "digest of the weights; null: they are on a server", null=True),
        string("weights_format", "how they were published in few bits; null: they are plain", null=True),
        LINEAGE.column("tokenizer_fingerprint"),
        string("start_token", "the token put in front of every text", null=True),
        int64("start_token_id", "its id", null=True),
        int64("context_length", "tokens that the model can read at once", null=True),
        int64("vocab_size", "tokens in the model's vocabulary", null=True),
        int64("parameters", "number of parameters", null=True),
        string("release_date", "when the model was released, as the configuration states it", null=True),
        string("training_cutoff", "the end of its training data, as the configuration states it", null=True),
        string("first_loaded_at", "when it was first loaded here", null=True),
        string("card", "the whole card, with whatever else it holds", sql_type="JSON"),
    ),
)

BENCHMARKS = Table(
    "benchmarks",
    "the benchmarks that have been built, one row per benchmark",
    key=("benchmark",),
    storage="given",
    columns=(
        BENCHMARK.with_changes("the benchmark's name in config/benchmarks.yaml"),
        string("digest", "config entry and sources of the benchmark", null=True),
        string("design", "how the two sides came about", null=True),
        string(
            "design_stated_by",
            "who says how they came about; null where it follows from how the texts were drawn here",
            null=True,
        ),
        string("words", "window lengths in words (JSON)", null=True),
        string("counts", "examples by side, split and length, as the builder counted them", null=True, sql_type="JSON"),
        string("manifest", "the whole manifest, with its specification and counts", sql_type="JSON"),
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
            "its name for people: the title of its entry, or its name, with variant, adapter and number format of its "
            "files in brackets; null: the entry is broken",
            null=True,
        ),
        string(
            "origin", "the hub id, path, package file or endpoint that the entry names; unknown: the entry is broken"
        ),
        day("release_date", "when the model was released, as the entry states it", null=True),
        day("training_cutoff", "the end of its training data, as the entry states it", null=True),
        boolean("on_request", "audited only where it is named (a control's models)"),
        string("series", "the series that it is a checkpoint of", null=True),
        int64("position", "its place in the series, from 1", null=True),
        int64("step", "its training step, where names, trainer_state.json or the entry say it", null=True),
        int64("tokens", "tokens that it was trained on, where these say so", null=True),
    ),
)

CONFIGURED_BENCHMARKS = Table(
    "configured_benchmarks",
    f"the benchmarks of config/benchmarks.yaml {_WHEN_BUILT}",
    key=("benchmark",),
    storage="given",
    columns=(
        BENCHMARK,
        string("title", "its name for people, as its entry gives it; null: it gives none", null=True),
        string("family", "the entry that it comes from, at one of its lengths"),
        int32("words", "window length in words; null: texts of any length", null=True),
        string("design", "how the two sides come about"),
        string("description", "what it is, in words"),
        boolean(
            "is_up_to_date",
            "whether the built examples are those that entry and sources give now; null where it is not built, or a "
            "source is missing or cannot be read",
            null=True,
        ),
        boolean("on_request", "built and audited only where it is named"),
    ),
)

# A key of millions of rows is counted, not enforced: an index on it makes a build several times as long and the file
# ten times as large.
KEYS = Table(
    "keys",
    "the key of every table, and whether it held when the warehouse was built",
    key=("table",),
    storage="given",
    columns=(
        string("table", "the table"),
        string("key", "the columns that no two rows have in common"),
        boolean("is_enforced", "whether it is a primary key; if not, it is counted by every build"),
        int64("doubled", "rows too many: 0 as it should be"),
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
        int64("texts", "texts that the run tried"),
        int64("scored", "of them, with a score"),
        int64("not_applicable", "of them, texts that the detector does not apply to"),
        int64("failed", "of them, texts on which it failed"),
        int64("audited", "of them, evaluated texts that are not known to be non-members: those asked about"),
        RUN_ID.with_changes("the run that wrote the rows; joins to lineage.run_id"),
    ),
)

RUNS = Table(
    "runs",
    "what every run wrote: one row per table, partition and run, with what the lineage says of it",
    key=("table", "partition", "run_id"),
    made_from=("lineage", "scored_settings"),
    columns=(
        string("table", "the table that the run wrote to"),
        string("partition", "the partition: a source, a benchmark, a study, or benchmark|model"),
        BENCHMARK.with_changes("the benchmark; null where the partition is none and of none", null=True),
        string("model", "the model; null where the partition is of none", null=True),
        RUN_ID.with_changes("the run"),
        int64("rows", "how many rows it wrote; 0 where its file holds none, so that earlier rows are not current"),
        LINEAGE.column("asset_key"),
        LINEAGE.column("code_version"),
        LINEAGE.column("data_version"),
        LINEAGE.column("benchmark_digest"),
        LINEAGE.column("model_fingerprint"),
        LINEAGE.column("tokenizer_fingerprint"),
        LINEAGE.column("started_at"),
        LINEAGE.column("finished_at"),
        boolean("is_current", "whether it is the latest of its table and partition"),
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
        string("upstream_table", "the table, or sort of input (reference_model, token_frequencies, …), that was read"),
        string("upstream_partition", "its partition, or the input's name"),
        string("upstream_version", "its data version", null=True),
        string(
            "upstream_run_id",
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
        boolean(
            "run_went_on",
            "whether the same step of the run wrote a later entry: its file was there then, and was deleted since",
        ),
        string(
            "left_out",
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
        int64("texts", "texts of the group with a score"),
        double("mean_score", "their mean", null=True),
        double("median_score", "their median", null=True),
        double("highest_score", "the highest", null=True),
        double("lowest_score", "the lowest", null=True),
        int64("rank_in_benchmark", "place among the benchmark's groups by mean score, 1 the highest"),
    ),
)

COVERAGE = Table(
    "coverage",
    "the state of every model on every benchmark: of the configuration, and of every run of any kind",
    key=("model", "benchmark"),
    storage="given",
    made_from=("runs", "corpus_tests", "outcomes", "files_gone"),
    columns=(
        SCORES.column("model"),
        BENCHMARK,
        boolean("is_configured", "whether both are in the configuration; if not, an earlier run named them"),
        string("status", describe_states()),
        string("reason", "why the status is not done; null where it is", null=True),
        boolean(
            "has_results",
            "whether the latest runs left results, be they stale: an evaluation, a search for passages, answers of a "
            "chat model, or a test of the whole set that was not refused",
        ),
        string(
            "stage",
            "the stage at which the run gave the pair up; null where none did since the latest audit",
            null=True,
        ),
        moment(
            "last_audited_at",
            "when the latest evaluation, or else search for passages, was ready; null where there is none",
            null=True,
        ),
        moment(
            "outcome_at",
            "when a run gave the pair up last, be it before the latest audit; null where none ever did",
            null=True,
        ),
        RUN_ID.with_changes("the run that the status rests on; null where there is none", null=True),
    ),
)
