"""Running an audit and printing its answers and findings, for the commands demo, audit, check and control.

The command evaluate prints the same table of detectors, with the headline detector first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, format_side_counts
from audit_pipeline.cli.run_setup import load_dagster_definitions, print_problems, publish
from audit_pipeline.cli.shared_options import record_exit_state
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.audit_requests import AuditOutcome, build_audit_request
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.pipeline.run_audit import run_audit
from audit_pipeline.report.number_format import (
    DASH,
    format_estimate,
    format_interval,
    format_percent,
    format_probability,
    format_signed,
)
from audit_pipeline.store.paths import DataPaths

if TYPE_CHECKING:
    import pyarrow as pa


# Maximum number of damaged files that are printed.
_MAX_LISTED_FILES = 5
_BY_DESIGN = ("exchangeable", "randomised")


def print_conclusions(paths: DataPaths, model: str, benchmark: str) -> Mapping[str, Any] | None:
    """Print the conclusions on a model and a benchmark, in the order of the report's first screen.

    If a conclusion reports a finding, the state ``found`` is recorded for ``--fail-on``.

    Returns:
        The answer from scores, or None if the pair has none.
    """
    from audit_pipeline.report.page_data import read_conclusions
    from audit_pipeline.report.summary import has_found, sort_by_display_place

    conclusions = read_conclusions(paths.warehouse, model)
    answer = conclusions.answers.get(benchmark)
    word_for_word = conclusions.word_for_word.get(benchmark)
    tests = [test for test in conclusions.tests if test["benchmark"] == benchmark and not _is_hidden_test(test)]
    rows = [row for row in (answer, *tests, word_for_word) if row is not None]
    for index, row in enumerate(sort_by_display_place(rows)):
        if has_found(row):
            record_exit_state("found")
        # Only the first result, the verdict, has its full headline.
        shown = row if index == 0 else {**row, "headline": row["brief"]}
        lines = [f"\n{benchmark}: {format_answer(shown)}"]
        key = "corpus_tests"
        if row is answer:
            lines += _iterate_fact_lines(row)
            key = "answers"
        elif row is word_for_word:
            key = "word_for_word"
        words = "\n".join(filter(None, lines))
        console.print_result(console.escape_control_characters(words), **{key: [{"benchmark": benchmark, **row}]})
    return answer


def _is_hidden_test(test: Mapping[str, Any]) -> bool:
    """Return whether a test is hidden, because it was refused, and no command and no benchmark design requested it."""
    is_unrequested = test["test"] == "dataset_inference" and test["design"] not in _BY_DESIGN
    return test["outcome"] == "refused" and is_unrequested


def format_answer(answer: Mapping[str, Any]) -> str:
    """Return the sentences of an answer, one per line, as on the first screen of the report."""
    lines = (
        answer["headline"],
        answer["explanation"],
        f"How sure: {answer['how_sure']}",
        f"What would change it: {answer['what_would_change']}",
    )
    return "\n".join(filter(None, lines))


def print_damaged_files(paths: DataPaths) -> None:
    """Print the damaged files whose rows are missing from the warehouse."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        damaged = connection.execute(
            'SELECT "table", "partition", run_id, left_out FROM files_gone WHERE left_out IS NOT NULL ORDER BY ALL'
        ).fetchall()
    for table, partition, run_id, reason in damaged[:_MAX_LISTED_FILES]:
        words = f"skipped a damaged file of the table {table} ({partition}, run {run_id}): {reason}"
        console.print_message(f"{words}. To find the file: corpus-audit doctor --deep", style="yellow")
    if len(damaged) > _MAX_LISTED_FILES:
        console.print_message(
            f"skipped {len(damaged) - _MAX_LISTED_FILES} more damaged files. To list them: corpus-audit doctor --deep",
            style="yellow",
        )


