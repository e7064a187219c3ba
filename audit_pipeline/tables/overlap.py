"""What an open corpus holds of a benchmark's texts, word for word."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, RUN_ID
from audit_pipeline.tables.table import Table, boolean, double, int32, int64, int64s, string, strings

OverlapVerdict = Literal["found", "shared text", "not found", "too short to tell"]
OverlapPart = Literal["question and answer", "question", "answer", "text", "part", "context"]

_CORPUS = string("corpus", "the corpus: its name in config/references.yaml, or its folder's")
_EXAMPLE_ID = string("example_id", "the text; joins to examples")

CORPUS_OVERLAP = Table(
    "corpus_overlap",
    "how much of every text of a benchmark is in a corpus that was read",
    key=("benchmark", "corpus", "example_id"),
    partitioned_by="overlap",
    storage="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        string("rule", "the rule by which a text counts as contaminated (docs/overlap.md)"),
        int32("n", "words on end that were looked for; longer passages are found whole"),
        int64("words", "words of the text, in lower case and without punctuation"),
        int64("runs", "its runs of n words that were looked for"),
        int64(
            "templates",
            "its runs of n words that are at more than 100 places of the benchmark, and were not looked for",
        ),
        int64("found_runs", "of the runs that were looked for, those that are in some document"),
        double("covered", "share of its words in such a run, or aligned; null where it has no word", null=True),
        double(
            "covered_by_copies",
            "share of its words that lie in a passage that is its own (not is_common in overlap_spans); null where it "
            "has no word",
            null=True,
        ),
        int64("passages", "its longest passages that are in a document (table overlap_spans)"),
        int64("longest", "words of the longest of them; 0: there is none"),
        int64("documents", "documents that hold the one that most hold; 0: there is none"),
        string(
            "verdict",
            "found | shared text (only what is in many documents or in several items) | not found | too short to "
            "tell (no run of n words, or too few rare words to be more than chance)",
        ),
        boolean("contaminated", "whether it counts by the rule; null where it is too short to tell", null=True),
        string(
            "part",
            "what of it was found: question and answer (by the rule of evidence near each other) | question | answer | "
            "text (an item without an answer) | and by the rule of evidence alone: part (less than 60% of its "
            "evidence) | context (without its question); null: nothing",
            null=True,
        ),
        double(
            "by_chance",
            "of the rule of evidence, documents that are expected to hold what was found by chance (docs/overlap.md); "
            "null where nothing was found",
            null=True,
        ),
        int64("shards_read", "shards of the corpus that were read to their ends"),
        int64("shards", "shards that the corpus has"),
        boolean(
            "is_complete", "whether all of the corpus was read; where it was not, 'not found' does not say 'not there'"
        ),
        RUN_ID,
    ),
)

OVERLAP_SPANS = Table(
    "overlap_spans",
    "the longest passages of a benchmark's texts that are in a document of a corpus, and where",
    key=("benchmark", "corpus", "example_id", "char_start", "char_end"),
    partitioned_by="overlap",
    storage="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        int64("char_start", "where the passage begins in the text, in characters"),
        int64("char_end", "where it ends"),
        int64("words", "its words that the documents hold"),
        int64(
            "documents",
            "documents that hold all of it; by the rule of evidence those that hold at least 80% of its words in order",
        ),
        int64("documents_of_rarest_run", "documents that hold the run of n words in it that fewest hold"),
        boolean("is_common", "whether it is shared text: in many documents, or in some documents by chance"),
        strings("found_in", "the first five of these documents, as they call themselves"),
        strings("shards", "of each of them, the shard that it is in"),
        strings("urls", "of each of them, its url; empty where it has none"),
        int64s("starts", "of each of them, where the passage begins in it, in characters"),
        strings("contexts", "of each of them, the words before and after the passage, with … for it", quotes_text=True),
        string("before", "the words of the text before the passage", null=True, quotes_text=True),
        string("excerpt", "the first words of the passage", null=True, quotes_text=True),
        string("after", "the words of the text after the passage", null=True, quotes_text=True),
        RUN_ID,
    ),
)
