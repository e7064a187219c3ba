"""The services of the compose file, started by their own commands and checked by their own health checks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed import FOLDER, WITH_SECRETS, composed
from live_workspace import end, find_free_ports, graphql
from made_workspace import Workspace, temporal
from postgres_server import Server

pytestmark = pytest.mark.slow

SERVICES: dict[str, Any] = composed()["services"]
READY_SECONDS = 240.0
ASKED = "{ repositoriesOrError { ... on RepositoryConnection { nodes { jobs { name } sensors { name } } } } }"


def test_all_services_start_in_their_order_and_reach_each_other(workspace: Workspace, postgres: Server) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    ports = dict(zip(("3000", "4000"), map(str, find_free_ports(2)), strict=True))
    home = workspace.root / "home"
    home.mkdir()
    shutil.copy(FOLDER / "dagster.yaml", home)
    location = yaml.safe_load((FOLDER / "workspace.yaml").read_text(encoding="utf-8"))
    location["load_from"][0]["grpc_server"] |= {"host": "127.0.0.1", "port": int(ports["4000"])}
    (home / "workspace.yaml").write_text(yaml.safe_dump(location), encoding="utf-8")
    password = workspace.root / "postgres_password"
    password.write_text(postgres.password + "\n", encoding="utf-8")
    # All services have one environment, as in the compose file.
    environment = {
        **os.environ,
        **postgres.variables("corpus_audit"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CORPUS_AUDIT_PG_PASSWORD_FILE": str(password),
        "CORPUS_AUDIT_LOGS": str(workspace.root / "logs"),
        "DAGSTER_HOME": str(home),
    }
    del environment["CORPUS_AUDIT_PG_PASSWORD"]
    processes: dict[str, subprocess.Popen[bytes]] = {}
    log = workspace.root / "log"

    def localise(command: list[str]) -> list[str]:
        """Return a command of the file for this machine: on loopback, with another Dagster home."""
        places = {
            "/usr/local/bin/with-secrets": str(WITH_SECRETS),
            "0.0.0.0": "127.0.0.1",
            "/srv/corpus-audit/home/workspace.yaml": str(home / "workspace.yaml"),
            **ports,
        }
        changed = [places.get(part, part) for part in command]
        address = re.compile(r"127\.0\.0\.1:(\d+)")
        return [address.sub(lambda match: f"127.0.0.1:{ports[match[1]]}", part) for part in changed]

    def start(name: str) -> None:
        # The entry point of the image is in front of the service's command.
        command = [str(WITH_SECRETS), *localise(SERVICES[name]["command"])]
        with log.open("ab") as file:
            processes[name] = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def is_well(name: str) -> bool:
        kind, *check = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return subprocess.run(localise(check), env=environment, capture_output=True, check=False).returncode == 0

    def wait_for(name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not is_well(name):
            assert processes[name].poll() is None, f"{name} ended: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{name} is not well: {log.read_text()[-3000:]}"
            time.sleep(1)

    try:
        assert not is_well("code"), "nothing runs yet"
        start("code")
        wait_for("code")
        for name in ("webserver", "daemon"):
            assert not is_well(name), "a health check that always succeeds would check nothing"
            start(name)
        for name in ("webserver", "daemon"):
            wait_for(name)
        (found,) = graphql(f"http://127.0.0.1:{ports['3000']}", ASKED)["repositoriesOrError"]["nodes"]
        assert {"audit_pairs", "publish", "weekly_audit"} <= {job["name"] for job in found["jobs"]}
        assert "audit_what_changed" in {sensor["name"] for sensor in found["sensors"]}
        beats = postgres.query("corpus_audit", "SELECT count(*) FROM daemon_heartbeats")
        assert beats[0][0] > 0, "in the database"
        end(processes["code"])
        assert not is_well("code")
    finally:
        for process in reversed(processes.values()):
            end(process)
