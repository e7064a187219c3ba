"""The command itself: how errors reach the terminal, which commands there are, and what all of them take.

What belongs here: the group of all commands, and recognising a full disk and a stop among other faults: of our
own code, SQLite, DuckDB, Dagster. What does not: any command, writing (catalogue/files.py), and whether a fault is
worth trying again (operate/dagster/retries.py).
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from audit_pipeline.catalogue.object_store import BucketError
from audit_pipeline.catalogue.paths import OWN_CONFIGURATION, DataPaths, config_dir, is_shipped
from audit_pipeline.cli import (
    ask,
    audit,
    check,
    conclusions,
    controls,
    corpus_tests,
    exhibit,
    extraction,
    first_steps,
    items,
    listing,
    overlap,
    results,
    scoring,
    unlearning,
    upkeep,
)
from audit_pipeline.cli.library_output import defer_stderr
from audit_pipeline.cli.options import IF_STOPPED
from audit_pipeline.errors import (
    AuditError,
    LeftOutWarning,
    MadeAgainWarning,
    OtherTokenizerWarning,
    is_full_disk,
    to_one_line,
)
from audit_pipeline.operate.console import end_step, quietly, tell

_IN_WORDS = ("No space left on device", "disk is full", "Disk quota exceeded")
# SQLite maps the index of its log into memory: without room for it, it only reports that this failed.
_UNSPECIFIC = "disk I/O error"
_NO_ROOM_BYTES = 1 << 20
_STOPPING = frozenset({signal.SIGINT, signal.SIGTERM})


def explain_full_disk(error: BaseException, data_folder: Path) -> str | None:
    """The message to the user, in one line, where a full disk caused ``error``; None where something else did.

    ``data_folder`` is named where the error names no path.
    """
    for cause in _iterate_causes(error):
        if _is_full_disk_error(cause) or (_is_unspecific(cause) and _is_full(data_folder)):
            named = cause.filename if isinstance(cause, OSError) and cause.filename is not None else data_folder
            message = " ".join(str(cause).split("\n")[0].split())
            return (
                f"the disk of {named} is full ({message}): make room and run the same again; what was finished is kept"
            )
    return None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_full_disk_error(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return is_full_disk(error)
    # Only of these: other errors quote what users have typed. Without DuckDB loaded there are no errors of it.
    duckdb = sys.modules.get("duckdb")
    of_databases = (sqlite3.OperationalError, *(() if duckdb is None else (duckdb.IOException,)))
    return isinstance(error, of_databases) and any(words in str(error) for words in _IN_WORDS)


def _is_unspecific(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _UNSPECIFIC in str(error)


def _is_full(folder: Path) -> bool:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_repeated_options(click.Context(command, info_name=name, parent=ctx), rest)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        with defer_stderr() as libraries, _report_warnings_briefly(), _watch_stop_signals() as read_stop_signal:
            try:
                try:
                    return super().invoke(ctx)
                except Exception as error:
                    # DuckDB makes an error of its own of a signal, of which Dagster makes a failed step.
                    if read_stop_signal() is not None:
                        raise KeyboardInterrupt from error
                    raise
            except (BrokenPipeError, click.exceptions.Exit, click.ClickException):
                # The reader of a pipe has enough, help is printed, an option is wrong: click ends.
                raise
            except KeyboardInterrupt:
                libraries.release()
                _exit_stopped(ctx, read_stop_signal() or signal.SIGINT)
            except BucketError as error:
                # Of the data folder itself, which the look at a full disk would ask for once more.
                libraries.release()
                _exit_with_error(error)
            except Exception as error:
                paths = DataPaths.from_environment()
                # Dagster's own databases and DuckDB report a full disk in their own words.
                full = explain_full_disk(error, paths.root)
                if full is not None:
                    kept = libraries.keep(paths.logs)
                    _exit_with_error(
                        AuditError(full if kept is None else f"{full}; what libraries printed of it: {kept}")
                    )
                libraries.release()
                # OSError: no permission, or a folder where a file should be.
                if isinstance(error, AuditError | OSError):
                    _exit_with_error(error)
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


def _refuse_repeated_options(ctx: click.Context, args: list[str]) -> None:
    """Raise UsageError for an option that takes one value and is given two, of which click would drop the first."""
    command = ctx.command
    if isinstance(command, click.Group):
        if args and args[0] in command.commands:
            _refuse_repeated_options(click.Context(command.commands[args[0]], info_name=args[0], parent=ctx), args[1:])
        return
    names = [word.split("=", 1)[0] for word in itertools.takewhile(lambda word: word != "--", args)]
    for option in command.params:
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag):
            times = sum(name in option.opts for name in names)
            if times > 1:
                raise click.UsageError(f"{option.opts[0]} takes one value and is given {times}", ctx)


@contextmanager
def _report_warnings_briefly() -> Iterator[None]:
    """What is damaged and made again, left out, or read otherwise than elsewhere is reported at once, in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", LeftOutWarning)
        shown = warnings.showwarning

        def tell_in_one_line(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, MadeAgainWarning | LeftOutWarning | OtherTokenizerWarning):
                tell(str(message), style="yellow")
            else:
                shown(message, category, *where, **options)

        warnings.showwarning = tell_in_one_line
        yield


