"""The stages before a model: documents, benchmarks, and what tells a benchmark's two sides apart.

What belongs here: the order of read, compute, record and write, for one partition, and what a benchmark must be for an
audit. What does not: the computations themselves (the domain packages), and when a stage is run (assets/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.build import BuildReport, build, read_examples, read_manifest
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve
from audit_pipeline.benchmarks.drawn import MATCHED
from audit_pipeline.benchmarks.rolling import keep_day
from audit_pipeline.benchmarks.words import word_unit
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import DOCUMENTS, EXAMPLES, SPLIT_QUALITY, Pair, texts_read
from audit_pipeline.catalogue.lineage import Step
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.audited_side import against_held_out
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.separability.quality import MOST_PER_SIDE, Quality, split_quality
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import SourceReport, refresh


@dataclass(frozen=True)
class SplitReport:
    """What is known of a benchmark's two sides without any model, as written.

    ``matched`` is what matching achieved, where the sides were chosen to be hard to tell apart.
    """

    benchmark: str
    quality: Quality
    design: str
    matched: Mapping[str, Any] | None
    data_version: str


def refresh_source(source: str, paths: DataPaths, step: Step) -> SourceReport:
    """Fetch a source and keep what it brought; raises SourceError where nothing arrived and nothing was there."""

    def write(report: SourceReport) -> None:
        store.write(paths, step, DOCUMENTS, source, report.table, data_version=report.data_version, upstream={})

    return refresh(source, paths, step.run_id, load_source_settings(), write)


def spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """The benchmark of that name; where its cutoffs are told by today, the day they count from is kept from now on.

    Raises ConfigError where there is none of that name.
    """
    (spec,) = resolve(name)
    if spec.is_relative:
        keep_day(paths)
        (spec,) = resolve(name)
    return spec


def build_benchmark(spec: BenchmarkSpec, paths: DataPaths, step: Step) -> BuildReport:
    """Build a benchmark's examples from its sources' documents or its labelled files."""

    def write(report: BuildReport) -> None:
        store.write(
            paths,
            step,
            EXAMPLES,
            spec.name,
            report.examples,
            data_version=report.digest,
            upstream={
                f"documents/{name}" if name in spec.sources else name: version
                for name, version in report.source_versions.items()
            },
            benchmark_digest=report.digest,
        )

    return build(spec, paths, step.run_id, write=write)


def assess_split(benchmark: str, paths: DataPaths, step: Step, *, most_per_side: int = MOST_PER_SIDE) -> SplitReport:
    """How far the two sides of a built benchmark differ in anything but membership; no model's scores are read.

    Of a side of more than ``most_per_side`` texts so many are read. Raises DataError where it has not been built.
    """
    manifest = read_manifest(paths, benchmark)
    examples = read_examples(paths, benchmark)
    spec = manifest["spec"]
    compared = against_held_out(examples)
    quality = split_quality(
        examples if compared is None else compared,
        manifest["design"],
        main_language(examples),
        split=word_unit(spec["unit"]).split,
        near_duplicate_threshold=spec["near_duplicate_threshold"],
        run_id=step.run_id,
        matched=MATCHED in manifest,
        most_per_side=most_per_side,
    )
    version = store.write(
        paths,
        step,
        SPLIT_QUALITY,
        benchmark,
        quality.table,
        upstream={f"examples/{benchmark}": manifest["digest"]},
        benchmark_digest=manifest["digest"],
    )
    return SplitReport(benchmark, quality, manifest["design"], manifest.get(MATCHED), version)


def texts_of(pair: Pair, paths: DataPaths) -> list[str]:
    """The distinct texts that a model reads of the pair's benchmark, in order; contexts are part of them.

    Raises DataError where it has not been built, or where a check says that numbers on it would be wrong.
    """
    require_fit(pair.benchmark, paths)
    return list(dict.fromkeys(texts_read(read_examples(paths, pair.benchmark))))


def require_fit(benchmark: str, paths: DataPaths) -> None:
    """Raise DataError where a check of the built benchmark says that numbers on it would be wrong."""
    failed = [check for check in read_manifest(paths, benchmark)["checks"] if check["blocking"] and not check["passed"]]
    if failed:
        raise DataError(
            f"the benchmark {benchmark} is not fit to be audited: {failed[0]['what']}: {failed[0]['counts']}; "
            "mend its entry in config/benchmarks.yaml or its source and build it again"
        )


def require_belonging(pair: Pair, model: TokenizedModel, paths: DataPaths) -> None:
    """Raise DataError where one of model and benchmark is a control's and the other is not that control's."""
    of_benchmark = read_manifest(paths, pair.benchmark)["spec"].get("control")
    of_model = model.entry.control.name if model.entry.control is not None else None
    if of_benchmark == of_model:
        return
    if of_benchmark is not None:
        raise DataError(
            f"the labels of {pair.benchmark} say what the models of the control {of_benchmark} were trained on, "
            f"and nothing of {pair.model}"
        )
    raise DataError(f"{pair.model} was trained here on the texts of the control {of_model}: audit it on those")


def main_language(examples: pa.Table) -> str:
    """The language of most examples."""
    counted: Counter[str] = Counter(examples.column("language").to_pylist())
    return max(sorted(counted), key=lambda language: counted[language])
