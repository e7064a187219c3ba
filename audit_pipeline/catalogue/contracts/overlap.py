"""What an open corpus holds of a benchmark's texts, word for word.

What belongs here: the declarations of the tables. What does not: the search (overlap/).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, RUN_ID
from audit_pipeline.catalogue.table import Column, Table, list_type_of

OverlapVerdict = Literal["found", "common", "not found", "too short"]

_CORPUS = Column("corpus", pa.string(), "the corpus: its name in config/references.yaml, or its folder's")
_EXAMPLE_ID = Column("example_id", pa.string(), "the text; joins to examples")

CORPUS_OVERLAP = Table(
    "corpus_overlap",
    "how much of every text of a benchmark stands word for word in a corpus that was read",
    key=("benchmark", "corpus", "example_id"),
    per="overlap",
    kept="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        Column("rule", pa.string(), "the rule by which a text counts as contaminated (docs/overlap.md)"),
        Column("n", pa.int32(), "words on end that were looked for; longer passages are found whole"),
        Column("words", pa.int64(), "words of the text, in lower case and without punctuation"),
        Column("runs", pa.int64(), "its runs of n words that were looked for"),
        Column(
            "templates",
            pa.int64(),
            "its runs of n words that stand at more than 100 places of the benchmark, and were not looked for",
        ),
        Column("found_runs", pa.int64(), "of the runs that were looked for, those that stand in some document"),
        Column(
            "covered", pa.float64(), "share of its words that lie in such a run; null where it has no word", null=True
        ),
        Column(
            "covered_by_copies",
            pa.float64(),
            "share of its words that lie in a passage that is no common phrase (is_common in overlap_spans); null "
            "where it has no word",
            null=True,
        ),
        Column("passages", pa.int64(), "its longest passages that stand in a document (table overlap_spans)"),
        Column("longest", pa.int64(), "words of the longest of them; 0: there is none"),
        Column("documents", pa.int64(), "documents that hold the one that most hold; 0: there is none"),
        Column(
            "verdict",
            pa.string(),
            "found | common (only phrases that stand in many documents) | not found | too short (no run of n words to "
            "look for)",
        ),
        Column(
            "contaminated", pa.bool_(), "whether it counts by the rule; null where it is too short to say", null=True
        ),
        Column("shards_read", pa.int64(), "shards of the corpus that were read to their ends"),
        Column("shards", pa.int64(), "shards that the corpus has"),
        Column(
            "is_complete",
            pa.bool_(),
            "whether all of the corpus was read; where it was not, 'not found' does not say 'not there'",
        ),
        RUN_ID,
    ),
)

OVERLAP_SPANS = Table(
    "overlap_spans",
    "the longest passages of a benchmark's texts that stand in a document of a corpus, and where",
    key=("benchmark", "corpus", "example_id", "char_start", "char_end"),
    per="overlap",
    kept="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        Column("char_start", pa.int64(), "where the passage begins in the text, in characters"),
        Column("char_end", pa.int64(), "where it ends"),
        Column("words", pa.int64(), "its words"),
        Column("documents", pa.int64(), "documents that hold all of it"),
        Column("documents_of_rarest_run", pa.int64(), "documents that hold the run of n words in it that fewest hold"),
        Column("is_common", pa.bool_(), "whether even that run stands in so many documents that it is a common phrase"),
        Column("found_in", list_type_of(pa.string()), "the first five of these documents, as they call themselves"),
        Column("shards", list_type_of(pa.string()), "of each of them, the shard that it is in"),
        Column("urls", list_type_of(pa.string()), "of each of them, its url; empty where it has none"),
        Column("starts", list_type_of(pa.int64()), "of each of them, where the passage begins in it, in characters"),
        Column(
            "contexts",
            list_type_of(pa.string()),
            "of each of them, the words before and after the passage, with … for it",
            quotes_text=True,
        ),
        Column("before", pa.string(), "the words of the text before the passage", null=True, quotes_text=True),
        Column("excerpt", pa.string(), "the first words of the passage", null=True, quotes_text=True),
        Column("after", pa.string(), "the words of the text after the passage", null=True, quotes_text=True),
        RUN_ID,
    ),
)