def _exit_stopped(ctx: click.Context, number: int) -> NoReturn:
    end_step()
    command = main.commands.get(ctx.invoked_subcommand or "")
    kept = command.epilog if command is not None else None
    tell(f"stopped. {(kept or _NOT_KEPT).removeprefix(IF_STOPPED)}")
    sys.exit(128 + number)


def _exit_with_error(error: AuditError | OSError) -> NoReturn:
    end_step()
    tell(f"Error: {to_one_line(error)}{_suggest_own_configuration(str(error))}", style="red")
    sys.exit(2)


def _suggest_own_configuration(message: str) -> str:
    """Where a message sends the user to a file that is a part of the installed package: what to do first."""
    if "config/" not in message or not is_shipped(config_dir()):
        return ""
    return f"; {OWN_CONFIGURATION}"


_NOT_KEPT = "This command keeps nothing of its own: run it again."

_EXIT_CODES: Sequence[tuple[str, str]] = (
    ("0", "done; if a text or pair could not be scored, the output says why"),
    ("1", "`doctor` found something wrong, or a check of `verify` failed; or a fault of the program, with a traceback"),
    ("2", "an error that you can act on: one line says what is wrong and what to do"),
    ("130", "stopped with Ctrl-C; the last line says what is kept and how to go on"),
    ("143", "stopped by SIGTERM, in the same way"),
)
_SECTIONS: Mapping[str, Sequence[click.Command]] = {
    "Begin": (check.check, first_steps.demo, upkeep.init),
    "Audit a model": (
        audit.audit,
        extraction.extract,
        ask.ask,
        overlap.overlap,
        items.items,
        unlearning.compare,
        controls.control,
        controls.study,
        corpus_tests.canaries,
        corpus_tests.test,
    ),
    "Use files of your own, without Dagster": (scoring.score, scoring.count, conclusions.evaluate, conclusions.power),
    "See what there is": (listing.models, listing.benchmarks, listing.detectors),
    "Read the results": (results.report, results.sql, results.export),
    "Prove it to others": (exhibit.seal, exhibit.pack, exhibit.verify),
    "Run and keep in order": (upkeep.dev, upkeep.doctor, upkeep.forget),
}


@click.group(cls=_Front, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="corpus-audit")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find out whether texts were in a language model's pretraining data, and how sure anyone can be."""
    # Progress bars of libraries would draw over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if ctx.invoked_subcommand is None:
        first_steps.say_what_next()


def _add_quiet_option(command: click.Command) -> None:
    """Give the option --quiet to the command, or to those of its group."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _add_quiet_option(subcommand)
    else:
        command.params.append(
            click.Option(
                ["--quiet"],
                is_flag=True,
                expose_value=False,
                callback=_apply_quiet_option,
                help="Tell no steps and no progress; warnings, errors and results are printed all the same.",
            )
        )


def _apply_quiet_option(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.with_resource(quietly())


for _command in itertools.chain.from_iterable(_SECTIONS.values()):
    _add_quiet_option(_command)
    main.add_command(_command)
