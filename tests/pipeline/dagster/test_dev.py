"""`corpus-audit dev` and SIGTERM, as systemd and containers send it: no process stays; and no warning at its start."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
import requests
from live_workspace import end, launch, make, start_services

from audit_pipeline.pipeline.dagster.dev import serve_report
from audit_pipeline.store.paths import DataPaths

GONE_SECONDS = 60.0


@pytest.fixture
def ignored_interrupts() -> Iterator[None]:
    """As in a shell that starts a command in the background: what it starts ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def is_at_work(process: psutil.Process) -> bool:
    """Whether it has not ended; one that has and that nobody has asked about yet (a zombie) does nothing any more."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_report_alone_is_served_to_this_machine(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    paths.reports.mkdir()
    paths.report.write_text("the report")
    (tmp_path / "texts.txt").write_text("a secret")
    url = serve_report(paths)
    assert url.startswith("http://127.0.0.1:")
    assert requests.get(url, timeout=10).text == "the report"
    with closing(HTTPConnection(url.split("/")[2])) as connection:
        connection.request("GET", "/../texts.txt")
        assert connection.getresponse().status == 404


@pytest.mark.slow
@pytest.mark.usefixtures("ignored_interrupts")
def test_after_sigterm_no_process_stays(tmp_path: Path) -> None:
    workspace = make(tmp_path, models=1)
    process, _ = start_services(workspace, PYTHONWARNINGS="")
    try:
        started = psutil.Process(process.pid).children(recursive=True)
        named = " ".join(" ".join(one.cmdline()) for one in started)
        assert all(service in named for service in ("dagster_webserver", "dagster._daemon", "code-server"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE_SECONDS) == 0
        assert not [one for one in started if is_at_work(one)], "the services outlive the command"
    finally:
        end(process)
    log = (tmp_path / "dev.log").read_text()
    assert "Warning" not in log
    assert "superseded" not in log


@pytest.mark.slow
@pytest.mark.usefixtures("ignored_interrupts")
def test_what_is_ended_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    workspace = make(tmp_path, models=1)
    process, _ = launch(workspace)
    try:
        while not (started := psutil.Process(process.pid).children(recursive=True)):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(GONE_SECONDS)
        # Python itself asks the program `file` something while it starts, which ends by itself.
        _, alive = psutil.wait_procs(started, timeout=5)
        assert not [one for one in alive if is_at_work(one)]
    finally:
        end(process)
