"""The assets of controls with known truth.

``controlled_contamination`` trains two models. ``control_study`` trains them repeatedly, with one setting changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.controls.config import FILE, list_control_sources, load_controls, load_studies
from audit_pipeline.extras.controls.draw import compute_wanted_version
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.console import show_progress
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.store.control_files import read_trained_version
from audit_pipeline.store.paths import Role
from audit_pipeline.tables import CONTROL_STUDIES, CONTROL_TEXTS

_LOG_STEPS = 50
_MAX_RELATIVE_LOSS = 0.9
"""The limit of the last epoch's loss, as a share of the loss of guessing, which is log(vocabulary size).

A collapsed model ends just below the loss of guessing. A model that has learnt anything ends far below it.
"""


def _list_document_products() -> list[str]:
    """Return the documents that controls are drawn from.

    The list is empty if the configuration file is unreadable. A run reports the error of the file.
    """
    try:
        return [f"documents/{name}" for name in list_control_sources(list(load_controls().values()))]
    except ConfigError:
        return []


@stage.audit_asset(
    partitions=("control",),
    deps=_list_document_products(),
    tables=[CONTROL_TEXTS],
    group="7_controls_on_request",
    job=stage.StageJob("train_controls", "Train the two models of a control on known texts.", "controls trained"),
    kinds={"torch", "transformers", "parquet"},
    checks={
        "training_converged": stage.StageCheck(
            "The mean loss of both models in the last epoch is below nine tenths of the loss of guessing a token.",
            is_warning=False,
        )
    },
    lock="gpu",
    progress_message="training the control {}: one model on its members, the control model on other texts",
    blocked_message="the control {} is trained first",
    missing_message="it has not been trained",
    change_messages={"entry": "its entry in the configuration or its documents changed since it was trained"},
    sources_purpose="texts that a control is trained on",
)
def controlled_contamination(run: stage.StageRun) -> stage.StageResult:
    """Train two models on known texts: one on the members, the other on other texts.

    The texts and the training are declared in config/controls.yaml. Audits of the two models show what a detector
    finds if a model has read the members, and if it has not.
    """
    # The module imports torch, which takes seconds.
    from audit_pipeline.extras.controls.build import ensure_control_trained  # noqa: PLC0415

    entry = load_controls().get_entry(run.partition)

    def notify(role: Role, done: int, steps: int, loss: float) -> None:
        line = f"{entry.name}, {role}: step {done} of {steps}, loss {loss:.3f}"
        show_progress(line)
        if done % _LOG_STEPS == 0 or done == steps:
            run.log.info(line)

    report = ensure_control_trained(entry, run.paths, run.step(), device=run.models.device, on_step=notify)
    manifest = report.manifest
    losses = {role: trained["losses"][-1] for role, trained in manifest["models"].items()}
    limit = _MAX_RELATIVE_LOSS * math.log(manifest["vocabulary"])
    check_metadata = stage.UiMetadata(values={"loss of the last epoch": losses, "must be below": round(limit, 3)})
    values: dict[str, object] = {"trained now": report.trained}
    values |= {f"texts, {role}": count for role, count in manifest["roles"].items()}
    values["data_version"] = report.version
    return stage.StageResult(
        report.version,
        stage.UiMetadata(sum(manifest["roles"].values()), values, paths={"path": report.folder}),
        {"training_converged": stage.CheckResult(max(losses.values()) < limit, metadata=check_metadata)},
    )


@controlled_contamination.partitions
def list_controls(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the controls of the scope's models and benchmarks."""
    controls = list(map(state.find_control, scope.models))
    for name in scope.benchmarks:
        if name in state.specs:
            controls.append(state.specs[name].control)
    return [control for control in controls if control is not None]


@controlled_contamination.sources
def list_sources_of_controls(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the sources whose documents the scope's controls are trained on."""
    controls = state.load_entries(FILE)
    return list_control_sources([controls[name] for name in list_controls(scope, state) if name in controls])


@controlled_contamination.inputs
def get_control_inputs(control: str, state: WorkspaceState) -> Inputs:
    """Return the version that the control would have if it were trained now."""
    entry = state.load_entries(FILE).get_entry(control)
    inputs: dict[str, str | None] = {}
    for source in entry.sources:
        inputs |= state.build_documents_input(source)
    return {**inputs, "entry": compute_wanted_version(entry, state.paths)}


@controlled_contamination.recorded
def get_recorded_control_inputs(control: str, state: WorkspaceState) -> Inputs | None:
    """Return the version of the trained control."""
    trained = read_trained_version(control, state.paths)
    if trained is None:
        return None
    return {"entry": trained}


@stage.audit_asset(
    partitions=("study",),
    deps=_list_document_products(),
    tables=[CONTROL_STUDIES],
    group="7_controls_on_request",
    job=stage.StageJob("run_studies", "Train a control repeatedly with one setting changed.", "studies run"),
    kinds={"torch", "transformers", "parquet"},
    lock="gpu",
)
def control_study(run: stage.StageRun) -> stage.StageResult:
    """Measure what makes members easier to find.

    A study trains a control repeatedly and changes one setting, such as how often the model reads a text. Studies are
    declared in config/studies.yaml. The result is one table per study (Shi et al. 2024, tables 3 and 4, figure 5).
    """
    # The module imports torch, which takes seconds.
    from audit_pipeline.extras.controls.study import run_study  # noqa: PLC0415

    study = load_studies().get_entry(run.partition)
    control = load_controls().get_entry(study.control)
    log = progress_logger(run.log)
    # The trained models are deleted. Only their numbers are stored.
    table = run_study(study, control, run.paths, run.step(), device=run.models.device, log=log)
    paths = {"path": run.paths.study(study.name)}
    return stage.StageResult(None, stage.UiMetadata(table.num_rows, paths=paths, page=run.paths.report))
