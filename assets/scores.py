"""The asset ``scores``: the scores of all detectors, computed from the cached token statistics."""

from __future__ import annotations

from audit_pipeline.benchmarks.model_inputs import TEMPLATE
from audit_pipeline.pipeline import stage
from audit_pipeline.pipeline.workspace_state import UNKNOWN, Inputs, WorkspaceState, get_recorded_inputs, join_versions
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, score_and_store_pair
from audit_pipeline.tables import HIGHLIGHTS, SCORES, parse_pair

_MAX_REASONS = 20


@stage.audit_asset(
    partitions=stage.PAIR,
    deps=["benchmark", "token_statistics", "token_frequencies"],
    tables=[SCORES, HIGHLIGHTS],
    code_version=SCORES_VERSION,
    group="4_findings",
    job=stage.AUDIT_PAIRS,
    kinds={"numpy", "parquet"},
    checks={
        "no_score_failed": stage.StageCheck(
            "No detector failed on a text. A text to which a detector does not apply is not a failure.",
            is_warning=False,
        )
    },
    has_findings=False,
    blocked_message="{1} is scored on {0} first",
    missing_message="the model was run, but its texts were not scored",
    change_messages={
        "token_statistics": "the model was run again",
        "token frequencies": "the token frequencies changed",
        "chat template": "the model's chat template changed",
        "code": "the code that scores changed",
    },
)
def scores(run: stage.StageRun) -> stage.StageResult:
    """Score every text of a benchmark with every detector, at every setting.

    A higher score means that the model has more likely read the text in training. The scores are computed from the
    token statistics, so no model is run. The scores of earlier audits are kept.
    """
    report = score_and_store_pair(run.pair, run.models.tokenized(run.pair.model, run.paths), run.paths, run.step())
    if report.refusals is not None:
        run.log.warning(f"{run.pair.partition}: {report.refusals}")
    failed = report.by_status.get("failed", 0)
    values: dict[str, object] = {f"scores {status}": count for status, count in sorted(report.by_status.items())}
    values["data_version"] = report.data_version
    reasons = list(report.reasons.items())[:_MAX_REASONS]
    tables = {"reasons": (("reason", "scores"), reasons)} if reasons else {}
    no_score_failed = stage.CheckResult(not failed, metadata=stage.UiMetadata(values={"scores failed": failed}))
    return stage.StageResult(
        report.data_version, stage.UiMetadata(report.rows, values, tables), {"no_score_failed": no_score_failed}
    )


@scores.inputs
def get_scores_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the pair's token statistics, and of the token frequencies that detectors need."""
    pair = parse_pair(partition)
    entry = state.entries.get(pair.model)
    inputs: dict[str, str | None] = {f"token_statistics/{partition}": state.find_statistics_version(pair) or UNKNOWN}
    if entry is not None and entry.reference_corpus is not None:
        inputs[f"token_frequencies/{entry.reference_corpus}|{pair.model}"] = UNKNOWN
    needed = state.find_needed_versions(pair.model, "token_frequencies")
    return {
        **inputs,
        "token frequencies": join_versions("token_frequencies", needed),
        "chat template": state.find_template_version(pair, SCORES.name),
    }


@scores.recorded
def get_recorded_scores_inputs(partition: str, state: WorkspaceState) -> Inputs | None:
    """Return the recorded inputs of the scores."""
    entry = state.find_latest_entry(SCORES.name, partition)
    if entry is None:
        return None
    return {
        **get_recorded_inputs(entry),
        "token frequencies": join_versions("token_frequencies", entry.upstream),
        "chat template": join_versions(TEMPLATE, entry.upstream),
    }
