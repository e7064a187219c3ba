"""The table of detectors that audit, check and evaluate print. The headline detector comes first.

On a terminal, the table has the detector names that a user types. As Markdown or LaTeX it is a table for a paper, with
printable names and a caption.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, format_side_counts
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report.number_format import DASH, format_percent

if TYPE_CHECKING:
    import pyarrow as pa

# Titles of the two parts of the table.
HEADLINE = "Headline"
ALSO_TRIED = "Also tried"

_METRICS = ("auroc", "tpr_at_5_fpr", "tpr_at_1_fpr", "fpr_at_95_tpr")
_SHOWN = (
    *("benchmark", "detector"),
    *(f"{metric}{end}" for metric in _METRICS for end in ("", "_low", "_high")),
    *("n_members", "n_nonmembers"),
)
_DETECTOR_AND_AUROC: Columns = (
    ("detector", format_detector_cell),
    ("AUROC [95% interval]", build_estimate_formatter("auroc")),
)
_ON_A_TERMINAL: Columns = (
    *_DETECTOR_AND_AUROC,
    ("TPR at 5% FPR", build_estimate_formatter("tpr_at_5_fpr", ".0%")),
    ("FPR at 95% TPR", build_estimate_formatter("fpr_at_95_tpr", ".0%")),
)
_IN_A_PAPER: Columns = (
    *_DETECTOR_AND_AUROC,
    ("TPR at 5%", "tpr_at_5_fpr", format_percent),
    ("TPR at 1%", "tpr_at_1_fpr", format_percent),
    ("n", format_side_counts),
)


def build_finding_rows(findings: pa.Table, model: str) -> list[Row]:
    """Return the columns that the table shows from rows of the view leaderboard. The parameters become a mapping."""
    rows: list[Row] = []
    for row in findings.to_pylist():
        shown = {name: row[name] for name in _SHOWN}
        rows.append({"model": model, **shown, "parameters": json.loads(row["parameters"])})
    return rows


def is_unlabelled(answer: Mapping[str, Any] | None) -> bool:
    """Return whether an answer is about texts of unknown membership, compared with held-out texts."""
    return answer is not None and answer["sides"] == "audited against held-out"


def show_findings(
    benchmark: str, findings: Sequence[Row], answer: Mapping[str, Any] | None, *, details: bool = False
) -> None:
    """Print how well each detector separates the two sides of a benchmark.

    Args:
        benchmark: The benchmark's name.
        findings: The rows of :func:`build_finding_rows`.
        answer: The answer from scores, with the headline detector, or None.
        details: Also print the detectors if membership is unknown. The JSON document always has them.
    """
    if console.is_json_output():
        console.show_table("findings", findings, _ON_A_TERMINAL)
        return
    if not findings:
        return
    headline = None if answer is None else answer["detector"]
    if is_unlabelled(answer) and not details:
        if len(findings) > 1:
            console.print_result(
                f"\n{len(findings)} detectors were run. To compare the others with {headline}, add --details."
            )
        return
    most = max(findings, key=lambda row: row["n_members"] + row["n_nonmembers"])
    names = ("audited texts", "held-out texts") if is_unlabelled(answer) else ("members", "non-members")
    sides = f"{most['n_members']:,} {names[0]}, {most['n_nonmembers']:,} {names[1]}"
    console.print_result(console.escape_control_characters(f"\n{benchmark}: {sides}"))
    parts = _divide(findings, headline)
    if console.is_layout_output():
        caption = " ".join(_iterate_caption(benchmark, sides, findings, answer, has_headline=len(parts) > 1))
        console.show_table("findings", findings, _IN_A_PAPER, parts=parts, caption=caption)
    else:
        console.show_table("findings", findings, _ON_A_TERMINAL, parts=parts)
    for row in findings:
        if format_side_counts(row) != format_side_counts(most):
            console.print_result(
                console.escape_control_characters(
                    f"{format_detector_cell(row)} scored {format_side_counts(row)} of these texts"
                )
            )


def _divide(findings: Sequence[Row], headline: str | None) -> dict[str, list[Row]]:
    """Return the rows of each part of the table by its title, in descending order of AUROC.

    Without a headline detector, there is one part without a title.
    """
    by_auroc = sorted(findings, key=lambda row: (row["auroc"] is None, -(row["auroc"] or 0.0)))
    answering = [row for row in by_auroc if row["detector"] == headline]
    if not answering:
        return {"": by_auroc}
    others = [row for row in by_auroc if row["detector"] != headline]
    return {HEADLINE: answering, ALSO_TRIED: others} if others else {HEADLINE: answering}


def _iterate_caption(
    benchmark: str, sides: str, findings: Sequence[Row], answer: Mapping[str, Any] | None, *, has_headline: bool
) -> Iterator[str]:
    from audit_pipeline.statistics.claims import format_claim_level

    yield f"{findings[0]['model']} on {benchmark}: {sides} (n: texts that the detector scored)."
    if answer is not None:
        level = "not evaluated"
        if answer["claim_level"]:
            level = format_claim_level(answer["claim_level"], answer["claim_stated_by"])
        yield f"Split: {answer['split_verdict']}. Claim level: {level}."
    yield "Intervals are over groups of texts; TPR at a false-positive rate of 5% and 1%."
    if answer is not None and has_headline:
        chosen = "was named beforehand" if answer["detector_chosen"] == "named" else "is the default one"
        yield f"The headline detector {chosen}; the others are sorted by AUROC."
    if any(row[metric] is None for row in findings for metric in _METRICS[:3]):
        yield f"{DASH}: not defined, or too few groups of non-members to measure the rate."
