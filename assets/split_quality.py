"""The asset ``split_quality``: how well members and non-members can be separated without a model."""

from __future__ import annotations

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import (
    SPLIT_VERSION,
    SplitAssessment,
    assess_split,
    read_built,
    read_split_versions,
)
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState
from audit_pipeline.splits.evaluation_split import MEASURE, WORST
from audit_pipeline.splits.split_quality import MAX_PER_SIDE
from audit_pipeline.statistics.claims import VERDICT_IN_WORDS
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BLIND_SCORES, SPLIT_QUALITY


class AssessmentOptions(BaseModel):
    """The options of the assessment of a benchmark's split."""

    most_per_side: int = Field(
        default=MAX_PER_SIDE,
        ge=1,
        description="maximum number of members, and of non-members, that are assessed; larger sides are sampled at "
        "random; the blind control of words always uses all texts",
    )


@stage.audit_asset(
    partitions=stage.BENCHMARK,
    deps=["benchmark"],
    tables=[SPLIT_QUALITY, BLIND_SCORES],
    code_version=SPLIT_VERSION,
    group="2_benchmarks",
    job=stage.BUILD_BENCHMARKS,
    kinds={"scikitlearn", "parquet"},
    checks={"sides_alike": stage.StageCheck("The two sides cannot be separated by their words alone.")},
    options=AssessmentOptions,
    progress_message="assessing the split of {}",
    blocked_message="the split of {} is assessed first",
    missing_message="the split has not been assessed, or a file of the assessment is damaged or missing",
    change_messages={
        "examples": "the split was assessed on another build of the benchmark",
        "code": "the code that assesses the split changed",
    },
)
def split_quality(run: stage.StageRun) -> stage.StageResult:
    """Measure how well members and non-members can be separated without a model.

    Blind controls use only the words, lengths, dates and languages of the texts. If a blind control separates the two
    sides, an audit on this benchmark cannot show that a model was trained on the members. Every build of a benchmark is
    assessed.
    """
    built = read_built(run.paths, run.partition)
    built.require_passed_checks()
    split = assess_split(built, run.paths, run.step(), most_per_side=run.options.most_per_side)
    verdict = split.assessed.verdict
    auroc = split.assessed.auroc
    values: dict[str, object] = {"verdict": verdict}
    if auroc.value is not None:
        values["blind AUROC"] = auroc.value
    description = auroc.method if auroc.value is None else VERDICT_IN_WORDS[verdict]
    alike = stage.CheckResult(verdict != "separable without a model", description, stage.UiMetadata(values=values))
    version = split.versions[f"split_quality/{run.partition}"]
    return stage.StageResult(version, _summarise_split(split, run.paths), {"sides_alike": alike})


@split_quality.inputs
def get_split_inputs(benchmark: str, state: WorkspaceState) -> Inputs:
    """Return the digest of the benchmark."""
    return {f"examples/{benchmark}": state.find_built_digest(benchmark)}


@split_quality.recorded
def get_recorded_split_inputs(benchmark: str, state: WorkspaceState) -> Inputs | None:
    """Return the versions that the split was assessed on."""
    return read_split_versions(benchmark, state.paths)


_PLOTTED = {
    "near-duplicate pairs between the sides": ("near_duplicate_pairs", "all", "between"),
    "7-gram overlap, mean": ("ngram_overlap_mean", "7", "nonmembers"),
    "13-gram overlap, mean": ("ngram_overlap_mean", "13", "nonmembers"),
}
"""The rows whose values the UI plots besides the AUROCs: measure, part and side, by display name."""


def _summarise_split(split: SplitAssessment, paths: DataPaths) -> stage.UiMetadata:
    """Return the verdict and the AUROC of every control. The UI plots the AUROCs over time."""
    verdict = split.assessed.verdict
    rows = split.quality.to_pylist()
    by_measure: dict[tuple[str, str, str], float | None] = {}
    worst_controls: list[str] = []
    numbers: dict[str, float | None] = {}
    for row in rows:
        by_measure[row["measure"], row["part"], row["side"]] = row["value"]
        if row["measure"] == WORST:
            worst_controls.append(row["part"])
        elif row["measure"] == MEASURE:
            numbers[f"blind AUROC, {row['part']}"] = row["value"]
    for name, key in _PLOTTED.items():
        numbers[name] = by_measure.get(key)
    values: dict[str, object] = {
        "verdict": verdict,
        "in words": VERDICT_IN_WORDS[verdict],
        "worst control": worst_controls[0] if worst_controls else "none was computed",
    }
    values |= {name: number for name, number in numbers.items() if number is not None}
    return stage.UiMetadata(len(rows), values, page=paths.report)
