"""What the warehouse holds: its tables, where each column comes from, and the views on them.

What belongs here: names, types, descriptions and SQL. What does not: running any of it (build.py), and the columns of
the Parquet files (contracts.py), from which the tables here are derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from audit_pipeline.contracts import (
    CONTROL_STUDIES,
    DOCUMENTS,
    EVALUATIONS,
    EXAMPLES,
    LINEAGE,
    OUTCOMES,
    SCORES,
    SPLIT_QUALITY,
    TOKEN_STATISTICS,
    description_of,
)
from audit_pipeline.warehouse import coverage

EXCERPT_WORDS = 50
EXCERPT_CHARACTERS = 500

BLANKS = r"\s\x0B\x1C-\x1F\x{85}\p{Z}"
"""Regex class (RE2) of what ``str.split`` treats as whitespace."""

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Regex class of scripts written without blanks: each character counts as a word of an excerpt."""


@dataclass(frozen=True)
class Column:
    """One column of a warehouse table; ``expression`` is SQL over the columns of the Parquet file."""

    name: str
    sql_type: str
    description: str
    null: bool
    expression: str


@dataclass(frozen=True)
class Table:
    """One table of the warehouse."""

    name: str
    description: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class View:
    """One view; its columns mean what they mean in ``tables``, the first that has them, or what ``columns`` says."""

    name: str
    description: str
    sql: str
    tables: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)


def quoted(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


_SQL_TYPES: Mapping[pa.DataType, str] = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
}


def _columns(schema: pa.Schema, *, without: tuple[str, ...] = ()) -> tuple[Column, ...]:
    return tuple(
        Column(field.name, _SQL_TYPES[field.type], description_of(field), field.nullable, quoted(field.name))
        for field in schema
        if field.name not in without
    )


def _given(name: str, sql_type: str, description: str, *, null: bool = True) -> Column:
    return Column(name, sql_type, description, null, quoted(name))


_WORDS_OF_TEXT = f"len(regexp_extract_all(text, '[^{BLANKS}]+'))"

_FLAT = f"trim(regexp_replace(left(text, {4 * EXCERPT_CHARACTERS}), '[{BLANKS}]+', ' ', 'g'))"
_CUT = (
    f"left(regexp_extract({_FLAT}, '^(?:(?:[{UNSPACED}]|[^{BLANKS}{UNSPACED}]+) ?){{0,{EXCERPT_WORDS}}}'),"
    f" {EXCERPT_CHARACTERS})"
)
_EXCERPT = (
    f"CASE WHEN length({_CUT}) < length({_FLAT}) OR length(text) > {4 * EXCERPT_CHARACTERS}"
    f" THEN rtrim({_CUT}) || '…' ELSE {_CUT} END"
)

DOCUMENTS_TABLE = Table(
    "documents",
    "the dated documents of the sources, without their text",
    (
        *_columns(DOCUMENTS, without=("text", "run_id")),
        Column("words", "BIGINT", "whitespace words in the text", False, _WORDS_OF_TEXT),
        *_columns(pa.schema([DOCUMENTS.field("run_id")])),
    ),
)

TOKEN_STATISTICS_TABLE = Table(
    "token_statistics",
    "the texts that a model has been run on, one row a cached text; the values a token stay in Parquet",
    (
        *_columns(pa.schema([TOKEN_STATISTICS.field("key"), TOKEN_STATISTICS.field("text_sha256")])),
        Column(
            "model_fingerprint",
            "VARCHAR",
            "weights, config, dtype and attention back end; joins to models.fingerprint",
            False,
            "regexp_extract(filename, '[/\\\\]model=([^/\\\\]*)[/\\\\]', 1)",
        ),
        Column("tokens", "INTEGER", "scored tokens", False, "len(logprob)"),
        Column(
            "mean_logprob", "DOUBLE", "mean log-probability of the scored tokens", True, "list_avg(logprob::DOUBLE[])"
        ),
    ),
)


def examples_table(*, include_text: bool) -> Table:
    """The examples, their text cut to an excerpt, or without any text at all."""
    columns = list(_columns(EXAMPLES))
    excerpt = Column(
        "excerpt",
        "VARCHAR",
        f"the first words of the text, {EXCERPT_WORDS} at most; null where the warehouse was built without text",
        True,
        _EXCERPT if include_text else "NULL",
    )
    columns[EXAMPLES.get_field_index("text")] = excerpt
    return Table("examples", "the labelled texts of the benchmarks", tuple(columns))


