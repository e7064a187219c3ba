"""Commands that list and print results: detectors, models, benchmarks, report, sql, export."""

from __future__ import annotations

import csv
import itertools
import json
import sys
import textwrap
import uuid
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.cli import run_setup, shared_options
from audit_pipeline.cli.audit_output import print_damaged_files
from audit_pipeline.cli.output import LAYOUTS
from audit_pipeline.cli.shared_options import FORMAT, ListedCommand, Section
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report.number_format import format_yes_or_no
from audit_pipeline.store.paths import DataPaths, explain_unwritable, is_text_output_allowed, require_writable

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.detectors.detector import Detector

# Maximum width of a list, and minimum width of its last column, in characters.
_MAX_WIDTH = 100
_MIN_LAST_WIDTH = 30
long_option = click.option("--long", is_flag=True, help="List all details, in wide columns.")


def _build_cell_formatter(empty_text: str) -> Callable[[object], str]:
    """Return a function that formats a cell, or returns ``empty_text`` for an empty cell."""
    return lambda value: console.format_cell_value(value) or empty_text


def _format_paper(row: Row) -> str:
    return f"{row['paper']} ({row['package']})" if row["package"] else str(row["paper"])


def _format_parameters(row: Row) -> str:
    return ", ".join(f"{name} ({default})" for name, default in row["parameters"].items()) or "-"


_DETECTORS: Columns = (
    ("detector", "detector"),
    ("score", lambda row: f"on request: {row['score']}" if row["on_request"] else row["score"]),
)
_DETECTORS_LONG: Columns = (
    ("detector", lambda row: f"{row['detector']} (on request)" if row["on_request"] else row["detector"]),
    ("paper", _format_paper),
    ("requires", "needs", ", ".join),
    ("passes per text", "forward_tokens"),
    ("own log-probabilities suffice", "own_logprobs_suffice", format_yes_or_no),
    ("parameters", _format_parameters),
    ("score", "score"),
)
_MODELS: Columns = (("model", "model"), ("from", "from"))
_MODELS_LONG: Columns = (
    *_MODELS,
    ("dtype", "dtype", _build_cell_formatter("the server's")),
    ("start token", lambda row: f"{row['start_token'] or 'default'} ({row['start_token_policy']})"),
    ("released", "released", _build_cell_formatter("unknown")),
    ("training cutoff", "training_cutoff", _build_cell_formatter("unknown")),
    ("licence", "licence", _build_cell_formatter("unknown")),
    ("reference model", "reference_model", _build_cell_formatter("none")),
)
_BENCHMARKS: Columns = (
    ("benchmark", "benchmark"),
    ("built", "built", format_yes_or_no),
    ("what it is", lambda row: row["title"] or row["description"]),
)
_BENCHMARKS_LONG: Columns = (
    ("benchmark", "benchmark"),
    ("words", "words", _build_cell_formatter("any")),
    ("design", "design"),
    ("label source", "label_source"),
    ("built", "built", format_yes_or_no),
    ("members", "members", _build_cell_formatter("-")),
    ("non-members", "nonmembers", _build_cell_formatter("-")),
    ("description", "description"),
)
_EXPORTED: Columns = (("benchmark", "benchmark"), ("content digest", "content_digest"))


def _show_list(name: str, rows: Sequence[Row], short_columns: Columns, long_columns: Columns, *, is_long: bool) -> None:
    """Print rows with the long or the short columns. The last short column is cut, so that each row is one line."""
    *first, last = short_columns
    if not is_long:
        room = _MAX_WIDTH
        for head, *cell in first:
            widths = [len(console.format_cell(row, *cell)) for row in rows]
            room -= 2 + max([len(head), *widths])
        room = max(_MIN_LAST_WIDTH, room)
        long_columns = (
            *first,
            (last[0], lambda row: textwrap.shorten(console.format_cell(row, *last[1:]), room, placeholder=" …")),
        )
    console.show_table(name, rows, long_columns)


