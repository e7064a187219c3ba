"""What the controls that are trained here leave."""

from __future__ import annotations

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import CI_HIGH, CI_LOW, DETECTOR, LANGUAGE, PARAMETERS, RUN_ID, SHA256
from audit_pipeline.tables.documents import DOCUMENTS
from audit_pipeline.tables.table import Table, count, double, fraction, int64, string

CONTROLS = Table(
    "controls",
    "the models that are trained here on known texts; the file of a control names its current version",
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
    "the texts that the models of a control were trained on, and those that they were not",
    key=("document_id", "sha256"),
    partitioned_by="control",
    storage="inside",
    made_from=("controls",),
    holds_text=("text",),
    in_warehouse=False,
    columns=(
        DOCUMENTS.column("document_id"),
        string("group", "what was randomised: the window, or the document with all its windows"),
        DOCUMENTS.column("collection"),
        LANGUAGE,
        DOCUMENTS.column("published"),
        string("text", "the window, UTF-8"),
        string(
            "role",
            "member | held_out | twin (only the control model was trained on it) | surrounding",
            one_of=("member", "held_out", "twin", "surrounding"),
        ),
        count("exposed", "how many times an epoch of the exposed model's training held the text"),
        count("twin", "how many times an epoch of the control model's training held it"),
        SHA256,
    ),
)

CONTROL_STUDIES = Table(
    "control_studies",
    "what makes members easier to detect: controls trained again with one setting changed, AUROC by detector",
    key=("study", "setting", "value", "seed", "detector", "parameters"),
    partitioned_by="study",
    storage="rewritten",
    made_from=("documents",),
    file=DataPaths.study,
    columns=(
        string("study", "the study, as named in config/controls.yaml"),
        string("control", "the control that was trained again and again"),
        string("setting", "what was varied: occurrences, learning_rate, surrounding, hidden_size, …"),
        string("value", "its value, as JSON"),
        int64("seed", "the seed of drawing and training"),
        DETECTOR.with_changes("the detector, or blind_control"),
        PARAMETERS,
        count("n_members", "members with a score"),
        count("n_nonmembers", "held-out texts with a score"),
        fraction("auroc", "AUROC of members against held-out texts; null where not defined", null=True),
        CI_LOW,
        CI_HIGH,
        int64("training_tokens", "tokens of the training, repeats counted", ge=0),
        int64("parameters_of_model", "trainable numbers of the model", ge=0),
        double("final_loss", "mean loss of the last epoch, nats per token", ge=0),
        RUN_ID,
    ),
)
