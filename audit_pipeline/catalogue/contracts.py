"""The tables that the stages hand to each other: their columns, types and meaning.

What belongs here: Arrow schemas with a description for every column, and the two canonical forms that keys are made of
(a partition's name, a detector's parameters). What does not: where tables lie (catalogue/paths.py) or how they are read
and written (catalogue/tables.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.integrity import ROW_SHA256

Split = Literal["calibration", "evaluation"]
ScoreStatus = Literal["ok", "not_applicable", "failed"]

EXCERPT_WORDS = 50
EXCERPT_CHARACTERS = 500
"""The most of an audited text that is quoted outside of the tables of texts."""

MEMBER = 1
NON_MEMBER = 0


def _column(name: str, type_: pa.DataType, description: str, *, null: bool = False, later: bool = False) -> pa.Field:
    """A column; ``later``: files of earlier versions lack it, and it is null there."""
    metadata = {"description": description, **({"later": "yes"} if later else {})}
    return pa.field(name, type_, nullable=null or later, metadata=metadata)


def _list(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", type_, nullable=False))


RUN_ID = _column("run_id", pa.string(), "the run that wrote the row; joins to lineage.run_id")
ROW_SHA256_COLUMN = _column(
    ROW_SHA256,
    pa.string(),
    "sha256 of the row's other columns (catalogue/integrity.py); null where an earlier version wrote the row",
    later=True,
)

DOCUMENTS = pa.schema(
    [
        _column("document_id", pa.string(), "unique within all sources: source:collection:name"),
        _column("source", pa.string(), "the source asset that yielded the document"),
        _column(
            "collection", pa.string(), "the project, series or folder within the source; splits are balanced over it"
        ),
        _column(
            "group", pa.string(), "what resampling and calibration never divide: the book, patent, article or release"
        ),
        _column("title", pa.string(), "the document's title"),
        _column("text", pa.string(), "the full text, UTF-8"),
        _column("published", pa.date32(), "date of first publication; null where unknown", null=True),
        _column(
            "date_kind", pa.string(), "what published is the date of: release, publication, first revision, delivery …"
        ),
        _column(
            "earliest",
            pa.date32(),
            "first day on which the text can have existed, where that is before published (a patent's priority date)",
            null=True,
        ),
        _column("retrieved_at", pa.timestamp("us", tz="UTC"), "when the text was fetched"),
        _column("language", pa.string(), "ISO 639-1 code"),
        _column("licence", pa.string(), "SPDX identifier or the licence in words; 'unknown' where not stated"),
        _column("url", pa.string(), "where the text came from"),
        _column("sha256", pa.string(), "sha256 of the UTF-8 text"),
        RUN_ID,
    ]
)

EXAMPLES = pa.schema(
    [
        _column("example_id", pa.string(), "sha256(benchmark, document_id, text)[:16]"),
        _column("benchmark", pa.string(), "the benchmark, one partition of the asset"),
        _column("document_id", pa.string(), "the document that the text was taken from"),
        _column("text", pa.string(), "the audited text"),
        _column(
            "context",
            pa.string(),
            "text that stands before it, which the model reads and no detector scores; null: none",
            null=True,
        ),
        _column("label", pa.int8(), "1 member, 0 non-member, null unknown", null=True),
        _column("split", pa.string(), "calibration | evaluation; groups are never divided"),
        _column("published", pa.date32(), "the document's date", null=True),
        _column("words", pa.int32(), "length in words (whitespace words; jieba words in Chinese)"),
        _column("language", pa.string(), "ISO 639-1 code"),
        _column("collection", pa.string(), "the project, series or folder within the source"),
        _column("group", pa.string(), "the unit of resampling, calibration and cross-validation"),
        RUN_ID,
    ]
)

TOKEN_STATISTICS = pa.schema(
    [
        _column(
            "key",
            pa.string(),
            "cache key: text, model, tokenizer, start-token policy and token, window, stride, kind version",
        ),
        _column("text_sha256", pa.string(), "sha256 of the UTF-8 text"),
        _column("token_id", _list(pa.int32()), "the scored tokens, in order"),
        _column("char_start", _list(pa.int32()), "first character of the token in the text"),
        _column("char_end", _list(pa.int32()), "one past the last character of the token"),
        _column("logprob", _list(pa.float32()), "log p(x_t | x_<t), natural logarithm"),
        _column("mean", _list(pa.float32()), "mu_t: the expectation of log p(z | x_<t) over z drawn from p"),
        _column(
            "std",
            _list(pa.float32()),
            "sigma_t: the standard deviation of log p(z | x_<t) over z drawn from p, not clamped",
        ),
        _column("max_logprob", _list(pa.float32()), "the largest log-probability at the position"),
        _column("argmax_id", _list(pa.int32()), "the token that has it"),
        _column(
            "rank", _list(pa.int32()), "how many tokens of the vocabulary have a strictly larger logit (0: the argmax)"
        ),
    ]
)

TOPK = pa.schema(
    [
        TOKEN_STATISTICS.field("key"),
        TOKEN_STATISTICS.field("text_sha256"),
        _column("k", pa.int32(), "entries a token"),
        _column("token_id", _list(pa.int32()), "flat, k a scored token, best first"),
        _column("logprob", _list(pa.float32()), "flat, k a scored token, best first"),
    ]
)

LOGITS = pa.schema(
    [
        TOKEN_STATISTICS.field("key"),
        TOKEN_STATISTICS.field("text_sha256"),
        _column("vocab_size", pa.int32(), "entries a token"),
        _column("logits", pa.large_binary(), "float16, little endian, row-major: scored tokens x vocabulary"),
    ]
)

BRANCHES = pa.schema(
    [
        TOKEN_STATISTICS.field("key"),
        TOKEN_STATISTICS.field("text_sha256"),
        _column("m", pa.int32(), "tokens that a branch has at most"),
        _column(
            "offsets",
            _list(pa.int32()),
            "scored tokens + 1: where each token's branch begins in the flat lists; empty where it is the argmax",
        ),
        _column(
            "logprob",
            _list(pa.float32()),
            "flat: log-probability of the tokens behind, the argmax standing in the token's place",
        ),
        _column("z", _list(pa.float32()), "flat: the same, standardised by the branch's own mean and deviation"),
    ]
)

TOKEN_FREQUENCIES = pa.schema(
    [
        _column("token_id", pa.int32(), "the token's id"),
        _column("token", pa.string(), "the token as the tokenizer writes it; null for an unused id", null=True),
        _column("count", pa.int64(), "occurrences in the corpus, special tokens left out"),
    ]
)

CONTROL_TEXTS = pa.schema(
    [
        DOCUMENTS.field("document_id"),
        _column("group", pa.string(), "what was randomised: the window, or the document with all its windows"),
        DOCUMENTS.field("collection"),
        DOCUMENTS.field("language"),
        DOCUMENTS.field("published"),
        _column("text", pa.string(), "the window, UTF-8"),
        _column("role", pa.string(), "member | held_out | twin (trained on by the twin alone) | surrounding"),
        _column("exposed", pa.int32(), "how often an epoch of the exposed model's training held the text"),
        _column("twin", pa.int32(), "how often an epoch of its twin's training held it"),
        _column("sha256", pa.string(), "sha256 of the UTF-8 text"),
    ]
)

CONTROL_STUDIES = pa.schema(
    [
        _column("study", pa.string(), "the study, as named in config/controls.yaml"),
        _column("control", pa.string(), "the control that was trained again and again"),
        _column("setting", pa.string(), "what was varied: occurrences, learning_rate, surrounding, hidden_size, …"),
        _column("value", pa.string(), "its value, as JSON"),
        _column("seed", pa.int64(), "the seed of drawing and training"),
        _column("detector", pa.string(), "the detector, or blind_control"),
        _column("parameters", pa.string(), "canonical JSON of the detector's parameters"),
        _column("n_members", pa.int32(), "members with a score"),
        _column("n_nonmembers", pa.int32(), "held-out texts with a score"),
        _column("auroc", pa.float64(), "AUROC of members against held-out texts; null where not defined", null=True),
        _column("ci_low", pa.float64(), "lower end of the 95% interval", null=True),
        _column("ci_high", pa.float64(), "upper end of the 95% interval", null=True),
        _column("training_tokens", pa.int64(), "tokens of the training, repeats counted"),
        _column("parameters_of_model", pa.int64(), "trainable numbers of the model"),
        _column("final_loss", pa.float64(), "mean loss of the last epoch, nats a token"),
        RUN_ID,
    ]
)

SCORES = pa.schema(
    [
        _column("example_id", pa.string(), "the scored example"),
        _column("model", pa.string(), "the model's name in config/models.yaml, hub id or path"),
        _column("benchmark", pa.string(), "the benchmark"),
        _column("detector", pa.string(), "the detector"),
        _column("parameters", pa.string(), "canonical JSON of the detector's parameters"),
        _column(
            "is_default",
            pa.bool_(),
            "whether these are the detector's default parameters, with what the benchmark fixes in them; null where an "
            "earlier version wrote the row",
            later=True,
        ),
        _column("score", pa.float64(), "higher means more likely a member; null unless status is ok", null=True),
        _column("status", pa.string(), "ok | not_applicable | failed"),
        _column("reason", pa.string(), "why there is no score; null where there is one", null=True),
        RUN_ID,
    ]
)

EVALUATIONS = pa.schema(
    [
        _column("model", pa.string(), "the model"),
        _column("benchmark", pa.string(), "the benchmark"),
        _column("detector", pa.string(), "the detector, or blind_control"),
        _column("parameters", pa.string(), "canonical JSON of the detector's parameters"),
        _column("is_default", pa.bool_(), "whether these are the detector's default parameters (the headline finding)"),
        _column("n_members", pa.int32(), "members with a score"),
        _column("n_nonmembers", pa.int32(), "non-members with a score"),
        _column("n_groups", pa.int32(), "groups that the interval was resampled over"),
        _column("n_not_scored", pa.int32(), "labelled examples of the evaluation split without a score"),
        _column(
            "metric", pa.string(), "auroc | tpr_at_5_fpr | tpr_at_1_fpr | tpr_at_01_fpr | fpr_at_95_tpr | auroc_margin"
        ),
        _column("value", pa.float64(), "the metric; null where it is not defined", null=True),
        _column("ci_low", pa.float64(), "lower end of the 95% interval", null=True),
        _column("ci_high", pa.float64(), "upper end of the 95% interval", null=True),
        _column("method", pa.string(), "how value and interval were computed, or why they are null"),
        _column("split_verdict", pa.string(), "what the blind control says of the benchmark's two sides"),
        _column("claim_level", pa.string(), "screening only | statistical evidence | sound test"),
        RUN_ID,
    ]
)

DECISIONS = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        SCORES.field("detector"),
        EVALUATIONS.field("parameters"),
        EVALUATIONS.field("is_default"),
        _column("rule", pa.string(), "largest_accuracy | marginal | certified: how the threshold was chosen"),
        _column("alpha", pa.float64(), "the false-positive rate aimed at; null for largest_accuracy", null=True),
        _column("threshold", pa.float64(), "texts with at least this score are called members; null: none", null=True),
        _column("status", pa.string(), "ok | refused: there is no threshold, reason says why"),
        _column("reason", pa.string(), "why there is no threshold; null where there is one", null=True),
        _column("n_calibration_groups", pa.int32(), "groups of calibration non-members"),
        _column("n_calibration_nonmembers", pa.int32(), "calibration non-members with a score"),
        _column("n_calibration_members", pa.int32(), "calibration members with a score"),
        _column("n_nonmembers", pa.int32(), "evaluation non-members that the rate was achieved on"),
        _column("fpr", pa.float64(), "achieved on the evaluation split, which chose nothing", null=True),
        _column("fpr_low", pa.float64(), "lower end of its 95% interval", null=True),
        _column("fpr_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("n_members", pa.int32(), "evaluation members that the rate was achieved on"),
        _column("tpr", pa.float64(), "achieved on the evaluation split", null=True),
        _column("tpr_low", pa.float64(), "lower end of its 95% interval", null=True),
        _column("tpr_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("method", pa.string(), "how threshold and intervals were computed"),
        RUN_ID,
    ]
)

GROUP_TESTS = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        EXAMPLES.field("group"),
        EXAMPLES.field("collection"),
        _column("label", pa.int8(), "1 member, 0 non-member, null unknown or of both", null=True),
        SCORES.field("detector"),
        EVALUATIONS.field("parameters"),
        EVALUATIONS.field("is_default"),
        _column("n_texts", pa.int32(), "texts of the group with a score"),
        _column("n_compared", pa.int32(), "of them, how many the statistic is the mean of; the same in calibration"),
        _column("statistic", pa.float64(), "mean score of the compared texts"),
        _column("p_value", pa.float64(), "conformal: (1 + calibration groups with a statistic as high) / (n + 1)"),
        _column("q_bh", pa.float64(), "Benjamini-Hochberg over the groups tested by this detector"),
        _column("q_by", pa.float64(), "Benjamini-Yekutieli over the groups tested by this detector"),
        _column("q_ledger", pa.float64(), "Benjamini-Yekutieli over the groups and every detector of the pair"),
        _column("n_calibration_groups", pa.int32(), "calibration groups that it was compared with"),
        _column("n_tests", pa.int32(), "groups tested by this detector"),
        _column("n_ledger", pa.int32(), "groups tested by all detectors of the pair"),
        EVALUATIONS.field("claim_level"),
        _column("method", pa.string(), "how the p-value was computed"),
        _column(
            "direction",
            pa.string(),
            "which of the pair's labelled texts the detector scores higher: training (members) | opposite "
            "(non-members) | none (neither, clearly); null: no texts of a side are known, or of an earlier version",
            later=True,
        ),
        RUN_ID,
    ]
)

CONTAMINATION_RATES = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        _column("unit", pa.string(), "group | collection | benchmark: what the rate is of"),
        _column("name", pa.string(), "the group, collection or benchmark"),
        SCORES.field("detector"),
        EVALUATIONS.field("parameters"),
        EVALUATIONS.field("is_default"),
        _column("rule", pa.string(), "largest_accuracy | marginal | certified: the threshold that flags"),
        _column("alpha", pa.float64(), "the false-positive rate aimed at; null for largest_accuracy", null=True),
        _column("n_texts", pa.int32(), "texts with a score"),
        _column("n_groups", pa.int32(), "groups that they are of"),
        _column("n_flagged", pa.int32(), "texts with at least the threshold's score"),
        _column("flagged", pa.float64(), "their share: the rate as papers print it (000 Table 4, 003 Table 2)"),
        _column("flagged_low", pa.float64(), "lower end of its 95% interval", null=True),
        _column("flagged_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("fpr", pa.float64(), "of the threshold on calibration non-members", null=True),
        _column("fpr_low", pa.float64(), "lower end of its 95% interval", null=True),
        _column("fpr_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("tpr", pa.float64(), "of the threshold on calibration members", null=True),
        _column("tpr_low", pa.float64(), "lower end of its 95% interval", null=True),
        _column("tpr_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("status", pa.string(), "ok | refused: of the corrected rate"),
        _column("reason", pa.string(), "why there is no corrected rate; null where there is one", null=True),
        _column("corrected", pa.float64(), "(flagged - FPR) / (TPR - FPR), clipped to 0 and 1", null=True),
        _column("corrected_low", pa.float64(), "lower end of its 95% interval, over all three terms", null=True),
        _column("corrected_high", pa.float64(), "upper end of its 95% interval", null=True),
        _column("assumption", pa.string(), "what must be true for the corrected rate to hold"),
        EVALUATIONS.field("claim_level"),
        RUN_ID,
    ]
)

COMPARISONS = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        _column("detector", pa.string(), "the detector"),
        _column("parameters", pa.string(), "canonical JSON of its parameters"),
        _column("other", pa.string(), "the detector it is compared with, or blind_control"),
        _column("other_parameters", pa.string(), "canonical JSON of its parameters"),
        _column("n_members", pa.int32(), "members with a score of both"),
        _column("n_nonmembers", pa.int32(), "non-members with a score of both"),
        _column("n_groups", pa.int32(), "groups that were resampled"),
        _column("difference", pa.float64(), "AUROC of the detector less that of the other, on the same texts"),
        _column("standard_error", pa.float64(), "standard deviation of the resampled differences", null=True),
        _column("ci_low", pa.float64(), "lower end of the 95% interval", null=True),
        _column("ci_high", pa.float64(), "upper end of the 95% interval", null=True),
        _column("p_value", pa.float64(), "two-sided, of no difference; null where there are no resamples", null=True),
        _column("method", pa.string(), "how interval and p-value were computed, or why they are null"),
        RUN_ID,
    ]
)

CALIBRATION_CHECKS = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        SCORES.field("detector"),
        EVALUATIONS.field("parameters"),
        _column("rule", pa.string(), "marginal | certified"),
        _column("alpha", pa.float64(), "the false-positive rate aimed at"),
        _column("splits", pa.int32(), "random halves that the non-members were divided into"),
        _column("n_groups", pa.int32(), "groups of non-members"),
        _column("mean_fpr", pa.float64(), "mean false-positive rate on the other halves; null: refused", null=True),
        _column("standard_error", pa.float64(), "of that mean over the splits (they overlap)", null=True),
        _column("over_alpha", pa.float64(), "share of the splits whose rate exceeds alpha", null=True),
        _column("reason", pa.string(), "why there is none; null where there is one", null=True),
        RUN_ID,
    ]
)

CORPUS_TESTS = pa.schema(
    [
        EVALUATIONS.field("model"),
        _column("benchmark", pa.string(), "the benchmark, set of canaries or test set"),
        _column("test", pa.string(), "dataset_inference | canary_rank | sharded_permutation"),
        _column("status", pa.string(), "ok | refused: the test's conditions are not met, reason says which"),
        _column("reason", pa.string(), "why there is no p-value; null where there is one", null=True),
        _column("p_value", pa.float64(), "one-sided: the smaller, the less likely without training", null=True),
        _column("statistic", pa.float64(), "what the test compares", null=True),
        _column("n", pa.int64(), "audited texts, published canaries, or items of the test set"),
        _column("n_held_out", pa.int64(), "held-out texts, other canaries or permutations that it is compared with"),
        _column("assumption", pa.string(), "what must be true for the p-value to hold"),
        EVALUATIONS.field("claim_level"),
        _column("method", pa.string(), "how it was computed"),
        _column(
            "direction",
            pa.string(),
            "which texts score higher where a difference is found (5%): training (audited ones) | opposite (held-out "
            "ones) | none; null: the test knows one direction only, was refused, or is of an earlier version",
            later=True,
        ),
        RUN_ID,
    ]
)

HIGHLIGHTS = pa.schema(
    [
        EVALUATIONS.field("model"),
        EVALUATIONS.field("benchmark"),
        SCORES.field("example_id"),
        SCORES.field("detector"),
        EVALUATIONS.field("parameters"),
        _column("place", pa.int32(), "1: the highest score of the evaluated texts"),
        _column("score", pa.float64(), "the text's score"),
        _column("pieces", _list(pa.string()), "at most 50 words of the text, in the model's tokens"),
        _column("token_scores", _list(pa.float64()), "the score of each of those tokens"),
        _column("counted", _list(pa.bool_()), "whether the token is among the lowest k% that the score averages"),
        _column("n_tokens", pa.int32(), "scored tokens of the whole text"),
        RUN_ID,
    ]
)

LINEAGE = pa.schema(
    [
        _column("table", pa.string(), "the table whose rows the entry explains"),
        _column("partition", pa.string(), "the partition: a source, a benchmark, or benchmark|model"),
        _column("run_id", pa.string(), "the run that wrote the rows"),
        _column("asset_key", pa.string(), "the Dagster asset"),
        _column("code_version", pa.string(), "the asset's code version"),
        _column("data_version", pa.string(), "digest of what was written"),
        _column("upstream_data_versions", pa.string(), "canonical JSON: upstream table/partition -> data version"),
        _column("model_fingerprint", pa.string(), "weights, config, dtype and attention back end", null=True),
        _column("tokenizer_fingerprint", pa.string(), "the tokenizer's files", null=True),
        _column("benchmark_digest", pa.string(), "config entry and sources of the benchmark", null=True),
        _column("started_at", pa.timestamp("us", tz="UTC"), "when the step started"),
        _column("finished_at", pa.timestamp("us", tz="UTC"), "when the rows were ready to be moved into place"),
        _column("package_versions", pa.string(), "canonical JSON: package -> version"),
        _column(
            "settings",
            pa.string(),
            "canonical JSON of the options that the command was given, as in the scores of evaluate; null: not kept",
            later=True,
        ),
        _column(
            "file_sha256",
            pa.string(),
            "sha256 of the Parquet file that holds the rows; null: they lie in no file of their own, "
            "or an earlier version wrote them",
            later=True,
        ),
        ROW_SHA256_COLUMN,
    ]
)

OUTCOMES = pa.schema(
    [
        _column("model", pa.string(), "the model"),
        _column("benchmark", pa.string(), "the benchmark"),
        _column("stage", pa.string(), "token_statistics | scores | evaluations: where the run gave the pair up"),
        _column("status", pa.string(), "not_applicable (input is missing or wrong) | failed (any other fault)"),
        _column("reason", pa.string(), "why, in one line of at most 500 characters"),
        RUN_ID,
        _column("at", pa.timestamp("us", tz="UTC"), "when the run gave the pair up"),
        ROW_SHA256_COLUMN,
    ]
)

SPLIT_QUALITY = pa.schema(
    [
        _column("benchmark", pa.string(), "the benchmark"),
        _column(
            "measure",
            pa.string(),
            "what was measured: blind_auroc, worst_blind_auroc, ngram_overlap_*, near_duplicate_*, texts*, groups, "
            "uneven_collections, years_mentioned, latest_year_mentioned, length_*, language_*",
        ),
        _column(
            "part",
            pa.string(),
            "of which there are several: the control, n of the n-grams, the collection, year, unit or language; "
            "'all' where there is one only",
        ),
        _column("side", pa.string(), "members | nonmembers | unlabelled | both | between (pairs of one text each)"),
        _column("value", pa.float64(), "the measure; null where it was not read", null=True),
        _column("ci_low", pa.float64(), "lower end of the 95% interval", null=True),
        _column("ci_high", pa.float64(), "upper end of the 95% interval", null=True),
        _column("n", pa.int64(), "texts that the value is of"),
        _column("method", pa.string(), "how the value was computed, or why it is null"),
        _column(
            "verdict",
            pa.string(),
            "of a blind control: the split verdict that its interval alone would give; null for other measures",
            null=True,
        ),
        _column(
            "split_verdict",
            pa.string(),
            "by the blind control of words, of the texts that were read; as in evaluations",
        ),
        RUN_ID,
    ]
)

SCHEMAS: Mapping[str, pa.Schema] = {
    "documents": DOCUMENTS,
    "examples": EXAMPLES,
    "split_quality": SPLIT_QUALITY,
    "token_statistics": TOKEN_STATISTICS,
    "scores": SCORES,
    "evaluations": EVALUATIONS,
    "decisions": DECISIONS,
    "group_tests": GROUP_TESTS,
    "contamination_rates": CONTAMINATION_RATES,
    "comparisons": COMPARISONS,
    "calibration_checks": CALIBRATION_CHECKS,
    "corpus_tests": CORPUS_TESTS,
    "highlights": HIGHLIGHTS,
    "lineage": LINEAGE,
    "outcomes": OUTCOMES,
}


RUN_TABLES = (
    "scores",
    "evaluations",
    "decisions",
    "group_tests",
    "contamination_rates",
    "comparisons",
    "calibration_checks",
    "corpus_tests",
    "highlights",
)
"""Append-only: a run adds one file for a benchmark and model, and every row of it joins to one lineage entry."""


def is_later(field: pa.Field) -> bool:
    """Whether files of earlier versions lack the column; it is null there."""
    return b"later" in (field.metadata or {})


def description_of(field: pa.Field) -> str:
    """The meaning of a column, as written in its schema."""
    return str((field.metadata or {}).get(b"description", b"").decode())


def canonical_json(value: object) -> str:
    """JSON with one spelling for one value: sorted keys, no blanks, floats at 12 significant digits.

    Floats are rounded so that ``0.1 * 3`` and ``0.3`` name the same parameter setting.
    """
    return json.dumps(_canonical(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _canonical(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def digest(*parts: object) -> str:
    """sha256 (hex) of the canonical JSON of ``parts``: unambiguous, whatever the parts hold."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).hexdigest()


def text_sha256(text: str) -> str:
    """sha256 (hex) of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def example_id(benchmark: str, document_id: str, text: str) -> str:
    """The identity of an example: sha256(benchmark, document_id, text), 16 hex digits."""
    return digest(benchmark, document_id, text)[:16]


def texts_read(examples: pa.Table) -> list[str]:
    """What a model reads of each example (schema EXAMPLES): its text, behind its context where it has one."""
    pairs = zip(examples.column("context").to_pylist(), examples.column("text").to_pylist(), strict=True)
    return [(context or "") + text for context, text in pairs]


@dataclass(frozen=True)
class Pair:
    """One model on one benchmark: a partition of the token statistics, scores and evaluations."""

    benchmark: str
    model: str

    @property
    def partition(self) -> str:
        """The partition's name; Dagster sorts dimensions by name, so the benchmark comes first."""
        return f"{self.benchmark}|{self.model}"
