"""What separates a benchmark's members from its non-members without any model, as it is kept with the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.benchmarks.words import get_word_unit
from audit_pipeline.splits.assessment import AssessedSplit, assessed_split_from_tables, compute_assessed_split
from audit_pipeline.splits.evaluation_texts import select_evaluation_texts
from audit_pipeline.splits.split_quality import MOST_PER_SIDE, measure_split_quality
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.ledger import LineageStep, find_writing_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BLIND_SCORES, SPLIT_QUALITY

SPLIT_VERSION = "3"
"""Of the code that assesses a split: where it is raised, a split is assessed again before it is evaluated on."""
_OF_SPLIT = (BLIND_SCORES, SPLIT_QUALITY)
"""What an assessment writes, in this order: where the last is, both are."""


@dataclass(frozen=True, eq=False)
class SplitAssessment:
    """A benchmark's split as it was assessed, as written, and the data versions of the tables that say so.

    ``quality`` is the table SPLIT_QUALITY; ``versions`` are by table and name.
    """

    assessed: AssessedSplit
    quality: pa.Table
    versions: Mapping[str, str]


def assess_split(
    benchmark: BuiltBenchmark,
    paths: DataPaths,
    step: LineageStep,
    *,
    most_per_side: int = MOST_PER_SIDE,
    assessed: AssessedSplit | None = None,
) -> SplitAssessment:
    """How far members and non-members of a benchmark differ in anything but membership; no model's scores are read.

    The blind control of words reads all texts (``assessed`` where that has been done); of members or non-members that
    are more than ``most_per_side`` the other measures read so many. Writes split_quality and blind_scores.
    """
    examples = relabel_for_comparison(benchmark.examples)
    if assessed is None:
        assessed = compute_assessed_split(
            examples, benchmark.design, benchmark.language, matched=benchmark.matched is not None
        )
    quality = measure_split_quality(
        select_evaluation_texts(examples, get_word_unit(benchmark.spec["unit"]).split),
        assessed,
        benchmark.language,
        near_duplicate_threshold=benchmark.spec["near_duplicate_threshold"],
        run_id=step.run_id,
        most_per_side=most_per_side,
    )
    rows_of = {BLIND_SCORES: assessed.table(benchmark.name, step.run_id), SPLIT_QUALITY: quality}
    versions = {
        f"{table.name}/{benchmark.name}": store.write(
            paths,
            step,
            table,
            benchmark.name,
            rows,
            upstream={f"examples/{benchmark.name}": benchmark.digest},
            benchmark_digest=benchmark.digest,
        )
        for table, rows in rows_of.items()
    }
    return SplitAssessment(assessed, quality, versions)


def read_split_versions(name: str, paths: DataPaths) -> dict[str, str | None] | None:
    """What was assessed last of a benchmark's split: of which build, by which code, and the versions of its tables.

    None where a table is not there, or of another assessment, or not as it was written.
    """
    written = {table.name: find_writing_run(paths, table, name) for table in _OF_SPLIT}
    there = {table: entry for table, entry in written.items() if entry is not None}
    origins = {(entry.benchmark_digest, entry.code_version, entry.run_id) for entry in there.values()}
    if len(there) < len(_OF_SPLIT) or len(origins) > 1:
        return None
    ((benchmark, code, _),) = origins
    versions = {f"{table}/{name}": entry.data_version for table, entry in there.items()}
    return {f"examples/{name}": benchmark, "code": code, **versions}


def read_split_assessment(benchmark: BuiltBenchmark, paths: DataPaths) -> SplitAssessment | None:
    """What was assessed of this very build by the code of now; None where nothing was.

    Raises DataError where one of its tables is not as it was written.
    """
    name = benchmark.name
    for table in _OF_SPLIT:
        store.require_intact_partition(paths, table, name, label=f"the {table.name} of {name}")
    written = read_split_versions(name, paths)
    if written is None or (written[f"examples/{name}"], written["code"]) != (benchmark.digest, SPLIT_VERSION):
        return None
    scores, quality = (store.read(paths, table, name, label=f"the {table.name} of {name}") for table in _OF_SPLIT)
    assessed = assessed_split_from_tables(benchmark.design, benchmark.matched is not None, quality, scores)
    versions = {f"{table.name}/{name}": str(written[f"{table.name}/{name}"]) for table in _OF_SPLIT}
    return SplitAssessment(assessed, quality, versions)


def read_or_assess_split(benchmark: BuiltBenchmark, paths: DataPaths, run_id: str) -> SplitAssessment:
    """What was assessed of this very build; where that was not done yet, it is done now, once, and written."""
    known = read_split_assessment(benchmark, paths)
    if known is not None:
        return known
    return assess_split(benchmark, paths, LineageStep.now(run_id, "split_quality", SPLIT_VERSION))
