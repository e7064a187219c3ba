"""Options that several commands take, made of their declarations (operate/options.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, get_type_hints

import click

from audit_pipeline.operate.console import collect_output
from audit_pipeline.operate.options import DeviceOptions, EngineOptions, LimitOptions, Option, ScoreOptions

Command = Callable[..., None]
Declared = TypeVar("Declared")
ClickCommand = TypeVar("ClickCommand", bound=click.Command)


def options_of(options_class: type, *names: str) -> Callable[[Command], Command]:
    """The options that a dataclass declares itself, or those of ``names``: each an argument of its field's name."""
    hints = get_type_hints(options_class, include_extras=True)
    defaults = {
        field.name: field.default
        for field in fields(options_class)
        if field.name in (names or options_class.__annotations__)
    }
    options = [
        _build_option(name, option, default)
        for name, default in defaults.items()
        for option in getattr(hints[name], "__metadata__", ())
        if isinstance(option, Option)
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _build_option(name: str, option: Option, default: Any) -> Callable[[Command], Command]:
    names = (option.flag or f"--{name.replace('_', '-')}", name)
    if default is False:
        return click.option(*names, is_flag=True, help=option.help)
    if default is MISSING:
        return click.option(*names, required=True, type=option.type, help=option.help)
    return click.option(
        *names,
        type=option.type,
        default=",".join(default) if isinstance(default, tuple) else default,
        show_default=option.shows_default,
        metavar=option.metavar,
        help=option.help,
    )


def build(options_class: type[Declared], values: Mapping[str, Any]) -> Declared:
    """The ``options_class`` with those of its options that are among the ``values`` of a command."""
    return options_class(**{field.name: values[field.name] for field in fields(options_class) if field.name in values})  # type: ignore[arg-type]


MODEL = options_of(ScoreOptions, "model")
TEXT_COLUMN = options_of(ScoreOptions, "text_column")
DEVICE = options_of(DeviceOptions)
LIMITS = options_of(LimitOptions)
ENGINE = options_of(EngineOptions)
DETAILS = click.option(
    "--details",
    is_flag=True,
    help="Print every detector where membership is unknown, too, and how the named one compares with each other where "
    "it is known. The answer is the named detector's alone.",
)
BETWEEN_0_AND_1 = click.FloatRange(0, 1, min_open=True, max_open=True)


GO_ON = "The same command again goes on from there."
PASSES_KEPT = f"Finished steps, and all that the model was run on, are kept. {GO_ON}"
SHARDS_KEPT = f"What was done until the last checkpoint (every 30 seconds) is kept. {GO_ON}"
IF_STOPPED = "If it is stopped: "


def keeps(words: str) -> Callable[[ClickCommand], ClickCommand]:
    """Declare what a command leaves where it is stopped: the end of its help, and its last line then."""

    def declare(command: ClickCommand) -> ClickCommand:
        command.epilog = f"{IF_STOPPED}{words}"
        return command

    return declare


def json_option(command: Command) -> Command:
    """The option --json: what the command says on standard output, as one JSON document."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
    @wraps(command)
    def run(*arguments: Any, as_json: bool, **options: Any) -> None:
        with collect_output(as_json=as_json):
            command(*arguments, **options)

    return run


_FAIL_ON = "audit_pipeline.fail_on"
IS_FAILED = "audit_pipeline.is_failed"
"""In a context's ``meta``: whether the state that --fail-on names was noted."""


def fail_on(*states: str) -> Callable[[Command], Command]:
    """The option --fail-on: exit code 1 in the end, where the command notes the state that it names."""
    return click.option(
        "--fail-on",
        type=click.Choice(states),
        expose_value=False,
        callback=lambda ctx, _, value: ctx.meta.update({_FAIL_ON: value}),
        help="End with exit code 1 where this is so, for a build; an error is 2 (docs/commands.md).",
    )


def note_state(state: str) -> None:
    """Note what --fail-on may name."""
    meta = click.get_current_context().meta
    meta[IS_FAILED] = meta.get(IS_FAILED, False) or meta.get(_FAIL_ON) == state


class SeveralFiles(click.Command):
    """Options that may be given several times take every word up to the next option, as a shell writes out a pattern.

    Arguments come before them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.params if isinstance(option, click.Option) and option.multiple]
        several = {name for option in options for name in option.opts}
        given: list[str] = []
        current: str | None = None
        for place, word in enumerate(args):
            if word == "--":
                given += args[place:]
                break
            if word in several:
                current = word
                if place + 1 == len(args) or args[place + 1].startswith("-"):
                    raise click.UsageError(f"{word} needs a file or a folder", ctx)
            elif word.startswith("-"):
                current = None
                given.append(word)
            else:
                given += [word] if current is None else [current, word]
        return super().parse_args(ctx, given)
