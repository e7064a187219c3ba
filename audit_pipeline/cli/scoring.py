"""The command score, which scores the texts of a file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import shared_options
from audit_pipeline.cli.listed_command import PASSES_KEPT, ListedCommand, Section
from audit_pipeline.cli.output import build_estimate_formatter, format_detector_cell, format_side_counts
from audit_pipeline.cli.run_setup import get_writable_paths, resolve_model_option
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns
from audit_pipeline.pipeline.options import ScoreOptions

if TYPE_CHECKING:
    from audit_pipeline.readers.row_stream import TextStream
    from audit_pipeline.scoring.file import FileScores

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
@click.option("--grid", is_flag=True, help="Compute every setting of each detector's grid, not only the default.")
@shared_options.text_column_option
@click.option(
    "--label-column",
    default="label",
    show_default=True,
    help="Column of the label: 1 member, 0 non-member, empty unknown. The column is optional.",
)
@shared_options.id_column_option
@click.option(
    "--start-token",
    type=click.Choice(["always", "tokenizer"]),
    help="Whether the start token is always added, or only if the tokenizer adds it. Default: the model's entry.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Precision of the forward pass. Default: the model's entry.",
)
@click.option("--reference-model", help="The second model of the detector reference. Default: the model's entry.")
@click.option(
    "--frequencies",
    type=shared_options.INPUT_FILE,
    help="Token frequencies for dc_pdd: a table of `corpus-audit count`.",
)
@click.option(
    "--prefix-texts",
    type=shared_options.PATH,
    help="File of known non-members, each from a different document. The first texts are the prefix of recall and "
    "con_recall. Other texts of these documents get no score. The first 32 words identify a document.",
)
@click.option(
    "--prefix-members",
    type=shared_options.PATH,
    help="File of known members, in the format of --prefix-texts. They are the second prefix of con_recall.",
)
@click.option(
    "--proposer",
    default="own-topk",
    show_default=True,
    help="Generator of neighbours: the model itself (own-topk), or a masked language model.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for generating neighbours.")
@shared_options.run_options
@click.option(
    "--set",
    "set_parameters",
    envvar="CORPUS_AUDIT_SCORE_SET",
    multiple=True,
    metavar="DETECTOR.PARAMETER=VALUE",
    help="Set a parameter of a detector; repeatable.",
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
    stream = _open_file_texts(texts, score_options.text_column)

    # These imports take a second, so mistakes in the file are reported before them.
    from audit_pipeline.pipeline.progress import progress_bar
    from audit_pipeline.scoring.file import ProgressListener

    with progress_bar(model.name) as on_progress:
        listener = ProgressListener(console.print_step, console.show_progress, on_progress)
        scores = score_texts(request, model, stream, out, paths, listener)
    _show_scores(scores, score_options, texts, out)


def _open_file_texts(file: Path, text_column: str | None) -> TextStream:
    """Open the texts of the file, and print the note of its format and the number of rows."""
    from audit_pipeline.readers.file_bytes import STANDARD_INPUT
    from audit_pipeline.readers.formats import open_texts
    from audit_pipeline.scoring.file import GROUP

    if file == STANDARD_INPUT:
        console.print_step("reading lines of JSON from standard input")
    texts = open_texts(file, text_column, [GROUP])
    if texts.rows.note is not None:
        console.print_step(texts.rows.note)
    counted = texts.estimate_rows()
    console.print_step(f"{texts.rows.file.name}: {'about ' if counted.estimated else ''}{counted.rows:,} row(s)")
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
    for words in (labelled.labels.describe_unknown_spellings("taken as unknown"), labelled.problem):
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

        console.print_result(f"{BEST_OF_SEVERAL}. Choose the detector that you quote beforehand.")
    _print_no_control(sum(labelled.labels.known.values()), options, file, out)


def _print_no_control(n_labelled: int, options: ScoreOptions, file: Path, out: Path) -> None:
    """Print that the blind control was not run, and the command that runs it on these texts."""
    from audit_pipeline.readers.file_bytes import STANDARD_INPUT
    from audit_pipeline.splits.blind_controls import MIN_EXAMPLES

    level = "screening only"
    words = "screening only: the blind control, which never sees the model, was not run"
    if n_labelled < MIN_EXAMPLES:
        console.print_result(f"{words}: it requires {MIN_EXAMPLES} labelled texts", claim_level=level)
        return
    line = ["corpus-audit", "evaluate", "--scores", str(out)]
    line += ["--texts", "FILE" if file == STANDARD_INPUT else str(file)]
    if options.text_column is not None:
        line += ["--text-column", options.text_column]
    # By default, half of the texts are used for calibration.
    if n_labelled < 2 * MIN_EXAMPLES:
        line += ["--calibration", "0"]
    console.print_result(f"{words}. To run it:\n  {shlex.join(line)}", claim_level=level, evaluate=shlex.join(line))