def _iterate_fact_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    from audit_pipeline.report.sentences import describe_text_counts

    if answer["sides"] == "none":
        yield (
            "None of the texts to evaluate is labelled. To see their scores: "
            'corpus-audit sql "FROM scores_with_examples"'
        )
        return
    if answer["warning"] and answer["documents"] is not None:
        yield f"Few texts: {answer['warning']}"
    yield _format_claim_line(answer)
    yield _format_provenance(answer)
    yield describe_text_counts(answer["counted"])
    if answer["not_scored"]:
        yield f"Labelled texts without a score by {answer['detector']}: {answer['not_scored']:,}"
    documents = answer["documents"]
    if not documents:
        return
    compared = documents["calibration_groups"]
    calibration = documents["calibration_groups_in_all"]
    if calibration not in (None, compared):
        yield (
            "Each document was compared only with calibration documents that have at least as many texts as the "
            f"document. For each document, at least {compared} of {calibration} calibration documents qualified. "
            "Thresholds were chosen on all calibration documents."
        )


def _format_claim_line(answer: Mapping[str, Any]) -> str:
    """Return the claim level and the result of the blind control on the same texts."""
    from audit_pipeline.report.number_format import format_percent
    from audit_pipeline.statistics.claims import format_claim_level

    level = "not evaluated"
    if answer["claim_level"]:
        level = format_claim_level(answer["claim_level"], answer["claim_stated_by"])
    blind = answer["blind"]
    rate = answer["blind_tpr_at_5_fpr"]
    control = "not computed"
    if blind is not None and blind["value"] is not None:
        control = f"AUROC {format_estimate(blind['value'], blind['low'], blind['high'])}"
    if rate is not None and rate["value"] is not None:
        control += f", TPR at 5% FPR {format_percent(rate['value'])}"
    return (
        f"{answer['benchmark']}: {level}; split: {answer['split_verdict']}; "
        f"blind control, which never sees the model: {control}"
    )


def _format_provenance(answer: Mapping[str, Any]) -> str:
    """Return the detector of the answer, the source of the labels, and the design."""
    chosen = {"named": ", named beforehand", "alone": ", the only one"}.get(answer["detector_chosen"] or "", "")
    facts: list[str] = []
    if answer["detector"]:
        facts.append(f"Detector: {answer['detector']}{chosen}")
    if answer["labels_by"]:
        facts.append(f"labels: {answer['labels_by']}")
    if answer["design_in_words"]:
        facts.append(f"design: {answer['design_in_words']}")
    return "; ".join(facts)


def audit_pairs(model: str, benchmark: str, options: AuditOptions) -> AuditOutcome:
    """Audit a model on benchmarks, and print what was done.

    Results that are up to date are not computed again. If all are up to date, no heavy package is imported.
    """
    # This comes before the heavy packages, so that a wrong name is reported at once.
    request = build_audit_request(model, benchmark, options)
    print_problems(request.problems)
    outcome = run_audit(request, load_dagster_definitions, console.print_step)
    if outcome.dead_runs:
        console.print_message(
            f"marked {len(outcome.dead_runs)} dead run(s) of this machine, whose process has ended, as failed, and "
            "released their locks"
        )
    for partition, done in outcome.passes.items():
        console.print_unless_quiet(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_run.items():
        console.print_message(f"{partition} could not be audited: {reason}", style="red")
    return outcome


def publish_outcomes(outcomes: Sequence[AuditOutcome]) -> None:
    """Rebuild warehouse and report if they do not contain the results of these audits."""
    from audit_pipeline.pipeline.publication_state import explain_unpublished

    paths = DataPaths.from_environment()
    if explain_unpublished([model.name for outcome in outcomes for model in outcome.models], paths) is not None:
        console.print_step("rebuilding warehouse and report")
        publish(paths)


def show_audit_outcome(outcome: AuditOutcome, *, details: bool = False) -> None:
    """Print the answers, the findings and the path of the report, then raise the error of the audit, if any.

    With ``details``, the findings of texts of unknown membership are also printed.
    """
    paths = DataPaths.from_environment()
    for pair in outcome.pairs:
        if outcome.models[1:]:
            console.print_result(console.escape_control_characters(f"\n{pair.model}:"))
        has_findings = _show_pair_results(paths, pair.model, pair.benchmark, details=details)
        if outcome.models[1:] and not has_findings:
            reason = outcome.not_run.get(pair.partition, "no text was evaluated")
            console.print_result(console.escape_control_characters(f"{pair.benchmark} has no findings: {reason}"))
    print_damaged_files(paths)
    if outcome.left_out:
        record_exit_state("stale")
    console.print_result(f"\nReport: {paths.report}", report=paths.report)
    if outcome.failed is not None:
        raise outcome.failed


def _show_pair_results(paths: DataPaths, model: str, benchmark: str, *, details: bool = False) -> bool:
    """Print the conclusions, the findings and the comparisons of a pair.

    Returns:
        True if the pair has an answer or a finding.
    """
    from audit_pipeline.warehouse.query import read_latest_findings

    answer = print_conclusions(paths, model, benchmark)
    findings = build_finding_rows(read_latest_findings(paths.warehouse, model, [benchmark]), model)
    show_findings(benchmark, findings, answer, details=details)
    if is_unlabelled(answer):
        return True
    if details or console.is_json_output():
        detector = None if answer is None else answer["detector"]
        show_comparisons(paths, model, benchmark, detector)
    return answer is not None or bool(findings)


def show_comparisons(paths: DataPaths, model: str, benchmark: str, detector: str | None) -> None:
    """Print comparisons of detectors on the same texts.

    Args:
        paths: The data folder.
        model: The model's name.
        benchmark: The benchmark's name.
        detector: Print only the comparisons with this detector. None: print all.
    """
    from audit_pipeline.warehouse.query import read_comparisons

    rows: list[dict[str, Any]] = read_comparisons(paths.warehouse, model, benchmark, detector).to_pylist()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in ("parameters", "other_parameters")}
    if rows:
        console.print_result(
            "\nDetectors compared on the same texts (p-values are not corrected for the number of pairs):"
        )
    if rows or console.is_json_output():
        console.show_table("comparisons", rows, _COMPARISONS)


