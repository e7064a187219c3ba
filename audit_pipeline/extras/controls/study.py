"""Studies of the settings that make members easier to detect.

A study trains a control again with one setting changed (Shi et al. 2024, section 6).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.builders.verified import ControlledSettings, draw_controlled
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.detectors.registry import Overrides, mark_defaults, select_detectors
from audit_pipeline.extras.controls.build import build_texts_table, train_models_into
from audit_pipeline.extras.controls.config import ControlEntry, StudyEntry
from audit_pipeline.extras.controls.draw import HELD_OUT, MEMBER, DrawnText, draw_texts, read_control_documents
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS
from audit_pipeline.scoring.session import Session
from audit_pipeline.splits.evaluation_split import compute_assessed_split
from audit_pipeline.statistics.evaluation import Evaluation, evaluate
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import EXPOSED, DataPaths, Role
from audit_pipeline.tables import CONTROL_STUDIES, Pair, canonical_json
from audit_pipeline.token_statistics.forward import ForwardPass

# Number of texts of each side that detectors may read as prefixes.
_SHOTS = 7
_COPIED_COLUMNS = ("detector", "parameters", "n_members", "n_nonmembers", "ci_low", "ci_high")

Log = Callable[[str], None]


def list_conditions(study: StudyEntry, control: ControlEntry) -> list[tuple[str, object, ControlEntry]]:
    """Return all conditions of a study. Each value of each varied setting has one condition per seed.

    Returns:
        For each condition, the name of the setting, its value, and the control with this value and seed.
    """
    conditions: list[tuple[str, object, ControlEntry]] = []
    for setting, values in study.vary.items():
        for value in values:
            for number in range(study.seeds):
                changed = control.with_settings(**{setting: value, "seed": control.seed + number})
                conditions.append((setting, value, changed))
    return conditions


def run_study(
    study: StudyEntry,
    control: ControlEntry,
    paths: DataPaths,
    step: LineageStep,
    *,
    device: str | None = None,
    log: Log = print,
) -> pa.Table:
    """Train and measure all conditions of a study, and store the results. The models are deleted.

    A condition is one value of one setting with one seed. Conditions with the same settings are trained once.

    Args:
        study: The study.
        control: The control of the study.
        paths: The data folder.
        step: The lineage step that the ledger records.
        device: The device to train on. By default the best available one.
        log: Receives one line of progress per condition.

    Returns:
        The results (schema CONTROL_STUDIES).

    Raises:
        DataError: If a control cannot be drawn from its documents.
    """
    documents, versions = read_control_documents(control, paths)
    rows: list[dict[str, object]] = []
    results: dict[str, tuple[Evaluation, Mapping[str, Any]]] = {}
    conditions = list_conditions(study, control)
    for number, (setting, value, entry) in enumerate(conditions, 1):
        log(f"{study.name}: {number} of {len(conditions)}: {setting} {value}, seed {entry.seed}")
        key = entry.settings_digest
        if key not in results:
            texts = draw_texts(documents, entry)
            results[key] = train_and_measure(texts, entry, study.detectors, paths, device=device)
        evaluation, training = results[key]
        for row in evaluation.table.to_pylist():
            if row["metric"] != "auroc":
                continue
            rows.append(
                {
                    "study": study.name,
                    "control": study.control,
                    "setting": setting,
                    "value": canonical_json(value),
                    "seed": entry.seed,
                    **{name: row[name] for name in _COPIED_COLUMNS},
                    "auroc": row["value"],
                    "training_tokens": training["tokens"],
                    "parameters_of_model": training["parameters"],
                    "final_loss": training["losses"][-1],
                    "run_id": step.run_id,
                }
            )
    table = table_from_rows(rows, CONTROL_STUDIES)
    upstream = {f"documents/{name}": version for name, version in versions.items()}
    store.write(paths, step, CONTROL_STUDIES, study.name, table, upstream=upstream)
    return table


def train_and_measure(
    texts: Sequence[DrawnText],
    entry: ControlEntry,
    detectors: Sequence[str],
    paths: DataPaths,
    *,
    role: Role = EXPOSED,
    device: str | None = None,
    overrides: Overrides | None = None,
) -> tuple[Evaluation, Mapping[str, Any]]:
    """Train one model in a temporary folder, and compare the scores of members and held-out texts.

    Detectors with prefixes (``recall``, ``con_recall``) use the first texts of each side as prefixes, so they know the
    membership of these texts.

    Args:
        texts: The drawn texts.
        entry: The settings of the control.
        detectors: The names of the detectors.
        paths: The data folder, which contains the stored description (card) of a base model. Nothing is written there.
        role: The model to train: exposed or twin.
        device: The device to train on. By default the best available one.
        overrides: Parameters of the detectors that replace their default parameters.

    Returns:
        The evaluation, and the facts about the training that a manifest contains (steps, tokens, losses and so on).
    """
    device = device or choose_default_device()
    with tempfile.TemporaryDirectory(prefix="corpus-audit-control-") as name:
        scratch = DataPaths(Path(name))
        folder = scratch.control_version(entry.name, "study")
        manifest = train_models_into(folder, texts, entry, device=device, paths=paths, roles=(role,))
        model = load_tokenized(ModelEntry(name=entry.name, path=folder / role), scratch)
        forward = ForwardPass(load_weights(model, device), model.vocab_size)
        inputs = UserInputs(known={NON_MEMBERS: _select_shots(texts, HELD_OUT), MEMBERS: _select_shots(texts, MEMBER)})
        session = Session(model, select_detectors(list(detectors), overrides=overrides), scratch, user_inputs=inputs)
        examples = build_control_examples(texts, entry)
        ids = examples.column("example_id").to_pylist()
        windows = examples.column("text").to_pylist()
        session.run(windows, lambda _: forward)
        scored = session.score(ids, windows)
    benchmark: str = examples.column("benchmark")[0].as_py()
    scores = mark_defaults(scored, session.limit_overrides(overrides))
    for name, value in (("model", entry.name), ("benchmark", benchmark), ("run_id", "study")):
        scores = scores.append_column(name, pa.repeat(value, len(scores)))
    split = compute_assessed_split(examples, "randomised", texts[0].language, seed=entry.seed)
    evaluation = evaluate(scores, examples, split, Pair(benchmark, entry.name), "study")
    return evaluation, manifest["models"][role]


def _select_shots(texts: Sequence[DrawnText], role: str) -> list[str]:
    return [text.text for text in texts if text.role == role][:_SHOTS]


def build_control_examples(texts: Sequence[DrawnText], entry: ControlEntry) -> pa.Table:
    """Build the benchmark of a control: its members and its held-out texts as examples (schema EXAMPLES)."""
    settings = ControlledSettings(
        builder="controlled",
        description=entry.description,
        control=entry.name,
        words=(entry.words,),
        unit=entry.unit,
        seed=entry.seed,
    )
    return draw_controlled(build_texts_table(texts), BenchmarkSpec(entry.name, entry.words, settings), "study").examples
