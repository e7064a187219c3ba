"""What the UI shows of controls with known truth and of studies over them: a few numbers, small tables, pictures.

What belongs here: choosing and rounding them. What does not: the numbers themselves (controls/), drawing (report/), and
Dagster's own types (operate/dagster/metadata.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.ui_summary import Shown
from audit_pipeline.report.drawing import as_png, markdown_image
from audit_pipeline.report.picture_data import build_study_panels

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
    """Of a study (schema CONTROL_STUDIES): the AUROC at every setting, as a picture and as a table."""
    from audit_pipeline.report.plots import draw_study_panels  # noqa: PLC0415 - it imports matplotlib

    rows = table.to_pylist()
    results = [
        (*(row[column] for column in _OF_STUDIES), f"{row['auroc']:.3f}") for row in rows if row["auroc"] is not None
    ]
    picture = markdown_image(as_png(draw_study_panels(build_study_panels(rows))), f"AUROC over the settings of {name}")
    return Shown(
        table.num_rows,
        tables={"results": ((*_OF_STUDIES, "AUROC"), results)},
        pictures={"AUROC": picture},
        paths={"path": paths.study(name)},
    )
