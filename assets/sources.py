"""Sources of dated documents: one unpartitioned asset each.

What belongs here: wiring. What does not: fetching (audit_pipeline/sources), what is shown of it
(audit_pipeline/operate/stages).
"""

from functools import partial
from typing import Any

import dagster as dg

from audit_pipeline.catalogue.contracts import DOCUMENTS
from audit_pipeline.operate.dagster.jobs import SOURCES, SOURCES_ON_REQUEST, WEEKLY
from audit_pipeline.operate.dagster.metadata import metadata_of, row_count_metadata, schema_metadata
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.retries import with_retries
from audit_pipeline.operate.stages.benchmarks import summarise_documents, summarise_missing
from audit_pipeline.sources.base import Source
from audit_pipeline.sources.config import all_sources, load_source_settings
from audit_pipeline.sources.store import refresh


def source_asset(source: Source[Any]) -> dg.AssetsDefinition:
    """The asset of one source."""
    key = dg.AssetKey(["documents", source.name])
    code_version = str(source.version)

    @dg.asset(
        key=key,
        name=None,
        group_name=SOURCES_ON_REQUEST if source.on_request else SOURCES,
        description=source.description,
        kinds={"python", "parquet"},
        code_version=code_version,
        freshness_policy=None if source.on_request else WEEKLY,
        metadata={**schema_metadata(DOCUMENTS), "licence": source.licence},
        check_specs=[
            dg.AssetCheckSpec("complete", asset=key, description="Every part of the source arrived this time."),
        ],
    )
    def documents(context: dg.AssetExecutionContext, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return _materialize_source(source.name, code_version, context, data)

    return documents


def _materialize_source(
    source: str, code_version: str, context: dg.AssetExecutionContext, data: AuditData
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    settings = load_source_settings()
    to_be_set = settings.to_be_set_for(source)
    if to_be_set is not None:
        context.log.info(f"{source} is not configured: {to_be_set}")
        return _build_unconfigured_result(to_be_set)
    fetch = partial(refresh, source, data.paths, context.run.run_id, settings, code_version)
    report = with_retries(fetch, f"fetching {source}", context.log)
    for missing in report.missing:
        context.log.warning(f"missing: {missing.part}: {missing.reason}")
    complete = dg.AssetCheckResult(
        check_name="complete",
        passed=not report.missing,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata_of(summarise_missing(report)),
    )
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.data_version),
        metadata=metadata_of(summarise_documents(report)),
        check_results=[complete],
    )


def _build_unconfigured_result(missing_setting: str) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """A source that the user has not set up is no failure of a run that refreshes all of them."""
    return dg.MaterializeResult(
        metadata={**row_count_metadata(0), "status": "not_applicable", "to be set": missing_setting},
        check_results=[
            dg.AssetCheckResult(
                check_name="complete", passed=False, severity=dg.AssetCheckSeverity.WARN, description=missing_setting
            )
        ],
    )


SOURCE_ASSETS = [source_asset(source) for source in all_sources().values()]