@click.command(cls=ListedCommand, section=Section.LISTS, position=30)
@click.argument("name", required=False)
@long_option
@shared_options.table_output_options
def detectors(name: str | None, long: bool) -> None:
    """List the detectors, or describe one detector.

    --long also lists the requirements and costs of each detector. NAME describes that detector in full, as
    docs/detectors.md does.
    """
    from audit_pipeline.detectors.registry import REGISTRY, format_as_text, get_detector

    if name is not None:
        chosen = get_detector(name)
        console.print_result(format_as_text(chosen), detector=_build_detector_row(chosen))
        return
    _show_list("detectors", [*map(_build_detector_row, REGISTRY.values())], _DETECTORS, _DETECTORS_LONG, is_long=long)


def _build_detector_row(detector: Detector) -> Row:
    from audit_pipeline.detectors.detector_inputs import list_need_summaries
    from audit_pipeline.detectors.registry import ORIGINS

    return {
        "detector": detector.name,
        "package": ORIGINS.get(detector.name),
        "on_request": detector.on_request,
        "paper": detector.source,
        "needs": list_need_summaries(detector.needs),
        "forward_tokens": detector.passes,
        "own_logprobs_suffice": detector.own_logprobs_suffice,
        "parameters": {name: parameter.default for name, parameter in detector.parameters.items()},
        "score": detector.summary,
        "equation": detector.equation,
        "reported": detector.reported,
        "also_reads": detector.also_reads,
    }


@click.command(cls=ListedCommand, section=Section.LISTS, position=10)
@long_option
@shared_options.table_output_options
def models(long: bool) -> None:
    """List the models, and mistakes in the configuration.

    The models are the entries of config/models.yaml.
    """
    from audit_pipeline.models.config import FILE_NAME
    from audit_pipeline.warehouse.non_parquet_rows import format_model_origin

    config = run_setup.load_whole_configuration()
    run_setup.print_problems(config.problems_except_unreadable(FILE_NAME))
    rows: list[Row] = []
    for entry in config.models.values():
        row = {
            "model": entry.name,
            "from": format_model_origin(entry),
            "dtype": entry.dtype if entry.host.is_here else None,
            "start_token": entry.start_token,
            "start_token_policy": entry.start_token_policy,
            "released": entry.release_date,
            "training_cutoff": entry.training_cutoff,
            "licence": entry.licence,
            "reference_model": entry.detector_reference,
        }
        rows.append(row)
    _show_list("models", rows, _MODELS, _MODELS_LONG, is_long=long)


@click.command(cls=ListedCommand, section=Section.LISTS, position=20)
@click.option("--build", metavar="NAME", help="Fetch the sources of a benchmark or a family, and build it.")
@click.option(
    "--export",
    metavar="NAME",
    help="Export a built benchmark or family as a data set for others: Parquet files and a card.",
)
@click.option("--out", type=shared_options.PATH, help="Folder for --export. It must be new or empty.")
@click.option(
    "--push", metavar="OWNER/NAME", help="Also upload the export to the Hugging Face Hub, as a private data set."
)
@click.option(
    "--with-text",
    is_flag=True,
    help="Confirm that you may redistribute the texts although their licence is unknown or not clearly free.",
)
@long_option
@shared_options.table_output_options
def benchmarks(
    build: str | None, export: str | None, out: Path | None, push: str | None, with_text: bool, long: bool
) -> None:
    """List the benchmarks, and mistakes in the configuration.

    The benchmarks are the entries of config/benchmarks.yaml. The list shows which are built. With --export, write a
    benchmark as a data set that others can load (docs/benchmarks/handing-on.md).
    """
    if export is not None:
        if out is None:
            raise click.UsageError("--export requires --out FOLDER. Add --out with a new or empty folder.")
        if build is not None:
            raise click.UsageError(
                "--build cannot be combined with --export. Build the benchmark first, then export it."
            )
        _export_benchmarks(export, out, push, with_text=with_text)
        return
    if out is not None or push is not None or with_text:
        raise click.UsageError("--out, --push and --with-text require --export NAME. Add --export or remove them.")
    from audit_pipeline.benchmarks.config import FILE_NAME

    paths = DataPaths.from_environment() if build is None else run_setup.get_writable_paths()
    config = run_setup.load_whole_configuration()
    if build is not None:
        specs = config.benchmarks_named(build)
        run_setup.print_problems(config.problems)
        run_setup.build_benchmarks(specs, paths)
    run_setup.print_problems(config.problems_except_unreadable(FILE_NAME))
    rows = [_build_benchmark_row(spec, paths) for spec in config.benchmarks.values()]
    _show_list("benchmarks", rows, _BENCHMARKS, _BENCHMARKS_LONG, is_long=long)


