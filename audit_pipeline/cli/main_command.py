"""The command itself: how errors reach the terminal, which commands there are, and what all of them take."""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import pkgutil
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from audit_pipeline import cli, extras
from audit_pipeline.cli.command_declaration import IF_STOPPED, IS_FAILED, ListedCommand, Section
from audit_pipeline.cli.output import say_commands
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.errors import (
    AuditError,
    ModelFilesWarning,
    OtherTokenizerWarning,
    RebuiltWarning,
    SkippedPluginWarning,
    is_full_disk,
    to_one_line,
)
from audit_pipeline.pipeline.console import end_step, escape_control_characters, print_message, print_result
from audit_pipeline.report.number_format import format_count_with_noun
from audit_pipeline.store.paths import OWN_CONFIGURATION, DataPaths, config_dir, is_shipped

_NO_ROOM_BYTES = 1 << 20
_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM})


def is_caused_by_full_disk(error: BaseException, data_folder: Path) -> bool:
    """Return whether an error, of any library, says that the disk is full, or that of ``data_folder`` is full now."""
    from audit_pipeline.http.faults import iterate_causes

    for cause in iterate_causes(error, with_context=True):
        if (isinstance(cause, OSError) and is_full_disk(cause)) or os.strerror(errno.ENOSPC) in str(cause):
            return True
    nearest = next(parent for parent in (data_folder, *data_folder.parents) if parent.exists())
    return shutil.disk_usage(nearest).free < _NO_ROOM_BYTES


class _Front(click.Group):
    """Commands by section; errors that a user can act on become one line and exit code 2, without a traceback."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                room = formatter.width - width - 6
                formatter.write_dl(
                    [(f"{command.name:<{width}}", command.get_short_help_str(room)) for command in commands]
                )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)

    def invoke(self, ctx: click.Context) -> Any:
        with _report_warnings_briefly(), _watch_stop_signals() as read_stop_signal:
            try:
                result = super().invoke(ctx)
                if ctx.meta.get(IS_FAILED):
                    ctx.exit(1)
                return result
            except (BrokenPipeError, click.exceptions.Exit, click.ClickException):
                # The reader of a pipe has enough, help is printed, an option is wrong: click ends.
                raise
            except KeyboardInterrupt:
                _exit_stopped(ctx, read_stop_signal() or signal.SIGINT)
            except Exception as error:
                # DuckDB makes an error of its own of a signal, of which Dagster makes a failed step.
                if (number := read_stop_signal()) is not None:
                    _exit_stopped(ctx, number)
                _exit_if_user_can_act(error)
                raise
            finally:
                end_step()


@contextmanager
def _watch_stop_signals() -> Iterator[Callable[[], int | None]]:
    """Within the block SIGTERM stops a command as Ctrl-C does. Gives a function: the signal that came to stop it; None.

    The numbers come from the interpreter (set_wakeup_fd), also while Dagster handles the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    received: list[int] = []
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)

    def read_stop_signal() -> int | None:
        with suppress(BlockingIOError):
            received.extend(number for number in os.read(reading, 1024) if number in _STOPPING)
        return received[0] if received else None

    watched_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handled_before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield read_stop_signal
    finally:
        signal.signal(signal.SIGTERM, handled_before)
        signal.set_wakeup_fd(watched_before)
        os.close(reading)
        os.close(writing)


