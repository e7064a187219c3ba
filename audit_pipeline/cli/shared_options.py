"""The command class of this project, the options that several commands share, and the types of paths.

    @click.command(cls=ListedCommand, section=Section.OWN_FILES, position=10, keeps=PASSES_KEPT)
    @model_option
    @click.option("--out", type=FILE, required=True, help="The Parquet file to write.")
    @quiet_option
    def score(model: str, out: Path) -> None: ...

Commands and options are plain click decorators. The options are declared in the order of the help: ``--format``,
``--json`` and ``--quiet`` are the last of a command. The class adds to click's own class:

- the section in the help of ``corpus-audit``,
- a line about the results that a stopped command keeps,
- options that take several values,
- the output formats ``--json`` and ``--format``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from audit_pipeline.cli.output import LAYOUTS
from audit_pipeline.pipeline.console import collect_output, suppress_progress
from audit_pipeline.pipeline.options import explain_unusable_path
from audit_pipeline.token_statistics.engine_choice import EngineName

GO_ON = "To continue, run the same command again."
PASSES_KEPT = f"Finished steps and finished texts are kept. {GO_ON}"
SHARDS_KEPT = f"Work up to the last checkpoint (every 30 seconds) is kept. {GO_ON}"
IF_STOPPED = "If it is stopped: "

# Keys of a context's ``meta``, which click shares between a group and its commands.
AS_JSON = "audit_pipeline.json"
FORMAT = "audit_pipeline.format"
FAIL_ON = "audit_pipeline.fail_on"
IS_FAILED = "audit_pipeline.is_failed"


class Section(StrEnum):
    """The sections of the help, in its order."""

    BEGIN = "Begin"
    AUDIT = "Audit a model"
    OWN_FILES = "Use files of your own, without Dagster"
    LISTS = "See what there is"
    RESULTS = "Read the results"
    PROOF = "Prove it to others"
    UPKEEP = "Run and keep in order"


class ListedCommand(click.Command):
    """A command with a section of the help, or a command of a group.

    Attributes:
        section: Section of the help of ``corpus-audit``. None if the command belongs to a group.
        position: Commands of a section are sorted by this number.
    """

    def __init__(
        self, *args: Any, section: Section | None = None, position: int = 0, keeps: str = "", **settings: Any
    ) -> None:
        """Create the command.

        Args:
            args: Arguments of click.Command.
            section: See the class.
            position: See the class.
            keeps: Sentences about the results that are kept if the command is stopped. They are printed in the help and
                as the last line of a stopped command.
            settings: Further arguments of click.Command.
        """
        if keeps:
            settings["epilog"] = f"{IF_STOPPED}{keeps}"
        super().__init__(*args, **settings)
        self.section = section
        self.position = position

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line.

        A shell expands a pattern into several words. So a repeatable option with the metavar ``FILES…`` takes all words
        up to the next option: ``--held-out a b`` becomes ``--held-out a --held-out b``. Arguments come before it.
        """
        flags: set[str] = set()
        for option in self.params:
            if isinstance(option, click.Option) and option.multiple and str(option.metavar).endswith("…"):
                flags.update(option.opts)
        expanded: list[str] = []
        current_flag: str | None = None
        for position, word in enumerate(args):
            if word == "--":
                expanded += args[position:]
                break
            if word in flags:
                current_flag = word
                if position + 1 == len(args) or args[position + 1].startswith("-"):
                    raise click.UsageError(f"{word} requires a file or a folder. Name one or more after {word}.", ctx)
            elif word.startswith("-"):
                current_flag = None
                expanded.append(word)
            elif current_flag is None:
                expanded.append(word)
            else:
                expanded += [current_flag, word]
        return super().parse_args(ctx, expanded)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with its output in the form that ``--json`` or ``--format`` requests."""
        as_json = ctx.meta.get(AS_JSON, False)
        layout = LAYOUTS.get(ctx.meta.get(FORMAT, ""))
        if as_json and layout is not None:
            raise click.UsageError("Give either --json or --format.", ctx)
        with collect_output(as_json=as_json, layout=layout):
            return super().invoke(ctx)


class CommandGroup(click.Group):
    """A group that the help lists as one command.

    Attributes:
        section: As for :class:`ListedCommand`.
        position: As for :class:`ListedCommand`.
    """

    command_class = ListedCommand

    def __init__(self, *args: Any, section: Section | None = None, position: int = 0, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section
        self.position = position


def record_exit_state(state: str) -> None:
    """Record a state that the command reached, such as ``found``. If ``--fail-on`` names it, the exit code is 1."""
    meta = click.get_current_context().meta
    if meta.get(FAIL_ON) == state:
        meta[IS_FAILED] = True


F = TypeVar("F", bound=Callable[..., Any])


class _InputPath(click.Path):
    """A path to read: a folder, a regular file, or - for standard input."""

    def convert(
        self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | PathLike[str]:
        problem = explain_unusable_path(Path(value))
        if problem is not None:
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)


# Paths to write.
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
# Paths to read.
PATH = _InputPath(path_type=Path)
INPUT_FILE = _InputPath(path_type=Path, dir_okay=False)
EXISTING = _InputPath(exists=True, path_type=Path)
EXISTING_FILE = _InputPath(exists=True, path_type=Path, dir_okay=False)

AT_LEAST_1 = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)
BETWEEN_0_AND_1 = click.FloatRange(0, 1, min_open=True, max_open=True)


def combine_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator. The help lists them in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


model_option = click.option(
    "--model", required=True, help="The model: a name in config/models.yaml, a hub id, or a path."
)
benchmark_option = click.option(
    "--benchmark",
    required=True,
    help="A benchmark (release_notes_64), a family of benchmarks (release_notes), several names (a,b), or all.",
)
text_column_option = click.option(
    "--text-column", help="Column of the text. Default: text, else input, else the only column."
)
id_column_option = click.option(
    "--id-column",
    help="Column with your own ids of the texts, which are copied into the result. Default: id, if the column exists.",
)
answer_column_option = click.option(
    "--answer-column", help="Column of the answer to each text in the file of --texts. Default: answer."
)
authority_option = click.option(
    "--authority",
    metavar="URL",
    help="Address of a timestamp authority (RFC 3161) that certifies the date of the file. Only the digest of the file "
    "is sent to it. Default: no timestamp.",
)
details_option = click.option(
    "--details",
    is_flag=True,
    help="Print the results of all detectors even if no text is labelled. If the texts are labelled, also compare the "
    "headline detector with the others. The answer only uses the headline detector.",
)

device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Device of the model. Default: cuda if it is available."
)
limit_options = combine_options(
    click.option(
        "--max-tokens",
        type=AT_LEAST_1,
        help="Maximum number of tokens sent to models on servers, including a reference model. At the limit, the "
        "command stops and keeps finished work. Default: no limit.",
    ),
    click.option(
        "--max-cost",
        type=POSITIVE,
        help="Maximum cost of the tokens sent to servers, in the currency of the prices (price_per_million) in the "
        "models' entries. Default: no limit.",
    ),
)
engine_options = combine_options(
    click.option(
        "--engine",
        type=click.Choice(get_args(EngineName)),
        help="Engine of the model: this process, or workers of a Ray cluster (docs/ray.md). Default: in_process.",
    ),
    click.option(
        "--workers",
        type=AT_LEAST_1,
        help="Number of Ray workers. Default: one per GPU, or one per node if the cluster has no GPU.",
    ),
)
# The options that RunOptions holds.
run_options = combine_options(device_option, limit_options, engine_options)


def save_in_meta(key: str, ctx: click.Context, _: click.Parameter, value: Any) -> Any:
    """Save an option's value in the context, from which ListedCommand reads it. Options use this as their callback."""
    ctx.meta[key] = value
    return value


def fail_on_option(*states: str) -> Callable[[F], F]:
    """Return the option ``--fail-on`` for states that :func:`record_exit_state` records."""
    return click.option(
        "--fail-on",
        type=click.Choice(states),
        expose_value=False,
        callback=partial(save_in_meta, FAIL_ON),
        help="For build scripts: exit with code 1 if this state is reached. docs/commands.md explains the states. "
        "Errors exit with code 2.",
    )


format_option = click.option(
    "--format",
    type=click.Choice(["table", *LAYOUTS]),
    default="table",
    show_default=True,
    expose_value=False,
    callback=partial(save_in_meta, FORMAT),
    help="Format of tables: table for a terminal, markdown or latex (with booktabs) to paste into a document. With "
    "markdown and latex, all other output is printed on standard error.",
)
json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=partial(save_in_meta, AS_JSON),
    help="Print one JSON document instead of tables.",
)


def _silence(ctx: click.Context, _: click.Parameter, is_quiet: bool) -> None:
    if is_quiet:
        ctx.with_resource(suppress_progress())


quiet_option = click.option(
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_silence,
    help="Print no steps and no progress. Warnings, errors and results are still printed.",
)
table_output_options = combine_options(format_option, json_option, quiet_option)
