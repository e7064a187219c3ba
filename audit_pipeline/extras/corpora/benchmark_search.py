"""Looks for the texts of benchmarks in an open corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.extras.corpora.rules import OverlapRule
from audit_pipeline.extras.corpora.search import (
    SEARCH_VERSION,
    AuditedTexts,
    SearchResult,
    ShardedCorpus,
    search_corpus,
)
from audit_pipeline.extras.corpora.tables import build_overlap_tables
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_OVERLAP, EXAMPLES
from audit_pipeline.tables.table import Table


@dataclass(frozen=True)
class OverlapReport:
    """What was written of a benchmark and a corpus: the row of every text, and the search."""

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


def search_benchmarks(
    benchmarks: Sequence[str],
    corpus: ShardedCorpus,
    paths: DataPaths,
    run_id: str,
    rule: OverlapRule,
    *,
    processes: int = 1,
    on_progress: Callable[[str], None] | None = None,
) -> list[OverlapReport]:
    """Look for the texts of built benchmarks in the corpus, which is read once, and keep what was found by benchmark.

    The text of an example with a context is the answer to it. A search that was stopped goes on where it was. Raises
    DataError where a benchmark is not built, and as :func:`search_corpus` does.
    """
    read = [read_built(paths, benchmark) for benchmark in benchmarks]
    audited = AuditedTexts(
        [text for built in read for text in EXAMPLES.texts(built.examples)],
        [len(context or "") for built in read for context in built.contexts],
        [number for number, built in enumerate(read) for _ in range(built.examples.num_rows)],
    )
    file = paths.rewritten_file(CORPUS_OVERLAP.name, CORPUS_OVERLAP.partitioned_by, f"{benchmarks[0]}|{corpus.name}")
    checkpoint = file.with_name(".search.partial")
    result = search_corpus(audited, corpus, rule, processes=processes, checkpoint=checkpoint, on_progress=on_progress)
    names = [
        (built.name, example_id) for built in read for example_id in built.examples.column("example_id").to_pylist()
    ]
    tables = build_overlap_tables(result, names, run_id)
    reports = [_write_report(built, tables, result, paths, run_id) for built in read]
    checkpoint.unlink(missing_ok=True)
    return reports


def _write_report(
    built: BuiltBenchmark, tables: Mapping[Table, pa.Table], result: SearchResult, paths: DataPaths, run_id: str
) -> OverlapReport:
    """Write what was found of one benchmark."""
    benchmark, corpus, rule = built.name, result.corpus, result.rule
    partition = f"{benchmark}|{corpus.name}"
    own = {table: rows.filter(pc.field("benchmark") == benchmark) for table, rows in tables.items()}
    step = LineageStep.now(run_id, CORPUS_OVERLAP.name, build_overlap_version(rule, whole=corpus.is_whole))
    upstream = {f"examples/{benchmark}": built.digest, f"corpus/{corpus.name}": corpus.stamp}
    settings = {
        "corpus_sha256": result.digest,
        "documents": result.document_count,
        "shards": f"{result.whole_shards} of {len(corpus.shards)}",
        "unread": [report.name for report in result.reports.values() if report.problem is not None],
    }
    version = ""
    # The table that the step is named after comes last.
    for table, rows in own.items():
        version = store.write(
            paths, step, table, partition, rows, upstream=upstream, benchmark_digest=built.digest, settings=settings
        )
    return OverlapReport(benchmark, own[CORPUS_OVERLAP], result, version)


def describe_overlap(result: SearchResult, verdicts: Counter[str], texts: int) -> str:
    """What was found and how much of the corpus was read, in one line."""
    shards, whole = len(result.corpus.shards), result.whole_shards
    read = f"all {shards:,} shard(s)" if whole == shards else f"{whole:,} of {shards:,} shards"
    if not result.is_complete:
        limit = "" if whole < shards else " but not every row or file"
        read = f"{read}{limit} (not found there is not 'not there')"
    return (
        f"{verdicts['found']:,} of {texts:,} texts are in {result.corpus.name} in part or whole, "
        f"{verdicts['shared text']:,} only with shared text, {verdicts['too short to tell']:,} too short to tell; "
        f"{result.document_count:,} documents read, {read}"
    )
