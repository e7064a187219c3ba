"""Commands that draw conclusions from scores: evaluate, power."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import click

from audit_pipeline.catalogue.paths import DataPaths, texts_are_quoted
from audit_pipeline.cli.audit_output import say_conclusions, show_comparisons, tell_damaged_files
from audit_pipeline.cli.options import BETWEEN_0_AND_1, json_option
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.evaluate_options import EvaluateOptions
from audit_pipeline.metrics.claims import Design
from audit_pipeline.operate.console import Columns, escape_control_characters, say, show_table, tell, tell_skipped
from audit_pipeline.operate.options import FILE, PATH
from audit_pipeline.report.number_format import DASH, format_thousands, interval, number

if TYPE_CHECKING:
    from audit_pipeline.evidence.power import PowerReport

_USUAL = EvaluateOptions(Path())


def _evaluate_option(name: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of a field of EvaluateOptions, with its help and its default."""
    [help_text] = get_type_hints(EvaluateOptions, include_extras=True)[name].__metadata__
    default = {} if settings.get("required") or settings.get("is_flag") else {"default": getattr(_USUAL, name)}
    return click.option(f"--{name.replace('_', '-')}", help=help_text, **{**default, **settings})


@click.command()
@_evaluate_option("scores", metavar="FILE", required=True, type=FILE)
@_evaluate_option("texts", type=PATH)
@_evaluate_option("text_column")
@_evaluate_option("out", type=click.Path(path_type=Path, file_okay=False))
@_evaluate_option("model", show_default=True)
@_evaluate_option("benchmark")
@_evaluate_option("design", type=click.Choice(get_args(Design)))
@_evaluate_option("headline")
@_evaluate_option("language", show_default=True)
@_evaluate_option("calibration", show_default=True)
@_evaluate_option("seed", show_default=True)
@_evaluate_option("no_text", is_flag=True)
@json_option
def evaluate(no_text: bool, **options: Any) -> None:
    """Write findings and a report from scores of your own.

    No model is run: FILE is a table of scores, one row per text and detector.
    """
    from audit_pipeline.metrics.roc import METRICS
    from audit_pipeline.operate.evaluate_file import evaluate_file

    asked = EvaluateOptions(**options, no_text=no_text or not texts_are_quoted())
    done = evaluate_file(asked)
    tell_skipped(done.given.skipped)
    for note in done.given.notes:
        tell(note)
    answer = say_conclusions(done.paths, done.pair.model, done.pair.benchmark)
    rows = [
        {name: row[name] for name in ("detector", "metric", "value", "ci_low", "ci_high")}
        for row in done.findings.tables["evaluations"].to_pylist()
        if row["is_default"] and row["value"] is not None
    ]
    columns: Columns = [
        ("detector", "detector"),
        ("metric", "metric", lambda name: METRICS[name].label),
        ("value", "value", number),
        ("95% interval", lambda row: interval((row["ci_low"], row["ci_high"])) or "none"),
    ]
    show_table("evaluations", rows, columns)
    if answer is None or answer["sides"] != "audited against held-out":
        detector = None if answer is None else answer["detector"]
        show_comparisons(done.paths, done.pair.model, done.pair.benchmark, detector)
    if done.given.left_out:
        reasons = (f"{rows} × {escape_control_characters(reason)}" for reason, rows in done.given.left_out.items())
        say(f"\nLeft out: {'; '.join(reasons)}", left_out=dict(done.given.left_out))
    tell_damaged_files(done.paths)
    say(
        f"Warehouse: {done.paths.warehouse}\nReport: {done.report}",
        warehouse=done.paths.warehouse,
        report=done.report,
    )


@click.command()
@click.option("--model", help="An audited model, whose scores are used; needs --benchmark.")
@click.option("--benchmark", help="An audited benchmark with labels; needs --model.")
@click.option("--detector", help="The detector. Default: the headline detector of the report.")
@click.option("--auroc", type=BETWEEN_0_AND_1, help="Plan for this AUROC instead of using scores.")
@click.option("--fpr", default=0.05, show_default=True, type=BETWEEN_0_AND_1, help="Accepted false-positive rate.")
@click.option("--power", "wanted", default=0.8, show_default=True, type=BETWEEN_0_AND_1, help="Wanted power.")
@click.option(
    "--effect",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1, True),
    help="Share of members among the audited texts.",
)
@click.option(
    "--held-out", type=click.IntRange(min=1), help="Number of held-out texts. Default: as many as are audited."
)
@json_option
def power(
    model: str | None,
    benchmark: str | None,
    detector: str | None,
    auroc: float | None,
    fpr: float,
    wanted: float,
    effect: float,
    held_out: int | None,
) -> None:
    """Show how many texts are needed to see an effect.

    It is computed from the scores of an audited model and benchmark, or for a given AUROC.
    """
    from audit_pipeline.evidence.power import PowerGoal, power_report_from_auroc, power_report_from_scores

    goal = PowerGoal(fpr, wanted, effect, held_out)
    if auroc is not None:
        if model or benchmark or detector:
            raise click.UsageError("give either --auroc, or --model and --benchmark")
        _say_power(power_report_from_auroc(auroc, goal))
        return
    if model is None or benchmark is None:
        raise click.UsageError("give --model and --benchmark, or --auroc")
    benchmark, detector, members, nonmembers = _read_group_scores(model, benchmark, detector)
    words = f"{model} on {benchmark}, {detector}, one value per group:"
    say(words, model=model, benchmark=benchmark, detector=detector)
    _say_power(power_report_from_scores(members, nonmembers, goal))


def _read_group_scores(model: str, benchmark: str, detector: str | None) -> tuple[str, str, list[float], list[float]]:
    """The benchmark, the detector, and its mean scores by group of members and of non-members, from the warehouse."""
    from audit_pipeline.config.hints import did_you_mean, resolve_partition
    from audit_pipeline.evidence.evaluate_options import choose_headline_detector
    from audit_pipeline.report.page import read_named_headline
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(DataPaths.from_environment().warehouse) as connection:
        audited = connection.execute(
            "SELECT DISTINCT model, benchmark FROM leaderboard_history"
            " WHERE is_latest AND auroc IS NOT NULL ORDER BY model, benchmark"
        ).fetchall()
        models = list(dict.fromkeys(name for name, _ in audited))
        if model not in models:
            raise DataError(f"there are no scores of the model '{model}' with an AUROC; {did_you_mean(model, models)}")
        benchmark = resolve_partition(benchmark, [name for of, name in audited if of == model])
        detectors = connection.execute(
            "SELECT DISTINCT detector, parameters FROM leaderboard_history WHERE is_latest"
            " AND model = $model AND benchmark = $benchmark AND auroc IS NOT NULL",
            {"model": model, "benchmark": benchmark},
        ).fetchall()
        settings = dict(detectors)
        named = read_named_headline(connection, model, benchmark)
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


def _say_power(report: PowerReport) -> None:
    say(report.sentence, sentence=report.sentence)
    rows = [
        {"texts": point.n, "mean_score": point.mean_score, "flagged": point.flagged, "resampled": point.resampled}
        for point in report.curve
    ]
    columns: Columns = [
        ("audited texts", "texts", format_thousands),
        ("power of the mean score", "mean_score", _format_power),
        ("power of the count of flagged texts", "flagged", _format_power),
        ("resampled", "resampled", _format_power),
    ]
    show_table("power", rows, columns)


def _format_power(power: float | None) -> str:
    return DASH if power is None else f"{power:.2f}"