SPLIT_QUALITY_TABLE = Table(
    "split_quality",
    "how far the two sides of a benchmark differ without any model; split_summary has a row a benchmark",
    _columns(SPLIT_QUALITY),
)
SCORES_TABLE = Table("scores", "every score of every run; current_scores holds the latest", _columns(SCORES))
EVALUATIONS_TABLE = Table(
    "evaluations", "every metric of every run; current_evaluations holds the latest", _columns(EVALUATIONS)
)
LINEAGE_TABLE = Table(
    "lineage", "which run wrote which rows from what, with which code and versions", _columns(LINEAGE)
)

OUTCOMES_TABLE = Table(
    "outcomes",
    "the pairs that a run could not do, and why; the view coverage says what counts now",
    (
        *_columns(OUTCOMES, without=("at",)),
        # Not "at", which DuckDB's grammar keeps for itself: it would have to be quoted in every query.
        Column("recorded_at", "TIMESTAMPTZ", description_of(OUTCOMES.field("at")), False, quoted("at")),
    ),
)

MODELS_TABLE = Table(
    "models",
    "the models that have been loaded, one row a fingerprint",
    (
        _given("fingerprint", "VARCHAR", "weights, config, dtype and attention back end", null=False),
        _given("name", "VARCHAR", "the model's name in config/models.yaml, hub id or path"),
        _given("resolved_from", "VARCHAR", "the hub id, folder or file that the name stood for"),
        _given("revision", "VARCHAR", "the hub commit"),
        _given("dtype", "VARCHAR", "the number format of the weights during the pass"),
        _given("attention", "VARCHAR", "the attention back end"),
        _given("weights_digest", "VARCHAR", "digest of the weights"),
        _given("tokenizer_fingerprint", "VARCHAR", "the tokenizer's files"),
        _given("start_token", "VARCHAR", "the token put in front of every text"),
        _given("start_token_id", "BIGINT", "its id"),
        _given("context_length", "BIGINT", "tokens that the model can read at once"),
        _given("vocab_size", "BIGINT", "tokens in the model's vocabulary"),
        _given("parameters", "BIGINT", "number of parameters"),
        _given("release_date", "VARCHAR", "when the model was released, as the configuration states it"),
        _given("training_cutoff", "VARCHAR", "the end of its training data, as the configuration states it"),
        _given("first_loaded_at", "VARCHAR", "when it was first loaded here"),
        _given("card", "JSON", "the whole card, with whatever else it holds", null=False),
    ),
)

BENCHMARKS_TABLE = Table(
    "benchmarks",
    "the benchmarks that have been built, one row a benchmark",
    (
        _given("benchmark", "VARCHAR", "the benchmark's name in config/benchmarks.yaml", null=False),
        _given("digest", "VARCHAR", "config entry and sources of the benchmark"),
        _given("design", "VARCHAR", "how the two sides came about"),
        _given("words", "VARCHAR", "window lengths in words (JSON)"),
        _given("counts", "JSON", "examples by side, split and length, as the builder counted them"),
        _given("manifest", "JSON", "the whole manifest, with its specification and counts", null=False),
    ),
)

CONTROL_STUDIES_TABLE = Table(
    "control_studies",
    "what makes members easier to tell: controls trained again with one setting changed, an AUROC a detector each",
    _columns(CONTROL_STUDIES),
)

CONFIGURED_MODELS_TABLE = Table(
    "configured_models",
    "the models of config/models.yaml when the warehouse was built; empty where the file could not be read",
    (
        _given("name", "VARCHAR", "the model's name", null=False),
        _given("origin", "VARCHAR", "the hub id, path or package file that the entry names", null=False),
        _given("release_date", "DATE", "when the model was released, as the entry states it"),
        _given("training_cutoff", "DATE", "the end of its training data, as the entry states it"),
        _given("on_request", "BOOLEAN", "audited only where it is named (a control's models)", null=False),
    ),
)

