"""The asset ``documents``, one Dagster asset per source (``documents/books``), and its input ``source_settings``."""

from __future__ import annotations

from collections.abc import Iterator

from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState
from audit_pipeline.sources.config import all_sources, load_source_settings
from audit_pipeline.sources.store import SourceReport, read_settings_digest, refresh_source
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENTS

_MAX_LISTED = 50


@stage.observed_input(dimension="source", group="1_sources", kinds={"yaml"})
def source_settings(source: str, state: WorkspaceState) -> str:
    """Observe the settings and the files of a source of documents.

    The version changes if the source's entry in config/sources.yaml changes. It also changes if a file that the source
    reads gets another name, size or time.
    """
    return state.source_settings.digest_for(source)


@stage.audit_asset(
    partitions=stage.SOURCE,
    tables=[DOCUMENTS],
    observes=("source_settings",),
    group="1_sources",
    job=stage.REFRESH_SOURCES,
    kinds={"python", "parquet"},
    checks={"complete": stage.StageCheck("Every part of the source could be fetched this time.")},
    late_after_days=8,
    progress_message="fetching documents: {}",
    blocked_message="the source {} is fetched first",
    missing_message="its documents have not been fetched",
    change_messages={"settings": "its settings or files changed since it was fetched"},
)
def documents(run: stage.StageRun) -> stage.StageResult:
    """Fetch the dated documents of one source, such as a folder, a website or a data set.

    The settings of the source are in config/sources.yaml. The result is one Parquet file with one row per document.
    Parts of the source that could not be fetched are listed in the check "complete".
    """
    settings = load_source_settings()
    missing_setting = settings.for_source(run.partition).missing_setting
    if missing_setting is not None:
        # A source that the user has not set up does not fail a run that refreshes all sources.
        run.log.info(f"{run.partition} is not configured: {missing_setting}")
        metadata = stage.UiMetadata(0, {"missing setting": missing_setting})
        return stage.StageResult(
            None, metadata, {"complete": stage.CheckResult(False, missing_setting)}, "not_applicable"
        )
    report = refresh_source(run.partition, run.paths, run.run_id, settings, str(all_sources()[run.partition].version))
    for missing in report.missing:
        run.log.warning(f"{missing.part} could not be fetched: {missing.reason}")
    missing_parts = [(item.part, item.reason) for item in report.missing]
    left_out = [(item.part, item.reason) for item in report.left_out[:_MAX_LISTED]]
    tables = {"missing": (("part", "reason"), missing_parts), "skipped": (("part", "reason"), left_out)}
    complete = stage.CheckResult(not report.missing, metadata=stage.UiMetadata(tables=tables))
    return stage.StageResult(report.data_version, _summarise_documents(report), {"complete": complete})


@documents.inputs
def get_documents_inputs(source: str, state: WorkspaceState) -> Inputs:
    """Return the digest of the source's settings and files.

    Raises:
        ConfigError: If a setting is missing and the documents were not fetched with the present settings.
    """
    settings = state.source_settings
    wanted = settings.digest_for(source)
    missing_setting = settings.for_source(source).missing_setting
    if missing_setting is not None and read_settings_digest(source, state.paths) != wanted:
        raise ConfigError(f"{source} is not configured: {missing_setting}")
    return {"settings": wanted}


@documents.recorded
def get_recorded_documents_inputs(source: str, state: WorkspaceState) -> Inputs | None:
    """Return the digest of the settings with which the documents were fetched."""
    digest = read_settings_digest(source, state.paths)
    if not digest:
        return None
    return {"settings": digest}


@documents.notes
def list_fetch_notes(source: str, paths: DataPaths) -> Iterator[str]:
    """Yield a message per part of the source that could not be fetched, and a message about skipped parts."""
    manifest = read_json(paths.source_manifest(source))
    for item in manifest["missing"]:
        yield f"{source}: {item['part']} could not be fetched: {item['reason']}"
    left_out = manifest["left_out"]
    if left_out:
        first = left_out[0]
        yield f"{source}: {len(left_out)} part(s) were skipped, the first is {first['part']}: {first['reason']}"


def _summarise_documents(report: SourceReport) -> stage.UiMetadata:
    counts = [(name, count, report.kept.get(name, 0)) for name, count in report.by_collection.items()]
    return stage.UiMetadata(
        report.documents,
        {"missing parts": len(report.missing), "skipped": len(report.left_out)},
        {"documents": (("collection", "documents", "kept from earlier"), counts)},
        paths={"path": report.path},
    )
