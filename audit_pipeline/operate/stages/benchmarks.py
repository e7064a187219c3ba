"""The stages before a model: documents, benchmarks, and what tells members from non-members without one.

What belongs here: the order of read, compute, record and write, for one partition, and what the UI shows of what was
written: choosing and rounding a few numbers and small tables. What does not: the computations themselves (sources/,
benchmarks/, separability/), a benchmark as it was built (benchmarks/built_benchmark.py), when a stage is run (assets/),
and Dagster's own types (operate/dagster/metadata.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.build import BenchmarkReport
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve_benchmarks
from audit_pipeline.benchmarks.days_before_today import ensure_rolled_day
from audit_pipeline.benchmarks.words import word_unit
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import BLIND_SCORES, SPLIT_QUALITY
from audit_pipeline.catalogue.ledger import LineageStep, find_writing_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.evidence.sides import relabel_for_comparison
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS
from audit_pipeline.operate.facts import SplitFacts, Versions
from audit_pipeline.operate.plan import explain_stale_split
from audit_pipeline.operate.ui_summary import Body, Shown
from audit_pipeline.separability.assessment import (
    MEASURE,
    AssessedSplit,
    assessed_split_from_tables,
    compute_assessed_split,
)
from audit_pipeline.separability.evaluation_texts import select_evaluation_texts
from audit_pipeline.separability.quality import MOST_PER_SIDE, Quality, measure_split_quality
from audit_pipeline.sources.store import SourceReport

SPLIT_VERSION = "3"
"""Of the code that assesses a split: where it is raised, a split is assessed again before it is evaluated on."""
_OF_SPLIT = (BLIND_SCORES, SPLIT_QUALITY)
"""What an assessment writes, in this order: where the last is, both are."""


@dataclass(frozen=True, eq=False)
class KnownSplit:
    """A benchmark's split as it was assessed, and the data versions of the tables that say so, by table and name."""

    assessed: AssessedSplit
    versions: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class SplitReport:
    """What is known of a benchmark's split without any model, as written."""

    benchmark: BuiltBenchmark
    quality: Quality
    split: KnownSplit

    @property
    def data_version(self) -> str:
        """Of the table split_quality."""
        return self.split.versions[f"split_quality/{self.benchmark.name}"]


def resolve_spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """The benchmark of that name; where its cutoffs are told by today, the day they count from is kept from now on.

    Raises ConfigError where there is none of that name.
    """
    (spec,) = resolve_benchmarks(name)
    if spec.is_relative:
        ensure_rolled_day(paths)
        (spec,) = resolve_benchmarks(name)
    return spec


def assess_split(
    benchmark: BuiltBenchmark,
    paths: DataPaths,
    step: LineageStep,
    *,
    most_per_side: int = MOST_PER_SIDE,
    assessed: AssessedSplit | None = None,
) -> SplitReport:
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
        select_evaluation_texts(examples, word_unit(benchmark.spec["unit"]).split),
        assessed,
        benchmark.language,
        near_duplicate_threshold=benchmark.spec["near_duplicate_threshold"],
        run_id=step.run_id,
        most_per_side=most_per_side,
    )
    rows_of = {BLIND_SCORES: assessed.table(benchmark.name, step.run_id), SPLIT_QUALITY: quality.table}
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
    return SplitReport(benchmark, quality, KnownSplit(assessed, versions))


def read_split_facts(name: str, paths: DataPaths) -> SplitFacts:
    """What was assessed last of a benchmark's split; nothing where a table is not there, or of another assessment, or
    not as it was written. Raises DataError where a lineage entry is damaged."""
    written = {table.name: find_writing_run(paths, table, name) for table in _OF_SPLIT}
    there = {table: one for table, one in written.items() if one is not None}
    origins = {(one.benchmark_digest, one.code_version, one.run_id) for one in there.values()}
    if len(there) < len(_OF_SPLIT) or len(origins) > 1:
        return SplitFacts()
    ((benchmark, code, run_id),) = origins
    versions = tuple((f"{table}/{name}", one.data_version) for table, one in there.items())
    return SplitFacts(benchmark, code, versions, run_id)


def find_split_versions(name: str, upstream: Mapping[str, str]) -> Versions | None:
    """The data versions of a benchmark's assessed split among those of what something was made of; None where they are
    not all named."""
    keys = [f"{table.name}/{name}" for table in _OF_SPLIT]
    return tuple((key, upstream[key]) for key in keys) if upstream.keys() >= {*keys} else None


def read_known_split(benchmark: BuiltBenchmark, paths: DataPaths) -> KnownSplit | None:
    """What was assessed of this very build by the code of now; None where nothing was.

    Raises DataError where one of its tables is not as it was written.
    """
    name = benchmark.name
    for table in _OF_SPLIT:
        store.require_intact_partition(paths, table, name, label=f"the {table.name} of {name}")
    written = read_split_facts(name, paths)
    if written.versions is None or explain_stale_split(written, benchmark.digest, SPLIT_VERSION) is not None:
        return None
    scores, quality = (store.read(paths, table, name, label=f"the {table.name} of {name}") for table in _OF_SPLIT)
    assessed = assessed_split_from_tables(benchmark.design, benchmark.matched is not None, quality, scores)
    return KnownSplit(assessed, dict(written.versions))


