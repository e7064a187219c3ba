"""The asset ``contamination_report``: the HTML report."""

from __future__ import annotations

from assets.warehouse import QuotingOptions
from audit_pipeline.pipeline.publication_state import note_report
from audit_pipeline.pipeline.stage import PUBLISH, StageResult, StageRun, UiMetadata, audit_asset


@audit_asset(
    partitions=(),
    deps=["warehouse"],
    group="5_reports",
    job=PUBLISH,
    kinds={"html"},
    options=QuotingOptions,
    late_after_days=8,
)
def contamination_report(run: StageRun) -> StageResult:
    """Build the HTML report from the warehouse: one page per model, and one page across models.

    Each page states the question, the answer, how certain it is, and what would change it. It shows the evidence, its
    limits and the origin of every number.
    """
    # Imported here, because it imports matplotlib.
    from audit_pipeline.report.files import build_reports  # noqa: PLC0415

    include_text = run.options.include_text
    summary = build_reports(run.paths.warehouse, run.paths.reports, include_text=include_text)
    note_report(run.paths, include_text=include_text)
    values: dict[str, object] = {"pages written": summary.written}
    values |= {name: getattr(summary, name) for name in ("models", "benchmarks", "pairs", "findings", "bytes")}
    tables = {"pages": (("model", "page"), list(summary.pages.items()))}
    metadata = UiMetadata(values=values, tables=tables, paths={"path": summary.path}, page=summary.path)
    return StageResult(metadata=metadata)
