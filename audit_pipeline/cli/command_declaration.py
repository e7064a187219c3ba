"""How a command is declared: a function whose parameters say, in the place of their defaults, what is typed for them.

    @command(Place(Section.OWN_FILES, 10), keeps=PASSES_KEPT)
    def score(options: ScoreOptions = fields(), out: Path = option("The file to write.", FILE)) -> None: ...

The name of a parameter is the option's, its annotation the type. Options that several commands, or Python, take are
fields of the dataclasses in pipeline/options.py.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import click

from audit_pipeline.cli.output import LAYOUTS
from audit_pipeline.pipeline.console import collect_output, quietly
from audit_pipeline.pipeline.options import PATH, DeviceOptions, LimitOptions, Option, RunOptions, ScoreOptions

BETWEEN_0_AND_1 = click.FloatRange(0, 1, min_open=True, max_open=True)
FOLDER = click.Path(path_type=Path, file_okay=False)

GO_ON = "The same command again goes on from there."
PASSES_KEPT = f"Finished steps, and all that the model was run on, are kept. {GO_ON}"
SHARDS_KEPT = f"What was done until the last checkpoint (every 30 seconds) is kept. {GO_ON}"
IF_STOPPED = "If it is stopped: "


class Section(StrEnum):
    """The sections of the help, in its order."""

    BEGIN = "Begin"
    AUDIT = "Audit a model"
    OWN_FILES = "Use files of your own, without Dagster"
    LISTS = "See what there is"
    RESULTS = "Read the results"
    PROOF = "Prove it to others"
    UPKEEP = "Run and keep in order"


class Place(NamedTuple):
    """Where the help lists a command: a section, and a number by which its commands are ordered."""

    section: Section
    number: int


_JSON = click.Option(["--json"], is_flag=True, help="Print one JSON document instead of tables.")
_FORMAT = click.Option(
    ["--format"],
    type=click.Choice(["table", *LAYOUTS]),
    default="table",
    show_default=True,
    help="How tables are printed: for a terminal, or to be pasted (LaTeX with booktabs); all else is on standard error "
    "then.",
)
_QUIET = click.Option(
    ["--quiet"],
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.with_resource(quietly()) if value else None,
    help="Print no steps and no progress; warnings, errors and results are printed all the same.",
)
_FAIL_ON = "audit_pipeline.fail_on"
IS_FAILED = "audit_pipeline.is_failed"
"""In a context's ``meta``: whether the state that --fail-on names was noted."""


@dataclass(frozen=True)
class _Declared:
    """What takes the place of a parameter's default.

    ``build`` gives what click needs to know, by name, of the name and the annotation of the parameter; ``read`` the
    parameter's value of its annotation and of the values that click has read.
    """

    build: Callable[[str, Any], Mapping[str, click.Parameter]]
    read: Callable[[Any, Mapping[str, Any]], Any] = lambda hint, values: next(iter(values.values()))


def option(
    help_text: str,
    kind: click.ParamType[Any] | None = None,
    default: Any = MISSING,
    *,
    least: int | None = None,
    flag: str | None = None,
    metavar: str | None = None,
) -> Any:
    """Declare the option of a parameter, a whole number from ``least`` on or of a ``kind`` that follows from the
    annotation.

    It is required without a ``default``, unless its annotation is a flag's (bool), a tuple's (it may be given several
    times) or allows None.
    """
    kind = kind if least is None else click.IntRange(min=least)
    declared = Option(help_text, kind, shows_default=True, flag=flag, metavar=metavar)
    return _Declared(lambda name, hint: {name: _build_option(name, hint, declared, default)})


def fields(*names: str, kinds: Mapping[str, click.ParamType[Any]] = {}, **fixed: Any) -> Any:
    """Declare the fields of the annotated dataclass as options: those with an Option, its own first, or those of
    ``names``, of which a text alone is the help; ``kinds`` are types that do not follow from the annotation, and the
    command sets the ``fixed`` fields."""

    def build(name: str, options_class: Any) -> Mapping[str, click.Parameter]:
        hints = get_type_hints(options_class, include_extras=True)
        own_first = sorted(hints, key=lambda field: field not in options_class.__annotations__)
        return {
            field: _build_option(
                field,
                hints[field],
                declared if isinstance(declared, Option) else Option(declared, kinds.get(field), shows_default=True),
                getattr(options_class, field, MISSING),
            )
            for field in names or own_first
            for declared in getattr(hints[field], "__metadata__", ())
            if names or isinstance(declared, Option)
        }

    return _Declared(build, lambda options_class, values: options_class(**values, **fixed))


def argument(**settings: Any) -> Any:
    """Declare an argument, with settings of click's."""
    return _Declared(lambda name, hint: {name: click.Argument([name], **{"type": _infer_type(hint), **settings})})


