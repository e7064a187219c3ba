"""Whether warehouse and report show what was found: what they were made with, and what they would be made with now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.store.integrity import digest_of_files
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths, config_dir, is_text_output_allowed, model_page_path
from audit_pipeline.store.versions import code_digest, package_versions

RESULTS = "results"
"""The digest of the last line of the ledger."""


def note_warehouse(paths: DataPaths, head: str) -> None:
    """Keep which line of the ledger was the last when the warehouse, which has just been written, was built."""
    write_json(paths.published, {RESULTS: head})


def note_report(paths: DataPaths, *, include_text: bool) -> None:
    """Keep what the report, which has just been written, was made with apart from the warehouse."""
    made = read_json_if_whole(paths.published) or {}
    write_json(paths.published, {**_compute_inputs(paths, include_text), RESULTS: made.get(RESULTS)})


def explain_unpublished(models: Iterable[str], paths: DataPaths) -> str | None:
    """Why warehouse and report are to be made again; None where they show what was found of ``models``."""
    pages = [paths.warehouse, paths.report, *(model_page_path(paths.reports, model) for model in models)]
    made = read_json_if_whole(paths.published)
    if made is None or not all(page.exists() for page in pages) or not _is_database(paths.warehouse):
        return "they are not there"
    now = {**_compute_inputs(paths, is_text_output_allowed()), RESULTS: read_ledger(paths).head}
    changed = [name for name in now if now[name] != made.get(name)]
    return f"{', '.join(changed)} changed since they were made" if changed else None


def _is_database(warehouse: Path) -> bool:
    """Whether the file begins as DuckDB's do."""
    with warehouse.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"


def _compute_inputs(paths: DataPaths, include_text: bool) -> Mapping[str, object]:
    config = config_dir()
    return {
        "configuration": digest_of_files(config, sorted(config.glob("*.yaml"))),
        "code": code_digest(),
        "packages": dict(package_versions()),
        "include_text": include_text,
    }
