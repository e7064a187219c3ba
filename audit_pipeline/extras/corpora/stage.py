"""The stage that looks for a benchmark's texts in an open corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.extras.corpora.config import load_references
from audit_pipeline.extras.corpora.rules import DEFAULT_RULE, RULES, OverlapRule, choose_rule
from audit_pipeline.extras.corpora.search import (
    SEARCH_VERSION,
    AuditedTexts,
    SearchResult,
    ShardedCorpus,
    open_sharded_corpus,
    search_corpus,
)
from audit_pipeline.extras.corpora.tables import build_overlap_tables
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.stage import Check, Finding, Inputs, Job, Made, Shown, Stage, StageRun
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep, find_writing_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_OVERLAP, EXAMPLES, OVERLAP_SPANS
from audit_pipeline.tables.table import Table

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Scope, Situation


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
    file = paths.rewritten_file(CORPUS_OVERLAP.name, CORPUS_OVERLAP.per, f"{benchmarks[0]}|{corpus.name}")
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


class OverlapOptions(BaseModel):
    """What is looked for, and how much of the corpus is read."""

    rule: str = Field(default=DEFAULT_RULE, description=f"{' | '.join(RULES)}: when a text counts as contaminated")
    n: int | None = Field(default=None, description="words on end that are looked for; null: as the rule says")
    shards: str | None = Field(default=None, description="only shards whose names match this pattern; null: all")
    processes: int = Field(default=1, ge=1, description="how many processes read shards")


def _search(run: StageRun) -> Made:
    benchmark, corpus = run.partition_names
    options, notify = run.options, progress_logger(run.log)
    [report] = search_benchmarks(
        [benchmark],
        open_sharded_corpus(corpus, only=options.shards),
        run.paths,
        run.run_id,
        choose_rule(options.rule, options.n),
        processes=options.processes,
        on_progress=lambda words: notify(f"{corpus}: {words}"),
    )
    result, contaminated, texts = report.result, report.contaminated, report.texts.num_rows
    verdicts = Counter(report.texts.column("verdict").to_pylist())
    unread = [(shard.name, shard.problem) for shard in result.reports.values() if shard.problem is not None]
    read = {"shards read": result.whole_shards, "shards": len(result.corpus.shards)}
    # How many texts were found, and how much of the corpus was read; the report has the passages.
    summary = {
        "answer": describe_overlap(result, verdicts, texts),
        **dict(sorted(verdicts.items())),
        "contaminated by the rule": contaminated,
        "rule": f"{result.rule.name}: {result.rule.source}",
        "documents read": result.document_count,
        **read,
        "data_version": report.data_version,
    }
    tables = {"shards that could not be read": (("shard", "reason"), unread)} if unread else {}
    counted = {"contaminated": contaminated, "texts": texts}
    return Made(
        report.data_version,
        Shown(texts, summary, tables),
        {
            "whole_corpus_read": Finding(result.is_complete, shown=Shown(values=read)),
            "no_text_contaminated": Finding(not contaminated, shown=Shown(values=counted)),
        },
    )


def _list_searches(scope: Scope, situation: Situation) -> Iterable[str]:
    """Every benchmark with the corpora that its entry names."""
    return [
        f"{name}|{corpus}"
        for name in scope.benchmarks
        if name in situation.specs
        for corpus in situation.specs[name].settings.corpora
    ]


def _inputs(partition: str, situation: Situation) -> Inputs:
    benchmark, _, corpus = partition.partition("|")
    version = build_overlap_version(choose_rule(DEFAULT_RULE)).partition(":")[0]
    # A data set of the hub is taken as it was searched: the hub is not asked.
    is_on_hub = load_references(situation.config).named(corpus).hub is not None
    stamp = None if is_on_hub else open_sharded_corpus(corpus).stamp
    return {f"examples/{benchmark}": situation.find_built_digest(benchmark), f"corpus/{corpus}": stamp, "code": version}


def _recorded(partition: str, situation: Situation) -> Inputs | None:
    entry = find_writing_run(situation.paths, CORPUS_OVERLAP, partition)
    # A search by another rule, which a user asked for, is kept.
    return None if entry is None else {**entry.upstream, "code": str(entry.code_version).partition(":")[0]}


OVERLAP_STAGE = Stage(
    name="corpus_overlap",
    description="The passages of a benchmark's texts that are in an open corpus "
    "(config/references.yaml), and where. Every audit looks for them where the benchmark's entry names corpora; a "
    "search that is stopped goes on at the next shard.",
    dimensions=("benchmark", "corpus"),
    group="2_benchmarks",
    job=Job("search_corpora", "Look for the texts of benchmarks in open corpora.", "corpora searched"),
    make=_search,
    after=("benchmark",),
    tables=(CORPUS_OVERLAP, OVERLAP_SPANS),
    checks={
        "whole_corpus_read": Check("Every shard was read to its end, every row used: what was not found is not there."),
        "no_text_contaminated": Check("No text of the benchmark counts as contaminated by the rule."),
    },
    options=OverlapOptions,
    kinds=frozenset({"numpy", "parquet"}),
    lock="references",
    is_optional=True,
    step="looking for the texts of {} in {}",
    first="the texts of {} are looked for first",
    absent="its texts have not been looked for in this corpus",
    words={
        "examples": "the benchmark was rebuilt since it was searched",
        "corpus": "the corpus {} changed since it was searched",
        "code": "the code that searches changed since",
    },
    partitions=_list_searches,
    inputs=_inputs,
    recorded=_recorded,
)