CONFIGURED_BENCHMARKS_TABLE = Table(
    "configured_benchmarks",
    "the benchmarks of config/benchmarks.yaml when the warehouse was built; empty where the file could not be read",
    (
        _given("benchmark", "VARCHAR", "the benchmark", null=False),
        _given("family", "VARCHAR", "the entry that it comes from, at one of its lengths", null=False),
        _given("words", "INTEGER", "window length in words; null: texts of any length"),
        _given("design", "VARCHAR", "how the two sides come about", null=False),
        _given("description", "VARCHAR", "what it is, in words", null=False),
        _given(
            "is_up_to_date",
            "BOOLEAN",
            "whether the built examples are those that entry and sources give now; null where it is not built, or a"
            " source is missing or cannot be read",
        ),
        _given("on_request", "BOOLEAN", "built and audited only where it is named", null=False),
    ),
)

PARQUET_TABLES = (
    "documents",
    "examples",
    "split_quality",
    "token_statistics",
    "scores",
    "evaluations",
    "lineage",
    "outcomes",
    "control_studies",
)


def tables(*, include_text: bool) -> tuple[Table, ...]:
    """Every table of the warehouse, in the order they are built."""
    return (
        DOCUMENTS_TABLE,
        examples_table(include_text=include_text),
        SPLIT_QUALITY_TABLE,
        TOKEN_STATISTICS_TABLE,
        SCORES_TABLE,
        EVALUATIONS_TABLE,
        LINEAGE_TABLE,
        OUTCOMES_TABLE,
        CONTROL_STUDIES_TABLE,
        MODELS_TABLE,
        BENCHMARKS_TABLE,
        CONFIGURED_MODELS_TABLE,
        CONFIGURED_BENCHMARKS_TABLE,
    )


BLIND_CONTROL = "blind_control"

_CURRENT_RUNS = """
WITH runs AS (
    SELECT 'scores' AS "table", benchmark, model, run_id FROM scores GROUP BY ALL
    UNION ALL
    SELECT 'evaluations', benchmark, model, run_id FROM evaluations GROUP BY ALL
), finished AS (
    SELECT "table", "partition", run_id, max(finished_at) AS finished_at FROM lineage GROUP BY ALL
)
SELECT runs."table", runs.benchmark, runs.model, runs.run_id, finished.finished_at
FROM runs LEFT JOIN finished
    ON finished."table" = runs."table" AND finished.run_id = runs.run_id
    AND finished."partition" = runs.benchmark || '|' || runs.model
QUALIFY row_number() OVER (
    PARTITION BY runs."table", runs.benchmark, runs.model
    ORDER BY finished.finished_at DESC NULLS LAST, runs.run_id DESC
) = 1
"""


def _current(table: str) -> str:
    return f"""
SELECT every.* FROM {table} AS every SEMI JOIN (SELECT * FROM current_runs WHERE "table" = '{table}') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id
"""  # noqa: S608 - a name from this module


def _measured(measure: str, part: str = "all", side: str = "both", column: str = "value") -> str:
    return f"max({column}) FILTER (measure = '{measure}' AND part = '{part}' AND side = '{side}')"


_CONTROLS = {
    "words": "the blind control of words, which binds",
    "characters": "the blind control of characters",
    "length": "the blind control of lengths and compressibility",
    "dates": "the blind control of years and months mentioned",
}

_CONTROL_COLUMNS = ", ".join(
    f"{_measured('blind_auroc', control, column=column)} AS {control}_auroc{end}"
    for control in _CONTROLS
    for column, end in (("value", ""), ("ci_low", "_low"), ("ci_high", "_high"))
)

_SPLIT_SUMMARY = f"""
SELECT quality.benchmark, max(split_verdict) AS split_verdict,
    max(part) FILTER (measure = 'worst_blind_auroc') AS worst_control,
    max("value") FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc,
    max(ci_low) FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc_low,
    max(ci_high) FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc_high,
    {_CONTROL_COLUMNS},
    {_measured("blind_auroc", "words", column="method")} AS words_method,
    {_measured("ngram_overlap_mean", "7", "nonmembers")} AS overlap_7,
    {_measured("ngram_overlap_mean", "13", "nonmembers")} AS overlap_13,
    {_measured("near_duplicate_pairs", side="between")}::BIGINT AS near_duplicate_pairs,
    {_measured("language_mismatch", side="members")} AS other_language_members,
    {_measured("language_mismatch", side="nonmembers")} AS other_language_nonmembers,
    {_measured("texts", side="members")}::BIGINT AS texts_members,
    {_measured("texts", side="nonmembers")}::BIGINT AS texts_nonmembers,
    {_measured("groups", side="members")}::BIGINT AS groups_members,
    {_measured("groups", side="nonmembers")}::BIGINT AS groups_nonmembers,
    {_measured("uneven_collections")}::BIGINT AS uneven_collections,
    max(quality.run_id) AS run_id, max(lineage.benchmark_digest) AS benchmark_digest,
    coalesce(max(lineage.benchmark_digest) = max(benchmarks.digest), TRUE) AS is_current
FROM split_quality AS quality
LEFT JOIN lineage ON lineage."table" = 'split_quality' AND lineage."partition" = quality.benchmark
    AND lineage.run_id = quality.run_id
LEFT JOIN benchmarks ON benchmarks.benchmark = quality.benchmark
GROUP BY quality.benchmark ORDER BY quality.benchmark
"""  # noqa: S608 - names from this module

