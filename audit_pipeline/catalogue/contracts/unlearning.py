"""What became of texts that a model was made to forget.

What belongs here: the declaration of the table. What does not: the numbers (unlearning/).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, CI_HIGH, CI_LOW, MODEL, RUN_ID
from audit_pipeline.catalogue.table import Column, Table, list_type_of

ComparedModel = Literal["before", "after", "retrained", "change"]
ComparedSide = Literal["forget", "holdout", "both"]

# A run compares one pair of models on one pair of sides: its view says which runs are the latest of theirs.
UNLEARNING = Table(
    "unlearning",
    "texts that a model was made to forget, before and after, of every run; current_unlearning holds the "
    "latest of each comparison",
    key=("run_id", "benchmark", "model", "metric", "role", "side"),
    per="pair",
    kept="runs",
    made_from=("examples", "token_statistics", "decisions", "document_memorisation"),
    columns=(
        MODEL.with_changes("the model after forgetting"),
        BENCHMARK.with_changes("the benchmark of the texts to be forgotten"),
        Column("before", pa.string(), "the model before forgetting"),
        Column(
            "holdout",
            pa.string(),
            "the benchmark of the held-out texts; where it is that of the texts to be forgotten: its non-members",
        ),
        Column("retrained", pa.string(), "a model trained without these texts; null: none was named", null=True),
        Column("metric", pa.string(), "privleak, forget_quality, … (docs/unlearning.md)"),
        Column(
            "role",
            pa.string(),
            "before | after | retrained: the model that it is of; change: from before to after",
            one_of=("before", "after", "retrained", "change"),
        ),
        Column(
            "side",
            pa.string(),
            "forget | holdout | both (of one side against the other)",
            one_of=("forget", "holdout", "both"),
        ),
        Column("value", pa.float64(), "the metric; null where it was not computed, reason says why", null=True),
        CI_LOW,
        CI_HIGH,
        Column("n", pa.int64(), "texts, groups or documents that it is of", ge=0),
        Column("method", pa.string(), "how value and interval were computed; empty where there is no value"),
        Column("reason", pa.string(), "why there is no value; null where there is one", null=True),
        Column(
            "documents",
            list_type_of(pa.string()),
            "of verbatim_still_reproduced: the documents, by title or document_id; else null",
            null=True,
        ),
        RUN_ID,
    ),
)
