"""Tables of memorised passages: how likely a model reproduces parts of documents word for word."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import COLLECTION, GROUP, build_run_table
from audit_pipeline.tables.examples import DOCUMENTS
from audit_pipeline.tables.table import Column, boolean, count, double, fraction, int32, int64, string, strings
from audit_pipeline.tables.token_statistics import BEST_TOKENS

Side = Literal["audited", "held_out"]
SetApart = Literal["repeats its prefix", "in several documents", "predictable", "likely anyway"]

_DOCUMENT_ID = string(
    "document_id",
    "the document; the example_id if the benchmark consists of rows; for an answer of a conversation, the example_id, "
    "or example_id/N for its answer number N if several answers are scored",
)
_SIDE = string(
    "side",
    "audited | held_out (a non-member, for comparison)",
    one_of=("audited", "held_out"),
)
_TO_BE_DRAWN = f"if every token is sampled from the {BEST_TOKENS} most likely tokens"

EXTRACTION_WINDOWS = build_run_table(
    "extraction_windows",
    "for every run: the probability that the model continues the prefix of each window word for word with its suffix",
    current="the windows of documents",
    key=("document_id", "start"),
    made_from=("documents", "examples", "extraction"),
    columns=(
        _DOCUMENT_ID,
        int64("start", "first character of the window in the document", ge=0),
        int64("suffix_begin", "first character of the suffix in the document", ge=0),
        int64("suffix_end", "end of the suffix in the document (exclusive)", ge=0),
        count("tokens", "tokens of the suffix"),
        double("log_p", "log-probability of the suffix if every token is sampled from the whole distribution"),
        double(
            "log_p_top_40",
            f"log-probability of the suffix {_TO_BE_DRAWN}; null if a token of the suffix is not among these tokens, "
            "or if the API does not return these tokens",
            null=True,
        ),
        count(
            "outside_top_40",
            f"tokens of the suffix that are not among the {BEST_TOKENS} most likely; null if the API does not return "
            "ranks",
            null=True,
        ),
        count(
            "first_choices",
            "tokens of the suffix that are the model's most likely token, or tied with the most likely token; null if "
            "the API does not return the most likely token",
            null=True,
        ),
        boolean(
            "is_coarse",
            "whether the window belongs to the coarse grid that every document is searched on; only windows of this "
            "grid count in p-values",
        ),
        string(
            "set_apart",
            "why a window above the lowest threshold is no evidence of memorisation: repeats its prefix | in several"
            " documents | predictable (the reference model also reproduces it) | likely anyway (as likely after"
            " prefixes of other documents); null if it is evidence, or below all thresholds",
            null=True,
        ),
        double(
            "reference_log_p",
            "log-probability of the suffix by the reference model; null if the reference model was not run",
            null=True,
        ),
        double(
            "prior_log_p",
            "log of the mean probability of the suffix after prefixes of other documents; null if it was not computed",
            null=True,
        ),
        string(
            "place",
            "start of the suffix in the file: page of a PDF, chapter and paragraph of an EPUB, line of a text; null "
            "for an answer",
            null=True,
        ),
        int32(
            "strength",
            "rank among the document's windows that are evidence of memorisation and overlap no stronger window; "
            "1 is the strongest; null for the other windows",
            null=True,
            ge=1,
        ),
        double(
            "log_p_near_verbatim",
            "lower bound of the log-probability of any suffix that differs from the document's in no more tokens than "
            f"the benchmark's entry allows, {_TO_BE_DRAWN}; null except for the document's strongest window, or if the "
            "entry sets no number",
            null=True,
        ),
        string("prefix_excerpt", "last words of the prefix", null=True, quotes_text=True),
        strings("suffix_pieces", "first words of the suffix, as tokens of the model", quotes_text=True),
        strings(
            "first_choice_pieces",
            "the model's most likely token at the position of each token in suffix_pieces, after the "
            "document's own words",
            quotes_text=True,
        ),
        string(
            "given_text",
            "first words of the model's greedy continuation of the prefix; null unless the window has a strength and "
            "the benchmark requests a grid",
            null=True,
            quotes_text=True,
        ),
        count("suffix_words", "number of whitespace-separated words of the suffix", null=True),
        count("words_in_common", "length in words of the longest run that the suffix and given_text share", null=True),
    ),
)
"""The table of searched windows.