_LEADERBOARD = f"""
WITH headline AS (
    SELECT model, benchmark, detector, parameters,
        max(value) FILTER (metric = 'auroc') AS auroc,
        max(ci_low) FILTER (metric = 'auroc') AS auroc_low,
        max(ci_high) FILTER (metric = 'auroc') AS auroc_high,
        max(value) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr,
        max(ci_low) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr_low,
        max(ci_high) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr_high,
        max(value) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr,
        max(ci_low) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr_low,
        max(ci_high) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr_high,
        max(value) FILTER (metric = 'auroc_margin') AS margin,
        max(ci_low) FILTER (metric = 'auroc_margin') AS margin_low,
        max(ci_high) FILTER (metric = 'auroc_margin') AS margin_high,
        max(n_members) AS n_members, max(n_nonmembers) AS n_nonmembers,
        max(n_members) + max(n_nonmembers) AS n, max(n_groups) AS n_groups, max(n_not_scored) AS n_not_scored,
        max(split_verdict) AS split_verdict, max(claim_level) AS claim_level, max(run_id) AS run_id
    FROM current_evaluations WHERE is_default GROUP BY ALL
), blind AS (SELECT * FROM headline WHERE detector = '{BLIND_CONTROL}')
SELECT headline.model, headline.benchmark, headline.detector, headline.parameters,
    headline.auroc, headline.auroc_low, headline.auroc_high,
    headline.tpr_at_5_fpr, headline.tpr_at_5_fpr_low, headline.tpr_at_5_fpr_high,
    headline.fpr_at_95_tpr, headline.fpr_at_95_tpr_low, headline.fpr_at_95_tpr_high,
    headline.n_members, headline.n_nonmembers, headline.n, headline.n_groups, headline.n_not_scored,
    blind.auroc AS blind_auroc, blind.auroc_low AS blind_auroc_low, blind.auroc_high AS blind_auroc_high,
    split_summary.worst_control, split_summary.worst_control_auroc,
    headline.margin, headline.margin_low, headline.margin_high,
    headline.split_verdict, headline.claim_level, headline.run_id,
    coalesce(lineage.benchmark_digest = benchmarks.digest, TRUE) AS is_current
FROM headline LEFT JOIN blind ON blind.model = headline.model AND blind.benchmark = headline.benchmark
LEFT JOIN lineage ON lineage."table" = 'evaluations' AND lineage.run_id = headline.run_id
    AND lineage."partition" = headline.benchmark || '|' || headline.model
LEFT JOIN benchmarks ON benchmarks.benchmark = headline.benchmark
LEFT JOIN split_summary ON split_summary.benchmark = headline.benchmark
    AND split_summary.benchmark_digest = lineage.benchmark_digest
WHERE headline.detector <> '{BLIND_CONTROL}'
ORDER BY headline.model, headline.benchmark, headline.auroc DESC NULLS LAST, headline.detector, headline.parameters
"""  # noqa: S608 - a name from this module

_SCORES_WITH_EXAMPLES = """
SELECT scored.*, examples.label, examples.split, examples.published, examples.language, examples.collection,
    examples."group", examples.words, examples.document_id, examples.excerpt
FROM current_scores AS scored LEFT JOIN examples
    ON examples.benchmark = scored.benchmark AND examples.example_id = scored.example_id
"""

_FINDINGS = """
SELECT evaluated.*, lineage.asset_key, lineage.code_version, lineage.data_version, lineage.upstream_data_versions,
    lineage.model_fingerprint, lineage.tokenizer_fingerprint, lineage.benchmark_digest, lineage.started_at,
    lineage.finished_at, lineage.package_versions
FROM current_evaluations AS evaluated LEFT JOIN lineage
    ON lineage."table" = 'evaluations' AND lineage.run_id = evaluated.run_id
    AND lineage."partition" = evaluated.benchmark || '|' || evaluated.model
"""

