"""What a model can be made to say of whole documents.

What belongs here: the declarations of the tables of extraction. What does not: computing them (extraction/), the cached
windows themselves (statistics.py).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, COLLECTION, GROUP, MODEL, RUN_ID
from audit_pipeline.catalogue.contracts.documents import DOCUMENTS
from audit_pipeline.catalogue.contracts.statistics import BEST_TOKENS
from audit_pipeline.catalogue.table import Column, Table, list_type_of

Side = Literal["audited", "held_out"]
SetApart = Literal["repeats its prefix", "in several documents", "predictable", "likely anyway"]

_DOCUMENT_ID = Column("document_id", pa.string(), "the document; of a benchmark of rows, its example_id")
_SIDE = Column(
    "side",
    pa.string(),
    "audited | held_out (a non-member, which the audited documents are compared with)",
    one_of=("audited", "held_out"),
)
_TO_BE_DRAWN = f"every token drawn from the {BEST_TOKENS} likeliest ones"

EXTRACTION_WINDOWS = Table(
    "extraction_windows",
    "how likely the model gives each window's suffix word for word behind its prefix, of every run",
    current="the windows of documents",
    key=("run_id", "benchmark", "model", "document_id", "start"),
    per="pair",
    kept="runs",
    made_from=("documents", "examples", "extraction"),
    columns=(
        MODEL,
        BENCHMARK,
        _DOCUMENT_ID,
        Column("start", pa.int64(), "first character of the window in the document", ge=0),
        Column("suffix_begin", pa.int64(), "first character of its suffix", ge=0),
        Column("suffix_end", pa.int64(), "one past the last character of its suffix", ge=0),
        Column("tokens", pa.int32(), "tokens of the suffix", ge=0),
        Column("log_p", pa.float64(), "log-probability of the suffix, every token drawn from the whole distribution"),
        Column(
            "log_p_top_40",
            pa.float64(),
            f"the same, {_TO_BE_DRAWN}; null where one is not among them, so that it cannot be drawn, and where an "
            "interface does not give them",
            null=True,
        ),
        Column(
            "outside_top_40",
            pa.int32(),
            "tokens of the suffix that are not among them; null where an interface does not give their ranks",
            null=True,
            ge=0,
        ),
        Column(
            "first_choices",
            pa.int32(),
            "tokens of the suffix that are the model's first choice, or tied with it; null where an interface does not "
            "give it",
            null=True,
            ge=0,
        ),
        Column("is_coarse", pa.bool_(), "whether it is run whatever others show, and so counts in p-values"),
        Column(
            "set_apart",
            pa.string(),
            "why a window that reaches the lowest threshold is no sign of memorisation: repeats its prefix | in several"
            " documents | predictable (the reference model reaches it, too) | likely anyway (as likely after prefixes"
            " of other documents); null where it is, or reaches none",
            null=True,
        ),
        Column(
            "reference_log_p",
            pa.float64(),
            "log-probability of the suffix by the reference model; null where it was not asked",
            null=True,
        ),
        Column(
            "prior_log_p",
            pa.float64(),
            "log of the mean probability of the suffix after prefixes of other documents; null where it was not asked",
            null=True,
        ),
        Column(
            "place",
            pa.string(),
            "where the suffix begins in the file: page of a PDF, chapter and paragraph of an EPUB, line of a text",
            null=True,
        ),
        Column(
            "strength",
            pa.int32(),
            "1: the document's strongest window that is not set apart, 2: the next that does not overlap it, …; "
            "null for the others",
            null=True,
            ge=1,
        ),
        Column(
            "log_p_near_verbatim",
            pa.float64(),
            "of the document's strongest window: a lower bound of the log-probability of a suffix with at most so many"
            f" other tokens as the benchmark's entry says, {_TO_BE_DRAWN}; null for the others, and where it says none",
            null=True,
        ),
        Column("prefix_excerpt", pa.string(), "the last words of its prefix", null=True, quotes_text=True),
        Column(
            "suffix_pieces",
            list_type_of(pa.string()),
            "the first words of its suffix, in the model's tokens",
            quotes_text=True,
        ),
        Column(
            "first_choice_pieces",
            list_type_of(pa.string()),
            "the model's first choice at the place of each of those tokens, the document's own words before it",
            quotes_text=True,
        ),
        Column(
            "given_text",
            pa.string(),
            "the first words of what the model gives after the prefix when it always takes its first choice, its own "
            "words before each; of windows with a strength, where the benchmark asks for a grid",
            null=True,
            quotes_text=True,
        ),
        Column("suffix_words", pa.int32(), "words of the suffix, between white space", null=True, ge=0),
        Column(
            "words_in_common", pa.int32(), "longest run of words that the suffix and that text share", null=True, ge=0
        ),
        RUN_ID,
    ),
)
"""Only windows with a strength are quoted, prefix and suffix in 50 words together at most."""


def _build_coverage_column(threshold: str) -> Column:
    return Column(
        f"covered_at_{threshold.replace('.', '_')}",
        pa.float64(),
        f"share of its characters in suffixes with a probability of at least {threshold}, {_TO_BE_DRAWN} (where an "
        "interface does not give these: from all)",
        null=True,
        ge=0,
        le=1,
    )


DOCUMENT_MEMORISATION = Table(
    "document_memorisation",
    "how much of every document the model gives word for word, of every run",
    current="how much of each document the model gives word for word,",
    key=("run_id", "benchmark", "model", "document_id"),
    per="pair",
    kept="runs",
    made_from=("extraction_windows",),
    columns=(
        MODEL,
        BENCHMARK,
        _DOCUMENT_ID,
        DOCUMENTS.column("title").with_changes(null=True),
        GROUP,
        COLLECTION,
        _SIDE,
        Column(
            "occurrences",
            pa.int32(),
            "of a control: how many times its exposed model's training held the text; else null",
            null=True,
        ),
        Column("characters", pa.int64(), "of the document", ge=0),
        Column("prefix_tokens", pa.int32(), "tokens that the model is given", ge=0),
        Column("suffix_tokens", pa.int32(), "tokens that it has to give", ge=0),
        Column("stride", pa.string(), "where windows begin: coarse-to-fine | tiled | chars:N"),
        Column(
            "windows", pa.int32(), "windows that the model was run on; 0: the document is shorter than a window", ge=0
        ),
        Column("reason", pa.string(), "why there are none; null where there are some", null=True),
        Column("reproduced", pa.int32(), "windows that the model reproduces and that are not set apart", ge=0),
        Column("set_apart", pa.int32(), "windows that it reproduces, but that are no sign of memorisation"),
        Column("predictable", pa.int32(), "of them, those that the reference model reproduces, too", ge=0),
        Column(
            "likely_anyway",
            pa.int32(),
            "of them, those that are as likely after prefixes of other documents",
        ),
        *map(_build_coverage_column, ("0.001", "0.01", "0.1", "0.5")),
        Column(
            "covered_by_first_choices",
            pa.float64(),
            "share of its characters in suffixes that the model gives by its first choices alone; null where there is "
            "no window, and where an interface does not give them",
            null=True,
        ),
        Column(
            "covered_set_apart",
            pa.float64(),
            "share of its characters in windows that are set apart",
            null=True,
            ge=0,
            le=1,
        ),
        Column("longest_run", pa.int64(), "most characters on end in suffixes that reach the lowest threshold", ge=0),
        Column(
            "longest_run_words",
            pa.int64(),
            "words of that stretch, between white space",
            null=True,
        ),
        Column("log_p", pa.float64(), "log-probability of the strongest window that is not set apart", null=True),
        Column(
            "claim",
            pa.string(),
            "reproduced | not reproduced; null where there is no window",
            null=True,
            one_of=("reproduced", "not reproduced"),
        ),
        Column("windows_compared", pa.int32(), "coarse windows that the p-value rests on", null=True, ge=0),
        Column("n_held_out", pa.int32(), "held-out documents that it was compared with", null=True, ge=0),
        Column(
            "p_value",
            pa.float64(),
            "conformal, of the strongest of those windows: (1 + held-out documents with one as strong) / (n + 1); null "
            "for held-out documents, and where there are none",
            null=True,
            ge=0,
            le=1,
        ),
        Column("q_bh", pa.float64(), "Benjamini-Hochberg over the audited documents", null=True, ge=0, le=1),
        Column("grid_settings", pa.int32(), "settings of the grid; null where there is none", null=True, ge=0),
        Column(
            "grid_p_value",
            pa.float64(),
            "conformal, allowing for every setting of the grid: of the smallest rank at any; null as p_value is",
            null=True,
            ge=0,
            le=1,
        ),
        Column("grid_q_bh", pa.float64(), "Benjamini-Hochberg over the audited documents", null=True, ge=0, le=1),
        RUN_ID,
    ),
)

EXTRACTION_GRID = Table(
    "extraction_grid",
    "how likely the model gives suffixes of every document at every setting of a grid, of every run",
    current="how likely the model gives suffixes of each document at each setting,",
    key=("run_id", "benchmark", "model", "document_id", "prefix_tokens", "suffix_tokens", "temperature", "drawn_from"),
    per="pair",
    kept="runs",
    made_from=("documents", "examples", "grid"),
    columns=(
        MODEL,
        BENCHMARK,
        _DOCUMENT_ID,
        _SIDE,
        Column(
            "prefix_tokens",
            pa.int32(),
            "tokens of the document before the suffix that the model is given; 0: all of them, from its first on",
            ge=0,
        ),
        Column("suffix_tokens", pa.int32(), "tokens that it has to give", ge=0),
        Column("temperature", pa.float64(), "temperature of the draws; 0: the first choice is always taken", ge=0),
        Column("drawn_from", pa.string(), "all | top-k 40 | top-p 0.9: which tokens each token is drawn from"),
        Column("is_named", pa.bool_(), "whether it is the setting that was named beforehand"),
        Column("places", pa.int32(), "suffixes of the document that were asked for at the setting", ge=0),
        Column(
            "reached", pa.int32(), "of them, those with a probability of at least 0.001 (at temperature 0: of 1)", ge=0
        ),
        Column(
            "log_p",
            pa.float64(),
            "log-probability of the likeliest of them; null where none can be drawn",
            null=True,
        ),
        Column("start", pa.int64(), "first character of that suffix in the document; null with log_p", null=True, ge=0),
        RUN_ID,
    ),
)

EXTRACTION_RATES = Table(
    "extraction_rates",
    "how much of a group, collection or benchmark the model gives word for word, of every run",
    current="how much of groups, collections and benchmarks the model gives word for word,",
    key=("run_id", "benchmark", "model", "unit", "name", "side", "rule", "threshold"),
    per="pair",
    kept="runs",
    made_from=("document_memorisation",),
    columns=(
        MODEL,
        BENCHMARK,
        Column("unit", pa.string(), "group | collection | benchmark | occurrences (of a control): what the rate is of"),
        Column(
            "name",
            pa.string(),
            "the group, collection or benchmark, or how many times the control's exposed model was trained on them",
        ),
        _SIDE,
        Column("rule", pa.string(), "probability (of at least the threshold) | first_choices: which suffixes count"),
        Column("threshold", pa.float64(), "the least probability; null for first_choices", null=True, ge=0, le=1),
        Column("n_documents", pa.int32(), "documents with a window"),
        Column("characters", pa.int64(), "of them together", ge=0),
        Column("covered", pa.float64(), "share of these characters in such suffixes, windows set apart left out"),
        Column(
            "covered_low",
            pa.float64(),
            "lower end of its 95% interval, by document; null where all have the same share",
            null=True,
        ),
        Column("covered_high", pa.float64(), "upper end of its 95% interval", null=True),
        Column("n_reached", pa.int32(), "documents with at least one such window"),
        Column("reached", pa.float64(), "their share", ge=0),
        Column("reached_low", pa.float64(), "lower end of its 95% interval (Clopper-Pearson, by document)"),
        Column("reached_high", pa.float64(), "upper end of its 95% interval"),
        Column(
            "median_log_p",
            pa.float64(),
            "median over the documents of their strongest window that is not set apart; null where too few have one",
            null=True,
        ),
        RUN_ID,
    ),
)
