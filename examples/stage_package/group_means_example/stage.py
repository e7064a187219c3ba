"""How the scores of one detector lie in each group of texts (a project, a book): the mean of every group of a pair."""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from statistics import mean
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, Check, Finding, Inputs, Made, Shown, Stage, StageRun
from audit_pipeline.store import store
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.tables import BENCHMARK, MODEL, RUN_ID, SCORES
from audit_pipeline.tables.table import Column, Table

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation

TABLE = Table(
    "group_means",
    "the mean score of every group of texts, by one detector",
    current="the mean scores of groups",
    key=("run_id", "benchmark", "model", "group"),
    per="pair",
    kept="runs",
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


def _compare_groups(run: StageRun) -> Made:
    pair, options = run.pair, run.options
    built = read_built(run.paths, pair.benchmark)
    latest = read_latest_run(run.paths, SCORES.name, run.partition)
    scores = store.read(run.paths, SCORES, pair, run_id=latest.run_id, label=f"the scores of {run.partition}")
    group_of = dict(zip(*(built.examples.column(name).to_pylist() for name in ("example_id", "group")), strict=True))
    found: dict[str, list[float]] = defaultdict(list)
    for row in scores.to_pylist():
        if row["detector"] == options.detector and row["is_default"] and row["status"] == "ok":
            found[group_of[row["example_id"]]].append(row["score"])
    rows = [
        {
            "model": pair.model,
            "benchmark": pair.benchmark,
            "group": group,
            "detector": options.detector,
            "texts": len(of_group),
            "mean_score": mean(of_group),
            "run_id": run.run_id,
        }
        for group, of_group in sorted(found.items())
        if len(of_group) >= options.fewest_texts
    ]
    upstream = {f"examples/{pair.benchmark}": built.digest, f"scores/{run.partition}": latest.data_version}
    version = run.write(TABLE, rows, upstream)
    finding = Finding(bool(rows), f"{len(rows)} of {len(set(group_of.values()))} groups have a mean")
    return Made(version, Shown(len(rows), {"groups": len(rows)}), {"some_group_compared": finding})


def _inputs(partition: str, situation: Situation) -> Inputs:
    scores = situation.find_latest_entry(SCORES.name, partition)
    return {f"scores/{partition}": None if scores is None else scores.data_version}


GROUP_MEANS = Stage(
    name="group_means",
    description="The mean score of every group of texts of a benchmark, such as a project or a book, by one detector.",
    dimensions=("benchmark", "model"),
    group="4_findings",
    job=AUDIT_PAIRS,
    make=_compare_groups,
    after=("scores",),
    tables=(TABLE,),
    checks={"some_group_compared": Check("At least one group has enough texts with a score.")},
    options=Options,
    section=files(__package__) / "sections",
    is_on_request=True,
    absent="its groups have not been compared",
    words={"scores": "it was scored again since", "settings": "other groups or another detector are asked for since"},
    inputs=_inputs,
)
