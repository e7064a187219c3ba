"""What a model can be made to say of whole documents."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import COLLECTION, GROUP, build_run_table
from audit_pipeline.tables.documents import DOCUMENTS
from audit_pipeline.tables.table import Column, boolean, count, double, fraction, int32, int64, string, strings
from audit_pipeline.tables.token_statistics import BEST_TOKENS

Side = Literal["audited", "held_out"]
SetApart = Literal["repeats its prefix", "in several documents", "predictable", "likely anyway"]

_DOCUMENT_ID = string("document_id", "the document; of a benchmark of rows, its example_id")
_SIDE = string(
    "side",
    "audited | held_out (a non-member, which the audited documents are compared with)",
    one_of=("audited", "held_out"),
)
_TO_BE_DRAWN = f"every token drawn from the {BEST_TOKENS} likeliest ones"

EXTRACTION_WINDOWS = build_run_table(
    "extraction_windows",
    "how likely the model gives each window's suffix word for word after its prefix, of every run",
    current="the windows of documents",
    key=("document_id", "start"),
    made_from=("documents", "examples", "extraction"),
    columns=(
        _DOCUMENT_ID,
        int64("start", "first character of the window in the document", ge=0),
        int64("suffix_begin", "first character of its suffix", ge=0),
        int64("suffix_end", "one past the last character of its suffix", ge=0),
        count("tokens", "tokens of the suffix"),
        double("log_p", "log-probability of the suffix, every token drawn from the whole distribution"),
        double(
            "log_p_top_40",
            f"the same, {_TO_BE_DRAWN}; null where one is not among them, so that it cannot be drawn, and where an "
            "interface does not give them",
            null=True,
        ),
        count(
            "outside_top_40",
            "tokens of the suffix that are not among them; null where an interface does not give their ranks",
            null=True,
        ),
        count(
            "first_choices",
            "tokens of the suffix that are the model's first choice, or tied with it; null where an interface does not "
            "give it",
            null=True,
        ),
        boolean("is_coarse", "whether it is run whatever others show, and so counts in p-values"),
        string(
            "set_apart",
            "why a window that reaches the lowest threshold is no sign of memorisation: repeats its prefix | in several"
            " documents | predictable (the reference model reaches it, too) | likely anyway (as likely after prefixes"
            " of other documents); null where it is, or reaches none",
            null=True,
        ),
        double(
            "reference_log_p",
            "log-probability of the suffix by the reference model; null where it was not asked",
            null=True,
        ),
        double(
            "prior_log_p",
            "log of the mean probability of the suffix after prefixes of other documents; null where it was not asked",
            null=True,
        ),
        string(
            "place",
            "where the suffix begins in the file: page of a PDF, chapter and paragraph of an EPUB, line of a text",
            null=True,
        ),
        int32(
            "strength",
            "1: the document's strongest window that is not set apart, 2: the next that does not overlap it, …; "
            "null for the others",
            null=True,
            ge=1,
        ),
        double(
            "log_p_near_verbatim",
            "of the document's strongest window: a lower bound of the log-probability of a suffix with at most so many"
            f" other tokens as the benchmark's entry says, {_TO_BE_DRAWN}; null for the others, and where it says none",
            null=True,
        ),
        string("prefix_excerpt", "the last words of its prefix", null=True, quotes_text=True),
        strings("suffix_pieces", "the first words of its suffix, in the model's tokens", quotes_text=True),
        strings(
            "first_choice_pieces",
            "the model's first choice at the place of each of those tokens, the document's own words before it",
            quotes_text=True,
        ),
        string(
            "given_text",
            "the first words of what the model gives after the prefix when it always takes its first choice, its own "
            "words before each; of windows with a strength, where the benchmark asks for a grid",
            null=True,
            quotes_text=True,
        ),
        count("suffix_words", "words of the suffix, between white space", null=True),
        count("words_in_common", "longest run of words that the suffix and that text share", null=True),
    ),
)
"""Only windows with a strength are quoted, prefix and suffix in 50 words together at most."""


def _build_coverage_column(threshold: str) -> Column:
    return fraction(
        f"covered_at_{threshold.replace('.', '_')}",
        f"share of its characters in suffixes with a probability of at least {threshold}, {_TO_BE_DRAWN} (where an "
        "interface does not give these: from all)",
        null=True,
    )


DOCUMENT_MEMORISATION = build_run_table(
    "document_memorisation",
    "how much of every document the model gives word for word, of every run",
    current="how much of each document the model gives word for word,",
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
            "of a control: how many times its exposed model's training held the text; else null",
            null=True,
        ),
        int64("characters", "of the document", ge=0),
        count("prefix_tokens", "tokens that the model is given"),
        count("suffix_tokens", "tokens that it has to give"),
        string("stride", "where windows begin: coarse-to-fine | tiled | chars:N"),
        count("windows", "windows that the model was run on; 0: the document is shorter than a window"),
        string("reason", "why there are none; null where there are some", null=True),
        count("reproduced", "windows that the model reproduces and that are not set apart"),
        int32("set_apart", "windows that it reproduces, but that are no sign of memorisation"),
        count("predictable", "of them, those that the reference model reproduces, too"),
        int32("likely_anyway", "of them, those that are as likely after prefixes of other documents"),
        *map(_build_coverage_column, ("0.001", "0.01", "0.1", "0.5")),
        double(
            "covered_by_first_choices",
            "share of its characters in suffixes that the model gives by its first choices alone; null where there is "
            "no window, and where an interface does not give them",
            null=True,
        ),
        fraction("covered_set_apart", "share of its characters in windows that are set apart", null=True),
        int64("longest_run", "most characters on end in suffixes that reach the lowest threshold", ge=0),
        int64("longest_run_words", "words of that stretch, between white space", null=True),
        double("log_p", "log-probability of the strongest window that is not set apart", null=True),
        string(
            "claim",
            "reproduced | not reproduced; null where there is no window",
            null=True,
            one_of=("reproduced", "not reproduced"),
        ),
        count("windows_compared", "coarse windows that the p-value rests on", null=True),
        count("n_held_out", "held-out documents that it was compared with", null=True),
        fraction(
            "p_value",
            "conformal, of the strongest of those windows: (1 + held-out documents with one as strong) / (n + 1); null "
            "for held-out documents, and where there are none",
            null=True,
        ),
        fraction("q_bh", "Benjamini-Hochberg over the audited documents", null=True),
        count("grid_settings", "settings of the grid; null where there is none", null=True),
        fraction(
            "grid_p_value",
            "conformal, allowing for every setting of the grid: of the smallest rank at any; null as p_value is",
            null=True,
        ),
        fraction("grid_q_bh", "Benjamini-Hochberg over the audited documents", null=True),
    ),
)

EXTRACTION_GRID = build_run_table(
    "extraction_grid",
    "how likely the model gives suffixes of every document at every setting of a grid, of every run",
    current="how likely the model gives suffixes of each document at each setting,",
    key=("document_id", "prefix_tokens", "suffix_tokens", "temperature", "drawn_from"),
    made_from=("documents", "examples", "grid"),
    columns=(
        _DOCUMENT_ID,
        _SIDE,
        count(
            "prefix_tokens",
            "tokens of the document before the suffix that the model is given; 0: all of them, from its first on",
        ),
        count("suffix_tokens", "tokens that it has to give"),
        double("temperature", "temperature of the draws; 0: the first choice is always taken", ge=0),
        string("drawn_from", "all | top-k 40 | top-p 0.9: which tokens each token is drawn from"),
        boolean("is_named", "whether it is the setting that was named beforehand"),
        count("places", "suffixes of the document that were asked for at the setting"),
        count("reached", "of them, those with a probability of at least 0.001 (at temperature 0: of 1)"),
        double("log_p", "log-probability of the likeliest of them; null where none can be drawn", null=True),
        int64("start", "first character of that suffix in the document; null with log_p", null=True, ge=0),
    ),
)

EXTRACTION_RATES = build_run_table(
    "extraction_rates",
    "how much of a group, collection or benchmark the model gives word for word, of every run",
    current="how much of groups, collections and benchmarks the model gives word for word,",
    key=("unit", "name", "side", "rule", "threshold"),
    made_from=("document_memorisation",),
    columns=(
        string("unit", "group | collection | benchmark | occurrences (of a control): what the rate is of"),
        string(
            "name",
            "the group, collection or benchmark, or how many times the control's exposed model was trained on them",
        ),
        _SIDE,
        string("rule", "probability (of at least the threshold) | first_choices: which suffixes count"),
        fraction("threshold", "the least probability; null for first_choices", null=True),
        int32("n_documents", "documents with a window"),
        int64("characters", "of them together", ge=0),
        double("covered", "share of these characters in such suffixes, windows set apart left out"),
        double(
            "covered_low", "lower end of its 95% interval, by document; null where all have the same share", null=True
        ),
        double("covered_high", "upper end of its 95% interval", null=True),
        int32("n_reached", "documents with at least one such window"),
        double("reached", "their share", ge=0),
        double("reached_low", "lower end of its 95% interval (Clopper-Pearson, by document)"),
        double("reached_high", "upper end of its 95% interval"),
        double(
            "median_log_p",
            "median over the documents of their strongest window that is not set apart; null where too few have one",
            null=True,
        ),
    ),
)