def read_or_assess_split(benchmark: BuiltBenchmark, paths: DataPaths, run_id: str) -> KnownSplit:
    """What was assessed of this very build; where that was not done yet, it is done now, once, and written."""
    known = read_known_split(benchmark, paths)
    if known is not None:
        return known
    return assess_split(benchmark, paths, LineageStep.now(run_id, "split_quality", SPLIT_VERSION)).split


def read_or_assess_quality(benchmark: BuiltBenchmark, paths: DataPaths, run_id: str) -> pa.Table:
    """What is known of this very build's split without any model (schema SPLIT_QUALITY), assessed where it was not."""
    read_or_assess_split(benchmark, paths, run_id)
    return store.read(paths, SPLIT_QUALITY, benchmark.name, label=f"the split_quality of {benchmark.name}")


_LEFT_OUT = 50
_PLOTTED = {
    "near-duplicate pairs between the sides": "near_duplicate_pairs_between",
    "7-gram overlap, mean": "overlap_7_mean",
    "13-gram overlap, mean": "overlap_13_mean",
}
_OF_SIDES = {"texts", "groups", "uneven_collections", "ngram_overlap_mean", "near_duplicate_pairs", "language_mismatch"}

Rows = Iterable[Mapping[str, Any]]


def summarise_documents(report: SourceReport) -> Shown:
    """Of a fetch: how many documents of each collection there are, and how much did not arrive."""
    kept = [(name, count, report.kept.get(name, 0)) for name, count in report.by_collection.items()]
    return Shown(
        report.documents,
        {"missing parts": len(report.missing), "left out": len(report.left_out)},
        {"documents": (("collection", "documents", "kept from earlier"), kept)},
        paths={"path": report.path},
    )


def summarise_missing(report: SourceReport) -> Shown:
    """Of a fetch: what did not arrive, and what was left out, with the reasons."""
    missing = [(item.part, item.reason) for item in report.missing]
    left_out = [(item.part, item.reason) for item in report.left_out[:_LEFT_OUT]]
    return Shown(tables={"missing": (("part", "reason"), missing), "left out": (("part", "reason"), left_out)})


def summarise_build(report: BenchmarkReport) -> Shown:
    """Of a build: how many texts of each kind there are, and what was left out."""
    counts = report.counts
    left_out = {**report.documents_left_out, **report.texts_left_out}
    by_collection = [(name, side["members"], side["nonmembers"]) for name, side in counts["by_collection"].items()]
    return Shown(
        report.examples.num_rows,
        {
            "members": counts["members"],
            "non-members": counts["nonmembers"],
            "groups": counts["groups"],
            "skipped rows": len(report.skipped),
            "digest": report.digest,
        },
        {
            "by collection": (("collection", "members", "non-members"), by_collection),
            "left out": (("reason", "count"), list(left_out.items())),
        },
    )


def summarise_split(report: SplitReport) -> Shown:
    """Of a split: the verdict, the AUROC of every control (numbers of their own are plotted), and the sides."""
    summary, found = report.quality.summary, report.quality.table.to_pylist()
    controls = [row for row in found if row["measure"] == MEASURE]
    numbers = {f"blind AUROC, {row['part']}": row["value"] for row in controls}
    numbers |= {name: summary[key] for name, key in _PLOTTED.items()}
    values = {
        "verdict": report.quality.verdict,
        "in words": VERDICT_IN_WORDS[report.quality.verdict],
        "worst control": summary["worst_control"] or "none was read",
        **{name: value for name, value in numbers.items() if value is not None},
    }
    tables: dict[str, tuple[tuple[str, ...], Body]] = {
        "blind controls": (("control", "AUROC", "95% interval", "by it alone", "method"), _control_rows(controls)),
        "sides": (("measure", "of", "side", "value"), _side_rows(found)),
    }
    achieved = report.benchmark.matched
    if achieved:
        tables["matched sides"] = (("texts", "blind AUROC", "95% interval", "n"), _matched_rows(achieved["achieved"]))
    return Shown(len(found), values, tables)


def _control_rows(controls: Rows) -> Body:
    return [
        (row["part"], *_format_with_interval(row, "value"), row["verdict"] or "–", row["method"]) for row in controls
    ]


def _side_rows(quality_rows: Rows) -> Body:
    return [
        (row["measure"].replace("_", " "), row["part"], row["side"], _format_number(row["value"]))
        for row in quality_rows
        if row["measure"] in _OF_SIDES
    ]


def _matched_rows(matched_sides: Mapping[str, Mapping[str, Any]]) -> Body:
    return [
        (name.replace("_", " "), *_format_with_interval(one, "blind_auroc"), one["n"])
        for name, one in matched_sides.items()
    ]


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.4g}"


def _format_with_interval(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    low, high = row["ci_low"], row["ci_high"]
    return _format_number(row[name]), "–" if low is None else f"{low:z.3f} to {high:.3f}"
