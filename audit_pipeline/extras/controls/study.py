"""What makes members easier to detect: a control trained again with one setting changed (Shi et al. 2024, 6)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.builders.controlled import ControlledSettings, draw_controlled
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.detectors.registry import Overrides, mark_defaults, select
from audit_pipeline.extras.controls.build import build_texts_table, train_into
from audit_pipeline.extras.controls.config import ControlEntry, StudyEntry
from audit_pipeline.extras.controls.draw import HELD_OUT, MEMBER, DrawnText, draw_texts, read_control_documents
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS
from audit_pipeline.scoring.session import Session
from audit_pipeline.splits.assessment import compute_assessed_split
from audit_pipeline.statistics.evaluation import Evaluation, evaluate
from audit_pipeline.store import store
from audit_pipeline.store.control_names import EXPOSED, Role
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CONTROL_STUDIES, Pair, canonical_json
from audit_pipeline.token_statistics.forward import ForwardPass

_SHOTS = 7
_COPIED = ("detector", "parameters", "n_members", "n_nonmembers", "ci_low", "ci_high")

Log = Callable[[str], None]


def list_conditions(study: StudyEntry, control: ControlEntry) -> list[tuple[str, object, ControlEntry]]:
    """Every training of a study: a setting, its value, and the control as it then is; the other settings are as the
    control has them. Each is done with every seed.
    """
    return [
        (setting, value, control.with_settings(**{setting: value, "seed": control.seed + number}))
        for setting, values in study.vary.items()
        for value in values
        for number in range(study.seeds)
    ]


def run_study(
    study: StudyEntry,
    control: ControlEntry,
    paths: DataPaths,
    step: LineageStep,
    *,
    device: str | None = None,
    log: Log = print,
) -> pa.Table:
    """Train and measure every condition, and keep the results (schema CONTROL_STUDIES); models are thrown away.

    Conditions that are the same training under two names are trained once. Raises DataError where a control cannot be
    drawn from its documents.
    """
    documents, versions = read_control_documents(control, paths)
    rows: list[dict[str, object]] = []
    done: dict[str, tuple[Evaluation, Mapping[str, Any]]] = {}
    planned = list_conditions(study, control)
    for number, (setting, value, entry) in enumerate(planned, 1):
        log(f"{study.name}: {number} of {len(planned)}: {setting} {value}, seed {entry.seed}")
        key = entry.settings_digest
        if key not in done:
            done[key] = train_and_measure(draw_texts(documents, entry), entry, study.detectors, paths, device=device)
        evaluation, training = done[key]
        rows += [
            {
                "study": study.name,
                "control": study.control,
                "setting": setting,
                "value": canonical_json(value),
                "seed": entry.seed,
                **{name: row[name] for name in _COPIED},
                "auroc": row["value"],
                "training_tokens": training["tokens"],
                "parameters_of_model": training["parameters"],
                "final_loss": training["losses"][-1],
                "run_id": step.run_id,
            }
            for row in evaluation.table.to_pylist()
            if row["metric"] == "auroc"
        ]
    table = table_from_rows(rows, CONTROL_STUDIES)
    store.write(
        paths,
        step,
        CONTROL_STUDIES,
        study.name,
        table,
        upstream={f"documents/{name}": version for name, version in versions.items()},
    )
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
    """Train one model of ``entry`` on ``texts`` in a temporary folder, and score members against held-out texts.

    Returns the findings, and what the manifest says of the training (steps, tokens, losses and so on).
    ``paths`` is where a base model's card lies; nothing is written there. Prefixes are made of the first texts drawn of
    either side, which they give away.
    """
    device = device or choose_default_device()
    with tempfile.TemporaryDirectory(prefix="corpus-audit-control-") as name:
        scratch = DataPaths(Path(name))
        folder = scratch.control_version(entry.name, "study")
        manifest = train_into(folder, texts, entry, device=device, paths=paths, roles=(role,))
        model = load_tokenized(ModelEntry(name=entry.name, path=folder / role), scratch)
        forward = ForwardPass(load_weights(model, device), model.vocab_size)
        roles = {NON_MEMBERS: HELD_OUT, MEMBERS: MEMBER}
        known = {side: [text.text for text in texts if text.role == of][:_SHOTS] for side, of in roles.items()}
        inputs = UserInputs(known=known)
        session = Session(model, select(list(detectors), overrides=overrides), scratch, user_inputs=inputs)
        examples = build_control_examples(texts, entry)
        ids, windows = examples.column("example_id").to_pylist(), examples.column("text").to_pylist()
        session.run(windows, lambda _: forward)
        scored = session.score(ids, windows)
    benchmark: str = examples.column("benchmark")[0].as_py()
    scores = mark_defaults(scored, session.limit_overrides(overrides))
    for name, value in (("model", entry.name), ("benchmark", benchmark), ("run_id", "study")):
        scores = scores.append_column(name, pa.repeat(value, len(scores)))
    split = compute_assessed_split(examples, "randomised", texts[0].language, seed=entry.seed)
    return evaluate(scores, examples, split, Pair(benchmark, entry.name), "study"), manifest["models"][role]


def build_control_examples(texts: Sequence[DrawnText], entry: ControlEntry) -> pa.Table:
    """Members and held-out texts as examples (schema EXAMPLES), all of them evaluated: the control's own benchmark."""
    settings = ControlledSettings(
        builder="controlled",
        description=entry.description,
        control=entry.name,
        words=(entry.words,),
        unit=entry.unit,
        seed=entry.seed,
    )
    return draw_controlled(build_texts_table(texts), BenchmarkSpec(entry.name, entry.words, settings), "study").examples
