"""The stages of a benchmark before a model: its examples, and what separates members from non-members without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.build import BenchmarkReport, build, compute_wanted_digest
from audit_pipeline.benchmarks.builder_interface import UNDATED
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.checks import CHECKS
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve_benchmarks
from audit_pipeline.benchmarks.days_before_today import ensure_reference_day
from audit_pipeline.benchmarks.stored_split import SPLIT_VERSION, SplitAssessment, assess_split, read_split_versions
from audit_pipeline.pipeline.stage import BUILD_BENCHMARKS, Check, Finding, Inputs, Made, Shown, Stage, StageRun
from audit_pipeline.splits.assessment import MEASURE, WORST
from audit_pipeline.splits.split_quality import MOST_PER_SIDE
from audit_pipeline.statistics.claims import VERDICT_IN_WORDS
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BLIND_SCORES, EXAMPLES, SPLIT_QUALITY

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation


def resolve_spec_to_build(name: str, paths: DataPaths) -> BenchmarkSpec:
    """The benchmark of that name; where its cutoffs count from today, the day they count from is kept from now on.

    Raises ConfigError where there is none of that name.
    """
    (spec,) = resolve_benchmarks(name)
    if spec.has_relative_cutoff:
        ensure_reference_day(paths)
        (spec,) = resolve_benchmarks(name)
    return spec


_PLOTTED = {
    "near-duplicate pairs between the sides": ("near_duplicate_pairs", "all", "between"),
    "7-gram overlap, mean": ("ngram_overlap_mean", "7", "nonmembers"),
    "13-gram overlap, mean": ("ngram_overlap_mean", "13", "nonmembers"),
}


def _summarise_build(report: BenchmarkReport) -> Shown:
    """How many texts of each kind there are, and what was left out."""
    counts = report.counts
    left_out = {**report.documents_left_out, **report.texts_left_out}
    return Shown(
        report.examples.num_rows,
        {
            "members": counts["members"],
            "non-members": counts["nonmembers"],
            "groups": counts["groups"],
            "skipped rows": len(report.skipped),
            "digest": report.digest,
        },
        {"left out": (("reason", "count"), list(left_out.items()))},
    )


def _summarise_split(split: SplitAssessment, paths: DataPaths) -> Shown:
    """The verdict and the AUROC of every control, which the UI plots; the report has the rest."""
    verdict, found = split.assessed.verdict, split.quality.to_pylist()
    of_measure = {(row["measure"], row["part"], row["side"]): row["value"] for row in found}
    numbers = {f"blind AUROC, {row['part']}": row["value"] for row in found if row["measure"] == MEASURE}
    numbers |= {name: of_measure.get(key) for name, key in _PLOTTED.items()}
    values = {
        "verdict": verdict,
        "in words": VERDICT_IN_WORDS[verdict],
        "worst control": next((part for measure, part, _ in of_measure if measure == WORST), "none was computed"),
        **{name: value for name, value in numbers.items() if value is not None},
    }
    return Shown(len(found), values, page=paths.report)


def _build(run: StageRun) -> Made:
    report = build(resolve_spec_to_build(run.partition, run.paths), run.paths, run.run_id, code_version=run.stage.code)
    for row in report.skipped[:20]:
        run.log.warning(f"skipped {row.location}: {row.reason}")
    found = {
        check.name: Finding(
            check.passed, check.what, Shown(values={**check.counts, "offenders": list(check.offenders)})
        )
        for check in report.checks
    }
    nothing = Finding(True, "nothing to check in this benchmark")
    return Made(report.digest, _summarise_build(report), {name: found.get(name, nothing) for name in CHECKS})


def _note_skipped(name: str, paths: DataPaths) -> Iterator[str]:
    built = read_built(paths, name)
    built.require_passed_checks()
    skipped = built.manifest["skipped"]
    if skipped["rows"]:
        first = skipped["first"][0]
        yield f"skipped in {name}: {skipped['rows']} row(s), the first {first['row']}: {first['reason']}"
    undated = built.manifest.get(UNDATED)
    if undated is not None:
        first = undated["first"][0]
        yield f"kept without a date in {name}: {undated['rows']} row(s), the first {first['row']}: {first['reason']}"


def _inputs_of_benchmark(name: str, situation: Situation) -> Inputs:
    """The digest that it would have if it were built now, which covers its sources and its control."""
    spec = situation.specs.get(name)
    if spec is None:
        return {}
    inputs: dict[str, str | None] = {}
    for source in spec.sources:
        inputs |= situation.build_presence_input("documents", source)
    if spec.control is not None:
        inputs |= situation.build_presence_input("controlled_contamination", spec.control)
    if None in inputs.values():
        # Where something that it is made of is not there yet, nothing is wrong: it is not known yet.
        return inputs
    version_of, ask_hub = situation.version_of_source, situation.ask_hub
    wanted = compute_wanted_digest(
        spec, situation.find_built_digest(name), situation.paths, version_of, ask_hub=ask_hub
    )
    return {**inputs, "entry": wanted}


BENCHMARK_STAGE = Stage(
    name="benchmark",
    description="The texts that models are audited on: members, which the model may have read, and non-members, "
    "which it cannot have read. Cut into windows of so many words, as many of each project on both "
    "sides; or a published data set as it is.",
    dimensions=("benchmark",),
    group="2_benchmarks",
    job=BUILD_BENCHMARKS,
    make=_build,
    after=("documents", "controlled_contamination"),
    tables=(EXAMPLES,),
    checks={name: Check(check.description, not check.blocking, check.blocking) for name, check in CHECKS.items()},
    kinds=frozenset({"python", "parquet"}),
    step="building benchmark: {}",
    first="the benchmark {} is built first",
    absent="it has not been built",
    words={"entry": "its entry in the configuration or its sources changed since it was built"},
    notes=_note_skipped,
    sources=lambda scope, situation: [
        source for name in scope.benchmarks if name in situation.specs for source in situation.specs[name].sources
    ],
    inputs=_inputs_of_benchmark,
    recorded=lambda name, situation: {"entry": built} if (built := situation.find_built_digest(name)) else None,
)


class AssessmentOptions(BaseModel):
    """How much of a benchmark is read."""

    most_per_side: int = Field(
        default=MOST_PER_SIDE,
        ge=1,
        description="members, and non-members, that are read, drawn at random where there are more; the blind control "
        "of words reads all",
    )


def _assess(run: StageRun) -> Made:
    built = read_built(run.paths, run.partition)
    built.require_passed_checks()
    split = assess_split(built, run.paths, run.step(), most_per_side=run.options.most_per_side)
    verdict, auroc = split.assessed.verdict, split.assessed.auroc
    finding = Finding(
        verdict != "separable without a model",
        auroc.method if auroc.value is None else VERDICT_IN_WORDS[verdict],
        Shown(values={"verdict": verdict, **({} if auroc.value is None else {"blind AUROC": auroc.value})}),
    )
    version = split.versions[f"split_quality/{run.partition}"]
    return Made(version, _summarise_split(split, run.paths), {"sides_alike": finding})


SPLIT_STAGE = Stage(
    name="split_quality",
    description="How far the two sides of a benchmark can be separated without any model: by their words, "
    "length, dates, language. Where they can, no audit on it says anything about training. It is made "
    "with every build.",
    dimensions=("benchmark",),
    group="2_benchmarks",
    job=BUILD_BENCHMARKS,
    make=_assess,
    after=("benchmark",),
    code=SPLIT_VERSION,
    tables=(SPLIT_QUALITY, BLIND_SCORES),
    checks={"sides_alike": Check("The two sides cannot be separated by their words alone.")},
    options=AssessmentOptions,
    kinds=frozenset({"scikitlearn", "parquet"}),
    step="assessing the split of {}",
    first="the split of {} is assessed first",
    absent="the split has not been assessed, or a file of it is damaged or gone",
    words={
        "examples": "the split was assessed on another build of the benchmark",
        "code": "the code that assesses the split changed since",
    },
    inputs=lambda name, situation: {f"examples/{name}": situation.find_built_digest(name)},
    recorded=lambda name, situation: read_split_versions(name, situation.paths),
)
