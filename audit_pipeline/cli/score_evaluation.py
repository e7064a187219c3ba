"""Commands that draw conclusions from scores: evaluate, power; no model is run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.audit_output import print_damaged_files, say_conclusions, show_comparisons
from audit_pipeline.cli.command_declaration import BETWEEN_0_AND_1, FOLDER, Place, Section, command, fields, option
from audit_pipeline.cli.findings_table import build_finding_rows, is_unlabelled, show_findings
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.console import (
    Columns,
    escape_control_characters,
    is_json_output,
    print_message,
    print_result,
    print_skipped,
    show_table,
)
from audit_pipeline.pipeline.options import INPUT_FILE
from audit_pipeline.report.number_format import DASH, format_thousands
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.statistics.power import PowerReport


@command(Place(Section.OWN_FILES, 30))
def evaluate(
    options: EvaluateOptions = fields(*EvaluateOptions.__annotations__, kinds={"scores": INPUT_FILE, "out": FOLDER}),
) -> None:
    """Write findings and a report from scores of your own.

    No model is run: --scores names a table of scores, one row per text and detector.
    """
    from audit_pipeline.pipeline.evaluate_file import evaluate_file
    from audit_pipeline.warehouse.query import read_latest_findings

    done = evaluate_file(replace(options, no_text=options.no_text or not is_text_output_allowed()))
    print_skipped(done.external_scores.skipped)
    for note in done.external_scores.notes:
        print_message(note)
    answer = say_conclusions(done.paths, done.pair.model, done.pair.benchmark)
    rows = [
        {name: row[name] for name in ("detector", "metric", "value", "ci_low", "ci_high")}
        for row in done.findings.tables["evaluations"].to_pylist()
        if row["is_default"] and row["value"] is not None
    ]
    if is_json_output():
        show_table("evaluations", rows, ())
    else:
        found = read_latest_findings(done.paths.warehouse, done.pair.model, [done.pair.benchmark])
        show_findings(done.pair.benchmark, build_finding_rows(found, done.pair.model), answer, details=True)
    if not is_unlabelled(answer):
        detector = None if answer is None else answer["detector"]
        show_comparisons(done.paths, done.pair.model, done.pair.benchmark, detector)
    if done.external_scores.unused_counts:
        reasons = (
            f"{rows} × {escape_control_characters(reason)}"
            for reason, rows in done.external_scores.unused_counts.items()
        )
        print_result(f"\nLeft out: {'; '.join(reasons)}", left_out=dict(done.external_scores.unused_counts))
    print_damaged_files(done.paths)
    print_result(
        f"Warehouse: {done.paths.warehouse}\nReport: {done.report}",
        warehouse=done.paths.warehouse,
        report=done.report,
    )


def _format_power(power: float | None) -> str:
    return DASH if power is None else f"{power:.2f}"


_POWER: Columns = (
    ("audited texts", "texts", format_thousands),
    ("power of the mean score", "mean_score", _format_power),
    ("power of the count of flagged texts", "flagged", _format_power),
    ("resampled", "resampled", _format_power),
)


@command(Place(Section.OWN_FILES, 40))
def power(
    model: str | None = option("An audited model, whose scores are used; needs --benchmark."),
    benchmark: str | None = option("An audited benchmark with labels; needs --model."),
    detector: str | None = option("The detector. Default: the headline detector of the report."),
    auroc: float | None = option("Plan for this AUROC instead of using scores.", BETWEEN_0_AND_1),
    fpr: float = option("Accepted false-positive rate.", BETWEEN_0_AND_1, 0.05),
    power: float = option("Wanted power.", BETWEEN_0_AND_1, 0.8),
    effect: float = option("Share of members among the audited texts.", click.FloatRange(0, 1, True), 1.0),
    held_out: int | None = option("Number of held-out texts. Default: as many as are audited.", least=1),
) -> None:
    """Show how many texts are needed to see an effect.

    It is computed from the scores of an audited model and benchmark, or for a given AUROC.
    """
    from audit_pipeline.statistics.power import PowerGoal, power_report_from_auroc, power_report_from_scores

    goal = PowerGoal(fpr, power, effect, held_out)
    if auroc is not None:
        if model or benchmark or detector:
            raise click.UsageError("give either --auroc, or --model and --benchmark")
        _show_power(power_report_from_auroc(auroc, goal))
        return
    if model is None or benchmark is None:
        raise click.UsageError("give --model and --benchmark, or --auroc")
    benchmark, detector, members, nonmembers = _read_group_scores(model, benchmark, detector)
    words = f"{model} on {benchmark}, {detector}, one value per group:"
    print_result(words, model=model, benchmark=benchmark, detector=detector)
    _show_power(power_report_from_scores(members, nonmembers, goal))


def _read_group_scores(model: str, benchmark: str, detector: str | None) -> tuple[str, str, list[float], list[float]]:
    """Read from the warehouse: benchmark, detector, and its mean scores by group of members and of non-members."""
    from audit_pipeline.config.problems import did_you_mean, list_family_partitions, resolve_partition
    from audit_pipeline.report.page import read_named_detector
    from audit_pipeline.statistics.evaluate_options import choose_headline_detector
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(DataPaths.from_environment().warehouse) as connection:
        audited = connection.execute(
            "SELECT DISTINCT model, benchmark, detector, parameters FROM leaderboard_history"
            " WHERE is_latest AND auroc IS NOT NULL ORDER BY ALL"
        ).fetchall()
        models = list(dict.fromkeys(row[0] for row in audited))
        if model not in models:
            raise DataError(f"there are no scores of the model '{model}' with an AUROC; {did_you_mean(model, models)}")
        benchmarks = list(dict.fromkeys(row[1] for row in audited if row[0] == model))
        if "," not in benchmark and not list_family_partitions(benchmark, benchmarks):
            hint = did_you_mean(benchmark, benchmarks)
            raise DataError(f"there are no scores of {model} on '{benchmark}' with an AUROC; {hint}")
        benchmark = resolve_partition(benchmark, benchmarks)
        settings = {row[2]: row[3] for row in audited if row[:2] == (model, benchmark)}
        named = read_named_detector(connection, model, benchmark)
        chosen = detector or choose_headline_detector(set(settings), named)
        if chosen is None:
            known = ", ".join(sorted(settings))
            raise DataError(f"{model} on {benchmark} has no headline detector: give --detector; there are: {known}")
        if chosen not in settings:
            hint = did_you_mean(chosen, sorted(settings))
            raise DataError(f"there is no AUROC of {chosen} for {model} on {benchmark}; {hint}")
        rows = connection.execute(
            "SELECT label, avg(score) FROM scores_with_examples WHERE model = $model AND benchmark = $benchmark"
            " AND detector = $detector AND parameters = $parameters AND status = 'ok' AND split = 'evaluation'"
            ' AND label IS NOT NULL GROUP BY label, "group" ORDER BY label, "group"',
            {"model": model, "benchmark": benchmark, "detector": chosen, "parameters": settings[chosen]},
        ).fetchall()
    members, nonmembers = ([float(score) for label, score in rows if label == side] for side in (1, 0))
    return benchmark, chosen, members, nonmembers


def _show_power(report: PowerReport) -> None:
    print_result(report.sentence, sentence=report.sentence)
    rows = [
        {"texts": point.n, "mean_score": point.mean_score, "flagged": point.flagged, "resampled": point.resampled}
        for point in report.curve
    ]
    show_table("power", rows, _POWER)
