"""What several commands share.

What belongs here: one finding in words, the configuration and reporting its problems. What does not: options
(options.py), printing itself (operate/console.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from audit_pipeline.catalogue.data_folder import require_writable
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.config.problems import Problem
from audit_pipeline.operate.console import Row, report_slow_work, say, tell, tell_step
from audit_pipeline.report.numbers import estimate

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.load import TokenizedModel
    from audit_pipeline.operate.configuration import Configuration
    from audit_pipeline.operate.options import RunOptions
    from audit_pipeline.token_statistics.backend import BackendOf

_TOLD = "audit_pipeline.problems_told"


def data_to_write() -> DataPaths:
    """The data folder, for a command that writes there; raises DataError where that cannot be."""
    paths = DataPaths.from_environment()
    require_writable(paths.root)
    return paths


def detector_and_setting(row: Row) -> str:
    """A row's detector with its parameters, which are a mapping."""
    return " ".join([row["detector"], *(f"{name}={value}" for name, value in row["parameters"].items())])


def sides(row: Row) -> str:
    """How many members and non-members a row rests on."""
    return f"{row['n_members']} + {row['n_nonmembers']}"


def estimate_of(metric: str, form: str = ".3f") -> Callable[[Row], str]:
    """What shows a metric of a row with its interval, in a ``form`` of Python's."""
    return lambda row: estimate(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], form)


def say_fit(model: TokenizedModel, device: str | None) -> None:
    """Whether the model's weights fit the devices, for a dry run; ``device`` None: a GPU where there is one."""
    from audit_pipeline.models.room import fit_of
    from audit_pipeline.models.weights import default_device

    fit = fit_of(model, device or default_device())
    say(fit.words, weights={"bytes": fit.bytes, "fit": fit.now, "words": fit.words})


def dagster_definitions() -> dg.Definitions:
    """Everything that Dagster runs; loading it takes seconds, so a terminal says so."""
    with report_slow_work("starting Dagster"):
        from audit_pipeline.definitions import defs

        return defs()


def whole_configuration() -> Configuration:
    """Every file of the configuration; what is wrong with it is for the command to report, after what it was asked."""
    from audit_pipeline.operate.configuration import load_configuration

    return load_configuration()


def model_named(given: str) -> ModelEntry:
    """The model that an option names; problems of other entries are reported."""
    from audit_pipeline.models.config import load_models, resolve_model

    models = load_models()
    entry = resolve_model(given, models)
    tell_problems(models.problems)
    return entry


def ready_to_run(
    entry: ModelEntry, paths: DataPaths, options: RunOptions, *, ask: bool = True
) -> tuple[TokenizedModel, BackendOf]:
    """The model, and what makes it ready; ``ask``: one behind an interface is asked first whether it is still the one
    that it was.

    Raises ConfigError where ``limits`` have no meaning for it.
    """
    from audit_pipeline.endpoints.in_use import Endpoints
    from audit_pipeline.models.load import load_tokenizer
    from audit_pipeline.scoring.backends import loader

    endpoints = Endpoints(options.limits.for_model(entry))
    model = endpoints.load(entry, paths, tell_step) if ask else load_tokenizer(entry, paths)
    return model, loader(paths, options.device, endpoints, options.chosen_engine, tell_step)


def tell_problems(problems: Iterable[Problem]) -> None:
    """What is wrong with entries that were not asked for, a line each on standard error, once per command."""
    told: set[Problem] = click.get_current_context().meta.setdefault(_TOLD, set())
    for problem in problems:
        if problem not in told:
            told.add(problem)
            tell(str(problem), style="yellow")
