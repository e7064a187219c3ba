"""The asset ``group_means``: the mean score of one detector in each group of texts, such as a project or a book."""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from statistics import mean
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.pipeline.stage import (
    AUDIT_PAIRS,
    PAIR,
    CheckResult,
    StageCheck,
    StageResult,
    StageRun,
    UiMetadata,
    audit_asset,
)
from audit_pipeline.store import store
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.tables import BENCHMARK, MODEL, RUN_ID, SCORES
from audit_pipeline.tables.table import Column, Table

if TYPE_CHECKING:
    from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState

TABLE = Table(
    "group_means",
    "the mean score of every group of texts, by one detector",
    current="the mean scores of groups",
    key=("run_id", "benchmark", "model", "group"),
    partitioned_by="pair",
    storage="runs",
    made_from=("examples", "scores"),
    columns=(
        MODEL,
        BENCHMARK,
        Column("group", pa.string(), "the group of texts, as in the benchmark"),
        Column("detector", pa.string(), "the detector of the scores"),
        Column("texts", pa.int64(), "number of texts of the group with a score", ge=1),
        Column("mean_score", pa.float64(), "mean score of these texts; higher means more likely members"),
        RUN_ID,
    ),
)


class Options(BaseModel):
    """The options of the asset."""

    detector: str = Field(default="loss", description="Detector whose scores are averaged.")
    fewest_texts: int = Field(
        default=2, ge=1, description="Minimum number of texts of a group. Smaller groups are skipped."
    )


@audit_asset(
    partitions=PAIR,
    deps=["scores"],
    tables=[TABLE],
    group="4_findings",
    job=AUDIT_PAIRS,
    checks={"some_group_compared": StageCheck("At least one group has enough texts with a score.")},
    options=Options,
    section=files(__package__) / "sections",
    is_on_request=True,
    missing_message="its groups have not been compared yet",
    change_messages={
        "scores": "it was scored again afterwards",
        "settings": "the options of the group means changed afterwards",
    },
)
def group_means(run: StageRun) -> StageResult:
    """Compute the mean score of every group of texts of a benchmark, such as a project or a book, by one detector."""
    pair = run.pair
    built = read_built(run.paths, pair.benchmark)
    latest = read_latest_run(run.paths, SCORES.name, run.partition)
    scores = store.read(run.paths, SCORES, pair, run_id=latest.run_id, label=f"the scores of {run.partition}")
    examples = built.examples.select(["example_id", "group"]).to_pylist()
    group_of = {example["example_id"]: example["group"] for example in examples}
    scores_by_group: dict[str, list[float]] = defaultdict(list)
    for row in scores.to_pylist():
        if row["detector"] == run.options.detector and row["is_default"] and row["status"] == "ok":
            scores_by_group[group_of[row["example_id"]]].append(row["score"])
    rows = [
        {
            "model": pair.model,
            "benchmark": pair.benchmark,
            "group": group,
            "detector": run.options.detector,
            "texts": len(of_group),
            "mean_score": mean(of_group),
            "run_id": run.run_id,
        }
        for group, of_group in sorted(scores_by_group.items())
        if len(of_group) >= run.options.fewest_texts
    ]
    upstream = {f"examples/{pair.benchmark}": built.digest, f"scores/{run.partition}": latest.data_version}
    version = run.write(TABLE, rows, upstream)
    description = f"{len(rows)} of {len(set(group_of.values()))} groups have a mean"
    check = CheckResult(bool(rows), description)
    return StageResult(version, UiMetadata(len(rows), {"groups": len(rows)}), {"some_group_compared": check})


@group_means.inputs
def get_group_means_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the scores of the pair."""
    scores = state.find_latest_entry(SCORES.name, partition)
    return {f"scores/{partition}": None if scores is None else scores.data_version}
