"""What the UI shows of controls with known truth and of studies over them: numbers and small tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.ui_summary import Shown

if TYPE_CHECKING:
    from audit_pipeline.controls.build import ControlReport

_OF_MODELS = ("parameters", "steps", "tokens", "seconds", "losses", "device")
_OF_STUDIES = ("setting", "value", "seed", "detector")


def summarise_control(report: ControlReport) -> Shown:
    """Of a control: its texts by role, and the result of training each of its models."""
    manifest = report.manifest
    models = [(role, *(str(trained[name]) for name in _OF_MODELS)) for role, trained in manifest["models"].items()]
    return Shown(
        sum(manifest["roles"].values()),
        {"trained now": report.trained, "data_version": report.version},
        {"texts": (("role", "texts"), list(manifest["roles"].items())), "models": (("model", *_OF_MODELS), models)},
        paths={"path": report.folder},
    )


def summarise_convergence(report: ControlReport) -> Shown:
    """Of a control: where the losses of its models ended, and below what they have to."""
    return Shown(
        values={"loss of the last epoch": dict(report.last_losses), "must be below": round(report.most_loss, 3)}
    )


def summarise_study(name: str, table: pa.Table, paths: DataPaths) -> Shown:
    """Of a study (schema CONTROL_STUDIES): the AUROC at every setting."""
    results = [
        (*(row[column] for column in _OF_STUDIES), f"{row['auroc']:.3f}")
        for row in table.to_pylist()
        if row["auroc"] is not None
    ]
    return Shown(
        table.num_rows,
        tables={"results": ((*_OF_STUDIES, "AUROC"), results)},
        paths={"path": paths.study(name)},
        page=paths.report,
    )
