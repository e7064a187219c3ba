"""The command class of this project, with features that click's own class lacks.

    @click.command(cls=ListedCommand, section=Section.OWN_FILES, position=10, keeps=PASSES_KEPT)
    @model_option
    @click.option("--out", type=FILE, required=True, help="The Parquet file to write.")
    @quiet_option
    def score(model: str, out: Path) -> None: ...

Commands and options are plain click decorators. Options of several commands are in shared_options.py. The class adds:

- the section in the help of ``corpus-audit``,
- a line about the results that a stopped command keeps,
- options that take several values,
- the output formats ``--json`` and ``--format``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import click

from audit_pipeline.cli.output import LAYOUTS
from audit_pipeline.pipeline.console import collect_output

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
            keeps: What remains if the command is stopped. The help and the last line of a stopped command print it.
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
                    raise click.UsageError(f"{word} requires a file or a folder", ctx)
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
            raise click.UsageError("give either --json or --format", ctx)
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
