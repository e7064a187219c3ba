"""How commands run an audit and show its answer and findings: shared by demo, audit, check and control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit_pipeline.cli.findings_table import build_finding_rows, is_unlabelled, show_findings
from audit_pipeline.cli.listed_command import record_exit_state
from audit_pipeline.cli.output import format_detector_cell
from audit_pipeline.cli.run_setup import load_dagster_definitions, print_problems, publish
from audit_pipeline.pipeline.audit_requests import AuditOutcome, build_audit_request
from audit_pipeline.pipeline.console import (
    Columns,
    Row,
    escape_control_characters,
    is_json_output,
    print_message,
    print_result,
    print_step,
    print_unless_quiet,
    show_table,
)
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.pipeline.run_audit import run_audit
from audit_pipeline.report.number_format import format_estimate, format_interval, format_probability, format_signed
from audit_pipeline.store.paths import DataPaths

_NAMED = 5
_BY_DESIGN = ("exchangeable", "randomised")


def print_conclusions(paths: DataPaths, model: str, benchmark: str) -> Mapping[str, Any] | None:
    """Say what the report's first screen says of a model on a benchmark, in its order. Returns the answer from scores,
    or None where there is none."""
    from audit_pipeline.report.page import read_conclusions
    from audit_pipeline.report.summary import has_found, sort_by_display_place

    found = read_conclusions(paths.warehouse, model)
    answer, given = found.answers.get(benchmark), found.word_for_word.get(benchmark)
    tests = [
        test
        for test in found.tests
        # A test that was refused is shown where the command or the benchmark's design asked for it.
        if test["benchmark"] == benchmark
        and (test["outcome"] != "refused" or test["test"] != "dataset_inference" or test["design"] in _BY_DESIGN)
    ]
    results = sort_by_display_place([row for row in (answer, *tests, given) if row is not None])
    for place, row in enumerate(results):
        if has_found(row):
            record_exit_state("found")
        lines = [*_iterate_fact_lines(row)] if row is answer else []
        # The first is the verdict.
        told = row if place == 0 else {**row, "headline": row["brief"]}
        words = "\n".join(filter(None, (f"\n{benchmark}: {format_answer(told)}", *lines)))
        name = "answers" if row is answer else "word_for_word" if row is given else "corpus_tests"
        print_result(escape_control_characters(words), **{name: [{"benchmark": benchmark, **row}]})
    return answer


def format_answer(answer: Mapping[str, Any]) -> str:
    """The sentences of an answer, as on the first screen of the report: the headline, and a line each under it."""
    sure, change = f"How sure: {answer['how_sure']}", f"What would change it: {answer['what_would_change']}"
    return "\n".join(filter(None, (answer["headline"], answer["explanation"], sure, change)))


def print_damaged_files(paths: DataPaths) -> None:
    """The damaged files whose rows are not in the warehouse, by name, on standard error."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        found = connection.execute(
            'SELECT "table", "partition", run_id, left_out FROM files_gone WHERE left_out IS NOT NULL ORDER BY ALL'
        ).fetchall()
    for table, partition, run_id, reason in found[:_NAMED]:
        words = f"damaged, and left out: {table} of {partition} (run {run_id}): {reason}"
        print_message(f"{words}; corpus-audit doctor --deep names the file", style="yellow")
    if len(found) > _NAMED:
        print_message(f"and {len(found) - _NAMED} more damaged files: corpus-audit doctor --deep", style="yellow")


def _iterate_fact_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    from audit_pipeline.report.notes import describe_text_counts

    if answer["sides"] == "none":
        yield "None of its texts to evaluate is labelled; its scores are in the view scores_with_examples"
        return
    if answer["warning"] and answer["documents"] is not None:
        yield f"Few texts: {answer['warning']}"
    yield _format_claim_line(answer)
    yield _format_provenance(answer)
    yield describe_text_counts(answer["counted"])
    if answer["not_scored"]:
        yield f"Labelled texts without a score by {answer['detector']}: {answer['not_scored']:,}"
    documents = answer["documents"] or {"calibration_groups": None, "calibration_groups_in_all": None}
    compared, calibration = documents["calibration_groups"], documents["calibration_groups_in_all"]
    if calibration not in (None, compared):
        yield (
            f"Documents were compared with at least {compared} of the {calibration} calibration documents, those with "
            "as many texts as are compared; thresholds are chosen on all."
        )


