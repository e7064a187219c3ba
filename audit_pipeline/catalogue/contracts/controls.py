"""What the controls that are trained here leave behind.

What belongs here: the declarations of these products. What does not: drawing texts, training and measuring (controls/).
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import CI_HIGH, CI_LOW, DETECTOR, LANGUAGE, PARAMETERS, RUN_ID, SHA256
from audit_pipeline.catalogue.contracts.documents import DOCUMENTS
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Column, Table

CONTROLS = Table(
    "controls",
    "the models that are trained here on known texts; the file of a control names its current version",
    key=(),
    per="control",
    kept="rewritten",
    made_from=("documents",),
    in_warehouse=False,
    file=DataPaths.control_pointer,
    columns=(),
)

CONTROL_TEXTS = Table(
    "control_texts",
    "the texts that the models of a control were trained on, and those that they were not",
    key=("document_id", "sha256"),
    per="control",
    kept="inside",
    made_from=("controls",),
    holds_text=("text",),
    in_warehouse=False,
    columns=(
        DOCUMENTS.column("document_id"),
        Column("group", pa.string(), "what was randomised: the window, or the document with all its windows"),
        DOCUMENTS.column("collection"),
        LANGUAGE,
        DOCUMENTS.column("published"),
        Column("text", pa.string(), "the window, UTF-8"),
        Column(
            "role",
            pa.string(),
            "member | held_out | twin (only the control model was trained on it) | surrounding",
            one_of=("member", "held_out", "twin", "surrounding"),
        ),
        Column("exposed", pa.int32(), "how many times an epoch of the exposed model's training held the text", ge=0),
        Column("twin", pa.int32(), "how many times an epoch of the control model's training held it", ge=0),
        SHA256,
    ),
)

CONTROL_STUDIES = Table(
    "control_studies",
    "what makes members easier to detect: controls trained again with one setting changed, AUROC by detector",
    key=("study", "setting", "value", "seed", "detector", "parameters"),
    per="study",
    kept="rewritten",
    made_from=("documents",),
    file=DataPaths.study,
    columns=(
        Column("study", pa.string(), "the study, as named in config/controls.yaml"),
        Column("control", pa.string(), "the control that was trained again and again"),
        Column("setting", pa.string(), "what was varied: occurrences, learning_rate, surrounding, hidden_size, …"),
        Column("value", pa.string(), "its value, as JSON"),
        Column("seed", pa.int64(), "the seed of drawing and training"),
        DETECTOR.with_changes("the detector, or blind_control"),
        PARAMETERS,
        Column("n_members", pa.int32(), "members with a score", ge=0),
        Column("n_nonmembers", pa.int32(), "held-out texts with a score", ge=0),
        Column(
            "auroc",
            pa.float64(),
            "AUROC of members against held-out texts; null where not defined",
            null=True,
            ge=0,
            le=1,
        ),
        CI_LOW,
        CI_HIGH,
        Column("training_tokens", pa.int64(), "tokens of the training, repeats counted", ge=0),
        Column("parameters_of_model", pa.int64(), "trainable numbers of the model", ge=0),
        Column("final_loss", pa.float64(), "mean loss of the last epoch, nats per token", ge=0),
        RUN_ID,
    ),
)
