"""Commands that list what is there: detectors, models, benchmarks."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.options import json_option
from audit_pipeline.cli.shared import (
    get_writable_paths,
    load_dagster_definitions,
    load_whole_configuration,
    tell_problems,
)
from audit_pipeline.errors import DataError
from audit_pipeline.operate.console import (
    Columns,
    Row,
    format_cell,
    format_cell_value,
    say,
    show_table,
    tell,
    tell_step,
)
from audit_pipeline.operate.options import PATH
from audit_pipeline.report.number_format import yes_or_no

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.detectors.detector import Detector

_WIDTH, _LEAST = 100, 30
"""Columns that a list takes at most, and those of its last column at least."""


def _or(empty_text: str) -> Callable[[object], str]:
    """A function that writes a cell, and ``empty_text`` in the place of an empty one."""
    return lambda value: format_cell_value(value) or empty_text


LONG = click.option("--long", "is_long", is_flag=True, help="List all that is known of each, in wide columns.")


def _show_list(name: str, rows: Sequence[Row], short_columns: Columns, long_columns: Columns, *, is_long: bool) -> None:
    """``rows`` in ``long_columns``, or in ``short_columns``, whose last is cut so that each row is one line."""
    *first, last = short_columns
    if not is_long:
        cells = [[head, *(format_cell(row, *cell) for row in rows)] for head, *cell in first]
        room = max(_LEAST, _WIDTH - sum(2 + max(map(len, column)) for column in cells))
        long_columns = (
            *first,
            (last[0], lambda row: textwrap.shorten(format_cell(row, *last[1:]), room, placeholder=" …")),
        )
    show_table(name, rows, long_columns)


@click.command()
@click.argument("name", required=False)
@LONG
@json_option
def detectors(name: str | None, is_long: bool) -> None:
    """List the detectors, or say all about one of them.

    With --long, the list has what each needs and costs; with NAME, its page is printed. docs/detectors.md has the same
    pages, and those that are not shipped.
    """
    from audit_pipeline.detectors.page import format_as_text
    from audit_pipeline.detectors.registry import REGISTRY, get_detector

    if name is not None:
        chosen = get_detector(name)
        say(format_as_text(chosen), detector=_build_detector_row(chosen))
        return
    _show_list(
        "detectors",
        list(map(_build_detector_row, REGISTRY.values())),
        (("detector", "detector"), ("score", lambda row: ("on request: " if row["on_request"] else "") + row["score"])),
        (
            ("detector", lambda row: row["detector"] + (" (on request)" if row["on_request"] else "")),
            ("paper", lambda row: row["paper"] + (f" ({row['package']})" if row["package"] else "")),
            ("needs", "needs", ", ".join),
            ("passes per text", "forward_tokens"),
            ("own log-probabilities suffice", "own_logprobs_suffice", yes_or_no),
            (
                "parameters",
                lambda row: ", ".join(f"{name} ({default})" for name, default in row["parameters"].items()) or "-",
            ),
            ("score", "score"),
        ),
        is_long=is_long,
    )


def _build_detector_row(detector: Detector) -> Row:
    from audit_pipeline.detectors.registry import ORIGINS
    from audit_pipeline.detectors.statistics import list_need_summaries

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


@click.command()
@LONG
@json_option
def models(is_long: bool) -> None:
    """List the configured models, and any problems.

    They stand in config/models.yaml.
    """
    from audit_pipeline.models.config import FILE_NAME
    from audit_pipeline.warehouse.given_rows import format_model_origin

    config = load_whole_configuration()
    tell_problems(config.problems_except_unreadable(FILE_NAME))
    rows = [
        {
            "model": entry.name,
            "from": format_model_origin(entry),
            "dtype": entry.dtype if entry.host.is_here else None,
            "start_token": entry.start_token,
            "start_token_policy": entry.start_token_policy,
            "released": entry.release_date,
            "training_cutoff": entry.training_cutoff,
            "licence": entry.licence,
        }
        for entry in config.models.values()
    ]
    _show_list(
        "models",
        rows,
        (("model", "model"), ("from", "from")),
        (
            ("model", "model"),
            ("from", "from"),
            ("dtype", "dtype", _or("the server's")),
            ("start token", lambda row: f"{row['start_token'] or 'default'} ({row['start_token_policy']})"),
            ("released", "released", _or("unknown")),
            ("training cutoff", "training_cutoff", _or("unknown")),
            ("licence", "licence", _or("unknown")),
        ),
        is_long=is_long,
    )


@click.command()
@click.option(
    "--build", "build_name", metavar="NAME", help="Fetch the sources of a benchmark or a family, and build it."
)
@click.option(
    "--export",
    "export_name",
    metavar="NAME",
    help="Write a built benchmark or family as a data set for others: Parquet files and a card.",
)
@click.option("--out", type=PATH, help="The folder for --export: new or empty.")
@click.option(
    "--push", metavar="OWNER/NAME", help="Send what --export wrote to the hub as this data set, which is made private."
)
@click.option(
    "--with-text",
    is_flag=True,
    help="Say that you may hand on the texts although their licence is unknown or not plainly free.",
)
@LONG
@json_option
def benchmarks(
    build_name: str | None, export_name: str | None, out: Path | None, push: str | None, with_text: bool, is_long: bool
) -> None:
    """List the configured benchmarks, and any problems.

    They stand in config/benchmarks.yaml; the list says which of them are built. With --export, write one for others to
    load (docs/benchmarks/handing-on.md).
    """
    if export_name is not None:
        if out is None:
            raise click.UsageError("--export needs --out FOLDER")
        if build_name is not None:
            raise click.UsageError("give either --build or --export: build first, then look at the list, then export")
        _export_benchmarks(export_name, out, push, with_text=with_text)
        return
    if out is not None or push is not None or with_text:
        raise click.UsageError("--out, --push and --with-text go with --export NAME")
    from audit_pipeline.benchmarks.config import FILE_NAME

    paths = DataPaths.from_environment() if build_name is None else get_writable_paths()
    config = load_whole_configuration()
    if build_name is not None:
        specs = config.benchmarks_named(build_name)
        tell_problems(config.problems)

        definitions = load_dagster_definitions()
        from audit_pipeline.operate.dagster.audit import prepare

        prepare(specs, definitions, paths, tell_step)
    tell_problems(config.problems_except_unreadable(FILE_NAME))
    rows = [_build_benchmark_row(spec, paths) for spec in config.benchmarks.values()]
    _show_list(
        "benchmarks",
        rows,
        (
            ("benchmark", "benchmark"),
            ("built", "built", yes_or_no),
            ("what it is", lambda row: row["title"] or row["description"]),
        ),
        (
            ("benchmark", "benchmark"),
            ("words", "words", _or("any")),
            ("design", "design"),
            ("label source", "label_source"),
            ("built", "built", yes_or_no),
            ("members", "members", _or("-")),
            ("non-members", "nonmembers", _or("-")),
            ("description", "description"),
        ),
        is_long=is_long,
    )


def _build_benchmark_row(spec: BenchmarkSpec, paths: DataPaths) -> Row:
    from audit_pipeline.benchmarks.built_benchmark import CONTENT_DIGEST, read_built

    built = paths.benchmark_manifest(spec.name).exists()
    manifest: Mapping[str, Any] = {}
    try:
        manifest = read_built(paths, spec.name).manifest if built else {}
    except DataError as error:
        # It stops itself, and no other.
        tell(str(error), style="yellow")
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
    """Write the benchmarks of that name as a data set, and send it to the hub where one is named."""
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.handing_on.export import export, require_licences, require_new_folder
    from audit_pipeline.handing_on.push import push, require_hub_name_and_token
    from audit_pipeline.operate.stages.benchmarks import read_or_assess_quality

    folder, paths = out.expanduser().resolve(), DataPaths.from_environment()
    config = load_whole_configuration()
    built = [read_built(paths, spec.name) for spec in config.benchmarks_named(name)]
    tell_problems(config.problems)
    # All that may be refused, before any work.
    require_new_folder(folder)
    require_licences(built, with_text=with_text)
    if hub is not None:
        require_hub_name_and_token(hub)
    run_id = str(uuid.uuid4())
    qualities = {benchmark: read_or_assess_quality(benchmark, paths, run_id) for benchmark in built}
    tell_step(f"writing {folder}, and reading it back")
    digests = export(qualities, folder, paths, hub=hub)
    show_table(
        "exported",
        [{"benchmark": name, "content_digest": digest} for name, digest in digests.items()],
        (("benchmark", "benchmark"), ("content digest", "content_digest")),
    )
    texts = sum(benchmark.examples.num_rows for benchmark in built)
    say(f"{texts:,} texts in {folder}", folder=str(folder), texts=texts)
    if hub is not None:
        tell_step(f"sending it to the hub as {hub}")
        address = push(folder, hub)
        say(f"On the hub: {address}", address=address)