def _format_other(row: Row) -> str:
    return format_detector_cell({"detector": row["other"], "parameters": row["other_parameters"]})


def _format_difference(row: Row) -> str:
    return f"{format_signed(row['difference'])} {format_interval((row['ci_low'], row['ci_high']), sign=True)}".rstrip()


_COMPARISONS: Columns = (
    ("detector", format_detector_cell),
    ("compared with", _format_other),
    ("difference in AUROC [95%]", _format_difference),
    ("p", "p_value", format_probability),
)


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
    """Build the rows of the findings table from rows of the view leaderboard. Parse their parameters from JSON."""
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
    """Print a table of how well each detector separates the two sides of a benchmark.

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
                f"\n{len(findings)} detectors were run. To compare {headline} with the other detectors, add --details."
            )
        return
    most = max(findings, key=lambda row: row["n_members"] + row["n_nonmembers"])
    names = ("audited texts", "held-out texts") if is_unlabelled(answer) else ("members", "non-members")
    sides = f"{most['n_members']:,} {names[0]}, {most['n_nonmembers']:,} {names[1]}"
    console.print_result(console.escape_control_characters(f"\n{benchmark}: {sides}"))
    parts = _group_by_headline(findings, headline)
    if console.prints_tables_to_paste():
        caption = " ".join(_iterate_caption(benchmark, sides, findings, answer, has_headline=len(parts) > 1))
        console.show_table("findings", findings, _IN_A_PAPER, parts=parts, caption=caption)
    else:
        console.show_table("findings", findings, _ON_A_TERMINAL, parts=parts)
    for row in findings:
        if format_side_counts(row) != format_side_counts(most):
            console.print_result(
                console.escape_control_characters(
                    f"{format_detector_cell(row)} scored only {row['n_members']:,} of the {names[0]} and "
                    f"{row['n_nonmembers']:,} of the {names[1]}"
                )
            )


def _group_by_headline(findings: Sequence[Row], headline: str | None) -> dict[str, list[Row]]:
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
    yield "Intervals are computed over groups of texts. TPR is measured at a false-positive rate of 5% and 1%."
    if answer is not None and has_headline:
        chosen = "was named beforehand" if answer["detector_chosen"] == "named" else "is the default one"
        yield f"The headline detector {chosen}; the others are sorted by AUROC."
    if any(row[metric] is None for row in findings for metric in _METRICS[:3]):
        yield f"{DASH}: not defined, or too few groups of non-members to measure the rate."
