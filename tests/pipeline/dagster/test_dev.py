"""`corpus-audit dev`: the served report, and no remaining process after SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest
import requests
from live_workspace import end, find_free_ports, launch, make, start_services

from audit_pipeline.pipeline.dagster import dev
from audit_pipeline.pipeline.dagster.cell_events import REPORT_URL
from audit_pipeline.pipeline.dagster.conditions import PUBLISHING_IS_ON
from audit_pipeline.pipeline.dagster.dev import run_services, serve_report
from audit_pipeline.store.paths import DataPaths, model_page_path

GONE_SECONDS = 60.0


@pytest.fixture
def ignored_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, as a command does that a shell starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def is_at_work(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_report_alone_is_served_to_this_machine(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    paths.reports.mkdir()
    paths.report.write_text("the report")
    model_page_path(paths.reports, "org/model").write_text("a model")
    (tmp_path / "texts.txt").write_text("a secret")
    url = serve_report(paths, 0)
    assert url.startswith("http://127.0.0.1:")
    for address in (url, f"{url}?from=ui", urljoin(url, paths.report.name)):
        assert requests.get(address, timeout=10).text == "the report"
    assert requests.get(urljoin(url, "model%3Dorg%252Fmodel.html"), timeout=10).text == "a model"
    with closing(HTTPConnection(url.split("/")[2])) as connection:
        connection.request("GET", "/../texts.txt")
        assert connection.getresponse().status == 404


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_page_that_is_missing_says_how_to_build_it(tmp_path: Path, has_folder: bool) -> None:
    paths = DataPaths(tmp_path)
    if has_folder:
        paths.reports.mkdir()
    url = serve_report(paths, 0)
    for address in (url, urljoin(url, "model=tiny.html")):
        answer = requests.get(address, timeout=10)
        assert answer.status_code == 404
        assert "does not exist yet" in answer.text
        assert "corpus-audit report" in answer.text
    # The report is found as soon as it is written.
    paths.reports.mkdir(exist_ok=True)
    paths.report.write_text("the report")
    assert requests.get(url, timeout=10).text == "the report"


def test_dagster_dev_is_started_with_publishing_on_and_the_address_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str | None] = {}

    def record() -> None:
        names = (REPORT_URL, PUBLISHING_IS_ON, "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS")
        seen.update({name: os.environ.get(name) for name in names}, arguments=" ".join(sys.argv))

    (port,) = find_free_ports(1)
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(dev, "main", record)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    # The children of the test process, such as joblib's workers, must survive.
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [])
    monkeypatch.setattr(sys, "argv", ["dev", "--report-port", str(port), "-w", "w.yaml", "-h", "127.0.0.1", "-p", "1"])
    run_services()
    assert seen == {
        "arguments": "dagster dev -w w.yaml -h 127.0.0.1 -p 1",
        REPORT_URL: f"http://127.0.0.1:{port}/",
        PUBLISHING_IS_ON: "1",
        "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS": "1",
    }


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
def test_a_command_that_is_ended_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
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
