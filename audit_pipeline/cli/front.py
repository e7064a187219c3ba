"""The command itself: how errors reach the terminal, and which commands there are.

What belongs here: the group of all commands. What does not: any command.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from audit_pipeline.catalogue.paths import OWN_CONFIGURATION, DataPaths, config_dir, is_shipped
from audit_pipeline.cli import (
    auditing,
    conclusions,
    controls,
    corpus_tests,
    demo,
    extraction,
    listing,
    published,
    scoring,
    unlearning,
    upkeep,
)
from audit_pipeline.cli.library_output import held_back
from audit_pipeline.errors import AuditError, MadeAgainWarning, one_line
from audit_pipeline.operate.console import tell


class _Front(click.Group):
    """Errors that a user can act on become one line and exit code 2, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        with held_back() as libraries, _damage_reported():
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                # The reader of a pipe has enough: click ends quietly.
                raise
            except KeyboardInterrupt:
                libraries.release()
                tell("stopped; what was finished is kept")
                sys.exit(130)
            except Exception as error:
                from audit_pipeline.cli.full_disk import full_disk

                paths = DataPaths.from_environment()
                # Whoever met it: Dagster's own databases and DuckDB tell of a full disk in words of their own.
                full = full_disk(error, paths.root)
                if full is not None:
                    kept = libraries.keep(paths.logs)
                    _fail(AuditError(full if kept is None else f"{full}; what libraries printed of it: {kept}"))
                libraries.release()
                # OSError: the machine said no: no permission, a folder where a file should be.
                if isinstance(error, AuditError | OSError):
                    _fail(error)
                raise


@contextmanager
def _damage_reported() -> Iterator[None]:
    """What is damaged and made again is reported at once, in one line."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def tell_damage(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, MadeAgainWarning):
                tell(str(message), style="yellow")
            else:
                shown(message, category, *where, **options)

        warnings.showwarning = tell_damage
        yield


def _fail(error: AuditError | OSError) -> NoReturn:
    tell(f"Error: {one_line(error)}{_hint(str(error))}", style="red")
    sys.exit(2)


def _hint(message: str) -> str:
    """Where a message sends the user to a file that is a part of the installed package: what to do first."""
    if "config/" not in message or not is_shipped(config_dir()):
        return ""
    return f"; {OWN_CONFIGURATION}"


@click.group(cls=_Front, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="corpus-audit")
def main() -> None:
    """Find out whether texts were in a language model's pretraining data, and how sure anyone can be."""
    # Progress bars of libraries would draw over ours.
    os.environ.setdefault("TQDM_DISABLE", "1")


for _command in (
    demo.demo,
    auditing.audit,
    controls.control,
    controls.study,
    scoring.score,
    extraction.extract,
    scoring.count,
    listing.detectors,
    listing.models,
    listing.benchmarks,
    published.report,
    published.sql,
    published.export,
    upkeep.init,
    upkeep.dev,
    upkeep.forget,
    upkeep.doctor,
    conclusions.evaluate,
    conclusions.power,
    corpus_tests.canaries,
    corpus_tests.test,
    unlearning.compare,
):
    main.add_command(_command)
