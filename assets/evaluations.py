"""The asset ``evaluations``: the answer for a pair, and the statistics that support it."""

from __future__ import annotations

from audit_pipeline import tables
from audit_pipeline.benchmarks.built_benchmark import read_split_versions
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, EvaluationReport, evaluate_pair
from audit_pipeline.pipeline.workspace_state import UNKNOWN, Inputs, WorkspaceState
from audit_pipeline.report.pair_answer import Row
from audit_pipeline.splits.blind_controls import NAME as BLIND_CONTROL
from audit_pipeline.store.paths import DataPaths, model_page_path


@stage.audit_asset(
    partitions=stage.PAIR,
    deps=["benchmark", "split_quality", "scores"],
    tables=[
        tables.EVALUATIONS,
        tables.DECISIONS,
        tables.GROUP_TESTS,
        tables.CONTAMINATION_RATES,
        tables.CALIBRATION_CHECKS,
        tables.COMPARISONS,
        tables.CORPUS_TESTS,
        tables.PAIR_ANSWERS,
    ],
    code_version=EVALUATIONS_VERSION,
    group="4_findings",
    job=stage.AUDIT_PAIRS,
    kinds={"scikitlearn", "parquet"},
    checks={
        "metrics_in_range": stage.StageCheck(
            "Every metric and every interval bound lies between 0 and 1. Margins lie between -1 and 1.",
            is_warning=False,
            blocking=True,
        )
    },
    late_after_days=92,
    blocked_message="{1} is evaluated on {0} first",
    missing_message="it was scored, but not evaluated",
    change_messages={
        "scores": "it was scored again",
        "split_quality": "the split was assessed again",
        "code": "the code that evaluates changed",
    },
)
def evaluations(run: stage.StageRun) -> stage.StageResult:
    """Evaluate the scores of one model on one benchmark.

    The result is the answer to the audit's question, how certain it is, and what would change it. Metrics with 95%
    intervals, decision thresholds and p-values per document support the answer. A blind control, which never sees the
    model, shows how much of the effect has another cause. The findings of earlier audits are kept.
    """
    model = run.models.tokenized(run.pair.model, run.paths)
    report = evaluate_pair(run.pair, model, run.paths, run.step())
    out_of_range = report.out_of_range
    in_range = stage.CheckResult(not out_of_range, metadata=stage.UiMetadata(values={"out of range": out_of_range}))
    return stage.StageResult(
        report.data_version, _summarise_findings(report, run.paths), {"metrics_in_range": in_range}
    )


@evaluations.inputs
def get_evaluations_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the pair's scores and of the benchmark's split assessment."""
    benchmark = tables.parse_pair(partition).benchmark
    inputs: dict[str, str | None] = {f"scores/{partition}": None, f"split_quality/{benchmark}": UNKNOWN}
    scores = state.find_latest_entry(tables.SCORES.name, partition)
    if scores is not None:
        inputs[f"scores/{partition}"] = scores.data_version
    split_versions = read_split_versions(benchmark, state.paths)
    if split_versions is not None:
        inputs[f"split_quality/{benchmark}"] = split_versions.get(f"split_quality/{benchmark}")
    return inputs


def _summarise_findings(report: EvaluationReport, paths: DataPaths) -> stage.UiMetadata:
    """Return the answer, the ROC curves and the detectors' AUROCs. The report page has the other results."""
    # The module imports matplotlib, which is slow.
    from audit_pipeline.report.plots import draw_roc_markdown  # noqa: PLC0415

    evaluation = report.findings.evaluation
    answer = report.answer
    rows = _list_aurocs(report)
    values = {"answer": f"{answer['headline']} {answer['explanation']}"}
    if evaluation.reason:
        values["reason"] = evaluation.reason
    # AUROCs are also separate numbers, because the UI plots numbers over time.
    if rows and rows[0]["detector"] == answer["detector"]:
        values["AUROC of the headline"] = rows[0]["value"]
    blind_values = [row["value"] for row in rows if row["detector"] == BLIND_CONTROL]
    if blind_values:
        values["AUROC of the blind control"] = blind_values[0]
    values |= {
        "claim level": evaluation.claim_level,
        "split verdict": evaluation.split_verdict,
        "data_version": report.data_version,
    }
    pictures: dict[str, str] = {}
    headline_roc = _draw_headline_roc(report)
    if headline_roc is not None:
        pictures["picture"] = headline_roc
    all_rocs = draw_roc_markdown(evaluation.columns, evaluation.table, report.pair.partition)
    if all_rocs is not None:
        pictures["ROC curves"] = all_rocs
    title = "AUROC"
    if answer["sides"] == "audited against held-out":
        title += ", audited against held-out"
    body = [_format_auroc(row, answer["detector"]) for row in rows]
    return stage.UiMetadata(
        evaluation.table.num_rows,
        values,
        {title: (("detector", "AUROC", "95% interval", ""), body)},
        pictures=pictures,
        page=model_page_path(paths.reports, report.pair.model),
    )


def _list_aurocs(report: EvaluationReport) -> list[Row]:
    """Return the AUROC rows at default settings: the headline detector, the blind control, then all other detectors."""
    rows = []
    for row in report.findings.evaluation.table.to_pylist():
        is_shown = row["is_default"] or row["detector"] == BLIND_CONTROL
        if is_shown and row["metric"] == "auroc" and row["value"] is not None:
            rows.append(row)
    ranks = {BLIND_CONTROL: 1, report.answer["detector"]: 0}
    return sorted(rows, key=lambda row: ranks.get(row["detector"], len(ranks)))


def _format_auroc(row: Row, headline: str | None) -> tuple[object, ...]:
    interval = "none" if row["ci_low"] is None else f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
    remarks = {headline: "the headline", BLIND_CONTROL: "never sees the model"}
    return row["detector"], f"{row['value']:.3f}", interval, remarks.get(row["detector"], "")


def _draw_headline_roc(report: EvaluationReport) -> str | None:
    """Draw the ROC curve of the answer's detector, or return None if it has no curve."""
    # The module imports matplotlib, which is slow.
    from audit_pipeline.report.pictures import draw_inline_roc  # noqa: PLC0415

    detector = report.answer["detector"]
    parameters = report.answer["parameters"]
    columns = {column.key: column for column in report.findings.evaluation.columns}
    column = columns.get((detector, parameters))
    if column is None:
        return None
    points = column.roc()
    aurocs: dict[tuple[str, str], Row] = {}
    for row in report.findings.evaluation.table.to_pylist():
        if row["metric"] == "auroc":
            aurocs[row["detector"], row["parameters"]] = row
    auroc = aurocs.get((detector, parameters))
    if points is None or auroc is None or auroc["value"] is None:
        return None
    blind_auroc = None
    for (name, _), row in aurocs.items():
        if name == BLIND_CONTROL:
            blind_auroc = row["value"]
            break
    interval = (auroc["value"], auroc["ci_low"], auroc["ci_high"])
    return draw_inline_roc(detector, points.fpr, points.tpr, interval, blind_auroc)
