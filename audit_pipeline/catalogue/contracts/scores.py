"""The scores of the detectors, and the texts with the highest.

What belongs here: the declarations of both tables. What does not: detectors (detectors/), scoring (scoring/).
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import BENCHMARK, DETECTOR, MODEL, PARAMETERS, RUN_ID
from audit_pipeline.catalogue.table import Column, Table, list_type_of

ScoreStatus = Literal["ok", "not_applicable", "failed"]

RANKED_AMONG_ALL = "combined"
"""The detector whose score is made of ranks among all texts of the benchmark: no two texts' are independent."""

SCORES = Table(
    "scores",
    "every score of every run",
    current="the scores",
    key=("run_id", "benchmark", "model", "detector", "parameters", "example_id"),
    per="pair",
    kept="runs",
    made_from=("examples", "token_statistics", "token_frequencies"),
    columns=(
        Column("example_id", pa.string(), "the scored example"),
        MODEL.with_changes("the model's name in config/models.yaml, hub id or path"),
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        Column(
            "is_default",
            pa.bool_(),
            "whether these are the detector's default parameters, with what the benchmark fixes in them",
        ),
        Column("score", pa.float64(), "higher means more likely a member; null unless status is ok", null=True),
        Column("status", pa.string(), "ok | not_applicable | failed", one_of=("ok", "not_applicable", "failed")),
        Column("reason", pa.string(), "why there is no score; null where there is one", null=True),
        RUN_ID,
    ),
)

HIGHLIGHTS = Table(
    "highlights",
    "the texts with the highest scores, token by token",
    current="the most suspicious texts",
    key=("run_id", "benchmark", "model", "detector", "parameters", "example_id"),
    per="pair",
    kept="runs",
    made_from=("examples", "token_statistics", "scores"),
    columns=(
        MODEL,
        BENCHMARK,
        SCORES.column("example_id"),
        DETECTOR,
        PARAMETERS,
        Column("place", pa.int32(), "1: the highest score of the evaluated texts", ge=1),
        Column("score", pa.float64(), "the text's score"),
        Column(
            "pieces", list_type_of(pa.string()), "at most 50 words of the text, in the model's tokens", quotes_text=True
        ),
        Column("token_scores", list_type_of(pa.float64()), "the score of each of those tokens"),
        Column("counted", list_type_of(pa.bool_()), "whether the token is among the lowest k% that the score averages"),
        Column("n_tokens", pa.int32(), "scored tokens of the whole text", ge=0),
        RUN_ID,
    ),
)
