"""The process of `corpus-audit dev`: it runs `dagster dev` and serves the report, and ends all its child processes.

python -m audit_pipeline.pipeline.dagster.dev --report-port 3001 -w workspace.yaml -p 3000
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import BinaryIO
from urllib.parse import urlsplit

import dagster as dg
import psutil
from dagster._cli import main

from audit_pipeline.pipeline.dagster.cell_events import REPORT_URL
from audit_pipeline.pipeline.dagster.conditions import PUBLISHING_IS_ON
from audit_pipeline.store.paths import DataPaths

_GRACE_SECONDS = 20.0
_NO_PAGE = "This page of the report does not exist yet"
_WHAT_TO_DO = (
    "Audit a model first. The report is rebuilt within about a minute after an audit if the sensor publish_what_is_new "
    "is on (Automation, in the Dagster UI). The command corpus-audit report builds it at once. Then reload this page."
)
_ERROR_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>%(message)s</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto; line-height: 1.5">
<h1>%(message)s</h1>
<p>%(explain)s</p>
</body>
</html>
"""


class _ReportHandler(SimpleHTTPRequestHandler):
    """Handler that serves the report at the root address. For a missing page it explains how to build the report."""

    error_message_format = _ERROR_PAGE

    def __init__(self, *values: object, paths: DataPaths) -> None:
        self._start_page = f"/{paths.report.name}"
        super().__init__(*values, directory=str(paths.reports))  # type: ignore[arg-type]

    def send_head(self) -> BinaryIO | BytesIO | None:
        """Send the headers and return the open file. The root address is the report."""
        if urlsplit(self.path).path == "/":
            self.path = self._start_page
        return super().send_head()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error page. The page of a missing file explains how to build the report."""
        if code == HTTPStatus.NOT_FOUND:
            message = _NO_PAGE
            explain = _WHAT_TO_DO
        super().send_error(code, message, explain)

    def log_message(self, format: str, *values: object) -> None:
        """Omit the log, because the terminal shows Dagster's log."""


def serve_report(paths: DataPaths, port: int) -> str:
    """Serve the folder of reports to this machine until the process ends.

    Args:
        paths: The data folder.
        port: Port on the loopback address. With 0 the system chooses a free port.

    Returns:
        The address at which the report opens.

    Raises:
        OSError: If the port is taken.
    """
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(_ReportHandler, paths=paths))
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def run_services() -> None:
    """Run ``dagster dev`` with this process's arguments until Ctrl-C or SIGTERM, then end its child processes.

    Both signal handlers are set here. Dagster treats SIGTERM as SIGINT, and a command that a shell starts in the
    background ignores SIGINT.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # The warning recommends 'dg dev', which works only in development projects and not in installed packages.
    warnings.filterwarnings("ignore", category=dg.SupersessionWarning)
    # Dagster defines the option -h itself.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--report-port", type=int, required=True)
    options, arguments = parser.parse_known_args()
    os.environ[REPORT_URL] = serve_report(DataPaths.from_environment(), options.report_port)
    os.environ.setdefault(PUBLISHING_IS_ON, "1")
    # Each cell is marked as planned when it begins, so cells that never began are missing and not failed.
    os.environ.setdefault("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", "1")
    sys.argv = ["dagster", "dev", *arguments]
    try:
        main()  # type: ignore[no-untyped-call]
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Code servers run some seconds longer than `dagster dev`, and a minute if it ended while they started.
        processes = psutil.Process().children(recursive=True)
        for process in processes:
            if process.is_running():
                process.terminate()
        _, remaining = psutil.wait_procs(processes, timeout=_GRACE_SECONDS)
        for process in remaining:
            process.kill()


if __name__ == "__main__":
    run_services()
