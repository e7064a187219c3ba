"""The assets of controls with known truth: ``controlled_contamination``, two models that are trained here, and
``control_study``, studies over them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.controls.config import FILE, list_control_sources, load_controls, load_studies
from audit_pipeline.extras.controls.draw import compute_wanted_version
from audit_pipeline.pipeline.console import show_progress
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.stage import (
    CheckResult,
    StageCheck,
    StageJob,
    StageResult,
    StageRun,
    UiMetadata,
    audit_asset,
)
from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState
from audit_pipeline.store.control_files import read_trained_version
from audit_pipeline.store.control_names import Role
from audit_pipeline.tables import CONTROL_STUDIES, CONTROL_TEXTS

_LOG_STEPS = 50
_MAX_RELATIVE_LOSS = 0.9
"""Of the loss of guessing. A model that has collapsed ends a hair below it; one that has learnt anything far below."""


def _list_document_products() -> list[str]:
    """Return the documents that controls are drawn from; none if the file cannot be read: a run reports it."""
    try:
        return [f"documents/{name}" for name in list_control_sources(list(load_controls().values()))]
    except ConfigError:
        return []


@audit_asset(
    partitions=("control",),
    deps=_list_document_products(),
    tables=[CONTROL_TEXTS],
    group="7_controls_on_request",
    job=StageJob("train_controls", "Train the two models of a control on texts that are known.", "controls trained"),
    kinds={"torch", "transformers", "parquet"},
    checks={
        "training_converged": StageCheck(
            "Both models' mean loss of the last epoch is below nine tenths of that of guessing a token.",
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
def controlled_contamination(run: StageRun) -> StageResult:
    """Two models that are trained here, on texts that are known: one has read the members, the other has not. They show
    what a detector finds if there is something to be found, and if there is nothing."""
    # Imported here, because it imports torch.
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
    shown = UiMetadata(values={"loss of the last epoch": losses, "must be below": round(limit, 3)})
    values = {
        "trained now": report.trained,
        **{f"texts, {role}": count for role, count in manifest["roles"].items()},
        "data_version": report.version,
    }
    return StageResult(
        report.version,
        UiMetadata(sum(manifest["roles"].values()), values, paths={"path": report.folder}),
        {"training_converged": CheckResult(max(losses.values()) < limit, metadata=shown)},
    )


@controlled_contamination.partitions
def list_controls(scope: Scope, state: WorkspaceState) -> Iterable[str]:
    """Return the controls of the scope's models and benchmarks."""
    of_models = [state.find_control(model) for model in scope.models]
    of_benchmarks = [state.specs[name].control for name in scope.benchmarks if name in state.specs]
    return [name for name in (*of_models, *of_benchmarks) if name is not None]


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
    return None if trained is None else {"entry": trained}


@audit_asset(
    partitions=("study",),
    deps=_list_document_products(),
    tables=[CONTROL_STUDIES],
    group="7_controls_on_request",
    job=StageJob("run_studies", "Train a control again and again with one setting changed.", "studies run"),
    kinds={"torch", "transformers", "parquet"},
    lock="gpu",
)
def control_study(run: StageRun) -> StageResult:
    """What makes members easier to find: a control is trained again and again with one setting changed, such as how
    often it reads a text (config/studies.yaml; Shi et al. 2024, tables 3 and 4, figure 5)."""
    # Imported here, because it imports torch.
    from audit_pipeline.extras.controls.study import run_study  # noqa: PLC0415

    study = load_studies().get_entry(run.partition)
    control = load_controls().get_entry(study.control)
    log = progress_logger(run.log)
    # The trained models are thrown away; their numbers are kept.
    table = run_study(study, control, run.paths, run.step(), device=run.models.device, log=log)
    paths = {"path": run.paths.study(study.name)}
    return StageResult(None, UiMetadata(table.num_rows, paths=paths, page=run.paths.report))
