"""Controls with known truth and the studies over them, partitioned by control and by study.

What belongs here: wiring, and how often a training is logged. What does not: drawing, training and measuring
(audit_pipeline/controls), what is shown of them (audit_pipeline/operate/stages).
"""

from typing import TYPE_CHECKING

import dagster as dg

from audit_pipeline.catalogue.contracts import CONTROL_STUDIES, CONTROL_TEXTS
from audit_pipeline.catalogue.control_roles import Role
from audit_pipeline.catalogue.ledger import LineageStep
from audit_pipeline.controls.config import load_controls, load_studies, sources_of
from audit_pipeline.errors import ConfigError
from audit_pipeline.operate.console import tell_progress
from audit_pipeline.operate.dagster.jobs import CONTROLS_ON_REQUEST
from audit_pipeline.operate.dagster.metadata import metadata_of, schema_metadata
from audit_pipeline.operate.dagster.resources import AuditData, Models
from audit_pipeline.operate.progress import progress_logger
from audit_pipeline.operate.stages.control_ui_summaries import summarise_control, summarise_convergence, summarise_study

if TYPE_CHECKING:
    from audit_pipeline.controls.build import OnControlStep

CODE_VERSION = "1"
_LOG_STEPS = 50


def _list_configured_names(kind: str) -> list[str]:
    """The controls or studies of the configuration, those with a broken entry too: they are still there.

    None where the file cannot be read: everything else still loads. A run reads it again, and says what is wrong.
    """
    try:
        return list((load_controls() if kind == "control" else load_studies()).names)
    except ConfigError:
        return []


def _list_document_keys() -> list[dg.AssetKey]:
    try:
        return [dg.AssetKey(["documents", name]) for name in sources_of(list(load_controls().values()))]
    except ConfigError:
        return []


@dg.asset(
    group_name=CONTROLS_ON_REQUEST,
    description="Two models that are trained here, on texts that are known: one has read the members, the other "
    "has not. They show what a detector finds where there is something to be found, and where there "
    "is nothing.",
    kinds={"torch", "transformers", "parquet"},
    code_version=CODE_VERSION,
    partitions_def=dg.StaticPartitionsDefinition(_list_configured_names("control")),
    deps=_list_document_keys(),
    pool="gpu",
    metadata=schema_metadata(CONTROL_TEXTS),
    check_specs=[
        dg.AssetCheckSpec(
            "training_converged",
            asset="controlled_contamination",
            description="Both models' mean loss of the last epoch is below nine tenths of that of guessing a token.",
        )
    ],
)
def controlled_contamination(
    context: dg.AssetExecutionContext, data: AuditData, models: Models
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Train one control's two models, unless they are there as its entry has them."""
    from audit_pipeline.controls.build import ensure_control_trained  # noqa: PLC0415 - it imports torch

    entry = load_controls().named(context.partition_key)
    step = LineageStep.now(context.run.run_id, "controlled_contamination", CODE_VERSION)
    report = ensure_control_trained(
        entry, data.paths, step, device=models.device, on_step=_build_step_logger(context, entry.name)
    )
    converged = dg.AssetCheckResult(
        check_name="training_converged",
        passed=report.has_converged,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata=metadata_of(summarise_convergence(report)),
    )
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.version),
        metadata=metadata_of(summarise_control(report)),
        check_results=[converged],
    )


def _build_step_logger(context: dg.AssetExecutionContext, control: str) -> "OnControlStep":
    def tell(role: Role, done: int, steps: int, loss: float) -> None:
        words = f"{control}, {role}: step {done} of {steps}, loss {loss:.3f}"
        tell_progress(words)
        if done % _LOG_STEPS == 0 or done == steps:
            context.log.info(words)

    return tell


@dg.asset(
    group_name=CONTROLS_ON_REQUEST,
    description="What makes members easier to find: a control is trained again and again with one setting "
    "changed, such as how often it reads a text (config/studies.yaml; Shi et al. 2024, tables 3 and "
    "4, figure 5).",
    kinds={"torch", "transformers", "parquet"},
    code_version=CODE_VERSION,
    partitions_def=dg.StaticPartitionsDefinition(_list_configured_names("study")),
    deps=_list_document_keys(),
    pool="gpu",
    metadata=schema_metadata(CONTROL_STUDIES),
)
def control_study(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Run one study; its models are thrown away, its numbers kept."""
    from audit_pipeline.controls.study import run_study  # noqa: PLC0415 - it imports torch

    study = load_studies().named(context.partition_key)
    control = load_controls().named(study.control)
    step = LineageStep.now(context.run.run_id, "control_study", CODE_VERSION)
    table = run_study(study, control, data.paths, step, device=models.device, log=progress_logger(context.log))
    return dg.MaterializeResult(metadata=metadata_of(summarise_study(study.name, table, data.paths)))
