"""Commands that create a workspace and start the UI: init, dev."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from audit_pipeline.cli.run_setup import get_writable_paths
from audit_pipeline.cli.shared_options import FOLDER, ListedCommand, Section, quiet_option
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.console import print_message, print_result


@click.command(cls=ListedCommand, section=Section.BEGIN, position=30)
@click.argument("folder", default=".", type=FOLDER)
@quiet_option
def init(folder: Path) -> None:
    """Create a workspace with its own configuration and data.

    FOLDER (default: the current folder) gets the folders config/ and data/ and the file workspace.yaml. Edit the files
    in config/.
    """
    from audit_pipeline.pipeline.workspace_creation import create_workspace

    print_result("Created, with the default configuration:")
    for path in create_workspace(folder.resolve()):
        print_result(f"  {path}")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder}, and then "
    print_result(
        f"\nNext: {enter}edit config/models.yaml and config/benchmarks.yaml. The comments at the top of each file "
        "explain its keys. Then run `corpus-audit benchmarks`, which lists mistakes with file and line. Every command "
        "that is run in this folder or below it uses its configuration and its data."
    )


@click.command(cls=ListedCommand, section=Section.UPKEEP, position=10)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. With an address other than 127.0.0.1, everybody in the network can use the UI, which "
    "has no password.",
)
@click.option("--weekly", is_flag=True, help="Switch on the schedule of the weekly audit while the command runs.")
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Port of the UI.")
@click.option(
    "--report-port",
    type=click.IntRange(1, 65535),
    help="Port of the report, on this machine only. Default: the port of the UI plus 1.",
)
@quiet_option
def dev(host: str, weekly: bool, port: int, report_port: int | None) -> None:
    """Start the Dagster UI and its daemon on this machine."""
    if report_port is None:
        report_port = port + 1
    if report_port in (port, 65536):
        raise click.UsageError(f"The report cannot use port {report_port}. Choose another port with --report-port.")
    _require_free_port(host, port, "UI", "--port")
    _require_free_port("127.0.0.1", report_port, "report", "--report-port")
    paths = get_writable_paths()
    from audit_pipeline.pipeline.dagster.instance import dagster_home, mark_dead_runs_failed, open_instance
    from audit_pipeline.pipeline.dagster.weekly import WEEKLY_IS_ON
    from audit_pipeline.store.paths import config_dir, workspace_file

    with open_instance(paths) as instance:
        for run_id in mark_dead_runs_failed(instance, paths):
            print_message(f"run {run_id} is marked as failed: its process no longer exists")
    print_message(f"Dagster UI on http://{host}:{port}  (DAGSTER_HOME {dagster_home(paths)}; Ctrl-C stops it)")
    print_message(f"Report on http://127.0.0.1:{report_port}  (rebuilt after each audit)")
    if weekly:
        os.environ[WEEKLY_IS_ON] = "1"
        print_message("the weekly audit is on: Mondays at 06:00 UTC, while this command runs")
    # Dagster starts further processes in other folders, so they find configuration and data by the environment.
    os.environ["CORPUS_AUDIT_CONFIG"] = str(config_dir())
    os.environ["CORPUS_AUDIT_DATA"] = str(paths.root.absolute())
    services = [sys.executable, "-m", "audit_pipeline.pipeline.dagster.dev", "--report-port", str(report_port)]
    os.execv(  # noqa: S606
        sys.executable, [*services, "-w", str(workspace_file()), "-h", host, "-p", str(port)]
    )


def _require_free_port(host: str, port: int, service: str, option_name: str) -> None:
    """Raise DataError if the port is taken. Links in the UI need the same port after a restart."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind, protocol) as listener:
            # The servers also set this option, so a port is free as soon as its command ends.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        raise DataError(
            f"The {service} cannot listen on {host}:{port} ({error.strerror or error}). End the program that uses "
            f"the port, or choose another port with {option_name}."
        ) from error
