"""Commands on the scores of a file: score runs a model, evaluate and power need no model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from audit_pipeline.cli import audit_output, shared_options
from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, format_side_counts
from audit_pipeline.cli.run_setup import get_writable_paths, resolve_model_option
from audit_pipeline.cli.shared_options import PASSES_KEPT, ListedCommand, Section
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.pipeline.options import ScoreOptions
from audit_pipeline.readers.conversations import ScoredPart
from audit_pipeline.report.number_format import DASH, format_thousands
from audit_pipeline.statistics.claims import Design
from audit_pipeline.statistics.evaluate_options import EvaluateOptions
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed

if TYPE_CHECKING:
    from audit_pipeline.readers.row_stream import TextStream
    from audit_pipeline.scoring.file import FileScores
    from audit_pipeline.statistics.power import PowerReport


_SEPARATION: Columns = (
    ("detector", format_detector_cell),
    ("AUROC [95% interval]", build_estimate_formatter("auroc")),
    ("texts", format_side_counts),
)


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=10, keeps=PASSES_KEPT)
@click.option(
    "--texts",
    type=shared_options.PATH,
    required=True,
    help="A file of rows or lines, a folder that the package datasets saved, or - for standard input.",
)
@click.option("--out", type=shared_options.FILE, required=True, help="The Parquet file to write.")
@shared_options.model_option
@click.option(
    "--detectors",
    help="Names of detectors, separated by commas. `corpus-audit detectors` lists them. Default: all except those that "
    "run on request only.",
)
@click.option(
    "--grid",
    is_flag=True,
    help="Score with all values of each detector's parameters that `corpus-audit detectors NAME` lists for --grid, not "
    "only with the default values.",
)
@shared_options.text_column_option
@click.option(
    "--score",
    "scored_part",
    type=click.Choice(get_args(ScoredPart)),
    help="Part of a conversation to score: its answers, the last answer, or all of the text. Conversations are in the "
    "column messages, in prompt and response (or completion), or in question and answer. The model's chat template "
    "makes the text. Default: response if the file has such columns and no text column.",
)
@click.option(
    "--label-column",
    default="label",
    show_default=True,
    help="Column of the label: 1 for members, 0 for non-members, empty if unknown. A file without it is scored without "
    "labels.",
)
@shared_options.id_column_option
@click.option(
    "--start-token",
    type=click.Choice(["always", "tokenizer"]),
    help="Add a start token before each text: always, or only if the tokenizer adds it. Default: start_token_policy in "
    "the model's entry.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Precision of the forward pass. Default: dtype in the model's entry.",
)
@click.option(
    "--reference-model",
    help="The model that the detectors reference and error_zone compare with. Default: reference_model in the model's "
    "entry, else the model before fine-tuning (docs/new-model.md).",
)
@click.option(
    "--frequencies",
    type=shared_options.INPUT_FILE,
    help="Token frequencies for dc_pdd: a table of `corpus-audit count`.",
)
@click.option(
    "--prefix-texts",
    type=shared_options.PATH,
    help="File of known non-members, one text per row, each from a different document. The detectors recall and "
    "con_recall put the first rows before each text; their parameter shots is the number of rows. A text from the same "
    "document as a row of the prefix gets no score. Two texts are of the same document if their first 32 words are "
    "equal, or if one contains the other.",
)
@click.option(
    "--prefix-members",
    type=shared_options.PATH,
    help="File of known members, in the format of --prefix-texts. They are the second prefix of con_recall.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the neighbours: randomly changed copies of a text that some detectors compare it with.",
)
@shared_options.run_options
@click.option(
    "--set",
    "set_parameters",
    envvar="CORPUS_AUDIT_SCORE_SET",
    multiple=True,
    metavar="DETECTOR.PARAMETER=VALUE",
    help="Set a parameter of a detector, for example min_k_plus_plus.mu=false. Repeat the option to set more. "
    "`corpus-audit detectors NAME` lists the parameters.",
)
@shared_options.table_output_options
def score(texts: Path, out: Path, set_parameters: tuple[str, ...], **options: Any) -> None:
    """Score the texts of a file, without Dagster.

    The result has one row per text, detector and setting, with the label, the group and the sha256 of the text.
    `corpus-audit evaluate` draws conclusions from it. Finished texts are kept: after an interruption, the same command
    continues. docs/input-files.md lists the formats that can be read.
    """
    from audit_pipeline.detectors.registry import parse_overrides
    from audit_pipeline.pipeline.audit_requests import build_scoring_request, score_texts
    from audit_pipeline.store.files import require_usable_output

    paths = get_writable_paths()
    score_options = ScoreOptions(parameters=parse_overrides(set_parameters), **options)
    model = resolve_model_option(str(score_options.model))
    require_usable_output(out, texts)
    request = build_scoring_request(score_options, texts)
    stream = _open_file_texts(texts, score_options)

    # These imports take a second, so mistakes in the file are reported before them.
    from audit_pipeline.pipeline.progress import progress_bar
    from audit_pipeline.scoring.file import ProgressListener

    with progress_bar(model.name) as on_progress:
        listener = ProgressListener(console.print_step, on_progress)
        scores = score_texts(request, model, stream, out, paths, listener)
    _show_scores(scores, score_options, texts, out)


def _open_file_texts(file: Path, options: ScoreOptions) -> TextStream:
    """Open the texts of the file, and print the note of its format and the number of rows."""
    from audit_pipeline.readers.file_bytes import STANDARD_INPUT
    from audit_pipeline.readers.formats import open_scored_texts
    from audit_pipeline.scoring.file import GROUP

    if file == STANDARD_INPUT:
        console.print_step("reading lines of JSON from standard input")
    texts = open_scored_texts(file, options.text_column, options.scored_part, [GROUP])
    if texts.rows.note is not None:
        console.print_step(texts.rows.note)
    if texts.note is not None:
        console.print_step(texts.note)
    counted = texts.estimate_rows()
    console.print_step(f"{texts.rows.file.name}: {'about ' if counted.is_estimated else ''}{counted.rows:,} row(s)")
    return texts


def _show_scores(scores: FileScores, options: ScoreOptions, file: Path, out: Path) -> None:
    """Print the numbers of scored and skipped texts, and the AUROC per detector if the texts are labelled."""
    console.print_skipped(scores.skipped.first, scores.skipped.count)
    own = scores.summary.text_pass
    rate = f" at {own.tokens_per_second:,.0f} tokens/s" if own.texts_computed else ""
    console.print_unless_quiet(
        f"{own.texts:,} texts: {own.texts_from_cache:,} from the cache, {own.texts_computed:,} computed{rate}"
    )
    _show_separation(scores, options, file, out)
    for name, reason in scores.unscored.items():
        console.print_message(f"{name} scored no text: {reason}")
    console.print_result(
        f"{scores.written:,} scores in {out}",
        scores=scores.written,
        out=out,
        texts={"all": own.texts, "from_cache": own.texts_from_cache, "computed": own.texts_computed},
        skipped_rows=scores.skipped.count,
        labels_not_understood=scores.labelled.labels.not_understood,
        no_auroc=scores.labelled.problem,
    )


def _show_separation(scores: FileScores, options: ScoreOptions, file: Path, out: Path) -> None:
    """Print the AUROC of each detector at its default setting, if the file has labels of both sides."""
    labelled = scores.labelled
    for words in (labelled.labels.describe_unknown_spellings("treated as unknown"), labelled.problem):
        if words is not None:
            console.print_message(words)
    rows = [
        {
            "detector": separation.detector,
            "parameters": json.loads(separation.parameters),
            "auroc": separation.auroc,
            "auroc_low": separation.interval.low,
            "auroc_high": separation.interval.high,
            "n_members": separation.n_members,
            "n_nonmembers": separation.n_nonmembers,
        }
        for separation in labelled.compute_separations()
    ]
    if rows or console.is_json_output():
        console.show_table("separation", rows, _SEPARATION)
    if not rows:
        return
    if len(rows) > 1:
        from audit_pipeline.statistics.claims import BEST_OF_SEVERAL

        console.print_result(f"{BEST_OF_SEVERAL}. Choose the detector that you report before you see any result.")
    _print_no_control(sum(labelled.labels.known.values()), options, file, out)


def _print_no_control(n_labelled: int, options: ScoreOptions, file: Path, out: Path) -> None:
    """Print that the blind control was not run, and the command that runs it on these texts."""
    from audit_pipeline.readers.file_bytes import STANDARD_INPUT
    from audit_pipeline.splits.blind_controls import MIN_EXAMPLES

    level = "screening only"
    words = "screening only: the blind control, which never sees the model, was not run"
    if n_labelled < MIN_EXAMPLES:
        console.print_result(
            f"{words}. It requires at least {MIN_EXAMPLES} labelled texts, and the file has {n_labelled}.",
            claim_level=level,
        )
        return
    line = ["corpus-audit", "evaluate", "--scores", str(out)]
    line += ["--texts", "FILE" if file == STANDARD_INPUT else str(file)]
    if options.text_column is not None:
        line += ["--text-column", options.text_column]
    # By default, half of the texts are used for calibration.
    if n_labelled < 2 * MIN_EXAMPLES:
        line += ["--calibration", "0"]
    console.print_result(f"{words}. To run it:\n  {shlex.join(line)}", claim_level=level, evaluate=shlex.join(line))


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
@click.option("--no-text", is_flag=True, help="Quote no audited text in the report and the warehouse.")
@shared_options.table_output_options
def evaluate(no_text: bool, **options: Any) -> None:
    """Evaluate scores of your own, and write findings and a report.

    No model is run. --scores names a table of scores, with one row per text and detector.
    """
    from audit_pipeline.pipeline.evaluate_file import evaluate_file
    from audit_pipeline.warehouse.query import read_latest_findings

    done = evaluate_file(EvaluateOptions(no_text=no_text or not is_text_output_allowed(), **options))
    console.print_skipped(done.external_scores.skipped)
    for note in done.external_scores.notes:
        console.print_message(note)
    answer = audit_output.print_conclusions(done.paths, done.pair.model, done.pair.benchmark)
    if console.is_json_output():
        rows: list[Row] = []
        for row in done.findings.tables["evaluations"].to_pylist():
            if row["is_default"] and row["value"] is not None:
                rows.append({name: row[name] for name in ("detector", "metric", "value", "ci_low", "ci_high")})
        console.show_table("evaluations", rows, ())
    else:
        found = read_latest_findings(done.paths.warehouse, done.pair.model, [done.pair.benchmark])
        audit_output.show_findings(
            done.pair.benchmark, audit_output.build_finding_rows(found, done.pair.model), answer, details=True
        )
    if not audit_output.is_unlabelled(answer):
        detector = None if answer is None else answer["detector"]
        audit_output.show_comparisons(done.paths, done.pair.model, done.pair.benchmark, detector)
    if done.external_scores.unused_counts:
        reasons = (
            f"{rows} × {console.escape_control_characters(reason)}"
            for reason, rows in done.external_scores.unused_counts.items()
        )
        console.print_result(f"\nSkipped rows: {'; '.join(reasons)}", left_out=dict(done.external_scores.unused_counts))
    audit_output.print_damaged_files(done.paths)
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
    ("power of the mean score, by resampling", "resampled", _format_power),
)


@click.command(cls=ListedCommand, section=Section.OWN_FILES, position=40)
@click.option("--model", help="Audited model whose scores are used. Requires --benchmark.")
@click.option("--benchmark", help="Audited benchmark with labels. Requires --model.")
@click.option("--detector", help="Detector whose scores are used. Default: the headline detector of the report.")
@click.option(
    "--auroc",
    type=shared_options.BETWEEN_0_AND_1,
    help="Compute the number for a detector with this AUROC, instead of from scores.",
)
@click.option(
    "--fpr", type=shared_options.BETWEEN_0_AND_1, default=0.05, show_default=True, help="Accepted false-positive rate."
)
@click.option(
    "--power",
    type=shared_options.BETWEEN_0_AND_1,
    default=0.8,
    show_default=True,
    help="Required power: the probability that the effect is detected.",
)
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
    """Show how many texts are needed to detect an effect.

    The number is computed from the scores of an audited model and benchmark, or from the AUROC of --auroc.
    """
    from audit_pipeline.statistics.power import PowerGoal, power_report_from_auroc, power_report_from_scores

    goal = PowerGoal(fpr, power, effect, held_out)
    if auroc is not None:
        if model or benchmark or detector:
            raise click.UsageError(
                "--auroc cannot be combined with --model, --benchmark or --detector. Give either --auroc, or --model "
                "and --benchmark."
            )
        _show_power(power_report_from_auroc(auroc, goal))
        return
    if model is None or benchmark is None:
        raise click.UsageError("Give --model and --benchmark, or --auroc.")
    benchmark, detector, members, nonmembers = _read_group_scores(model, benchmark, detector)
    words = f"{model} on {benchmark}, {detector}, one value per group:"
    console.print_result(words, model=model, benchmark=benchmark, detector=detector)
    _show_power(power_report_from_scores(members, nonmembers, goal))


def _read_group_scores(model: str, benchmark: str, detector: str | None) -> tuple[str, str, list[float], list[float]]:
    """Read the mean score of each group from the warehouse.

    Returns:
        The benchmark, the detector, and the mean scores of the groups of members and of the groups of non-members.
    """
    from audit_pipeline.config.problems import did_you_mean, list_family_partitions, resolve_partition
    from audit_pipeline.report.page_data import read_named_detector
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
