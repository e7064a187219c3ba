"""Commands that draw conclusions from scores: evaluate, power, compare; no model is run."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from audit_pipeline.cli.audit_output import print_damaged_files, say_conclusions, show_comparisons
from audit_pipeline.cli.options import BETWEEN_0_AND_1, FOLDER, PASSES_KEPT, command, fields, option
from audit_pipeline.cli.shared import get_writable_paths, publish, resolve_built_benchmark, resolve_model_option
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.console import (
    Columns,
    Row,
    escape_control_characters,
    print_message,
    print_skipped,
    say,
    show_table,
)
from audit_pipeline.pipeline.options import FILE
from audit_pipeline.report.number_format import DASH, estimate, format_thousands, interval, number
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.paths import DataPaths, texts_are_quoted

if TYPE_CHECKING:
    from audit_pipeline.extras.unlearning.measures import Finding
    from audit_pipeline.statistics.power import PowerReport


def _format_metric(name: str) -> str:
    from audit_pipeline.statistics.roc import METRICS

    return METRICS[name].label


_EVALUATIONS: Columns = (
    ("detector", "detector"),
    ("metric", "metric", _format_metric),
    ("value", "value", number),
    ("95% interval", lambda row: interval((row["ci_low"], row["ci_high"])) or "none"),
)


@command()
def evaluate(
    options: EvaluateOptions = fields(*EvaluateOptions.__annotations__, kinds={"scores": FILE, "out": FOLDER}),
) -> None:
    """Write findings and a report from scores of your own.

    No model is run: --scores names a table of scores, one row per text and detector.
    """
    from audit_pipeline.pipeline.evaluate_file import evaluate_file

    done = evaluate_file(replace(options, no_text=options.no_text or not texts_are_quoted()))
    print_skipped(done.given.skipped)
    for note in done.given.notes:
        print_message(note)
    answer = say_conclusions(done.paths, done.pair.model, done.pair.benchmark)
    rows = [
        {name: row[name] for name in ("detector", "metric", "value", "ci_low", "ci_high")}
        for row in done.findings.tables["evaluations"].to_pylist()
        if row["is_default"] and row["value"] is not None
    ]
    show_table("evaluations", rows, _EVALUATIONS)
    if answer is None or answer["sides"] != "audited against held-out":
        detector = None if answer is None else answer["detector"]
        show_comparisons(done.paths, done.pair.model, done.pair.benchmark, detector)
    if done.given.left_out:
        reasons = (f"{rows} × {escape_control_characters(reason)}" for reason, rows in done.given.left_out.items())
        say(f"\nLeft out: {'; '.join(reasons)}", left_out=dict(done.given.left_out))
    print_damaged_files(done.paths)
    say(
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


@command()
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
    say(words, model=model, benchmark=benchmark, detector=detector)
    _show_power(power_report_from_scores(members, nonmembers, goal))


def _read_group_scores(model: str, benchmark: str, detector: str | None) -> tuple[str, str, list[float], list[float]]:
    """Read from the warehouse: benchmark, detector, and its mean scores by group of members and of non-members."""
    from audit_pipeline.config.hints import did_you_mean, resolve_partition
    from audit_pipeline.report.page import read_named_headline
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
        benchmark = resolve_partition(benchmark, list(dict.fromkeys(row[1] for row in audited if row[0] == model)))
        settings = {row[2]: row[3] for row in audited if row[:2] == (model, benchmark)}
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


def _show_power(report: PowerReport) -> None:
    say(report.sentence, sentence=report.sentence)
    rows = [
        {"texts": point.n, "mean_score": point.mean_score, "flagged": point.flagged, "resampled": point.resampled}
        for point in report.curve
    ]
    show_table("power", rows, _POWER)


def _format_unlearning_metric(metric: str) -> str:
    from audit_pipeline.extras.unlearning.measures import METRIC_IN_WORDS

    return METRIC_IN_WORDS[metric]


def _format_side_cell(side: str, row: Row) -> str:
    found = row.get(side)
    return estimate(found["value"], found["ci_low"], found["ci_high"], "z.3g", DASH) if found else ""


_UNLEARNING: Columns = (
    ("metric", "metric", _format_unlearning_metric),
    ("model", "role"),
    ("to be forgotten", partial(_format_side_cell, "forget")),
    ("held out", partial(_format_side_cell, "holdout")),
    ("one against the other", partial(_format_side_cell, "both")),
)


@command(keeps=PASSES_KEPT)
def compare(
    before: str = option("The model before forgetting: a name in config/models.yaml, or a path."),
    after: str = option("The model after forgetting."),
    forget: str = option(
        "The benchmark of the texts to be forgotten. Without --holdout: its members against its non-members."
    ),
    holdout: str | None = option(
        "The benchmark of texts that neither model was trained on: all texts of --forget against all of these."
    ),
    retrained: str | None = option("A model that was trained without the texts to be forgotten, to compare with."),
) -> None:
    """Compare a model before and after it was made to forget texts.

    Says what was forgotten, and what only looks forgotten, each number next to the same for held-out texts. No model is
    run: audit every model on the texts first (corpus-audit audit). docs/unlearning.md explains the numbers.
    """
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.extras.unlearning import comparison as unlearning
    from audit_pipeline.extras.unlearning.conclusion import conclude_unlearning
    from audit_pipeline.models.tokenized_model import load_tokenizer

    paths = get_writable_paths()
    entries = [resolve_model_option(name) for name in (before, after, retrained) if name is not None]
    own = read_built(paths, resolve_built_benchmark(forget, paths))
    held_out = own if holdout is None else read_built(paths, resolve_built_benchmark(holdout, paths))
    first, second, *others = (load_tokenizer(entry, paths) for entry in entries)
    third = others[0] if others else None
    done = unlearning.compare_models(unlearning.UnlearningRequest(first, second, third, own, held_out), paths)
    if done.left_out:
        print_message(f"{done.left_out} text(s) left out: without a scored token, or a probability is no number")
    unlearning.write_comparison(done, paths, run_id=f"compare-{uuid.uuid4()}")
    publish(paths)
    _show_unlearning(done.findings)
    rows = [asdict(finding) for finding in done.findings]
    found = conclude_unlearning(rows, before=first.entry.name, after=second.entry.name)
    words = "\n".join(["", found.headline, *found.explanation])
    say(words, outcome=found.outcome, headline=found.headline, explanation=list(found.explanation))
    say(f"Report: {paths.report}", report=paths.report)


def _show_unlearning(findings: Sequence[Finding]) -> None:
    """Show every number, both sides in one row."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for finding in findings:
        values = asdict(finding)
        metric, role, side = (values.pop(name) for name in ("metric", "role", "side"))
        rows.setdefault((metric, role), {"metric": metric, "role": role})[side] = values
        if finding.reason is not None:
            reasons.setdefault(finding.reason, {})[_format_unlearning_metric(metric)] = None
    show_table("unlearning", list(rows.values()), _UNLEARNING)
    for reason, metrics in reasons.items():
        say(f"Without a value: {', '.join(metrics)}: {reason}")
