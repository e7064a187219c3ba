"""Preparations of commands: configuration, benchmarks, models, texts, and rebuilding the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from audit_pipeline.config.problems import Problem
from audit_pipeline.pipeline.console import print_message, print_step, report_slow_work
from audit_pipeline.store.paths import DataPaths, is_text_output_allowed, require_writable

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.benchmarks.settings import BenchmarkSpec
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.options import RunOptions
    from audit_pipeline.pipeline.whole_configuration import Configuration
    from audit_pipeline.readers.row_stream import TextStream
    from audit_pipeline.token_statistics.backend import BackendOf

_REPORTED = "audit_pipeline.reported_problems"


def get_writable_paths() -> DataPaths:
    """Return the data folder. Raise DataError if it cannot be written."""
    paths = DataPaths.from_environment()
    require_writable(paths.root)
    return paths


def load_dagster_definitions() -> dg.Definitions:
    """Load the definitions of Dagster. Progress is shown, since this takes seconds."""
    with report_slow_work("starting Dagster"):
        from audit_pipeline.definitions import defs

        return defs()


def publish(paths: DataPaths, *, include_text: bool | None = None) -> None:
    """Rebuild the warehouse and the report.

    Args:
        paths: The data folder.
        include_text: Quote texts. None: quote them unless CORPUS_AUDIT_NO_TEXT is set.
    """
    definitions = load_dagster_definitions()
    from audit_pipeline.pipeline.dagster.audit import publish as publish_findings

    if include_text is None:
        include_text = is_text_output_allowed()
    publish_findings(definitions, paths, print_step, include_text=include_text)


def build_benchmarks(specs: Sequence[BenchmarkSpec], paths: DataPaths) -> None:
    """Fetch the sources of benchmarks that are not built, and build these benchmarks. No model is run."""
    definitions = load_dagster_definitions()
    from audit_pipeline.pipeline.dagster.audit import prepare_benchmarks

    prepare_benchmarks(specs, definitions, paths, print_step)


def resolve_built_benchmark(name: str, paths: DataPaths) -> str:
    """Return the built benchmark with this name, or the only built benchmark of the family.

    Raises:
        ConfigError: If the benchmark is unknown, broken, or configured but not built.
    """
    from audit_pipeline.benchmarks.config import load_benchmarks
    from audit_pipeline.config.problems import did_you_mean, list_family_partitions, resolve_partition
    from audit_pipeline.errors import ConfigError
    from audit_pipeline.store.store import iterate_partitions
    from audit_pipeline.tables import EXAMPLES

    built = [partition for partition, _ in iterate_partitions(paths, EXAMPLES)]
    if not list_family_partitions(name, built):
        configured = load_benchmarks()
        configured.require_not_broken(name)
        if name in configured or any(spec.family == name for spec in configured.values()):
            raise ConfigError(
                f"the benchmark {name} is configured, but not built. Build it: corpus-audit benchmarks --build {name}"
            )
        if "," not in name:
            hint = did_you_mean(name, [*built, *configured.names])
            raise ConfigError(f"there is no benchmark '{name}'; {hint}")
    return resolve_partition(name, built)


def open_texts(file: Path, text_column: str | None, extra_columns: Sequence[str] = ()) -> TextStream:
    """Open the texts of a file and print the note of its format, if any. Missing extra columns are ignored."""
    from audit_pipeline.readers.formats import open_texts as open_stream

    stream = open_stream(file, text_column, extra_columns)
    if stream.rows.note is not None:
        print_message(stream.rows.note)
    return stream


def load_whole_configuration() -> Configuration:
    """Load every configuration file. The caller prints its problems."""
    from audit_pipeline.pipeline.whole_configuration import load_configuration

    return load_configuration()


def resolve_model_option(name: str) -> ModelEntry:
    """Return the model that an option names, and print the problems of other entries."""
    from audit_pipeline.models.config import load_models, resolve_model

    models = load_models()
    entry = resolve_model(name, models)
    print_problems(models.problems)
    return entry


def resolve_models_option(names: str) -> Sequence[ModelEntry]:
    """Return the models of a comma-separated list, and print the problems of other entries."""
    from audit_pipeline.models.config import load_models, resolve_models

    models = load_models()
    entries = resolve_models(names, models)
    print_problems(models.problems)
    return entries


def prepare_model(
    entry: ModelEntry, paths: DataPaths, options: RunOptions, *, ask_server: bool = True
) -> tuple[TokenizedModel, BackendOf]:
    """Load the tokenizer of a model, and return it with the function that loads its backend.

    Args:
        entry: The model's entry.
        paths: The data folder.
        options: Device, limits and engine.
        ask_server: If the model is on a server, check first that the server still has the same model.

    Raises:
        ConfigError: If a limit on tokens or cost is set, but the model runs on this machine.
    """
    from audit_pipeline.models.tokenized_model import load_tokenized
    from audit_pipeline.scoring.backends import Endpoints, build_backend_loader

    endpoints = Endpoints(options.limits.require_usable_for(entry))
    model = endpoints.probe_and_load(entry, paths, print_step) if ask_server else load_tokenized(entry, paths)
    return model, build_backend_loader(paths, options.device, endpoints, options.chosen_engine, print_step)


def print_problems(problems: Iterable[Problem]) -> None:
    """Print each problem of the configuration once per command, on standard error."""
    reported: set[Problem] = click.get_current_context().meta.setdefault(_REPORTED, set())
    for problem in problems:
        if problem not in reported:
            reported.add(problem)
            print_message(str(problem), style="yellow")
