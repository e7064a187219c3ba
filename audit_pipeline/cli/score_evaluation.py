"""Commands that draw conclusions from scores without running a model: evaluate, power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.audit_output import print_conclusions, print_damaged_files, show_comparisons
from audit_pipeline.cli.findings_table import build_finding_rows, is_unlabelled, show_findings
from audit_pipeline.cli.listed_command import ListedCommand, Section
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report.number_format import DASH, format_thousands
from audit_pipeline.statistics.claims import Design
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.statistics.power import PowerReport


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=30)
@click.option(
    "--scores",
    type=shared_options.INPUT_FILE,
    required=True,
    help="Table with the columns score and label. The columns group, detector and text are used if present.",
)
@click.option(
    "--texts",
    type=shared_options.PATH,
    help="The file that was scored. The blind control needs its texts, which a table of `corpus-audit score` does not "
    "contain. Texts are matched by their sha256.",
)
@click.option("--text-column", help="Column of the text in --texts. Default: text, else input, else the only column.")
@click.option("--out", type=shared_options.FOLDER, help="Folder for warehouse and report. Default: FILE_findings.")
@click.option("--model", default="a model", show_default=True, help="Model name written to the findings.")
@click.option("--benchmark", help="Benchmark name written to the findings. Default: the file's name.")
@click.option(
    "--design",
    type=click.Choice(get_args(Design)),
    help="How members and non-members were chosen. Default: unstated, or unlabelled if no text is a member.",
)
@click.option(
    "--headline",
    help="Headline detector, named before any result is seen. Default: the first of min_k_plus_plus, "
    "min_k and loss that has scores, otherwise the only detector. With several other detectors, there is no headline.",
)
@click.option("--language", default="en", show_default=True, help="Language of the texts, as ISO 639-1.")
@click.option(
    "--calibration",
    type=float,
    default=0.5,
    show_default=True,
    help="Share of the labelled groups that is used to choose thresholds.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for choosing the calibration groups.")
@click.option("--no-text", is_flag=True, help="Quote no text in the report and the warehouse.")
@shared_options.table_output_options
def evaluate(no_text: bool, **options: Any) -> None:
    """Write findings and a report from scores of your own.

    No model is run: --scores names a table of scores, one row per text and detector.
    """
    from audit_pipeline.pipeline.evaluate_file import evaluate_file
    from audit_pipeline.warehouse.query import read_latest_findings

    done = evaluate_file(EvaluateOptions(no_text=no_text or not is_text_output_allowed(), **options))
    console.print_skipped(done.external_scores.skipped)
    for note in done.external_scores.notes:
        console.print_message(note)
    answer = print_conclusions(done.paths, done.pair.model, done.pair.benchmark)
    if console.is_json_output():
        rows: list[Row] = []
        for row in done.findings.tables["evaluations"].to_pylist():
            if row["is_default"] and row["value"] is not None:
                rows.append({name: row[name] for name in ("detector", "metric", "value", "ci_low", "ci_high")})
        console.show_table("evaluations", rows, ())
    else:
        found = read_latest_findings(done.paths.warehouse, done.pair.model, [done.pair.benchmark])
        show_findings(done.pair.benchmark, build_finding_rows(found, done.pair.model), answer, details=True)
    if not is_unlabelled(answer):
        detector = None if answer is None else answer["detector"]
        show_comparisons(done.paths, done.pair.model, done.pair.benchmark, detector)
    if done.external_scores.unused_counts:
        reasons = (
            f"{rows} × {console.escape_control_characters(reason)}"
            for reason, rows in done.external_scores.unused_counts.items()
        )
        console.print_result(f"\nSkipped rows: {'; '.join(reasons)}", left_out=dict(done.external_scores.unused_counts))
    print_damaged_files(done.paths)
    console.print_result(
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


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=40)
@click.option("--model", help="Audited model whose scores are used. Requires --benchmark.")
@click.option("--benchmark", help="Audited benchmark with labels. Requires --model.")
@click.option("--detector", help="Detector. Default: the headline detector of the report.")
@click.option("--auroc", type=shared_options.BETWEEN_0_AND_1, help="Plan for this AUROC instead of using scores.")
@click.option(
    "--fpr", type=shared_options.BETWEEN_0_AND_1, default=0.05, show_default=True, help="Accepted false-positive rate."
)
@click.option("--power", type=shared_options.BETWEEN_0_AND_1, default=0.8, show_default=True, help="Required power.")
@click.option(
    "--effect",
    type=click.FloatRange(0, 1, True),
    default=1.0,
    show_default=True,
    help="Share of members among the audited texts.",
)
@click.option(
    "--held-out", type=shared_options.AT_LEAST_1, help="Number of held-out texts. Default: the number of audited texts."
)
@shared_options.table_output_options
def power(
    model: str | None,
    benchmark: str | None,
    detector: str | None,
    auroc: float | None,
    fpr: float,
    power: float,
    effect: float,
    held_out: int | None,
) -> None:
    """Show how many texts are needed to see an effect.

    The number is computed from the scores of an audited model and benchmark, or for a given AUROC.
    """
    from audit_pipeline.statistics.power import PowerGoal, power_report_from_auroc, power_report_from_scores

    goal = PowerGoal(fpr, power, effect, held_out)
    if auroc is not None:
        if model or benchmark or detector:
            raise click.UsageError("Give either --auroc, or --model and --benchmark.")
        _show_power(power_report_from_auroc(auroc, goal))
        return
    if model is None or benchmark is None:
        raise click.UsageError("give --model and --benchmark, or --auroc")
    benchmark, detector, members, nonmembers = _read_group_scores(model, benchmark, detector)
    words = f"{model} on {benchmark}, {detector}, one value per group:"
    console.print_result(words, model=model, benchmark=benchmark, detector=detector)
    _show_power(power_report_from_scores(members, nonmembers, goal))


def _read_group_scores(model: str, benchmark: str, detector: str | None) -> tuple[str, str, list[float], list[float]]:
    """Return the benchmark, the detector, and its mean score of each group of members and each group of non-members."""
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
            raise DataError(f"{model} on {benchmark} has no headline detector. Choose one with --detector: {known}")
        if chosen not in settings:
            hint = did_you_mean(chosen, sorted(settings))
            raise DataError(f"there is no AUROC of {chosen} for {model} on {benchmark}; {hint}")
        rows = connection.execute(
            "SELECT label, avg(score) FROM scores_with_examples WHERE model = $model AND benchmark = $benchmark"
            " AND detector = $detector AND parameters = $parameters AND status = 'ok' AND split = 'evaluation'"
            ' AND label IS NOT NULL GROUP BY label, "group" ORDER BY label, "group"',
            {"model": model, "benchmark": benchmark, "detector": chosen, "parameters": settings[chosen]},
        ).fetchall()
    members = [float(score) for label, score in rows if label == 1]
    nonmembers = [float(score) for label, score in rows if label == 0]
    return benchmark, chosen, members, nonmembers


def _show_power(report: PowerReport) -> None:
    console.print_result(report.sentence, sentence=report.sentence)
    rows = [
        {"texts": point.n, "mean_score": point.mean_score, "flagged": point.flagged, "resampled": point.resampled}
        for point in report.curve
    ]
    console.show_table("power", rows, _POWER)
