"""Commands that say what there is: detectors, models, benchmarks.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.shared import data_to_write, json_option, tell_problems, tell_step, whole_configuration
from audit_pipeline.errors import DataError
from audit_pipeline.operate.console import Row, say, show_table, tell

if TYPE_CHECKING:
    from audit_pipeline.detectors.detector import Detector


@click.command()
@click.argument("name", required=False)
@json_option
def detectors(name: str | None) -> None:
    """List the detectors, with their needs and costs; or print all about the one called NAME.

    docs/detectors.md has the same pages, and those that are not shipped.
    """
    from audit_pipeline.detectors.page import plain
    from audit_pipeline.detectors.registry import REGISTRY, get

    if name is not None:
        chosen = get(name)
        say(plain(chosen), detector=_row_of(chosen))
        return
    show_table(
        "detectors",
        map(_row_of, REGISTRY.values()),
        (
            ("detector", lambda row: row["detector"] + (" (on request)" if row["on_request"] else "")),
            ("paper", "paper"),
            ("needs", lambda row: ", ".join(row["needs"])),
            ("passes per text", "forward_tokens"),
            ("own log-probabilities suffice", lambda row: "yes" if row["own_logprobs_suffice"] else "no"),
            ("parameters", _parameters),
            ("score", "score"),
        ),
    )


def _row_of(detector: Detector) -> Row:
    from audit_pipeline.detectors.needs import in_words

    return {
        "detector": detector.name,
        "on_request": detector.on_request,
        "paper": detector.source,
        "needs": in_words(detector.needs),
        "forward_tokens": detector.passes,
        "own_logprobs_suffice": detector.own_logprobs_suffice,
        "parameters": {name: parameter.default for name, parameter in detector.parameters.items()},
        "score": detector.summary,
        "equation": detector.equation,
        "reported": detector.reported,
        "also_reads": detector.also_reads,
    }


def _parameters(row: Row) -> str:
    return ", ".join(f"{name} ({default})" for name, default in row["parameters"].items()) or "-"


@click.command()
@json_option
def models() -> None:
    """List the configured models, and any problems.

    They stand in config/models.yaml.
    """
    from audit_pipeline.models.config import FILE_NAME
    from audit_pipeline.warehouse.configured import origin

    config = whole_configuration()
    tell_problems(config.problems_beside(FILE_NAME))
    rows = [
        {
            "model": entry.name,
            "from": origin(entry),
            "dtype": entry.dtype if entry.endpoint is None else None,
            "start_token": entry.start_token,
            "start_token_policy": entry.start_token_policy,
            "released": entry.release_date,
            "training_cutoff": entry.training_cutoff,
            "licence": entry.licence,
        }
        for entry in config.models.values()
    ]
    show_table(
        "models",
        rows,
        (
            ("model", "model"),
            ("from", "from"),
            ("dtype", lambda row: row["dtype"] or "the server's"),
            ("start token", lambda row: f"{row['start_token'] or 'default'} ({row['start_token_policy']})"),
            ("released", lambda row: row["released"] or "unknown"),
            ("training cutoff", lambda row: row["training_cutoff"] or "unknown"),
            ("licence", lambda row: row["licence"] or "unknown"),
        ),
    )


@click.command()
@click.option(
    "--build", "build_name", metavar="NAME", help="Fetch the sources of a benchmark or a family, and build it."
)
@json_option
def benchmarks(build_name: str | None) -> None:
    """List the configured benchmarks, and any problems.

    They stand in config/benchmarks.yaml; the list says which of them are built.
    """
    from audit_pipeline.benchmarks.built import read_built
    from audit_pipeline.benchmarks.config import FILE_NAME

    paths = DataPaths.from_environment() if build_name is None else data_to_write()
    config = whole_configuration()
    if build_name is not None:
        specs = config.benchmarks_named(build_name)
        tell_problems(config.problems)

        from audit_pipeline.definitions import defs
        from audit_pipeline.operate.dagster.audit import AuditRequest, prepare

        prepare(AuditRequest("", specs), defs(), paths, tell_step)
    tell_problems(config.problems_beside(FILE_NAME))
    rows = []
    for spec in config.benchmarks.values():
        built = paths.benchmark_manifest(spec.name).exists()
        counts: Mapping[str, int] = {}
        try:
            counts = read_built(paths, spec.name).manifest["counts"] if built else {}
        except DataError as error:
            # It stops itself, and no other.
            tell(str(error), style="yellow")
        rows.append(
            {
                "benchmark": spec.name,
                "words": spec.words,
                "design": spec.design,
                "built": built,
                "members": counts.get("members"),
                "nonmembers": counts.get("nonmembers"),
                "description": spec.settings.description,
            }
        )
    show_table(
        "benchmarks",
        rows,
        (
            ("benchmark", "benchmark"),
            ("words", lambda row: row["words"] or "any"),
            ("design", "design"),
            ("built", lambda row: "yes" if row["built"] else "no"),
            ("members", lambda row: "-" if row["members"] is None else row["members"]),
            ("non-members", lambda row: "-" if row["nonmembers"] is None else row["nonmembers"]),
            ("description", "description"),
        ),
    )