_WITH_INTERVAL = ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr", "blind_auroc", "margin")

_GROUP_SCORES = """
WITH by_group AS (
    SELECT scores.model, scores.benchmark, examples."group", scores.detector, scores.parameters,
        count(*) AS texts, avg(score) AS mean_score, median(score) AS median_score,
        max(score) AS highest_score, min(score) AS lowest_score
    FROM current_scores AS scores JOIN examples
        ON examples.example_id = scores.example_id AND examples.benchmark = scores.benchmark
    WHERE scores.status = 'ok' GROUP BY ALL
)
SELECT *,
    rank() OVER (PARTITION BY model, benchmark, detector, parameters ORDER BY mean_score DESC) AS rank_in_benchmark
FROM by_group
"""


_INSTRUMENT_CHECK = r"""
WITH controls AS (
    SELECT DISTINCT name AS model,
        regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 1) AS control,
        regexp_extract(resolved_from, '^control (.*), (exposed|twin): version', 2) AS role
    FROM models WHERE resolved_from LIKE 'control %'
)
SELECT controls.control, leaderboard.benchmark, leaderboard.detector, leaderboard.parameters,
    max(auroc) FILTER (role = 'exposed') AS exposed_auroc,
    max(auroc_low) FILTER (role = 'exposed') AS exposed_low,
    max(auroc_high) FILTER (role = 'exposed') AS exposed_high,
    max(auroc) FILTER (role = 'twin') AS twin_auroc,
    max(auroc_low) FILTER (role = 'twin') AS twin_low,
    max(auroc_high) FILTER (role = 'twin') AS twin_high,
    max(blind_auroc) AS blind_auroc, max(blind_auroc_low) AS blind_low, max(blind_auroc_high) AS blind_high
FROM leaderboard JOIN controls ON controls.model = leaderboard.model
GROUP BY ALL HAVING max(auroc) IS NOT NULL
ORDER BY controls.control, leaderboard.benchmark, exposed_auroc DESC NULLS LAST, leaderboard.detector
"""


_LINEAGE_GAPS = """
WITH written AS (
    SELECT 'documents' AS "table", source AS "partition", run_id FROM documents
    UNION ALL SELECT 'examples', benchmark, run_id FROM examples
    UNION ALL SELECT 'split_quality', benchmark, run_id FROM split_quality
    UNION ALL SELECT 'scores', benchmark || '|' || model, run_id FROM scores
    UNION ALL SELECT 'evaluations', benchmark || '|' || model, run_id FROM evaluations
    UNION ALL SELECT 'control_studies', study, run_id FROM control_studies
), counted AS (SELECT "table", "partition", run_id, count(*) AS rows FROM written GROUP BY ALL)
SELECT counted."table", counted."partition", counted.run_id, counted.rows, count(lineage.run_id) AS lineage_rows
FROM counted LEFT JOIN lineage
    ON lineage."table" = counted."table" AND lineage."partition" = counted."partition"
    AND lineage.run_id = counted.run_id
GROUP BY ALL HAVING count(lineage.run_id) <> 1
ORDER BY counted."table", counted."partition", counted.run_id
"""

