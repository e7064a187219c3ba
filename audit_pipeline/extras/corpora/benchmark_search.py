"""The search for the texts of benchmarks in an open corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.extras.corpora.corpus_shards import ShardedCorpus
from audit_pipeline.extras.corpora.rules import OverlapRule
from audit_pipeline.extras.corpora.search import SEARCH_VERSION, AuditedTexts, SearchResult, search_corpus
from audit_pipeline.extras.corpora.tables import build_overlap_tables
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_OVERLAP, EXAMPLES
from audit_pipeline.tables.table import Table


@dataclass(frozen=True)
class OverlapReport:
    """The stored result of the search for a benchmark's texts in a corpus.

    Attributes:
        texts: Rows of corpus_overlap, one per text of the benchmark.
        result: The result of the search, which covers the texts of all requested benchmarks.
        data_version: Data version of the stored rows of corpus_overlap.
    """

    benchmark: str
    texts: pa.Table
    result: SearchResult
    data_version: str

    @property
    def contaminated(self) -> int:
        """Return the number of texts that count as contaminated by the rule."""
        return sum(bool(flag) for flag in self.texts.column("contaminated").to_pylist())


def build_overlap_version(rule: OverlapRule, *, whole: bool = True) -> str:
    """Return the version of a search for the ledger: the code version and the rule.

    ``whole`` is False if the search reads only selected shards.
    """
    if not whole:
        return f"{SEARCH_VERSION} of a part: {rule.name}, {rule.n} words"
    return f"{SEARCH_VERSION}: {rule.name}, {rule.n} words"


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
    """Search the corpus once for the texts of all given benchmarks, and store the results of each benchmark.

    If an example has a context, the context is the question and the text is the answer. After an interruption, the
    next call resumes the search.

    Raises:
        DataError: If a benchmark is not built, all texts are too short, or no document is readable.
    """
    built_benchmarks = [read_built(paths, benchmark) for benchmark in benchmarks]
    texts: list[str] = []
    borders: list[int] = []
    sets: list[int] = []
    names: list[tuple[str, str]] = []
    for number, built in enumerate(built_benchmarks):
        texts += EXAMPLES.texts(built.examples)
        borders += [len(context or "") for context in built.contexts]
        sets += [number] * built.examples.num_rows
        names += [(built.name, example_id) for example_id in built.examples.column("example_id").to_pylist()]
    audited = AuditedTexts(texts, borders, sets)
    file = paths.rewritten_file(CORPUS_OVERLAP.name, CORPUS_OVERLAP.partitioned_by, f"{benchmarks[0]}|{corpus.name}")
    checkpoint = file.with_name(".search.partial")
    result = search_corpus(audited, corpus, rule, processes=processes, checkpoint=checkpoint, on_progress=on_progress)
    tables = build_overlap_tables(result, names, run_id)
    reports = [_write_report(built, tables, result, paths, run_id) for built in built_benchmarks]
    checkpoint.unlink(missing_ok=True)
    return reports


def _write_report(
    built: BuiltBenchmark, tables: Mapping[Table, pa.Table], result: SearchResult, paths: DataPaths, run_id: str
) -> OverlapReport:
    """Store the rows of one benchmark, and return its report."""
    benchmark = built.name
    corpus = result.corpus
    partition = f"{benchmark}|{corpus.name}"
    benchmark_tables = {table: rows.filter(pc.field("benchmark") == benchmark) for table, rows in tables.items()}
    step = LineageStep.now(run_id, CORPUS_OVERLAP.name, build_overlap_version(result.rule, whole=corpus.is_whole))
    upstream = {f"examples/{benchmark}": built.digest, f"corpus/{corpus.name}": corpus.stamp}
    settings = {
        "corpus_sha256": result.digest,
        "documents": result.document_count,
        "shards": f"{result.whole_shards} of {len(corpus.shards)}",
        "unread": [report.name for report in result.reports.values() if report.problem is not None],
    }
    version = ""
    # CORPUS_OVERLAP is written last, so ``version`` is its data version after the loop.
    for table, rows in benchmark_tables.items():
        version = store.write(
            paths, step, table, partition, rows, upstream=upstream, benchmark_digest=built.digest, settings=settings
        )
    return OverlapReport(benchmark, benchmark_tables[CORPUS_OVERLAP], result, version)


def describe_overlap(result: SearchResult, verdicts: Counter[str], texts: int) -> str:
    """Describe in one line the verdicts on the texts, and the part of the corpus that was read."""
    shards = len(result.corpus.shards)
    whole = result.whole_shards
    if whole < shards:
        read = f"{whole:,} of {shards:,} shards (the unread part may contain further texts)"
    elif not result.is_complete:
        read = f"all {shards:,} shard(s) but not every row or file (the unread part may contain further texts)"
    else:
        read = f"all {shards:,} shard(s)"
    return (
        f"{verdicts['found']:,} of {texts:,} texts are in {result.corpus.name} in part or whole, "
        f"{verdicts['shared text']:,} only with shared text, {verdicts['too short to tell']:,} too short to tell; "
        f"{result.document_count:,} documents read, {read}"
    )
