"""The stage that looks for a benchmark's texts in an open corpus, word for word.

What belongs here: the order of read, search, record and write, what is up to date, and what the UI shows. What does
not: the search itself (overlap/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import CORPUS_OVERLAP, EXAMPLES, digest
from audit_pipeline.catalogue.ledger import LineageStep, find_writing_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.facts import OverlapFacts
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.overlap.rules import DEFAULT_RULE, OverlapRule, choose_rule
from audit_pipeline.overlap.search import SEARCH_VERSION, SearchProgress, SearchResult, search_corpus
from audit_pipeline.overlap.shards import ShardedCorpus, open_sharded_corpus
from audit_pipeline.overlap.tables import build_overlap_tables
from audit_pipeline.references.config import load_references

_SHOWN = 10


@dataclass(frozen=True)
class OverlapReport:
    """What was written of a benchmark and a corpus: the row of every text, and the search behind them."""

    benchmark: str
    texts: pa.Table
    result: SearchResult
    data_version: str

    @property
    def contaminated(self) -> int:
        """How many texts count as contaminated by the rule."""
        return sum(bool(flag) for flag in self.texts.column("contaminated").to_pylist())


def build_overlap_version(rule: OverlapRule, *, whole: bool = True) -> str:
    """The version of the code, whether all shards were to be read, and what was looked for."""
    of_part = "" if whole else " of a part"
    return f"{SEARCH_VERSION}{of_part}: {rule.name}, {rule.n} words"


def search_benchmark(
    benchmark: str,
    corpus: ShardedCorpus,
    paths: DataPaths,
    run_id: str,
    rule: OverlapRule,
    *,
    processes: int = 1,
    on_progress: Callable[[SearchProgress], None] | None = None,
) -> OverlapReport:
    """Look for the texts of a built benchmark in the corpus, and keep what was found.

    A search that was stopped goes on where it was. Raises DataError where the benchmark is not built, and as
    :func:`search_corpus` does.
    """
    built = read_built(paths, benchmark)
    texts = EXAMPLES.texts(built.examples)
    partition = f"{benchmark}|{corpus.name}"
    checkpoint = CORPUS_OVERLAP.file_of(paths, partition)
    if checkpoint is None:
        raise TypeError("corpus_overlap has no file of its own")
    checkpoint = checkpoint.with_name(".search.partial")
    result = search_corpus(texts, corpus, rule, processes=processes, checkpoint=checkpoint, on_progress=on_progress)
    tables = build_overlap_tables(result, benchmark, built.examples.column("example_id").to_pylist(), texts, run_id)
    step = LineageStep.now(run_id, CORPUS_OVERLAP.name, build_overlap_version(rule, whole=corpus.is_whole))
    upstream = {f"examples/{benchmark}": built.digest, f"corpus/{corpus.name}": corpus.stamp}
    settings = {
        "corpus_sha256": result.digest,
        "documents": result.documents,
        "shards": f"{result.whole_shards} of {len(corpus.shards)}",
        "unread": [report.name for report in result.reports.values() if report.problem is not None],
    }
    version = ""
    # The table that the step is named after comes last.
    for table, rows in tables.items():
        version = store.write(
            paths, step, table, partition, rows, upstream=upstream, benchmark_digest=built.digest, settings=settings
        )
    checkpoint.unlink(missing_ok=True)
    return OverlapReport(benchmark, tables[CORPUS_OVERLAP], result, version)


def search_named_corpus(
    benchmark: str,
    corpus: str,
    paths: DataPaths,
    run_id: str,
    *,
    rule: str,
    n: int | None,
    shards: str | None,
    processes: int,
    on_progress: Callable[[SearchProgress], None],
) -> OverlapReport:
    """As :func:`search_benchmark`, with the rule, the corpus and its ``shards`` (a pattern) by their names."""
    opened = open_sharded_corpus(corpus, only=shards)
    return search_benchmark(
        benchmark, opened, paths, run_id, choose_rule(rule, n), processes=processes, on_progress=on_progress
    )


def read_overlap_facts(benchmark: str, built: str | None, corpus: str, paths: DataPaths) -> OverlapFacts:
    """What was searched of a configured corpus for a benchmark, and what an audit would search."""
    rule = build_overlap_version(choose_rule(DEFAULT_RULE))
    run = find_writing_run(paths, CORPUS_OVERLAP, f"{benchmark}|{corpus}")
    there = None
    if run is not None:
        # A search by another rule, which a user asked for, stands.
        stamps = (run.upstream.get(f"examples/{benchmark}"), run.upstream.get(f"corpus/{corpus}"))
        there = digest(*stamps, str(run.code_version).partition(":")[0])
    return OverlapFacts(
        corpus, digest(built, _find_stamp(corpus, {} if run is None else run.upstream), rule.partition(":")[0]), there
    )


def _find_stamp(corpus: str, upstream: Mapping[str, str]) -> str | None:
    """What lies in the corpus now. A data set of the hub is taken as it was searched: the hub is not asked."""
    if load_references().named(corpus).hub is not None:
        return upstream.get(f"corpus/{corpus}")
    return open_sharded_corpus(corpus).stamp


def summarise_overlap(report: OverlapReport) -> Shown:
    """Of a search: how many texts were found, how much of the corpus was read, and the longest passages."""
    rows, result = report.texts.to_pylist(), report.result
    verdicts = Counter(row["verdict"] for row in rows)
    unread = [(shard.name, shard.problem) for shard in result.reports.values() if shard.problem is not None]
    longest = sorted((row for row in rows if row["longest"]), key=lambda row: -row["longest"])[:_SHOWN]
    body = [(row["example_id"], row["longest"], f"{row['covered']:.0%}", row["documents"]) for row in longest]
    return Shown(
        len(rows),
        {
            "answer": describe_overlap(result, verdicts, len(rows)),
            **dict(sorted(verdicts.items())),
            "contaminated by the rule": report.contaminated,
            "rule": f"{result.rule.name}: {result.rule.source}",
            "documents read": result.documents,
            "shards read": result.whole_shards,
            "shards": len(result.corpus.shards),
            "data_version": report.data_version,
        },
        {
            **({"longest passages": (("text", "words", "of the text", "documents"), body)} if body else {}),
            **({"shards that could not be read": (("shard", "reason"), unread)} if unread else {}),
        },
    )


def describe_overlap(result: SearchResult, verdicts: Counter[str], texts: int) -> str:
    """What was found and how much of the corpus was read, in one line."""
    shards, whole = len(result.corpus.shards), result.whole_shards
    read = f"all {shards:,} shard(s)" if whole == shards else f"{whole:,} of {shards:,} shards"
    if not result.is_complete:
        besides = "" if whole < shards else " but not every row or file"
        read = f"{read}{besides} (not found there is not 'not there')"
    return (
        f"{verdicts['found']:,} of {texts:,} texts stand in {result.corpus.name} in part or whole, "
        f"{verdicts['common']:,} only with common phrases; {result.documents:,} documents read, {read}"
    )
