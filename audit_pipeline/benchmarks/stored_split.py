"""The stored assessment of a split: the differences of members and non-members, measured without any model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

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
"""The version of the assessment code. If it is raised, splits are assessed again before the next evaluation."""
_ASSESSMENT_TABLES = (BLIND_SCORES, SPLIT_QUALITY)
"""The tables of an assessment, in the order of writing. If the second exists, the first exists, too."""


@dataclass(frozen=True, eq=False)
class SplitAssessment:
    """The assessment of a benchmark's split.

    Attributes:
        assessed: The blind control and the verdict.
        quality: The table SPLIT_QUALITY.
        versions: The data versions of the stored tables, by table and benchmark.
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
    """Measure a benchmark's split without any model, and write split_quality and blind_scores.

    Args:
        benchmark: The benchmark.
        paths: The data folder.
        step: The step that is recorded in the ledger.
        most_per_side: Maximum number of texts per side for all measures except the control of words.
        assessed: The control of words on all texts, if it is already computed.
    """
    examples = relabel_for_comparison(benchmark.examples)
    if assessed is None:
        is_matched = benchmark.matched is not None
        assessed = compute_assessed_split(examples, benchmark.design, benchmark.language, matched=is_matched)
    quality = measure_split_quality(
        select_evaluation_texts(examples, get_word_unit(benchmark.spec["unit"]).split),
        assessed,
        benchmark.language,
        near_duplicate_threshold=benchmark.spec["near_duplicate_threshold"],
        run_id=step.run_id,
        most_per_side=most_per_side,
    )
    versions = {}
    for table, rows in ((BLIND_SCORES, assessed.table(benchmark.name, step.run_id)), (SPLIT_QUALITY, quality)):
        versions[f"{table.name}/{benchmark.name}"] = store.write(
            paths,
            step,
            table,
            benchmark.name,
            rows,
            upstream={f"examples/{benchmark.name}": benchmark.digest},
            benchmark_digest=benchmark.digest,
        )
    return SplitAssessment(assessed, quality, versions)


def read_split_versions(name: str, paths: DataPaths) -> dict[str, str | None] | None:
    """Read the versions of a benchmark's last assessment: the build, the code and the tables.

    The result is None if a table is missing or corrupt, or if the tables belong to different assessments.
    """
    entries = {}
    for table in _ASSESSMENT_TABLES:
        entry = find_writing_run(paths, table, name)
        if entry is None:
            return None
        entries[table.name] = entry
    origins = set(map(attrgetter("benchmark_digest", "code_version", "run_id"), entries.values()))
    if len(origins) > 1:
        return None
    ((benchmark_digest, code_version, _),) = origins
    versions = {f"examples/{name}": benchmark_digest, "code": code_version}
    for table_name, entry in entries.items():
        versions[f"{table_name}/{name}"] = entry.data_version
    return versions


def read_split_assessment(benchmark: BuiltBenchmark, paths: DataPaths) -> SplitAssessment | None:
    """Read the assessment of this build by the current code, or return None if there is none.

    Raises:
        DataError: If a table is corrupt.
    """
    name = benchmark.name
    for table in _ASSESSMENT_TABLES:
        store.require_intact_partition(paths, table, name, label=f"the {table.name} of {name}")
    stored = read_split_versions(name, paths)
    if stored is None or (stored[f"examples/{name}"], stored["code"]) != (benchmark.digest, SPLIT_VERSION):
        return None
    scores = store.read(paths, BLIND_SCORES, name, label=f"the {BLIND_SCORES.name} of {name}")
    quality = store.read(paths, SPLIT_QUALITY, name, label=f"the {SPLIT_QUALITY.name} of {name}")
    assessed = assessed_split_from_tables(benchmark.design, benchmark.matched is not None, quality, scores)
    versions = {f"{table.name}/{name}": str(stored[f"{table.name}/{name}"]) for table in _ASSESSMENT_TABLES}
    return SplitAssessment(assessed, quality, versions)


def read_or_assess_split(benchmark: BuiltBenchmark, paths: DataPaths, run_id: str) -> SplitAssessment:
    """Read the assessment of this build. If there is none, assess the split and write the result."""
    known = read_split_assessment(benchmark, paths)
    if known is not None:
        return known
    return assess_split(benchmark, paths, LineageStep.now(run_id, "split_quality", SPLIT_VERSION))