@contextmanager
def _report_warnings_briefly() -> Iterator[None]:
    """Report at once, in a line each, what is damaged and made again, left out, or read otherwise than elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", SkippedPluginWarning)
        shown = warnings.showwarning

        def print_on_one_line(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, RebuiltWarning | SkippedPluginWarning | OtherTokenizerWarning | ModelFilesWarning):
                print_message(str(message), style="yellow")
            else:
                shown(message, category, *where, **options)

        warnings.showwarning = print_on_one_line
        yield


def _exit_stopped(ctx: click.Context, number: int) -> NoReturn:
    end_step()
    kept = main.commands[ctx.invoked_subcommand].epilog if ctx.invoked_subcommand else None
    print_message(f"stopped. {(kept or _NOT_KEPT).removeprefix(IF_STOPPED)}")
    sys.exit(128 + number)


def _exit_if_user_can_act(error: Exception) -> None:
    """Exit with one line where the user can mend what went wrong: a mistake of theirs, no permission, no room."""
    # Databases and Dagster report a full disk as errors of their own.
    if not isinstance(error, AuditError) and is_caused_by_full_disk(error, DataPaths.from_environment().root):
        where = f"data folder: {DataPaths.from_environment().root}; {to_one_line(error)}"
        words = f"the disk is full ({where}): make room and run the same again; what was finished is kept"
    elif isinstance(error, AuditError | OSError):
        words = to_one_line(error)
        if "config/" in words and is_shipped(config_dir()):
            words = f"{words}; {OWN_CONFIGURATION}"
    else:
        return
    end_step()
    print_message(f"Error: {words}", style="red")
    sys.exit(2)


_FIRST = {
    "check FILES --model smollm2-135m": "asks of documents of your own whether a model read them",
    "demo": "audits a small real model on real texts, in a few minutes",
    "score --model smollm2-135m --texts FILE --out scores.parquet": "scores the texts of a file of your own",
    "init my-audits": "makes a folder for audits of your own, with its configuration",
}
_NEXT = {
    "report --open": "opens the report in a browser",
    'sql "SELECT * FROM leaderboard"': "shows the findings as a table",
    'sql "FROM not_audited"': "names what is not done yet, and why",
    "models": "lists the models that can be audited",
    "benchmarks": "lists what they can be audited on",
    "audit --model M --benchmark B": "audits one of them",
    "dev": "starts the Dagster UI: audits on a schedule",
}
_MEND = {"doctor --deep": "says what is damaged", "report": "builds them again"}
COUNTS = """
SELECT count(DISTINCT model) AS models, count(DISTINCT benchmark) AS benchmarks FROM coverage
WHERE has_results AND model NOT IN (SELECT model FROM control_models)
"""


def _say_what_next() -> None:
    """Say what is here, and which commands to try; nothing is run, and nothing is changed."""
    paths = DataPaths.from_environment()
    print_result(
        "Corpus Audit finds out whether texts were in a language model's pretraining\ndata, and how sure we can be.\n"
    )
    if paths.warehouse.exists():
        _say_result_counts(paths)
    else:
        begun = paths.dagster_home.is_dir()
        print_result(f"{'An audit was begun' if begun else 'There are no results yet'} in {_format_path(paths.root)}")
        if begun:
            print_result("It goes on with the command that began it.")
        say_commands(_FIRST)
    print_result("\nAll commands: corpus-audit --help")


def _format_path(path: Path) -> str:
    """Format the path, from the current folder where it lies in it."""
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return escape_control_characters(str(shown))


def _say_result_counts(paths: DataPaths) -> None:
    from audit_pipeline.warehouse.query import query_warehouse

    try:
        [found] = query_warehouse(paths.warehouse, COUNTS).to_pylist()
    except AuditError as error:
        print_result(f"The results cannot be read: {to_one_line(error)}")
        say_commands(_MEND)
        return
    models = format_count_with_noun(found["models"], "model", "models")
    benchmarks = format_count_with_noun(found["benchmarks"], "benchmark", "benchmarks")
    print_result(f"{models} audited on {benchmarks}, in {_format_path(paths.root)}")
    if paths.report.exists():
        print_result(f"Report: {_format_path(paths.report)}")
    say_commands(_NEXT)


_SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CORPUS_AUDIT"}
_NOT_KEPT = "This command keeps nothing of its own: run it again."

_EXIT_CODES: Sequence[tuple[str, str]] = (
    ("0", "done; if a text or pair could not be scored, the output says why"),
    (
        "1",
        "what `--fail-on` names is so, `doctor` found something wrong, or a check of `verify` failed; or a fault of "
        "the program, with a traceback",
    ),
    ("2", "an error that you can act on: one line says what is wrong and what to do"),
    ("130", "stopped with Ctrl-C; the last line says what is kept and how to go on"),
    ("143", "stopped by SIGTERM, in the same way"),
)


def _find_commands() -> Mapping[Section, Sequence[ListedCommand]]:
    """Find the commands in the modules of this package, and in the modules ``commands`` of extras, by section."""
    names = (module.name for module in pkgutil.iter_modules(cli.__path__))
    own = (importlib.import_module(f"{cli.__name__}.{name}") for name in names if not __name__.endswith(f".{name}"))
    found: dict[str, ListedCommand] = collect_by_name(
        [*own, *extras.find_modules("commands")],
        label="commands",
        is_wanted=lambda value: isinstance(value, ListedCommand) and value.place is not None,
        name_of=lambda command: str(command.name),
    )
    placed = [(command.place, command) for command in found.values() if command.place is not None]
    placed.sort(key=lambda pair: pair[0].number)
    return {section: [command for place, command in placed if place.section is section] for section in Section}


_SECTIONS = _find_commands()


@click.group(cls=_Front, invoke_without_command=True, context_settings=_SETTINGS)
@click.version_option(package_name="corpus-audit")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find out whether texts were in a language model's pretraining data, and how sure anyone can be."""
    # Progress bars of libraries would draw over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if ctx.invoked_subcommand is None:
        _say_what_next()


for _command in itertools.chain.from_iterable(_SECTIONS.values()):
    main.add_command(_command)