Only windows with a ``strength`` are quoted, with at most 50 words of prefix and suffix together.
"""


def _build_coverage_column(threshold: str) -> Column:
    return fraction(
        f"covered_at_{threshold.replace('.', '_')}",
        f"share of the document's characters in suffixes with a probability of at least {threshold} {_TO_BE_DRAWN} "
        "(from all tokens if the API does not return the most likely ones)",
        null=True,
    )


DOCUMENT_MEMORISATION = build_run_table(
    "document_memorisation",
    "for every run: how much of each document the model reproduces word for word",
    current="how much of each document the model reproduces word for word,",
    key=("document_id",),
    made_from=("extraction_windows",),
    columns=(
        _DOCUMENT_ID,
        DOCUMENTS.column("title").with_changes(null=True),
        GROUP,
        COLLECTION,
        _SIDE,
        int32(
            "occurrences",
            "occurrences of the text in the training of a control's exposed model; null without a control",
            null=True,
        ),
        int64(
            "characters",
            "length of the document in characters; for an answer, of the conversation up to the end of the answer",
            ge=0,
        ),
        count("prefix_tokens", "tokens of a prefix; 0 for all tokens of the conversation before an answer"),
        count("suffix_tokens", "tokens of a suffix"),
        string("stride", "starts of the windows: coarse-to-fine | tiled | chars:N | answers (one window per answer)"),
        count("windows", "windows that the model was run on; 0 if the document is shorter than a window"),
        string("reason", "why there are no windows; null if there are windows", null=True),
        count("reproduced", "windows that the model reproduces and that are evidence of memorisation"),
        int32("set_apart", "windows that the model reproduces, but that are no evidence of memorisation"),
        count("predictable", "windows in set_apart that the reference model also reproduces"),
        int32("likely_anyway", "windows in set_apart that are as likely after prefixes of other documents"),
        *map(_build_coverage_column, ("0.001", "0.01", "0.1", "0.5")),
        double(
            "covered_by_first_choices",
            "share of the document's characters in suffixes that greedy decoding reproduces; null without windows, or "
            "if the API does not return the most likely tokens",
            null=True,
        ),
        fraction(
            "covered_set_apart",
            "share of the document's characters in windows that are no evidence (set_apart)",
            null=True,
        ),
        int64(
            "longest_run", "length in characters of the longest run of suffixes that reach the lowest threshold", ge=0
        ),
        int64("longest_run_words", "length of the longest run in whitespace-separated words", null=True),
        double("log_p", "log-probability of the strongest window that is evidence of memorisation", null=True),
        string(
            "claim",
            "reproduced | not reproduced; null without windows",
            null=True,
            one_of=("reproduced", "not reproduced"),
        ),
        count("windows_compared", "number of coarse windows that the p-value is computed from", null=True),
        count("n_held_out", "number of held-out documents in the comparison", null=True),
        fraction(
            "p_value",
            "conformal p-value of the strongest compared window: (1 + held-out documents with a window at least as "
            "strong) / (n + 1); null for held-out documents, or without held-out documents",
            null=True,
        ),
        fraction("q_bh", "Benjamini-Hochberg q-value over the audited documents", null=True),
        count("grid_settings", "number of settings of the grid; null without a grid", null=True),
        fraction(
            "grid_p_value",
            "conformal p-value of the document's smallest rank at any setting of the grid, corrected for the number of "
            "settings; null if p_value is null",
            null=True,
        ),
        fraction("grid_q_bh", "Benjamini-Hochberg q-value over the audited documents", null=True),
    ),
)

EXTRACTION_GRID = build_run_table(
    "extraction_grid",
    "for every run: the probability that the model reproduces suffixes of each document at each setting of a grid",
    current="the probability that the model reproduces suffixes of each document at each setting,",
    key=("document_id", "prefix_tokens", "suffix_tokens", "temperature", "drawn_from"),
    made_from=("documents", "examples", "grid"),
    columns=(
        _DOCUMENT_ID,
        _SIDE,
        count(
            "prefix_tokens",
            "tokens of the prefix; 0 for all tokens of the document before the suffix",
        ),
        count("suffix_tokens", "tokens of a suffix"),
        double("temperature", "sampling temperature; 0 for greedy decoding", ge=0),
        string("drawn_from", "tokens from which each next token is sampled: all | top-k 40 | top-p 0.9"),
        boolean("is_named", "whether the setting was chosen in advance"),
        count("places", "number of suffixes of the document that were measured at the setting"),
        count("reached", "number of measured suffixes with a probability of at least 0.001 (at temperature 0: of 1)"),
        double("log_p", "log-probability of the most likely suffix; null if no suffix can be sampled", null=True),
        int64(
            "start", "first character of the most likely suffix in the document; null if log_p is null", null=True, ge=0
        ),
    ),
)

EXTRACTION_RATES = build_run_table(
    "extraction_rates",
    "for every run: how much of a group, collection or benchmark the model reproduces word for word",
    current="how much of groups, collections and benchmarks the model reproduces word for word,",
    key=("unit", "name", "side", "rule", "threshold"),
    made_from=("document_memorisation",),
    columns=(
        string("unit", "unit of the rate: group | collection | benchmark | occurrences (of a control)"),
        string(
            "name",
            "the group, collection or benchmark; for occurrences, the number of times that the control's exposed model "
            "was trained on the texts",
        ),
        _SIDE,
        string(
            "rule",
            "rule by which a suffix counts: probability (at least the threshold) | first_choices (greedy decoding)",
        ),
        fraction("threshold", "minimum probability; null for first_choices", null=True),
        int32("n_documents", "number of documents with at least one window; for answers, of conversations"),
        int64("characters", "total length of the documents with at least one window, in characters", ge=0),
        double("covered", "share of the characters in suffixes that count, without windows that are no evidence"),
        double(
            "covered_low",
            "lower end of the 95% interval of covered, over documents; null if all documents have the same share",
            null=True,
        ),
        double("covered_high", "upper end of the 95% interval of covered", null=True),
        int32("n_reached", "number of documents (for answers, conversations) with at least one suffix that counts"),
        double("reached", "share of documents with at least one suffix that counts", ge=0),
        double("reached_low", "lower end of the 95% interval of reached (Clopper-Pearson, by document)"),
        double("reached_high", "upper end of the 95% interval of reached"),
        double(
            "median_log_p",
            "median over the documents of log_p (document_memorisation); null if too few documents have a value",
            null=True,
        ),
    ),
)
