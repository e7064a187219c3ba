"""The stages of controls with known truth, two models that are trained here, and of studies over them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.controls.config import FILE, list_control_sources, load_controls, load_studies
from audit_pipeline.extras.controls.draw import compute_wanted_version
from audit_pipeline.pipeline.console import show_progress
from audit_pipeline.pipeline.progress import progress_logger
from audit_pipeline.pipeline.stage import Check, Finding, Inputs, Job, Made, Shown, Stage, StageRun
from audit_pipeline.store.control_files import read_trained_version
from audit_pipeline.store.control_names import Role
from audit_pipeline.tables import CONTROL_STUDIES, CONTROL_TEXTS

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Scope, Situation

_LOG_STEPS = 50
# A model that has collapsed ends a hair below the loss of guessing; one that has learnt anything far below.
_LEARNT = 0.9


def _train(run: StageRun) -> Made:
    """Train one control's two models, unless they are there as its entry has them."""
    from audit_pipeline.extras.controls.build import ensure_control_trained  # noqa: PLC0415 - it imports torch

    entry = load_controls().named(run.partition)

    def notify(role: Role, done: int, steps: int, loss: float) -> None:
        words = f"{entry.name}, {role}: step {done} of {steps}, loss {loss:.3f}"
        show_progress(words)
        if done % _LOG_STEPS == 0 or done == steps:
            run.log.info(words)

    report = ensure_control_trained(entry, run.paths, run.step(), device=run.models.device, on_step=notify)
    manifest = report.manifest
    losses = {role: trained["losses"][-1] for role, trained in manifest["models"].items()}
    limit = _LEARNT * math.log(manifest["vocabulary"])
    shown = Shown(values={"loss of the last epoch": losses, "must be below": round(limit, 3)})
    values = {
        "trained now": report.trained,
        **{f"texts, {role}": count for role, count in manifest["roles"].items()},
        "data_version": report.version,
    }
    return Made(
        report.version,
        Shown(sum(manifest["roles"].values()), values, paths={"path": report.folder}),
        {"training_converged": Finding(max(losses.values()) < limit, shown=shown)},
    )


def _list_controls(scope: Scope, situation: Situation) -> Iterable[str]:
    """Those of the models, and those that benchmarks are of."""
    of_models = (situation.find_control(model) for model in scope.models)
    of_benchmarks = (situation.specs[name].control for name in scope.benchmarks if name in situation.specs)
    return [name for name in (*of_models, *of_benchmarks) if name is not None]


def _list_sources(scope: Scope, situation: Situation) -> Iterable[str]:
    controls = situation.load_entries(FILE)
    return list_control_sources([controls[name] for name in _list_controls(scope, situation) if name in controls])


def _inputs(control: str, situation: Situation) -> Inputs:
    entry = situation.load_entries(FILE).named(control)
    inputs: dict[str, str | None] = {}
    for source in entry.sources:
        inputs |= situation.build_presence_input("documents", source)
    return {**inputs, "entry": compute_wanted_version(entry, situation.paths)}


def _recorded(control: str, situation: Situation) -> Inputs | None:
    trained = read_trained_version(control, situation.paths)
    return None if trained is None else {"entry": trained}


def _list_document_products() -> tuple[str, ...]:
    """What controls are drawn from; nothing where the file cannot be read: a run reads it again, and says what is
    wrong."""
    try:
        return tuple(f"documents/{name}" for name in list_control_sources(list(load_controls().values())))
    except ConfigError:
        return ()


CONTROL_STAGE = Stage(
    name="controlled_contamination",
    description="Two models that are trained here, on texts that are known: one has read the members, the other "
    "has not. They show what a detector finds where there is something to be found, and where there "
    "is nothing.",
    dimensions=("control",),
    group="7_controls_on_request",
    job=Job("train_controls", "Train the two models of a control on texts that are known.", "controls trained"),
    make=_train,
    after=_list_document_products(),
    tables=(CONTROL_TEXTS,),
    checks={
        "training_converged": Check(
            "Both models' mean loss of the last epoch is below nine tenths of that of guessing a token.", False
        )
    },
    kinds=frozenset({"torch", "transformers", "parquet"}),
    lock="gpu",
    step="training the control {}: one model on its members, the control model on other texts",
    first="the control {} is trained first",
    absent="it has not been trained",
    words={"entry": "its entry in the configuration or its documents changed since it was trained"},
    partitions=_list_controls,
    sources=_list_sources,
    sources_purpose="texts that a control is trained on",
    inputs=_inputs,
    recorded=_recorded,
)


def _study(run: StageRun) -> Made:
    """Run one study; its models are thrown away, its numbers kept."""
    from audit_pipeline.extras.controls.study import run_study  # noqa: PLC0415 - it imports torch

    study = load_studies().named(run.partition)
    control = load_controls().named(study.control)
    log = progress_logger(run.log)
    table = run_study(study, control, run.paths, run.step(), device=run.models.device, log=log)
    return Made(None, Shown(table.num_rows, paths={"path": run.paths.study(study.name)}, page=run.paths.report))


STUDY_STAGE = Stage(
    name="control_study",
    description="What makes members easier to find: a control is trained again and again with one setting "
    "changed, such as how often it reads a text (config/studies.yaml; Shi et al. 2024, tables 3 and "
    "4, figure 5).",
    dimensions=("study",),
    group="7_controls_on_request",
    job=Job("run_studies", "Train a control again and again with one setting changed.", "studies run"),
    make=_study,
    after=_list_document_products(),
    tables=(CONTROL_STUDIES,),
    kinds=frozenset({"torch", "transformers", "parquet"}),
    lock="gpu",
)