def _build_benchmark_row(spec: BenchmarkSpec, paths: DataPaths) -> Row:
    from audit_pipeline.benchmarks.built_benchmark import CONTENT_DIGEST, read_built

    built = paths.benchmark_manifest(spec.name).exists()
    manifest: Mapping[str, Any] = {}
    try:
        manifest = read_built(paths, spec.name).manifest if built else {}
    except DataError as error:
        # A damaged benchmark must not hide the others.
        console.print_message(str(error), style="yellow")
    counts = manifest.get("counts", {})
    return {
        "benchmark": spec.name,
        "title": spec.title,
        "words": spec.words,
        "design": spec.design,
        "label_source": spec.label_source,
        "built": built,
        "members": counts.get("members"),
        "nonmembers": counts.get("nonmembers"),
        "content_digest": manifest.get(CONTENT_DIGEST),
        "description": spec.settings.description,
    }


def _export_benchmarks(name: str, out: Path, hub: str | None, *, with_text: bool) -> None:
    """Write the benchmarks with this name as a data set. If ``hub`` is not None, upload it under this name."""
    from audit_pipeline.benchmarks.built_benchmark import read_built, read_or_assess_split
    from audit_pipeline.benchmarks.publish import export, require_new_folder, require_redistributable
    from audit_pipeline.benchmarks.redistribution import require_hub_name_and_token, upload_export

    folder = out.expanduser().resolve()
    paths = DataPaths.from_environment()
    config = run_setup.load_whole_configuration()
    built = [read_built(paths, spec.name) for spec in config.benchmarks_named(name)]
    run_setup.print_problems(config.problems)
    # All checks come before the slow work.
    require_new_folder(folder)
    require_redistributable(built, override_unclear_licences=with_text)
    if hub is not None:
        require_hub_name_and_token(hub)
    run_id = str(uuid.uuid4())
    qualities = {benchmark: read_or_assess_split(benchmark, paths, run_id).quality for benchmark in built}
    console.print_step(f"writing {folder}, and reading it again to verify it")
    digests = export(qualities, folder, paths, hub=hub)
    rows = [{"benchmark": benchmark, "content_digest": digest} for benchmark, digest in digests.items()]
    console.show_table("exported", rows, _EXPORTED)
    texts = sum(benchmark.examples.num_rows for benchmark in built)
    console.print_result(f"{texts:,} texts in {folder}", folder=str(folder), texts=texts)
    if hub is not None:
        console.print_step(f"uploading the data set to the Hugging Face Hub as {hub}")
        address = upload_export(folder, hub)
        console.print_result(f"Uploaded to {address}", address=address)


