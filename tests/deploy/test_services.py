"""The services of the compose file, started by their own commands and checked by their own health checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed import FOLDER, WITH_SECRETS, composed, outside
from live_workspace import end, find_free_ports, graphql
from made_workspace import Workspace, temporal
from postgres_server import Server

pytestmark = pytest.mark.slow

SERVICES: dict[str, Any] = composed()["services"]
READY_SECONDS = 240.0
ASKED = "{ repositoriesOrError { ... on RepositoryConnection { nodes { jobs { name } sensors { name } } } } }"


class Services:
    """The processes of the services by name, with one environment for all, as in the compose file."""

    def __init__(self, workspace: Workspace, server: Server) -> None:
        self.ports = dict(zip(("3000", "4000"), map(str, find_free_ports(2)), strict=True))
        self.home = workspace.root / "home"
        self.home.mkdir()
        shutil.copy(FOLDER / "dagster.yaml", self.home)
        place = yaml.safe_load((FOLDER / "workspace.yaml").read_text(encoding="utf-8"))
        place["load_from"][0]["grpc_server"] |= {"host": "127.0.0.1", "port": int(self.ports["4000"])}
        (self.home / "workspace.yaml").write_text(yaml.safe_dump(place), encoding="utf-8")
        password = workspace.root / "postgres_password"
        password.write_text(server.password + "\n", encoding="utf-8")
        self.environment = {
            **os.environ,
            **server.variables("corpus_audit"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CORPUS_AUDIT_PG_PASSWORD_FILE": str(password),
            "CORPUS_AUDIT_LOGS": str(workspace.root / "logs"),
            "DAGSTER_HOME": str(self.home),
        }
        del self.environment["CORPUS_AUDIT_PG_PASSWORD"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = workspace.root / "log"

    def start(self, name: str) -> None:
        """Start a service: the entry point of the image in front of the service's command."""
        command = [str(WITH_SECRETS), *outside(SERVICES[name]["command"], self.ports, self.home)]
        with self.log.open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def is_well(self, name: str) -> bool:
        """Return the result of the service's own health check."""
        kind, *check = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        command = outside(check, self.ports, self.home)
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_well(name):
            assert self.processes[name].poll() is None, f"{name} ended: {self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{name} is not well: {self.log.read_text()[-3000:]}"
            time.sleep(1)


@pytest.fixture
def services(workspace: Workspace, postgres: Server) -> Iterator[Services]:
    workspace.write_benchmarks(made=temporal([8]))
    made = Services(workspace, postgres)
    yield made
    for process in reversed(made.processes.values()):
        end(process)


def test_all_services_start_in_their_order_and_reach_each_other(services: Services, postgres: Server) -> None:
    assert not services.is_well("code"), "nothing runs yet"
    services.start("code")
    services.wait_for("code")
    for name in ("webserver", "daemon"):
        assert not services.is_well(name), "a health check that is always content would be none"
        services.start(name)
    for name in ("webserver", "daemon"):
        services.wait_for(name)
    (location,) = graphql(f"http://127.0.0.1:{services.ports['3000']}", ASKED)["repositoriesOrError"]["nodes"]
    assert {"audit_pairs", "publish", "weekly_audit"} <= {job["name"] for job in location["jobs"]}
    assert "audit_what_changed" in {sensor["name"] for sensor in location["sensors"]}
    beats = postgres.query("corpus_audit", "SELECT count(*) FROM daemon_heartbeats")
    assert beats[0][0] > 0, "in the database"
    end(services.processes["code"])
    assert not services.is_well("code")
