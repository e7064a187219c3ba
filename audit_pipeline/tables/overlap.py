"""Tables of the passages that a benchmark's texts share with an open corpus, word for word."""

from __future__ import annotations

from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, RUN_ID
from audit_pipeline.tables.table import Table, boolean, double, int32, int64, int64s, string, strings

OverlapVerdict = Literal["found", "shared text", "not found", "too short to tell"]
OverlapPart = Literal["question and answer", "question", "answer", "text", "part", "context"]

_CORPUS = string("corpus", "the corpus: its name in config/references.yaml, or the name of its folder")
_EXAMPLE_ID = string("example_id", "the text; joins to examples")

CORPUS_OVERLAP = Table(
    "corpus_overlap",
    "how much of every text of a benchmark occurs in a corpus",
    key=("benchmark", "corpus", "example_id"),
    partitioned_by="overlap",
    storage="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        string("rule", "the rule by which a text counts as contaminated (docs/overlap.md)"),
        int32("n", "length in words of the runs that were searched; longer passages are found as a whole"),
        int64("words", "number of words of the text, in lower case and without punctuation"),
        int64("runs", "number of runs of n words that were searched"),
        int64(
            "templates",
            "number of runs of n words that were not searched, because they occur more than 100 times in the benchmark",
        ),
        int64("found_runs", "number of searched runs that occur in a document"),
        double(
            "covered",
            "share of the text's words in runs that occur in a document or in aligned passages; null if the text has "
            "no words",
            null=True,
        ),
        double(
            "covered_by_copies",
            "share of the text's words in passages that are not shared text (is_common in overlap_spans); null if the "
            "text has no words",
            null=True,
        ),
        int64("passages", "number of the text's longest passages that occur in a document (table overlap_spans)"),
        int64("longest", "length in words of the longest passage; 0 without a passage"),
        int64("documents", "number of documents with the most frequent passage; 0 without a passage"),
        string(
            "verdict",
            "found | shared text (only passages that occur in many documents or in several items) | not found | too "
            "short to tell (no run of n words, or too few rare words to exclude chance)",
        ),
        boolean(
            "contaminated",
            "whether the text counts as contaminated by the rule of the run; null if the text is too short to tell",
            null=True,
        ),
        string(
            "part",
            "the part that was found: question and answer (by the rule of evidence near each other) | question | "
            "answer | text (an item without an answer) | only by the rule of evidence: part (less than 60% of its "
            "evidence) | context (without its question); null if nothing was found",
            null=True,
        ),
        double(
            "by_chance",
            "expected number of documents with the found passages by chance, by the rule of evidence "
            "(docs/overlap.md); null if nothing was found",
            null=True,
        ),
        int64("shards_read", "number of shards of the corpus that were read completely"),
        int64("shards", "number of shards of the corpus"),
        boolean(
            "is_complete",
            "whether the whole corpus was read; if not, 'not found' does not exclude that the corpus has the text",
        ),
        RUN_ID,
    ),
)

OVERLAP_SPANS = Table(
    "overlap_spans",
    "the longest passages of a benchmark's texts that occur in a document of a corpus, with their positions",
    key=("benchmark", "corpus", "example_id", "char_start", "char_end"),
    partitioned_by="overlap",
    storage="rewritten",
    made_from=("examples",),
    columns=(
        BENCHMARK,
        _CORPUS,
        _EXAMPLE_ID,
        int64("char_start", "first character of the passage in the text"),
        int64("char_end", "end of the passage in the text (exclusive)"),
        int64("words", "number of words of the passage that the documents have"),
        int64(
            "documents",
            "number of documents that contain the whole passage; under the rule of evidence, number of documents that "
            "contain at least 80% of its words in order",
        ),
        int64("documents_of_rarest_run", "number of documents with the rarest run of n words of the passage"),
        boolean(
            "is_common",
            "whether the passage is shared text: it occurs in many documents, or in some documents by chance",
        ),
        strings("found_in", "ids of the first five documents with the passage"),
        strings("shards", "shard of each document in found_in"),
        strings("urls", "URL of each document in found_in; empty if unknown"),
        int64s("starts", "first character of the passage in each document in found_in"),
        strings(
            "contexts",
            "words before and after the passage in each document in found_in, with … for the passage",
            quotes_text=True,
        ),
        string("before", "the words of the text before the passage", null=True, quotes_text=True),
        string("excerpt", "the first words of the passage", null=True, quotes_text=True),
        string("after", "the words of the text after the passage", null=True, quotes_text=True),
        RUN_ID,
    ),
)
