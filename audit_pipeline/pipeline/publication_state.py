"""The recorded inputs of the published warehouse and report, which show whether both are current.

This module is separate from coverage.py, because a command that finds everything up to date needs no DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.store.integrity import code_digest, digest_of_files, package_versions
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths, config_dir, is_text_output_allowed, model_page_path

RESULTS = "results"
"""The key of the digest of the last ledger line."""


def record_warehouse_inputs(paths: DataPaths, head: str) -> None:
    """Record the ledger head of the warehouse that was just built.

    Args:
        paths: The data folder.
        head: The digest of the last ledger line before the build.
    """
    write_json(paths.published, {RESULTS: head})


def record_report_inputs(paths: DataPaths, *, include_text: bool) -> None:
    """Record the inputs of the report that was just built, and keep the ledger head of the warehouse."""
    recorded = read_json_if_whole(paths.published) or {}
    write_json(paths.published, {**_compute_inputs(include_text), RESULTS: recorded.get(RESULTS)})


def explain_unpublished(models: Iterable[str], paths: DataPaths) -> str | None:
    """Return why warehouse and report have to be rebuilt, or None if they show all results of the models."""
    pages = [paths.warehouse, paths.report, *(model_page_path(paths.reports, model) for model in models)]
    recorded = read_json_if_whole(paths.published)
    if recorded is None or not all(page.exists() for page in pages) or not _is_database(paths.warehouse):
        return "the warehouse or a page of the report is missing"
    current = {**_compute_inputs(is_text_output_allowed()), RESULTS: read_ledger(paths).head}
    changed = [name for name in current if current[name] != recorded.get(name)]
    if not changed:
        return None
    return f"{', '.join(changed)} changed since the warehouse and the report were built"


def _is_database(warehouse: Path) -> bool:
    # DuckDB writes these magic bytes at offset 8.
    with warehouse.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"


def _compute_inputs(include_text: bool) -> Mapping[str, object]:
    config = config_dir()
    return {
        "configuration": digest_of_files(config, sorted(config.glob("*.yaml"))),
        "code": code_digest(),
        "packages": dict(package_versions()),
        "include_text": include_text,
    }
