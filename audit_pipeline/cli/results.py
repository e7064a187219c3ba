"""Commands on what was concluded: report, sql, export."""

from __future__ import annotations

import csv
import itertools
import json
import sys
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths, is_writable, require_writable, texts_are_quoted
from audit_pipeline.cli.audit_output import tell_damaged_files
from audit_pipeline.cli.options import json_option
from audit_pipeline.cli.shared import load_dagster_definitions
from audit_pipeline.errors import AuditError
from audit_pipeline.operate.console import is_json_output, say, show_table, tell, tell_step, to_json_value
from audit_pipeline.operate.options import FILE

if TYPE_CHECKING:
    import pyarrow as pa


@click.command()
@click.option("--open", "open_it", is_flag=True, help="Open the report in a browser.")
@click.option(
    "--no-text",
    is_flag=True,
    help="Quote no audited text in report and warehouse; set CORPUS_AUDIT_NO_TEXT to make that the default.",
)
def report(open_it: bool, no_text: bool) -> None:
    """Bring the warehouse and the report up to date."""
    paths = DataPaths.from_environment()
    if open_it and paths.report.exists() and not is_writable(paths.root):
        tell(f"{paths.root} cannot be written: the report shown is the last one built")
        open_report_in_browser(paths)
        return
    require_writable(paths.root)
    definitions = load_dagster_definitions()
    from audit_pipeline.operate.dagster.audit import publish

    include_text = not no_text and texts_are_quoted()
    publish(definitions, paths, tell_step, include_text=include_text)
    tell_damaged_files(paths)
    say(f"Report: {paths.report}")
    if open_it:
        open_report_in_browser(paths)


def _find_warehouse() -> Path:
    """The warehouse, built first where something was audited and there is none."""
    paths = DataPaths.from_environment()
    if not paths.warehouse.exists():
        # Here and not above: it imports all that a planner reads.
        from audit_pipeline.operate.stages.warehouse import ensure_warehouse

        return ensure_warehouse(paths)
    return paths.warehouse


def open_report_in_browser(paths: DataPaths) -> None:
    """Open the report in the user's browser."""
    webbrowser.open(paths.report.as_uri())


@click.command()
@click.argument("statement")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How rows are printed.",
)
@json_option
def sql(statement: str, layout: str) -> None:
    """Run one read-only SQL statement on the warehouse.

    --format json prints one object per line, --json one document with all rows. In both, infinity and what is no
    number are the texts "Infinity", "-Infinity" and "NaN".
    """
    from audit_pipeline.warehouse.query import query_warehouse

    if is_json_output() and layout == "csv":
        raise click.UsageError("give either --json or --format csv")
    rows = query_warehouse(_find_warehouse(), statement)
    if layout == "csv":
        _print_csv(rows)
    elif layout == "json" and not is_json_output():
        names = _number_repeated_names(rows.column_names)
        for row in _iterate_rows(rows):
            click.echo(_to_json(dict(zip(names, row, strict=True))))
    else:
        _print_rows(rows)


def _iterate_rows(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    """The rows by position: a join can yield two columns of one name."""
    try:
        return zip(*(column.to_pylist() for column in table.columns), strict=True)
    except (OverflowError, ValueError) as error:
        raise AuditError(f"a value of the result cannot be shown ({error}): cast it to VARCHAR") from error


def _number_repeated_names(names: Sequence[str]) -> list[str]:
    """The names, repeated ones with a number (a, a_1)."""
    unique: list[str] = []
    for name in names:
        numbered = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        unique.append(next(candidate for candidate in numbered if candidate not in unique))
    return unique


def _print_csv(rows: pa.Table) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in _iterate_rows(rows):
        writer.writerow([_format_csv_cell(value) for value in row])


def _format_csv_cell(value: object) -> object:
    """Lists and structs as JSON, true and false as SQL spells them, bytes in hexadecimal; the rest as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return _to_json(value) if isinstance(value, list | dict) else value


def _to_json(value: object) -> str:
    return json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False)


def _print_rows(rows: pa.Table) -> None:
    names = _number_repeated_names(rows.column_names)
    found = [dict(zip(names, row, strict=True)) for row in _iterate_rows(rows)]
    show_table("rows", found, list(zip(rows.column_names, names, strict=True)))
    say(f"{len(rows):,} row(s)", row_count=len(rows))


@click.command()
@click.argument("name")
@click.option("--out", required=True, type=FILE, help="The .parquet or .csv file to write.")
def export(name: str, out: Path) -> None:
    """Write a table or view of the warehouse to a file."""
    from audit_pipeline.warehouse.export import export as export_rows

    rows = export_rows(_find_warehouse(), name, out)
    say(f"{rows:,} rows of {name} in {out}")