def _option_of_field(options_class: type, name: str) -> Any:
    [declared] = get_type_hints(options_class, include_extras=True)[name].__metadata__
    default = getattr(options_class, name, MISSING)
    return _Declared(lambda name, hint: {name: _build_option(name, hint, declared, default)})


MODEL = _option_of_field(ScoreOptions, "model")
TEXT_COLUMN = _option_of_field(ScoreOptions, "text_column")
ID_COLUMN = _option_of_field(ScoreOptions, "id_column")
DEVICE, LIMITS, RUN = (
    tuple(field.name for field in dataclasses.fields(group)) for group in (DeviceOptions, LimitOptions, RunOptions)
)
DETAILS = option(
    "Print every detector where membership is unknown, too, and how the named detector compares with each other where "
    "it is known. The answer is the named detector's alone."
)


def _build_option(name: str, hint: Any, declared: Option, default: Any) -> click.Option:
    flag = declared.flag or f"--{name.replace('_', '-')}"
    plain = _remove_none(hint)
    if plain is bool:
        return click.Option([flag], is_flag=True, help=declared.help)
    settings: dict[str, Any] = {"type": declared.type or _infer_type(hint), "help": declared.help}
    if get_origin(plain) is tuple:
        settings["multiple"] = True
    elif default is MISSING and NoneType not in get_args(hint):
        settings["required"] = True
    if default is not MISSING:
        settings["default"] = ",".join(default) if isinstance(default, tuple) else default
        settings["show_default"] = declared.shows_default and default not in (None, "")
    return click.Option([flag], metavar=declared.metavar, **settings)


def _infer_type(hint: Any) -> Any:
    """Return the type on the command line for that of Python."""
    plain = _remove_none(hint)
    if get_origin(plain) is tuple:
        plain = get_args(plain)[0]
    if get_origin(plain) is Literal:
        return click.Choice(get_args(plain))
    return PATH if plain is Path else plain if plain in (int, float) else None


def _remove_none(hint: Any) -> Any:
    """Return the type without Annotated and without None."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    parts = get_args(plain)
    return next(part for part in parts if part is not NoneType) if NoneType in parts else plain


def command(
    place: Place | None = None,
    *,
    name: str | None = None,
    keeps: str = "",
    fail_on: Sequence[str] = (),
    prints: str = "tables",
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command of its name, or of ``name``.

    ``place``: None for a command of a group of its own. ``keeps``: what is kept where it is stopped, as its help and
    its last line say. ``fail_on``: the states that :func:`record_exit_state` may be given. ``prints``: "tables" (with
    --json and --format), "facts" (with --json) or "words".
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        hints = get_type_hints(function)
        declared = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
        built = {name: default.build(name, hints[name]) for name, default in declared.items()}
        parameters = [parameter for group in built.values() for parameter in group.values()]
        parameters.sort(key=lambda parameter: not parameter.required)
        if fail_on:
            parameters.append(
                click.Option(
                    ["--fail-on"],
                    type=click.Choice(fail_on),
                    expose_value=False,
                    callback=lambda ctx, _, value: ctx.meta.update({_FAIL_ON: value}),
                    help="End with exit code 1 where this is so, for a build; an error is 2 (docs/commands.md).",
                )
            )
        if prints == "tables" and not any(parameter.name == "format" for parameter in parameters):
            parameters.append(_FORMAT)
        if prints != "words":
            parameters.append(_JSON)

        def run(**values: Any) -> None:
            as_json, layout = values.get("json", False), LAYOUTS.get(str(values.get("format")))
            if as_json and layout is not None:
                raise click.UsageError("give either --json or --format")
            with collect_output(as_json=as_json, layout=layout):
                function(
                    **{
                        name: default.read(hints[name], {key: values[str(of.name)] for key, of in built[name].items()})
                        for name, default in declared.items()
                    }
                )

        return _Command(
            name or function.__name__,
            place=place,
            callback=run,
            params=[*parameters, _QUIET],
            help=inspect.cleandoc(function.__doc__ or ""),
            epilog=f"{IF_STOPPED}{keeps}" if keeps else None,
        )

    return decorate


def record_exit_state(state: str) -> None:
    """Note what --fail-on may name."""
    meta = click.get_current_context().meta
    meta[IS_FAILED] = meta.get(IS_FAILED, False) or meta.get(_FAIL_ON) == state


class ListedCommand(click.Command):
    """What the help lists at its ``place``; None: it is of a group of its own."""

    def __init__(self, *names: Any, place: Place | None = None, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.place = place


class CommandGroup(ListedCommand, click.Group):
    """Commands under one name."""


class _Command(ListedCommand):
    """A command whose options that may be given several times and have a metavar of several (FILES…) take every word
    up to the next option, as a shell writes out a pattern. Arguments come before them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.params if isinstance(option, click.Option) and option.multiple]
        several = {name for option in options if str(option.metavar).endswith("…") for name in option.opts}
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
