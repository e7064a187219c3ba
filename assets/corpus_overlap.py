"""The asset ``corpus_overlap``: the passages of a benchmark's texts that occur in an open corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, Field

from audit_pipeline.extras.corpora.config import DEFAULT_RULE, RULES, choose_rule, load_references
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.overlap_tables import (
    OverlapReport,
    build_overlap_version,
    describe_overlap,
    search_benchmarks,
)
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.store.ledger import find_writing_run
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS


class OverlapOptions(BaseModel):
    """The options of a search of a corpus for the texts of a benchmark."""

    rule: str = Field(
        default=DEFAULT_RULE, description=f"rule by which a text counts as contaminated: {' | '.join(RULES)}"
    )
    n: int | None = Field(
        default=None, description="minimum length of a passage in words; null: the length that the rule sets"
    )
    shards: str | None = Field(
        default=None, description="pattern of the names of the shards (files of the corpus) to read; null: all shards"
    )
    processes: int = Field(default=1, ge=1, description="number of processes that read shards")


@stage.audit_asset(
    partitions=("benchmark", "corpus"),
    deps=["benchmark"],
    tables=[CORPUS_OVERLAP, OVERLAP_SPANS],
    group="2_benchmarks",
    job=stage.StageJob("search_corpora", "Look for the texts of benchmarks in open corpora.", "corpora searched"),
    kinds={"numpy", "parquet"},
    checks={
        "whole_corpus_read": stage.StageCheck(
            "Every shard was read to its end and every row was used, so no passage was missed."
        ),
        "no_text_contaminated": stage.StageCheck("No text of the benchmark counts as contaminated by the rule."),
    },
    options=OverlapOptions,
    lock="references",
    is_optional=True,
    progress_message="looking for the texts of {} in {}",
    blocked_message="the texts of {} are looked for in {} first",
    missing_message="its texts have not been looked for in this corpus",
    change_messages={
        "examples": "the benchmark was rebuilt since it was searched",
        "corpus": "the corpus {} changed since it was searched",
        "code": "the code that searches changed",
    },
)
def corpus_overlap(run: stage.StageRun) -> stage.StageResult:
    """Search an open corpus for passages of a benchmark's texts.

    Corpora are declared in config/references.yaml. The result has every passage with its position in the corpus, and
    one verdict per text. An audit searches the corpora that the benchmark's entry names. A search that was stopped
    continues with the next shard.
    """
    benchmark, corpus = run.partition_names
    options = run.options
    notify = progress_logger(run.log)
    [report] = search_benchmarks(
        [benchmark],
        open_sharded_corpus(corpus, only=options.shards),
        run.paths,
        run.run_id,
        choose_rule(options.rule, options.n),
        processes=options.processes,
        on_progress=lambda line: notify(f"{corpus}: {line}"),
    )
    read = {"shards read": report.result.whole_shards, "shards": len(report.result.corpus.shards)}
    counts = {"contaminated": report.contaminated, "texts": report.texts.num_rows}
    return stage.StageResult(
        report.data_version,
        _summarise_search(report, read),
        {
            "whole_corpus_read": stage.CheckResult(report.result.is_complete, metadata=stage.UiMetadata(values=read)),
            "no_text_contaminated": stage.CheckResult(
                not report.contaminated, metadata=stage.UiMetadata(values=counts)
            ),
        },
    )


def _summarise_search(report: OverlapReport, read: Mapping[str, int]) -> stage.UiMetadata:
    """Return the counts of texts per verdict and of shards. The report has the passages."""
    result = report.result
    texts = report.texts.num_rows
    verdicts = Counter(report.texts.column("verdict").to_pylist())
    values = {
        "answer": describe_overlap(result, verdicts, texts),
        **dict(sorted(verdicts.items())),
        "contaminated by the rule": report.contaminated,
        "rule": f"{result.rule.name}: {result.rule.source}",
        "documents read": result.document_count,
        **read,
        "data_version": report.data_version,
    }
    unread = [(shard.name, shard.problem) for shard in result.reports.values() if shard.problem is not None]
    if not unread:
        return stage.UiMetadata(texts, values)
    return stage.UiMetadata(texts, values, {"shards that could not be read": (("shard", "reason"), unread)})


@corpus_overlap.partitions
def list_searches(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return a partition ``benchmark|corpus`` for each benchmark of the scope and each corpus that its entry names."""
    searches: list[str] = []
    for name in scope.benchmarks:
        if name in state.specs:
            searches += [f"{name}|{corpus}" for corpus in state.specs[name].settings.corpora]
    return searches


@corpus_overlap.inputs
def get_overlap_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the benchmark, the corpus and the code that searches."""
    benchmark, _, corpus = partition.partition("|")
    version = build_overlap_version(choose_rule(DEFAULT_RULE)).partition(":")[0]
    # The hub is not queried, so a data set of the hub counts as unchanged.
    stamp = None
    if load_references(state.config).get_entry(corpus).hub is None:
        stamp = open_sharded_corpus(corpus).stamp
    return {f"examples/{benchmark}": state.find_built_digest(benchmark), f"corpus/{corpus}": stamp, "code": version}


@corpus_overlap.recorded
def get_recorded_overlap_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the recorded inputs of the search.

    The recorded code version also names the search rule. The rule is dropped here, so that a search by a rule that a
    user chose stays current.
    """
    entry = find_writing_run(state.paths, CORPUS_OVERLAP, partition)
    if entry is None:
        return None
    return {**entry.upstream, "code": str(entry.code_version).partition(":")[0]}
