"""Tables of the detectors' scores, and of the texts with the highest scores."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from audit_pipeline.tables.common import BENCHMARK, DETECTOR, MODEL, PARAMETERS, RUN_ID, build_run_table
from audit_pipeline.tables.table import (
    Column,
    Table,
    boolean,
    choice,
    count,
    double,
    int32,
    list_type_of,
    string,
    strings,
)

ScoreStatus = Literal["ok", "not_applicable", "failed"]

RANKED_AMONG_ALL = "combined"
"""The detector that combines ranks among all texts of the benchmark, so a text's score depends on the other texts."""

SCORES = Table(
    "scores",
    "every score of every run",
    order="as read",
    current="the scores",
    key=("run_id", "benchmark", "model", "detector", "parameters", "example_id"),
    partitioned_by="pair",
    storage="runs",
    made_from=("examples", "token_statistics", "token_frequencies"),
    columns=(
        string("example_id", "the scored example"),
        MODEL.with_changes("the model's name in config/models.yaml, hub id or path"),
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        boolean(
            "is_default", "whether these are the detector's default parameters, after the benchmark's own settings"
        ),
        double("score", "the score; higher means more likely a member; null unless status is ok", null=True),
        choice("status", ("ok", "not_applicable", "failed")),
        string("reason", "why there is no score; null if there is a score", null=True),
        RUN_ID,
    ),
)

HIGHLIGHTS = build_run_table(
    "highlights",
    "the texts with the highest scores, token by token",
    current="the most suspicious texts",
    key=("detector", "parameters", "example_id"),
    made_from=("examples", "token_statistics", "scores"),
    columns=(
        SCORES.column("example_id"),
        DETECTOR,
        PARAMETERS,
        int32("place", "rank of the text's score among the evaluated texts, 1 for the highest", ge=1),
        double("score", "the text's score"),
        strings("pieces", "at most 50 words of the text, as tokens of the model", quotes_text=True),
        Column("token_scores", list_type_of(pa.float64()), "score of each of those tokens"),
        Column("counted", list_type_of(pa.bool_()), "whether the token is among the lowest k% that the score averages"),
        count("n_tokens", "number of scored tokens of the whole text"),
    ),
)
