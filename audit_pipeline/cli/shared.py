"""What several commands share.

What belongs here: options' types, one finding in words, the configuration and reporting its problems. What does not:
printing itself (operate/console.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from audit_pipeline.catalogue.data_folder import require_writable
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster.engine import EngineName
from audit_pipeline.config.problems import Problem
from audit_pipeline.operate.console import Row, answering, say, tell, tell_step, telling_what_takes_long

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.cluster.engine import Engine
    from audit_pipeline.endpoints.limits import Limits
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.load import TokenizedModel
    from audit_pipeline.operate.configuration import Configuration
    from audit_pipeline.token_statistics.backend import BackendOf

_TOLD = "audit_pipeline.problems_told"

FILE = click.Path(path_type=Path, dir_okay=False)
PATH = click.Path(path_type=Path)
"""A file, a folder, or - for standard input."""
MODEL = click.option("--model", required=True, help="The model: a name in config/models.yaml, a hub id, or a path.")
DEVICE = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where the model runs. Default: cuda if there is one."
)
DETAILS = click.option(
    "--details",
    is_flag=True,
    help="Print every detector where membership is unknown, too, and how the named one compares with each other where "
    "it is known. The answer is the named detector's alone.",
)
TEXT_COLUMN = click.option("--text-column", help="Column of the text. Default: text, else input, else the only column.")
BETWEEN_0_AND_1 = click.FloatRange(0, 1, min_open=True, max_open=True)


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """The option --json: what the command says on standard output, as one JSON document."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
    @wraps(command)
    def run(*arguments: Any, as_json: bool, **options: Any) -> None:
        with answering(as_json=as_json):
            command(*arguments, **options)

    return run


def limits_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options --max-tokens and --max-cost, which the command is given as its argument ``limits``."""

    @click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        help="The most tokens sent to models behind interfaces, a reference model among them. What is done stays.",
    )
    @click.option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True),
        help="The most that they may cost, by the prices in their entries.",
    )
    @wraps(command)
    def run(*arguments: Any, max_tokens: int | None, max_cost: float | None, **options: Any) -> None:
        from audit_pipeline.endpoints.limits import Limits

        command(*arguments, limits=Limits(max_tokens, max_cost), **options)

    return run


def engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options --engine and --workers, which the command is given as its argument ``engine``."""

    @click.option(
        "--engine",
        "name",
        type=click.Choice(get_args(EngineName)),
        help="What runs the model: this process, or workers of a Ray cluster (docs/ray.md). Default: in_process.",
    )
    @click.option(
        "--workers", type=click.IntRange(min=1), help="How many workers of Ray. Default: one a GPU, else one a node."
    )
    @wraps(command)
    def run(*arguments: Any, name: str | None, workers: int | None, **options: Any) -> None:
        from audit_pipeline.cluster.engine import chosen_engine

        command(*arguments, engine=chosen_engine({"name": name, "workers": workers}), **options)

    return run


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


def with_interval(row: Row, metric: str) -> str:
    """A metric of a row with its interval."""
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def rate_with_interval(row: Row, metric: str) -> str:
    """A rate of a row with its interval, in percent."""
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.0%}" if low is None or high is None else f"{value:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


def say_fit(model: TokenizedModel, device: str | None) -> None:
    """Whether the model's weights fit the devices, for a dry run; ``device`` None: a GPU where there is one."""
    from audit_pipeline.models.room import fit_of
    from audit_pipeline.models.weights import default_device

    fit = fit_of(model, device or default_device())
    say(fit.words, weights={"bytes": fit.bytes, "fit": fit.now, "words": fit.words})


def dagster_definitions() -> dg.Definitions:
    """Everything that Dagster runs; loading it takes seconds, so a terminal says so."""
    with telling_what_takes_long("starting Dagster"):
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
    entry: ModelEntry,
    paths: DataPaths,
    limits: Limits,
    device: str | None,
    engine: Engine | None = None,
    *,
    ask: bool = True,
) -> tuple[TokenizedModel, BackendOf]:
    """The model, and what makes it ready; ``ask``: one behind an interface is asked first whether it is still the one
    that it was.

    Raises ConfigError where ``limits`` have no meaning for it.
    """
    from audit_pipeline.endpoints.in_use import Endpoints
    from audit_pipeline.models.load import load_tokenizer
    from audit_pipeline.token_statistics.backends import loader

    endpoints = Endpoints(limits.for_model(entry))
    model = endpoints.load(entry, paths, tell_step) if ask else load_tokenizer(entry, paths)
    return model, loader(paths, device, endpoints, engine, tell_step)


def tell_problems(problems: Iterable[Problem]) -> None:
    """What is wrong with entries that were not asked for, a line each on standard error, once per command."""
    told: set[Problem] = click.get_current_context().meta.setdefault(_TOLD, set())
    for problem in problems:
        if problem not in told:
            told.add(problem)
            tell(str(problem), style="yellow")
