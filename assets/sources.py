"""Sources of dated documents: one unpartitioned asset each.

What belongs here: wiring and what the UI shows of a refresh. What does not: fetching (audit_pipeline/sources).
"""

from typing import Any

import dagster as dg

from assets import OWNERS
from audit_pipeline.catalogue.contracts import DOCUMENTS
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.operate.dagster.automation import WEEKLY
from audit_pipeline.operate.dagster.metadata import markdown_table, rows, schema_metadata
from audit_pipeline.operate.dagster.resources import AuditData
from audit_pipeline.operate.dagster.retries import with_retries
from audit_pipeline.operate.stages.benchmarks import refresh_source
from audit_pipeline.sources.base import Source
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.registry import all_sources


def source_asset(source: Source[Any]) -> dg.AssetsDefinition:
    """The asset of one source."""
    key = dg.AssetKey(["documents", source.name])
    code_version = str(source.version)

    @dg.asset(
        key=key,
        name=None,
        group_name="sources",
        description=source.description,
        kinds={"python", "parquet"},
        owners=OWNERS,
        code_version=code_version,
        freshness_policy=None if source.on_request else WEEKLY,
        metadata={**schema_metadata(DOCUMENTS), "licence": source.licence},
        check_specs=[
            dg.AssetCheckSpec("complete", asset=key, description="Every part of the source arrived this time."),
        ],
    )
    def documents(context: dg.AssetExecutionContext, data: AuditData) -> dg.MaterializeResult:  # type: ignore[type-arg]
        to_be_set = load_source_settings().to_be_set_for(source.name)
        if to_be_set is not None:
            context.log.info(f"{source.name} is not configured: {to_be_set}")
            return _not_configured(to_be_set)
        step = LineageStep.now(context.run.run_id, key.to_user_string(), code_version)
        report = with_retries(
            lambda: refresh_source(source.name, data.paths, step), f"fetching {source.name}", context.log
        )
        for missing in report.missing:
            context.log.warning(f"missing: {missing.part}: {missing.reason}")
        return dg.MaterializeResult(
            data_version=dg.DataVersion(report.data_version),
            metadata={
                **rows(report.documents),
                "documents": markdown_table(
                    ("collection", "documents", "kept from earlier"),
                    [(name, count, report.kept.get(name, 0)) for name, count in report.by_collection.items()],
                ),
                "missing parts": len(report.missing),
                "left out": len(report.left_out),
                "path": dg.MetadataValue.path(report.path),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="complete",
                    passed=not report.missing,
                    severity=dg.AssetCheckSeverity.WARN,
                    metadata={
                        "missing": markdown_table(
                            ("part", "reason"), [(item.part, item.reason) for item in report.missing]
                        ),
                        "left out": markdown_table(
                            ("part", "reason"), [(item.part, item.reason) for item in report.left_out[:50]]
                        ),
                    },
                )
            ],
        )

    return documents


def _not_configured(to_be_set: str) -> dg.MaterializeResult:  # type: ignore[type-arg]
    """A source that the user has not set up is no failure of a run that refreshes all of them."""
    return dg.MaterializeResult(
        metadata={**rows(0), "status": "not_applicable", "to be set": to_be_set},
        check_results=[
            dg.AssetCheckResult(
                check_name="complete", passed=False, severity=dg.AssetCheckSeverity.WARN, description=to_be_set
            )
        ],
    )


SOURCE_ASSETS = [source_asset(source) for source in all_sources().values()]
