"""Tables of the controls: models that Corpus Audit trains on known texts."""

from __future__ import annotations

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.common import CI_HIGH, CI_LOW, DETECTOR, LANGUAGE, PARAMETERS, RUN_ID, SHA256
from audit_pipeline.tables.documents import DOCUMENTS
from audit_pipeline.tables.table import Table, count, double, fraction, int64, string

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
