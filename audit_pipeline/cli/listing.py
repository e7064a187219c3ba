"""Commands that say what there is: detectors, models, benchmarks.

What belongs here: options, their order of calls, and what is printed. What does not: any work. Heavy packages are
imported by the command that needs them.
"""

from __future__ import annotations

import click

from audit_pipeline.cli.shared import data_to_write, tell_step
from audit_pipeline.console import new_table, print_table
from audit_pipeline.paths import DataPaths


@click.command()
def detectors() -> None:
    """The detectors: what each needs and what it costs."""
    from audit_pipeline.detectors.registry import REGISTRY

    table = new_table(
        "detector", "paper", "needs", "forward tokens a token", "own log-probabilities suffice", "parameters", "score"
    )
    for one in REGISTRY.values():
        parameters = ", ".join(f"{name} ({parameter.default})" for name, parameter in one.parameters.items())
        table.add_row(
            one.name + (" (on request)" if one.on_request else ""),
            one.source,
            ", ".join(sorted(one.needs)),
            one.passes,
            "yes" if one.own_logprobs_suffice else "no",
            parameters or "-",
            one.summary,
        )
    print_table(table)


@click.command()
def models() -> None:
    """The models of config/models.yaml."""
    from audit_pipeline.models.config import load_models
    from audit_pipeline.warehouse.configured import origin

    table = new_table("model", "from", "dtype", "start token", "released", "training cutoff", "licence")
    for entry in load_models().values():
        table.add_row(
            entry.name,
            origin(entry),
            entry.dtype,
            f"{entry.start_token or 'default'} ({entry.start_token_policy})",
            str(entry.release_date or "unknown"),
            str(entry.training_cutoff or "unknown"),
            entry.licence or "unknown",
        )
    print_table(table)


@click.command()
@click.option("--build", "build_name", metavar="NAME", help="Fetch the sources of a benchmark or family and build it.")
def benchmarks(build_name: str | None) -> None:
    """The benchmarks of config/benchmarks.yaml, and what is built of them."""
    from audit_pipeline.benchmarks.build import read_manifest
    from audit_pipeline.benchmarks.config import load_benchmarks, resolve

    paths = DataPaths.from_environment() if build_name is None else data_to_write()
    if build_name is not None:
        from audit_pipeline.definitions import defs
        from audit_pipeline.orchestration.audit import AuditRequest, prepare

        prepare(AuditRequest("", resolve(build_name)), defs(), paths, tell_step)
    table = new_table("benchmark", "words", "design", "built", "members", "non-members", "description")
    for spec in load_benchmarks().values():
        built = paths.benchmark_manifest(spec.name).exists()
        counts = read_manifest(paths, spec.name)["counts"] if built else {}
        sides = (str(counts.get("members", "-")), str(counts.get("nonmembers", "-")))
        state = "yes" if built else "no"
        table.add_row(spec.name, str(spec.words or "any"), spec.design, state, *sides, spec.settings.description)
    print_table(table)
