"""Building the warehouse with the planner's word on every pair."""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.pipeline.coverage import build_judged_warehouse
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed
from audit_pipeline.warehouse.build import WarehouseReport


def build_warehouse(paths: DataPaths, *, include_text: bool = True, config: Path | None = None) -> WarehouseReport:
    """Build the warehouse of all declared assets (see :func:`build_judged_warehouse`)."""
    return build_judged_warehouse(paths, STAGES, include_text=include_text, config=config)


def ensure_warehouse(paths: DataPaths) -> Path:
    """Return the warehouse's path, and build the warehouse first if something was audited and it is missing."""
    if paths.ledger.exists() and not paths.warehouse.exists():
        build_warehouse(paths, include_text=is_text_output_allowed())
    return paths.warehouse
