"""`dagster dev` in a process of its own, from its start to the end of every process that it started.

python -m audit_pipeline.pipeline.dagster.dev -w workspace.yaml -p 3000
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import dagster as dg
import psutil
from dagster._cli import main

from audit_pipeline.pipeline.dagster.metadata import REPORT_URL
from audit_pipeline.store.paths import DataPaths

_GRACE_SECONDS = 20.0


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: object) -> None:
        pass


def serve_report(paths: DataPaths) -> str:
    """Serve the folder of reports to this machine until the process ends; returns the report's address."""
    handler = partial(_QuietHandler, directory=str(paths.reports))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/{paths.report.name}"


def run_services() -> None:
    """Run ``dagster dev`` with this process's arguments until Ctrl-C or SIGTERM, then end all that it started.

    Dagster handles SIGTERM as it handles SIGINT, and a shell that starts a command in the background has it ignore
    SIGINT: both are set anew.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # "Use 'dg dev' instead": that is for projects that are developed, not for installed ones.
    warnings.filterwarnings("ignore", category=dg.SupersessionWarning)
    os.environ[REPORT_URL] = serve_report(DataPaths.from_environment())
    sys.argv[:1] = ["dagster", "dev"]
    try:
        main()  # type: ignore[no-untyped-call]
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # Code servers outlive `dagster dev` by some seconds, and by a minute where it was ended while they started.
        processes = psutil.Process().children(recursive=True)
        for process in processes:
            if process.is_running():
                process.terminate()
        _, remaining = psutil.wait_procs(processes, timeout=_GRACE_SECONDS)
        for process in remaining:
            process.kill()


if __name__ == "__main__":
    run_services()
