"""How commands tell of an audit, and show what it came to.

What belongs here: what demo, audit and control share: telling of the pairs, publishing, and the table of findings.
What does not: the commands and their options (demo.py, auditing.py, controls.py), and the work itself (operate/).

Heavy packages are imported where they are needed, so that `--help` and an audit with nothing to do answer at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.answers import say_conclusions, tell_left_out
from audit_pipeline.cli.shared import (
    dagster_definitions,
    detector_and_setting,
    estimate_of,
    sides,
    tell_problems,
)
from audit_pipeline.operate.console import (
    Columns,
    Row,
    answers_in_json,
    mention,
    say,
    show_table,
    tell,
    tell_step,
    visible,
)
from audit_pipeline.operate.options import AuditOptions
from audit_pipeline.operate.requests import Audited, find_pairs, run_audit

if TYPE_CHECKING:
    from audit_pipeline.operate.dagster.audit import AuditOutcome

_METRICS = {
    "auroc": "AUROC [95% interval]",
    "tpr_at_5_fpr": "TPR at 5% FPR",
    "fpr_at_95_tpr": "FPR at 95% TPR",
}
_SHOWN = (
    *("benchmark", "detector"),
    *(f"{metric}{end}" for metric in _METRICS for end in ("", "_low", "_high")),
    *("n_members", "n_nonmembers"),
)


def audit_pairs(model: str, benchmark: str, asked: AuditOptions) -> Audited:
    """Bring the pairs up to date; nothing is run, and no heavy package imported, where they are."""
    # Before the heavy packages: what is wrong with it is told at once.
    named = find_pairs(model, benchmark)
    tell_problems(named.problems)
    audited = run_audit(named, asked, dagster_definitions, tell_step)
    if audited.outcome is not None:
        _tell_outcome(audited.outcome)
    return audited


def _tell_outcome(outcome: AuditOutcome) -> None:
    if outcome.dead_runs:
        tell(f"marked {len(outcome.dead_runs)} dead run(s) of this machine failed and freed their slots")
    for partition, done in outcome.passes.items():
        mention(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_applicable.items():
        tell(f"{partition} could not run: {reason}", style="red")


def publish_audited(audited: Sequence[Audited]) -> None:
    """Rebuild warehouse and report once, where they do not show what these audits came to."""
    from audit_pipeline.operate.situation import steps_to_publish

    paths = DataPaths.from_environment()
    if not steps_to_publish([pair for one in audited for pair in one.pairs], paths):
        return

    definitions = dagster_definitions()
    from audit_pipeline.operate.dagster.audit import publish

    tell_step("rebuilding warehouse and report")
    publish(definitions, paths, tell_step, include_text=texts_are_quoted())


def show_audited(audited: Audited, *, details: bool = False) -> None:
    """The answers, the findings behind them, the way to the report, and the error where there was one.

    ``details``: the findings of texts of unknown membership, too.
    """
    paths = DataPaths.from_environment()
    for spec in audited.benchmarks:
        show_findings(paths, audited.model.name, spec.name, details=details)
    tell_left_out(paths)
    say(f"\nReport: {paths.report}", report=paths.report)
    if audited.failed is not None:
        raise audited.failed


_FINDINGS: Columns = (
    ("detector", detector_and_setting),
    *((head, estimate_of(metric, ".3f" if metric == "auroc" else ".0%")) for metric, head in _METRICS.items()),
)


def show_findings(paths: DataPaths, model: str, benchmark: str, *, details: bool = False) -> None:
    """The answer, then every detector: where membership is unknown only for ``details``, the detector that answers
    first, for the others were tried beside it."""
    from audit_pipeline.warehouse.leaderboard import findings_of

    answer = say_conclusions(paths, model, benchmark)
    found: list[dict[str, Any]] = findings_of(paths.warehouse, model, [benchmark]).to_pylist()
    rows = [{"model": model, **{name: row[name] for name in _SHOWN}, **setting_of(row)} for row in found]
    if answer is not None and answer["sides"] == "audited against held-out":
        _show_tried(answer, rows, details=details)
        return
    _show_labelled(benchmark, rows)
    if details or answers_in_json():
        show_comparisons(paths, model, benchmark, None if answer is None else answer["detector"])


def _show_labelled(benchmark: str, findings: Sequence[Row]) -> None:
    """How well each detector separates members from non-members."""
    if answers_in_json():
        show_table("findings", findings, _FINDINGS)
        return
    if not findings:
        return
    most = max(findings, key=lambda row: row["n_members"] + row["n_nonmembers"])
    say(visible(f"\n{benchmark}: {most['n_members']:,} members, {most['n_nonmembers']:,} non-members"))
    show_table("findings", findings, _FINDINGS)
    for row in findings:
        if sides(row) != sides(most):
            say(visible(f"{detector_and_setting(row)} scored {sides(row)} of them"))


def _show_tried(answer: Row, findings: Sequence[Row], *, details: bool) -> None:
    """How well each detector separates audited from held-out texts, the one that answers first."""

    def part(row: Row) -> str:
        return "named beforehand" if row["detector"] == answer["detector"] else "tried beside it"

    rows = sorted(findings, key=lambda row: row["detector"] != answer["detector"])
    if details or answers_in_json():
        show_table("findings", rows, (*_FINDINGS[:2], ("", part)))
    elif len(rows) > 1:
        say(f"\n{len(rows)} detectors were run: --details shows them, the others beside {answer['detector']}.")


def show_comparisons(paths: DataPaths, model: str, benchmark: str, detector: str | None) -> None:
    """Compare detectors on the same texts: all pairs, or those of ``detector``."""
    from audit_pipeline.report.numbers import interval, probability, signed
    from audit_pipeline.warehouse.leaderboard import comparisons_of

    rows = [
        {**row, "parameters": json.loads(row["parameters"]), "other_parameters": json.loads(row["other_parameters"])}
        for row in comparisons_of(paths.warehouse, model, benchmark, detector).to_pylist()
    ]
    if rows:
        say("\nDetectors compared on the same texts (p-values are not corrected for the number of pairs):")
    show_table(
        "comparisons",
        rows,
        (
            ("detector", detector_and_setting),
            (
                "compared with",
                lambda row: detector_and_setting({"detector": row["other"], "parameters": row["other_parameters"]}),
            ),
            (
                "difference in AUROC [95%]",
                lambda row: (
                    f"{signed(row['difference'])} {interval((row['ci_low'], row['ci_high']), sign=True)}".rstrip()
                ),
            ),
            ("p", "p_value", probability),
        ),
    )


def setting_of(row: Row) -> dict[str, Any]:
    """The row's parameters as they are, not as canonical JSON."""
    return {"parameters": json.loads(row["parameters"])}
