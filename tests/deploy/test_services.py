"""Every process of the compose file, started by its own command on this machine, and asked by its own health check."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed import FOLDER, WITH_SECRETS, composed, outside
from made_workspace import Workspace, make_workspace, temporal
from postgres_server import POSTGRES, Server, free_port, running_postgres

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(POSTGRES is None, reason="there is no PostgreSQL on this machine (initdb, pg_ctl)"),
    pytest.mark.skipif(
        importlib.util.find_spec("dagster_postgres") is None, reason="dagster-postgres is not installed"
    ),
]

SERVICES: dict[str, Any] = composed()["services"]
READY_SECONDS = 240.0
ASKED = "{ repositoriesOrError { ... on RepositoryConnection { nodes { jobs { name } sensors { name } } } } }"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_postgres() as made:
        made.query("postgres", "CREATE DATABASE corpus_audit")
        yield made


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Workspace:
    made = make_workspace(tmp_path / "made", monkeypatch, tiny=tiny_folder("llama"))
    made.write_benchmarks(made=temporal([8]))
    return made


class Services:
    """Processes by the names of their services, with one environment for all, as the compose file gives it."""

    def __init__(self, workspace: Workspace, server: Server) -> None:
        self.ports = {"3000": free_port(), "4000": free_port()}
        self.home = workspace.root / "home"
        self.home.mkdir()
        shutil.copy(FOLDER / "dagster.yaml", self.home)
        place = yaml.safe_load((FOLDER / "workspace.yaml").read_text(encoding="utf-8"))
        place["load_from"][0]["grpc_server"] |= {"host": "127.0.0.1", "port": self.ports["4000"]}
        (self.home / "workspace.yaml").write_text(yaml.safe_dump(place), encoding="utf-8")
        password = workspace.root / "postgres_password"
        password.write_text(server.password + "\n", encoding="utf-8")
        known = {name: value for name, value in server.variables("corpus_audit").items() if "PASSWORD" not in name}
        self.environment = {
            **{name: value for name, value in os.environ.items() if "CORPUS_AUDIT_PG" not in name},
            **known,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CORPUS_AUDIT_PG_PASSWORD_FILE": str(password),
            "CORPUS_AUDIT_LOGS": str(workspace.root / "logs"),
            "DAGSTER_HOME": str(self.home),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (workspace.root / "log").open("wb")

    def start(self, name: str) -> None:
        """As the image does: its entry point in front of the service's command."""
        command = [str(WITH_SECRETS), *outside(SERVICES[name]["command"], self.ports, self.home)]
        self.processes[name] = subprocess.Popen(
            command, env=self.environment, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def is_well(self, name: str) -> bool:
        """What the service's own health check says."""
        kind, *check = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            outside(check, self.ports, self.home), env=self.environment, capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_well(name):
            assert self.processes[name].poll() is None, f"{name} ended: {Path(self.log.name).read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{name} is not well: {Path(self.log.name).read_text()[-3000:]}"
            time.sleep(1)

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def ask(self, query: str) -> Any:
        """What the UI's server answers to a query."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['3000']}/graphql",
            json.dumps({"query": query}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["data"]


@pytest.fixture
def services(workspace: Workspace, server: Server) -> Iterator[Services]:
    made = Services(workspace, server)
    yield made
    for name in list(made.processes)[::-1]:
        made.end(name)
    made.log.close()


def test_all_services_come_up_in_their_order_and_know_each_other(services: Services, server: Server) -> None:
    assert not services.is_well("code"), "nothing runs yet"
    services.start("code")
    services.wait_for("code")
    for name in ("webserver", "daemon"):
        assert not services.is_well(name), "a health check that is always content would be none"
        services.start(name)
    for name in ("webserver", "daemon"):
        services.wait_for(name)
    (location,) = services.ask(ASKED)["repositoriesOrError"]["nodes"]
    assert {"audit_pairs", "publish", "weekly_audit"} <= {job["name"] for job in location["jobs"]}
    assert "audit_what_changed" in {sensor["name"] for sensor in location["sensors"]}
    beats = server.query("corpus_audit", "SELECT count(*) FROM daemon_heartbeats")
    assert beats[0][0] > 0, "in the database"
    services.end("code")
    assert not services.is_well("code")
