"""Controls with known truth and the studies over them, partitioned by control and by study.

What belongs here: wiring, and what the UI shows of a training. What does not: drawing, training and measuring
(audit_pipeline/controls).
"""

import math
from typing import Any

import dagster as dg

from assets import OWNERS
from audit_pipeline.catalogue.contracts import CONTROL_STUDIES, CONTROL_TEXTS
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.controls.build import ControlReport, build_control
from audit_pipeline.controls.config import load_controls, load_studies, sources_of
from audit_pipeline.controls.study import run_study
from audit_pipeline.errors import ConfigError
from audit_pipeline.operate.dagster.metadata import markdown_table, rows, schema_metadata
from audit_pipeline.operate.dagster.resources import AuditData, Models
from audit_pipeline.report.drawing import as_png, markdown_image
from audit_pipeline.report.interval_plots import study_panels
from audit_pipeline.report.studies import panels_of

CODE_VERSION = "1"
_LOG_STEPS = 50
# A model that has collapsed ends a hair below the loss of guessing; one that has learnt anything far below.
_LEARNT = 0.9


def _names(what: str) -> list[str]:
    """The controls or studies of the configuration, those with a broken entry too: they are still there.

    None where the file cannot be read: everything else still loads. A run reads it again, and says what is wrong.
    """
    try:
        return list((load_controls() if what == "control" else load_studies()).names)
    except ConfigError:
        return []


def _documents() -> list[dg.AssetKey]:
    try:
        return [dg.AssetKey(["documents", name]) for name in sources_of(list(load_controls().values()))]
    except ConfigError:
        return []


@dg.asset(
    group_name="controls",
    description="Two models trained here on texts that are known (config/controls.yaml): one on members drawn at "
    "random from a corpus, its twin on others; the held-out texts neither saw. What a detector can do is seen on them.",
    kinds={"torch", "transformers", "parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    partitions_def=dg.StaticPartitionsDefinition(_names("control")),
    deps=_documents(),
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
    entry = load_controls().named(context.partition_key)
    step = LineageStep.now(context.run.run_id, "controlled_contamination", CODE_VERSION)

    def tell(role: str, done: int, steps: int, loss: float) -> None:
        if done % _LOG_STEPS == 0 or done == steps:
            context.log.info(f"{entry.name}, {role}: step {done} of {steps}, loss {loss:.3f}")

    report = build_control(entry, data.paths, step, device=models.device, tell=tell)
    last = {role: trained["losses"][-1] for role, trained in report.manifest["models"].items()}
    guessing = _LEARNT * math.log(report.manifest["vocabulary"])
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.version),
        metadata=_metadata(report),
        check_results=[
            dg.AssetCheckResult(
                check_name="training_converged",
                passed=all(loss < guessing for loss in last.values()),
                severity=dg.AssetCheckSeverity.ERROR,
                metadata={"loss of the last epoch": last, "must be below": round(guessing, 3)},
            )
        ],
    )


def _metadata(report: ControlReport) -> dict[str, Any]:
    manifest = report.manifest
    columns = ("parameters", "steps", "tokens", "seconds", "losses", "device")
    return {
        **rows(sum(manifest["roles"].values())),
        "trained now": report.trained,
        "texts": markdown_table(("role", "texts"), list(manifest["roles"].items())),
        "models": markdown_table(
            ("model", *columns),
            [(role, *(str(trained[name]) for name in columns)) for role, trained in manifest["models"].items()],
        ),
        "path": dg.MetadataValue.path(report.folder),
        "data_version": report.version,
    }


@dg.asset(
    group_name="controls",
    description="A control trained again with one setting at each of its values (config/studies.yaml): AUROC against "
    "occurrences, learning rate, corpus size and model size (Shi et al. 2024, tables 3 and 4, figure 5).",
    kinds={"torch", "parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    partitions_def=dg.StaticPartitionsDefinition(_names("study")),
    deps=_documents(),
    pool="gpu",
    metadata=schema_metadata(CONTROL_STUDIES),
)
def control_study(context: dg.AssetExecutionContext, data: AuditData, models: Models) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """Run one study; its models are thrown away, its numbers kept."""
    study = load_studies().named(context.partition_key)
    control = load_controls().named(study.control)
    step = LineageStep.now(context.run.run_id, "control_study", CODE_VERSION)
    table = run_study(study, control, data.paths, step, device=models.device, tell=context.log.info)
    found = [
        (row["setting"], row["value"], row["seed"], row["detector"], row["auroc"])
        for row in table.to_pylist()
        if row["auroc"] is not None
    ]
    panels = study_panels(panels_of(table.to_pylist()))
    return dg.MaterializeResult(
        metadata={
            **rows(table.num_rows),
            "AUROC": dg.MetadataValue.md(markdown_image(as_png(panels), f"AUROC over the settings of {study.name}")),
            "results": markdown_table(
                ("setting", "value", "seed", "detector", "AUROC"),
                [(*start, f"{auroc:.3f}") for *start, auroc in found],
            ),
            "path": dg.MetadataValue.path(data.paths.study(study.name)),
        }
    )