def _format_claim_line(answer: Mapping[str, Any]) -> str:
    """The claim level, and what the blind control makes of the same texts."""
    from audit_pipeline.report.number_format import format_percent
    from audit_pipeline.statistics.claims import format_claim_level

    level = format_claim_level(answer["claim_level"], answer["claim_stated_by"]) if answer["claim_level"] else None
    blind, rate = answer["blind"], answer["blind_tpr_at_5_fpr"]
    control = "not computed"
    if blind is not None and blind["value"] is not None:
        control = f"AUROC {format_estimate(blind['value'], blind['low'], blind['high'])}"
    if rate is not None and rate["value"] is not None:
        control += f", TPR at 5% FPR {format_percent(rate['value'])}"
    return (
        f"{answer['benchmark']}: {level or 'not evaluated'}; split: {answer['split_verdict']}; "
        f"blind control, which never sees the model: {control}"
    )


def _format_provenance(answer: Mapping[str, Any]) -> str:
    """Which detector answers, who made the labels, and who stated the design."""
    chosen = {"named": ", named beforehand", "alone": ", the only one"}.get(answer["detector_chosen"] or "", "")
    facts = [f"Detector: {answer['detector']}{chosen}"] if answer["detector"] else []
    facts += [f"labels: {answer['labels_by']}"] if answer["labels_by"] else []
    facts += [f"design: {answer['design_in_words']}"] if answer["design_in_words"] else []
    return "; ".join(facts)


def audit_pairs(model: str, benchmark: str, options: AuditOptions) -> AuditOutcome:
    """Bring the pairs up to date; nothing is run, and no heavy package imported, where they are."""
    # Before the heavy packages, so that a wrong name is answered at once.
    request = build_audit_request(model, benchmark, options)
    print_problems(request.problems)
    outcome = run_audit(request, load_dagster_definitions, print_step)
    if outcome.dead_runs:
        print_message(f"marked {len(outcome.dead_runs)} dead run(s) of this machine failed and freed their slots")
    for partition, done in outcome.passes.items():
        print_unless_quiet(f"{partition}: {done.from_cache} texts from the cache, {done.computed} computed")
    for partition, reason in outcome.not_run.items():
        print_message(f"{partition} could not run: {reason}", style="red")
    return outcome


def publish_outcomes(outcomes: Sequence[AuditOutcome]) -> None:
    """Rebuild warehouse and report once, where they do not show what these audits came to."""
    from audit_pipeline.pipeline.publication_state import explain_unpublished

    paths = DataPaths.from_environment()
    if explain_unpublished([model.name for outcome in outcomes for model in outcome.models], paths) is not None:
        print_step("rebuilding warehouse and report")
        publish(paths)


def show_audit_outcome(outcome: AuditOutcome, *, details: bool = False) -> None:
    """Show the answers, their findings and where the report is; raise the error that the audit ended with.

    ``details``: the findings of texts of unknown membership, too.
    """
    paths = DataPaths.from_environment()
    for pair in outcome.pairs:
        if outcome.models[1:]:
            print_result(escape_control_characters(f"\n{pair.model}:"))
        has_findings = _show_findings(paths, pair.model, pair.benchmark, details=details)
        if outcome.models[1:] and not has_findings:
            reason = outcome.not_run.get(pair.partition, "no evaluation was made")
            print_result(escape_control_characters(f"{pair.benchmark}: no findings: {reason}"))
    print_damaged_files(paths)
    if outcome.left_out:
        record_exit_state("stale")
    print_result(f"\nReport: {paths.report}", report=paths.report)
    if outcome.failed is not None:
        raise outcome.failed


def _show_findings(paths: DataPaths, model: str, benchmark: str, *, details: bool = False) -> bool:
    """Show the answer, then the findings of every detector.

    Args:
        details: Show the findings of texts of unknown membership, too.

    Returns:
        Whether there is an answer or a finding.
    """
    from audit_pipeline.warehouse.query import read_latest_findings

    answer = print_conclusions(paths, model, benchmark)
    findings = build_finding_rows(read_latest_findings(paths.warehouse, model, [benchmark]), model)
    show_findings(benchmark, findings, answer, details=details)
    if is_unlabelled(answer):
        return True
    if details or is_json_output():
        show_comparisons(paths, model, benchmark, None if answer is None else answer["detector"])
    return answer is not None or bool(findings)


def show_comparisons(paths: DataPaths, model: str, benchmark: str, detector: str | None) -> None:
    """Compare detectors on the same texts: all pairs, or those of ``detector``."""
    from audit_pipeline.warehouse.query import read_comparisons

    rows: list[dict[str, Any]] = read_comparisons(paths.warehouse, model, benchmark, detector).to_pylist()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in ("parameters", "other_parameters")}
    if rows:
        print_result("\nDetectors compared on the same texts (p-values are not corrected for the number of pairs):")
    if rows or is_json_output():
        show_table("comparisons", rows, _COMPARISONS)


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
