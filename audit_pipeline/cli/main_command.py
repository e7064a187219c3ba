"""The command corpus-audit: its subcommands, its errors, and its handling of stop signals."""

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
from audit_pipeline.cli.output import print_next_commands
from audit_pipeline.cli.shared_options import IF_STOPPED, IS_FAILED, CommandGroup, ListedCommand, Section
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

Listed = ListedCommand | CommandGroup

_NO_ROOM_BYTES = 1 << 20
_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM})


def is_caused_by_full_disk(error: BaseException, data_folder: Path) -> bool:
    """Return whether a full disk caused the error, or the disk of the data folder is full now."""
    from audit_pipeline.http.faults import iterate_causes

    for cause in iterate_causes(error, with_context=True):
        if (isinstance(cause, OSError) and is_full_disk(cause)) or os.strerror(errno.ENOSPC) in str(cause):
            return True
    nearest = next(parent for parent in (data_folder, *data_folder.parents) if parent.exists())
    return shutil.disk_usage(nearest).free < _NO_ROOM_BYTES


class _MainGroup(click.Group):
    """The group of all commands, by section.

    An error that users can correct becomes one line and exit code 2, without a traceback.
    """

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
                # Click handles closed pipes, --help and wrong options.
                raise
            except KeyboardInterrupt:
                _exit_stopped(ctx, read_stop_signal() or signal.SIGINT)
            except Exception as error:
                # DuckDB turns a signal into an error of its own, and Dagster turns that into a failed step.
                number = read_stop_signal()
                if number is not None:
                    _exit_stopped(ctx, number)
                _exit_if_user_can_act(error)
                raise
            finally:
                end_step()


@contextmanager
def _watch_stop_signals() -> Iterator[Callable[[], int | None]]:
    """Let SIGTERM stop a command within the block, as Ctrl-C does.

    Yields a function that returns the received stop signal, or None. The interpreter reports the signals through
    set_wakeup_fd, even while Dagster has handlers of its own.
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
    """Print each warning of this package in one line when the block issues it."""
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
    """Exit with one line if the user can correct the cause: a mistake, a missing permission, or a full disk."""
    # Databases and Dagster report a full disk as errors of their own.
    if not isinstance(error, AuditError) and is_caused_by_full_disk(error, DataPaths.from_environment().root):
        folder = DataPaths.from_environment().root
        words = (
            f"the disk is full (data folder: {folder}; {to_one_line(error)}). Free some space and run the same command "
            "again. Finished work is kept."
        )
    elif isinstance(error, AuditError | OSError):
        words = to_one_line(error)
        if "config/" in words and is_shipped(config_dir()):
            words = f"{words}; {OWN_CONFIGURATION}"
    else:
        return
    end_step()
    print_message(f"Error: {words}", style="red")
    sys.exit(2)


_COMMANDS_WITHOUT_RESULTS = {
    "check FILES --model smollm2-135m": "checks whether a model has read your own documents",
    "demo": "audits a small real model on real texts, in a few minutes",
    "score --model smollm2-135m --texts FILE --out scores.parquet": "scores the texts of your own file",
    "init my-audits": "creates a workspace for your own audits, with its own configuration",
}
_COMMANDS_WITH_RESULTS = {
    "report --open": "opens the report in a browser",
    'sql "SELECT * FROM leaderboard"': "shows the findings as a table",
    'sql "FROM not_audited"': "lists the audits that are not done yet, with the reasons",
    "models": "lists the models that can be audited",
    "benchmarks": "lists the benchmarks",
    "audit --model M --benchmark B": "audits a model on a benchmark",
    "dev": "starts the Dagster UI, for audits on a schedule",
}
_COMMANDS_IF_DAMAGED = {"doctor --deep": "lists damaged files", "report": "rebuilds warehouse and report"}
COUNTS = """
SELECT count(DISTINCT model) AS models, count(DISTINCT benchmark) AS benchmarks FROM coverage
WHERE has_results AND model NOT IN (SELECT model FROM control_models)
"""


def _print_overview() -> None:
    """Print the purpose of the tool, the state of the data folder, and commands to try. Nothing is run or changed."""
    paths = DataPaths.from_environment()
    print_result(
        "Corpus Audit finds out whether texts were in a language model's pretraining\ndata, and how sure we can be.\n"
    )
    if paths.warehouse.exists():
        _print_result_counts(paths)
    else:
        if paths.dagster_home.is_dir():
            print_result(f"An audit was started in {_format_path(paths.root)}")
            print_result("To continue it, run the same command again.")
        else:
            print_result(f"There are no results yet in {_format_path(paths.root)}")
        print_next_commands(_COMMANDS_WITHOUT_RESULTS)
    print_result("\nAll commands: corpus-audit --help")


def _format_path(path: Path) -> str:
    """Return the path as text, relative to the current folder if it is inside it."""
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return escape_control_characters(str(shown))


def _print_result_counts(paths: DataPaths) -> None:
    from audit_pipeline.warehouse.query import query_warehouse

    try:
        [found] = query_warehouse(paths.warehouse, COUNTS).to_pylist()
    except AuditError as error:
        print_result(f"The results cannot be read: {to_one_line(error)}")
        print_next_commands(_COMMANDS_IF_DAMAGED)
        return
    models = format_count_with_noun(found["models"], "model", "models")
    benchmarks = format_count_with_noun(found["benchmarks"], "benchmark", "benchmarks")
    print_result(f"{models} audited on {benchmarks}, in {_format_path(paths.root)}")
    if paths.report.exists():
        print_result(f"Report: {_format_path(paths.report)}")
    print_next_commands(_COMMANDS_WITH_RESULTS)


_SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CORPUS_AUDIT"}
_NOT_KEPT = "This command stores no partial results. Run it again."

_EXIT_CODES: Sequence[tuple[str, str]] = (
    ("0", "success; for each text or pair that could not be scored, the output has the reason"),
    (
        "1",
        "the state that `--fail-on` names was reached, `doctor` found a problem, or a check of `verify` failed; or an "
        "internal error, with a traceback",
    ),
    ("2", "an error that you can correct; the message has one line, with the cause and what to do"),
    ("130", "stopped with Ctrl-C; the last line lists the results that are kept, and explains how to continue"),
    ("143", "stopped by SIGTERM; the last line lists the results that are kept, and explains how to continue"),
)


def _find_commands() -> Mapping[Section, Sequence[Listed]]:
    """Find the commands in the modules of this package and in the modules ``commands`` of extras, by section."""
    names = [module.name for module in pkgutil.iter_modules(cli.__path__)]
    modules = [importlib.import_module(f"{cli.__name__}.{name}") for name in names if not __name__.endswith(f".{name}")]
    commands: dict[str, Listed] = collect_by_name(
        [*modules, *extras.find_modules("commands")],
        label="commands",
        is_wanted=lambda value: isinstance(value, Listed) and value.section is not None,
        name_of=lambda command: str(command.name),
    )
    by_section: dict[Section, list[Listed]] = {section: [] for section in Section}
    for command in sorted(commands.values(), key=lambda command: command.position):
        if command.section is not None:
            by_section[command.section].append(command)
    return by_section


_SECTIONS = _find_commands()


@click.group(cls=_MainGroup, invoke_without_command=True, context_settings=_SETTINGS)
@click.version_option(package_name="corpus-audit")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find out whether texts were in a language model's pretraining data, and how sure anyone can be."""
    # Progress bars of libraries would overwrite those of this package.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if ctx.invoked_subcommand is None:
        _print_overview()


for _command in itertools.chain.from_iterable(_SECTIONS.values()):
    main.add_command(_command)