VIEWS = (
    View(
        "current_runs",
        "the latest run of every model on every benchmark, for scores and for evaluations",
        _CURRENT_RUNS,
        ("scores", "lineage"),
    ),
    View(
        "current_scores",
        "the scores of the latest run of every model on every benchmark",
        _current("scores"),
        ("scores",),
    ),
    View(
        "current_evaluations",
        "the metrics of the latest run of every model on every benchmark",
        _current("evaluations"),
        ("evaluations",),
    ),
    View(
        "split_summary",
        "what tells the two sides of a benchmark apart without any model, one row a benchmark",
        _SPLIT_SUMMARY,
        ("split_quality", "lineage"),
        {
            "worst_control": "the blind control with the highest AUROC: words, characters, length or dates",
            "worst_control_auroc": "its AUROC; the highest of four, so above chance a little more often than each",
            "worst_control_auroc_low": "lower end of its 95% interval",
            "worst_control_auroc_high": "upper end of its 95% interval",
            **{
                f"{name}_auroc{end}": f"{what}the AUROC of {seen}"
                for name, seen in _CONTROLS.items()
                for end, what in (
                    ("", ""),
                    ("_low", "lower end of the 95% interval of "),
                    ("_high", "upper end of it: "),
                )
            },
            "words_method": "how the control of words was computed, or why it was not read",
            "overlap_7": "mean share of a non-member's 7-grams that stand in some member",
            "overlap_13": "mean share of a non-member's 13-grams that stand in some member",
            "near_duplicate_pairs": "pairs of a member and a non-member that nearly are each other",
            "other_language_members": "share of members whose detected language is not the declared one",
            "other_language_nonmembers": "share of non-members whose detected language is not the declared one",
            "texts_members": "members of the evaluation split",
            "texts_nonmembers": "non-members of the evaluation split",
            "groups_members": "groups that the members are of",
            "groups_nonmembers": "groups that the non-members are of",
            "uneven_collections": "collections of which the sides have unequally many texts",
            "is_current": "whether the benchmark is still the build that was assessed; if not, build it again",
        },
    ),
    View(
        "leaderboard",
        "one row a model, benchmark and detector at its default parameters, the blind control beside it",
        _LEADERBOARD,
        ("evaluations", "lineage", "benchmarks"),
        {
            **{f"{name}_low": "lower end of its 95% interval" for name in _WITH_INTERVAL},
            **{f"{name}_high": "upper end of its 95% interval" for name in _WITH_INTERVAL},
            "auroc": "area under the ROC curve; 0.5 is chance",
            "tpr_at_5_fpr": "members found while at most 5% of non-members are taken for members",
            "fpr_at_95_tpr": "non-members taken for members while at least 95% of members are found",
            "n": "texts with a score, both sides together",
            "blind_auroc": "AUROC of a classifier that never sees the model: what the texts alone give away",
            "worst_control": "of the four blind controls of the same build, the one with the highest AUROC",
            "worst_control_auroc": "its AUROC; the highest of four, so above chance a little more often than each",
            "is_current": "whether the benchmark is still the build that was audited; if not, audit it again",
            "margin": "AUROC less the blind control's, paired; never raises the claim level",
        },
    ),
    View(
        "scores_with_examples",
        "the current scores beside what is known of their texts",
        _SCORES_WITH_EXAMPLES,
        ("scores", "examples"),
    ),
    View(
        "findings",
        "the current metrics beside the lineage entry that explains them",
        _FINDINGS,
        ("evaluations", "lineage"),
    ),
    View(
        "group_scores",
        "scores of the latest runs by the group that texts belong to: the book, patent, article or release",
        _GROUP_SCORES,
        ("scores", "examples"),
        {
            "texts": "texts of the group with a score",
            "mean_score": "their mean",
            "median_score": "their median",
            "highest_score": "the highest",
            "lowest_score": "the lowest",
            "rank_in_benchmark": "place among the benchmark's groups by mean score, 1 the highest",
        },
    ),
    View(
        "instrument_check",
        "what detectors made of texts of which it is known what the model was trained on: the exposed model, its twin",
        _INSTRUMENT_CHECK,
        ("evaluations",),
        {
            "control": "the control, in config/controls.yaml",
            "exposed_auroc": "AUROC of members against held-out texts in the model that was trained on the members",
            "exposed_low": "lower end of its 95% interval",
            "exposed_high": "upper end of its 95% interval",
            "twin_auroc": "the same in the twin, which saw neither: 0.5 but for chance",
            "twin_low": "lower end of its 95% interval",
            "twin_high": "upper end of its 95% interval",
            "blind_auroc": "AUROC of the blind control, which sees no model: 0.5 but for chance",
            "blind_low": "lower end of its 95% interval",
            "blind_high": "upper end of its 95% interval",
        },
    ),
    View(
        "lineage_gaps",
        "rows that do not join to exactly one lineage entry; empty where all is as it should be",
        _LINEAGE_GAPS,
        ("lineage",),
        {"rows": "how many rows", "lineage_rows": "how many entries they join to"},
    ),
    View(
        "coverage",
        "what became of every model on every benchmark: of the configuration, and of every earlier run",
        coverage.COVERAGE,
        (),
        coverage.COLUMNS,
    ),
    View(
        "not_audited",
        "the pairs that are not done, worst first: failed, not_applicable, stale, missing",
        coverage.NOT_AUDITED,
        (),
        coverage.COLUMNS,
    ),
)
