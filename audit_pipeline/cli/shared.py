"""What several commands share: the configuration, the model made ready, and what a dry run says of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from audit_pipeline.catalogue.paths import DataPaths, require_writable
from audit_pipeline.config.problems import Problem
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.operate.console import Row, report_slow_work, say, tell, tell_step
from audit_pipeline.report.number_format import estimate, format_waiting_time

if TYPE_CHECKING:
    import dagster as dg

    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.operate.options import RunOptions
    from audit_pipeline.operate.whole_configuration import Configuration
    from audit_pipeline.token_statistics.backend import BackendOf

_TOLD = "audit_pipeline.problems_told"


def get_writable_paths() -> DataPaths:
    """The data folder, for a command that writes there; raises DataError where that cannot be."""
    paths = DataPaths.from_environment()
    require_writable(paths.root)
    return paths


def format_detector_setting(row: Row) -> str:
    """A row's detector with its parameters, which are a mapping."""
    return " ".join([row["detector"], *(f"{name}={value}" for name, value in row["parameters"].items())])


def format_side_counts(row: Row) -> str:
    """How many members and non-members a row rests on."""
    return f"{row['n_members']} + {row['n_nonmembers']}"


def build_estimate_formatter(metric: str, format_spec: str = ".3f") -> Callable[[Row], str]:
    """A function that shows a metric of a row with its interval, in a ``format_spec`` of Python's."""
    return lambda row: estimate(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], format_spec)


def say_weights_fit(model: TokenizedModel, device: str | None) -> None:
    """Whether the model's weights fit the devices, for a dry run; ``device`` None: a GPU where there is one."""
    from audit_pipeline.models.weights import default_device, fit_of

    fit = fit_of(model, device or default_device())
    say(fit.words, weights={"bytes": fit.bytes, "fit": fit.now, "words": fit.words})


def load_dagster_definitions() -> dg.Definitions:
    """Everything that Dagster runs; loading it takes seconds, so a terminal says so."""
    with report_slow_work("starting Dagster"):
        from audit_pipeline.definitions import defs

        return defs()


def load_whole_configuration() -> Configuration:
    """Every file of the configuration; what is wrong with it is for the command to report, after what it was asked."""
    from audit_pipeline.operate.whole_configuration import load_configuration

    return load_configuration()


def resolve_model_option(name: str) -> ModelEntry:
    """The model that an option names; problems of other entries are reported."""
    from audit_pipeline.models.config import load_models, resolve_model

    models = load_models()
    entry = resolve_model(name, models)
    tell_problems(models.problems)
    return entry


def prepare_model(
    entry: ModelEntry, paths: DataPaths, options: RunOptions, *, ask_server: bool = True
) -> tuple[TokenizedModel, BackendOf]:
    """The model, and what makes it ready.

    With ``ask_server`` a model behind an interface is first asked whether it is still the same.

    Raises ConfigError where ``limits`` have no meaning for it.
    """
    from audit_pipeline.endpoints.used_endpoints import Endpoints
    from audit_pipeline.models.tokenized_model import load_tokenizer
    from audit_pipeline.scoring.backends import build_backend_loader

    endpoints = Endpoints(options.limits.require_usable_for(entry))
    model = endpoints.load(entry, paths, tell_step) if ask_server else load_tokenizer(entry, paths)
    return model, build_backend_loader(paths, options.device, endpoints, options.chosen_engine, tell_step)


def tell_problems(problems: Iterable[Problem]) -> None:
    """Report problems of entries that were not asked for, a line each on standard error, once per command."""
    reported: set[Problem] = click.get_current_context().meta.setdefault(_TOLD, set())
    for problem in problems:
        if problem not in reported:
            reported.add(problem)
            tell(str(problem), style="yellow")


def estimate_seconds(model: TokenizedModel, tokens: int, options: RunOptions) -> float | None:
    """About how long ``tokens`` tokens take; None: the speed of a server, or of a Ray cluster, is not known."""
    if not model.entry.host.is_here or options.chosen_engine.name == "ray":
        return None
    from audit_pipeline.models.weights import default_device
    from audit_pipeline.token_statistics.estimate import estimate_pass_seconds

    return estimate_pass_seconds(model, DataPaths.from_environment(), tokens, options.device or default_device())


def say_run_resources(model: TokenizedModel, options: RunOptions) -> None:
    """Whether the weights fit this machine, and of a Ray cluster, which a dry run does not reach for, what it is asked
    for; nothing of a model behind an interface."""
    engine = options.chosen_engine
    if not model.entry.host.is_here:
        return
    if engine.name != "ray":
        say_weights_fit(model, options.device)
        return
    count = "as many workers as it has room for" if engine.workers is None else f"{engine.workers} workers"
    say(
        f"The model would be run by a Ray cluster, which is asked for {count}. How long it takes, and whether the "
        "weights fit its machines, is not known here.",
        cluster={"workers": engine.workers},
    )


def format_estimated_time(seconds: float | None) -> str:
    """The time of a pass in words."""
    return "not known" if seconds is None else f"about {format_waiting_time(seconds)}"


def say_sending(to_send: Sequence[tuple[TokenizedModel, int]], limits: Limits) -> None:
    """Where the texts would be sent, how many tokens, what they cost, and whether the limits let them.

    ``to_send``: the model and its reference model, each with the tokens of its texts; nothing is said of those that run
    here. Asking each server which model it is comes on top, once for the command and once for its run. ``limits`` are
    the command's.
    """
    from audit_pipeline.endpoints.used_endpoints import estimate_sending

    sendings = [sending for model, tokens in to_send if (sending := estimate_sending(model, tokens)) is not None]
    if not sendings:
        return
    for sending in sendings:
        cost = sending.cost
        money = "no price is given" if cost is None else f"about {cost:,.4g} by the price in its entry"
        say(
            f"{sending.model}: {sending.sent_to}. About {sending.tokens:,} tokens would be sent, {sending.probes:,} of "
            f"them to ask the server which model it is; {money}."
        )
    tokens = sum(sending.tokens for sending in sendings)
    costs = [sending.cost for sending in sendings if sending.cost is not None]
    words, is_over = _check_limits(limits, tokens, sum(costs))
    for sending in sendings:
        of_entry, exceeds_entry = _check_limits(sending.limits, sending.tokens, sending.cost)
        words += [f"{limit} (the entry of {sending.model})" for limit in of_entry]
        is_over = is_over or exceeds_entry
    suffices = "does not suffice: the run stops there, and the next one goes on" if is_over else "suffices"
    say(
        f"The limit of {' and '.join(words)} {suffices}."
        if words
        else "No limit is set: --max-tokens and --max-cost set one, and so does the model's entry.",
        sending={
            "url": sendings[0].url,
            "tokens": tokens,
            "cost": sum(costs) if len(costs) == len(sendings) else None,
            "exceeds_limit": is_over,
            "max_tokens": limits.max_tokens,
            "max_cost": limits.max_cost,
            "hosts": [
                {"model": sending.model, "url": sending.url, "tokens": sending.tokens, "cost": sending.cost}
                for sending in sendings
            ],
        },
    )


def _check_limits(limits: Limits, tokens: int, cost: float | None) -> tuple[list[str], bool]:
    """The limits in words, and whether so much would exceed one."""
    words = [] if limits.max_tokens is None else [f"{limits.max_tokens:,} tokens"]
    words += [] if limits.max_cost is None else [f"a cost of {limits.max_cost:,.4g}"]
    over_tokens = limits.max_tokens is not None and tokens > limits.max_tokens
    return words, over_tokens or (limits.max_cost is not None and cost is not None and cost > limits.max_cost)
