"""The asset ``group_means``: how the scores of one detector lie in each group of texts, such as a project or a book."""

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
        Column("group", pa.string(), "texts that belong together, as in the benchmark"),
        Column("detector", pa.string(), "whose scores they are"),
        Column("texts", pa.int64(), "texts of the group with a score", ge=1),
        Column("mean_score", pa.float64(), "their mean; higher means more likely members"),
        RUN_ID,
    ),
)


class Options(BaseModel):
    """Which groups are compared, and by what."""

    detector: str = Field(default="loss", description="whose scores are averaged")
    fewest_texts: int = Field(default=2, ge=1, description="groups with fewer texts are left out")


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
    missing_message="its groups have not been compared",
    change_messages={
        "scores": "it was scored again since",
        "settings": "other groups or another detector are asked for since",
    },
)
def group_means(run: StageRun) -> StageResult:
    """The mean score of every group of texts of a benchmark, such as a project or a book, by one detector."""
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
