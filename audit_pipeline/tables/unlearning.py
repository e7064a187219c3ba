"""What became of texts that a model was made to forget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit_pipeline.tables.common import BENCHMARK, CI_HIGH, CI_LOW, MODEL, build_run_table
from audit_pipeline.tables.table import double, int64, string, strings

ComparedModel = Literal["before", "after", "retrained", "change"]
ComparedSide = Literal["forget", "holdout", "both"]

UNLEARNING_METRICS: Mapping[str, str] = {
    "privleak": "PrivLeak",
    "auroc_min_40": "AUROC of Min-40%, texts to be forgotten as members",
    "forget_quality": "forget quality: p-value of no difference from the retrained model",
    "suspicious": "share suspicious: called a member before, and hardly moved since",
    "member_before": "share called a member before",
    "unchanged": "share whose Min-K% hardly moved",
    "exact_memorization": "exact memorisation: share of tokens that are the model's first choice",
    "extraction_strength": "extraction strength: share of tokens after the last that is no first choice",
    "mean_log_probability": "mean log-probability of a token",
    "verbatim_coverage": "verbatim: share of characters given with a probability of at least .001",
    "verbatim_log_p": "verbatim: log-probability of a document's strongest window",
    "verbatim_reproduced": "verbatim: share of documents with a passage that is reproduced",
    "verbatim_still_reproduced": "verbatim: the same after, without documents that the retrained model reproduces, too",
}
"""Every metric of a comparison for people, in the order in which they are shown."""

# A run compares one pair of models on one pair of sides: its view says which runs are the latest of theirs.
UNLEARNING = build_run_table(
    "unlearning",
    "texts that a model was made to forget, before and after, of every run; current_unlearning holds the "
    "latest of each comparison",
    key=("metric", "role", "side"),
    made_from=("examples", "token_statistics", "decisions", "document_memorisation"),
    model=MODEL.with_changes("the model after forgetting"),
    benchmark=BENCHMARK.with_changes("the benchmark of the texts to be forgotten"),
    columns=(
        string("before", "the model before forgetting"),
        string(
            "holdout",
            "the benchmark of the held-out texts; where it is that of the texts to be forgotten: its non-members",
        ),
        string("retrained", "a model trained without these texts; null: none was named", null=True),
        string("metric", "privleak, forget_quality, … (docs/unlearning.md)"),
        string(
            "role",
            "before | after | retrained: the model that it is of; change: from before to after",
            one_of=("before", "after", "retrained", "change"),
        ),
        string("side", "forget | holdout | both (of one side against the other)", one_of=("forget", "holdout", "both")),
        double("value", "the metric; null where it was not computed, reason says why", null=True),
        CI_LOW,
        CI_HIGH,
        int64("n", "texts, groups or documents that it is of", ge=0),
        string("method", "how value and interval were computed; empty where there is no value"),
        string("reason", "why there is no value; null: there is one", null=True),
        strings(
            "documents", "of verbatim_still_reproduced: the documents, by title or document_id; else null", null=True
        ),
    ),
)
