"""Tables of experiments on models: controls (trained on known texts), and models before and after unlearning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import (
    BENCHMARK,
    CI_HIGH,
    CI_LOW,
    DETECTOR,
    LANGUAGE,
    MODEL,
    PARAMETERS,
    RUN_ID,
    SHA256,
    build_run_table,
)
from audit_pipeline.tables.examples import DOCUMENTS
from audit_pipeline.tables.table import Table, count, double, fraction, int64, string, strings

CONTROLS = Table(
    "controls",
    "models that Corpus Audit trains on known texts; the file of a control names its current version",
    key=(),
    partitioned_by="control",
    storage="rewritten",
    made_from=("documents",),
    in_warehouse=False,
    file=DataPaths.control_pointer,
    columns=(),
)

CONTROL_TEXTS = Table(
    "control_texts",
    "texts that the models of a control were trained on, and texts that they were not trained on",
    key=("document_id", "sha256"),
    partitioned_by="control",
    storage="inside",
    made_from=("controls",),
    text_columns=("text",),
    in_warehouse=False,
    columns=(
        DOCUMENTS.column("document_id"),
        string("group", "unit of randomisation: the window, or the document with all its windows"),
        DOCUMENTS.column("collection"),
        LANGUAGE,
        DOCUMENTS.column("published"),
        string("text", "text of the window"),
        string(
            "role",
            "member | held_out | twin (only the twin model was trained on it) | surrounding",
            one_of=("member", "held_out", "twin", "surrounding"),
        ),
        count("exposed", "occurrences of the text per training epoch of the exposed model"),
        count("twin", "occurrences of the text per training epoch of the twin model"),
        SHA256,
    ),
)

CONTROL_STUDIES = Table(
    "control_studies",
    "AUROC by detector of controls that were trained with one setting changed: what makes members easier to detect",
    key=("study", "setting", "value", "seed", "detector", "parameters"),
    partitioned_by="study",
    storage="rewritten",
    made_from=("documents",),
    file=DataPaths.study,
    columns=(
        string("study", "name of the study in config/studies.yaml"),
        string("control", "name of the control that the study varies"),
        string("setting", "the varied setting: occurrences, learning_rate, surrounding, hidden_size, …"),
        string("value", "value of the setting, as JSON"),
        int64("seed", "seed of sampling and training"),
        DETECTOR.with_changes("the detector, or blind_control"),
        PARAMETERS,
        count("n_members", "members with a score"),
        count("n_nonmembers", "held-out texts with a score"),
        fraction("auroc", "AUROC of members against held-out texts; null if undefined", null=True),
        CI_LOW,
        CI_HIGH,
        int64("training_tokens", "training tokens, including repeats", ge=0),
        int64("parameters_of_model", "number of trainable parameters", ge=0),
        double("final_loss", "mean loss of the last epoch, nats per token", ge=0),
        RUN_ID,
    ),
)


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
"""The titles of the metrics, in the order of the output."""

# A run compares one pair of models on one pair of sides. The view selects the latest run of each comparison.
UNLEARNING = build_run_table(
    "unlearning",
    "comparisons of a model before and after unlearning, of every run; current_unlearning has the latest of each "
    "comparison",
    key=("metric", "role", "side"),
    made_from=("examples", "token_statistics", "decisions", "document_memorisation"),
    model=MODEL.with_changes("the model after forgetting"),
    benchmark=BENCHMARK.with_changes("the benchmark of the texts to forget"),
    columns=(
        string("before", "the model before forgetting"),
        string(
            "holdout",
            "the benchmark of the held-out texts; if it is the benchmark of the texts to forget, its non-members",
        ),
        string(
            "retrained", "a model that was trained without the texts to forget; null if it was not given", null=True
        ),
        string("metric", "privleak, forget_quality, … (docs/unlearning.md)"),
        string(
            "role",
            "the measured model: before | after | retrained; or change (from before to after)",
            one_of=("before", "after", "retrained", "change"),
        ),
        string("side", "forget | holdout | both (a comparison of the two sides)", one_of=("forget", "holdout", "both")),
        double("value", "value of the metric; null if it was not computed, see reason", null=True),
        CI_LOW,
        CI_HIGH,
        int64("n", "number of texts, groups or documents that the value is computed from", ge=0),
        string("method", "how value and interval were computed; empty without a value"),
        string("reason", "why there is no value; null if there is a value", null=True),
        strings(
            "documents",
            "titles or ids of the documents of verbatim_still_reproduced; null for other metrics",
            null=True,
        ),
    ),
)
