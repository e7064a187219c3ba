"""The warehouse of all declared assets.

This module is separate from coverage.py, because the assets import coverage.py and this module imports the assets.
"""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.pipeline.coverage import build_warehouse_with_coverage
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed
from audit_pipeline.warehouse.build import WarehouseReport


def build_warehouse(paths: DataPaths, *, include_text: bool = True, config: Path | None = None) -> WarehouseReport:
    """Build the warehouse of all declared assets (see :func:`build_warehouse_with_coverage`)."""
    return build_warehouse_with_coverage(paths, STAGES, include_text=include_text, config=config)


def ensure_warehouse(paths: DataPaths) -> Path:
    """Return the path of the warehouse. If it is missing and there are results, build it first."""
    if paths.ledger.exists() and not paths.warehouse.exists():
        build_warehouse(paths, include_text=is_text_output_allowed())
    return paths.warehouse
