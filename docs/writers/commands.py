"""docs/reference/commands.md: every command with its options, from the commands' own help.

What belongs here: the tree of commands as Markdown. What does not: help texts (audit_pipeline/cli).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from docs.writers.markdown import escape_markdown, format_markdown_table

_HEAD = """\
# Commands

This page lists the arguments and options of every command. `corpus-audit COMMAND --help` prints the same in the
terminal.

An error is one line with the problem and the remedy. The exit code is then 2. If you press Ctrl-C, the exit code is
130, and the last line names the stored results and the way to continue. With `--json` a command prints one JSON
document, and nothing else, to standard output. Messages and progress go to standard error.
"""


def commands_page(front: click.Group) -> str:
    """Return the page of all commands of ``front``. Subcommands follow their command."""
    context = click.Context(front, info_name="corpus-audit")
    found = list(_leaves(front, context))
    overview = format_markdown_table(
        ["command", "purpose"],
        ([f"[`{_name(one)}`](#{_anchor(one)})", escape_markdown(one.command.get_short_help_str(200))] for one in found),
    )
    return "\n\n".join([_HEAD.rstrip(), overview, *map(_section, found)]) + "\n"


def _leaves(group: click.Group, context: click.Context) -> Iterator[click.Context]:
    """Yield the context of every command that is not a group, ordered by name."""
    for name in sorted(group.commands):
        command = group.commands[name]
        own = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _leaves(command, own)
        else:
            yield own


def _name(context: click.Context) -> str:
    """Return the words after `corpus-audit`."""
    return context.command_path.removeprefix("corpus-audit ")


def _anchor(context: click.Context) -> str:
    return _name(context).replace(" ", "-")


def _section(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {_name(context)}", f"```text\n{usage}\n```", escape_markdown(_help(command))]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if arguments:
        parts.append("Arguments: " + ", ".join(f"`{one.make_metavar(context)}`" for one in arguments) + ".")
    if options:
        parts.append(format_markdown_table(["option", "takes", "meaning"], (_option(one, context) for one in options)))
    return "\n\n".join(parts)


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _option(option: click.Option, context: click.Context) -> list[str]:
    spelt = ", ".join(f"`{one}`" for one in [*option.opts, *option.secondary_opts])
    takes = "" if option.is_flag else f"`{option.make_metavar(context)}`".replace("|", "\\|")
    return [spelt, takes, escape_markdown(_meaning(option, context))]


def _meaning(option: click.Option, context: click.Context) -> str:
    """Return the option's help, followed by the brackets of `--help`: default, range, required."""
    extra = option.get_help_extra(context)
    said = [
        *([f"default: {extra['default']}"] if "default" in extra else []),
        *([extra["range"]] if "range" in extra else []),
        *(["required"] if "required" in extra else []),
        *(["may be repeated"] if option.multiple else []),
    ]
    return " ".join([option.help or "", *([f"[{'; '.join(said)}]"] if said else [])])