@click.command(cls=ListedCommand, section=Section.RESULTS, position=10)
@click.option(
    "--open", "open_it", envvar="CORPUS_AUDIT_REPORT_OPEN", is_flag=True, help="Open the report in a browser."
)
@click.option(
    "--no-text",
    is_flag=True,
    help="Quote no audited text in the report and the warehouse. To make this the default, set CORPUS_AUDIT_NO_TEXT=1.",
)
@shared_options.quiet_option
def report(open_it: bool, no_text: bool) -> None:
    """Rebuild the warehouse and the report."""
    paths = DataPaths.from_environment()
    if open_it and paths.report.exists() and explain_unwritable(paths.root) is not None:
        console.print_message(f"{paths.root} cannot be written, so the last report is opened without rebuilding it")
        webbrowser.open(paths.report.as_uri())
        return
    require_writable(paths.root)
    run_setup.publish(paths, include_text=not no_text and is_text_output_allowed())
    print_damaged_files(paths)
    console.print_result(f"Report: {paths.report}")
    if open_it:
        webbrowser.open(paths.report.as_uri())


def _find_or_build_warehouse() -> Path:
    """Return the path of the warehouse. Build it first if it is missing and audits exist."""
    paths = DataPaths.from_environment()
    if not paths.warehouse.exists():
        # The import is slow, and is only needed here.
        from audit_pipeline.pipeline.publication import ensure_warehouse

        return ensure_warehouse(paths)
    return paths.warehouse


@click.command(cls=ListedCommand, section=Section.RESULTS, position=20)
@click.argument("statement")
@click.option(
    "--format",
    "layout",
    envvar="CORPUS_AUDIT_SQL_FORMAT",
    callback=partial(shared_options.save_in_meta, FORMAT),
    type=click.Choice(["table", *LAYOUTS, "csv", "json"]),
    default="table",
    show_default=True,
    help="Format of the rows: table for a terminal, markdown and latex to paste, csv and json for programs.",
)
@shared_options.json_option
@shared_options.quiet_option
def sql(statement: str, layout: str) -> None:
    """Run one read-only SQL statement on the warehouse.

    --format json prints one JSON object per row. --json prints one JSON document with all rows. Both print infinite
    numbers and NaN as the texts "Infinity", "-Infinity" and "NaN".
    """
    from audit_pipeline.warehouse.query import query_warehouse

    if console.is_json_output() and layout == "csv":
        raise click.UsageError("Give either --json or --format csv.")
    table = query_warehouse(_find_or_build_warehouse(), statement)
    try:
        # A join can have two columns of one name, so columns are read by position.
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    except (OverflowError, ValueError) as error:
        raise AuditError(
            f"a value of the result cannot be shown ({error}). Cast its column to VARCHAR in the statement."
        ) from error
    if layout == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(map(_format_csv_cell, row) for row in rows)
        return
    names = _number_repeated_names(table.column_names)
    by_name = [dict(zip(names, row, strict=True)) for row in rows]
    if layout == "json" and not console.is_json_output():
        for row in by_name:
            click.echo(_format_json_line(row))
        return
    console.show_table("rows", by_name, list(zip(table.column_names, names, strict=True)))
    console.print_result(f"{len(rows):,} row(s)", row_count=len(rows))


def _number_repeated_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to each repeated name (a, a_1)."""
    unique: list[str] = []
    for name in names:
        numbered = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        unique.append(next(candidate for candidate in numbered if candidate not in unique))
    return unique


def _format_csv_cell(value: object) -> object:
    """Format lists and structs as JSON, booleans as in SQL, and bytes as hexadecimal. Other values are unchanged."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return _format_json_line(value) if isinstance(value, list | dict) else value


def _format_json_line(value: object) -> str:
    return json.dumps(console.to_json_value(value), ensure_ascii=False, allow_nan=False)


@click.command(cls=ListedCommand, section=Section.RESULTS, position=30)
@click.argument("name")
@click.option("--out", type=shared_options.FILE, required=True, help="The .parquet or .csv file to write.")
@shared_options.quiet_option
def export(name: str, out: Path) -> None:
    """Write a table or view of the warehouse to a file."""
    from audit_pipeline.warehouse.query import export as export_rows

    rows = export_rows(_find_or_build_warehouse(), name, out)
    console.print_result(f"{rows:,} rows of {name} in {out}")
