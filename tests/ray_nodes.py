"""Ray nodes on this machine, each on a loopback address of its own, that can be killed one by one.

All processes of a cluster are told by its token, which is in their environment: nothing else is ever ended.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
HEAD, SECOND = "127.0.0.1", "127.0.0.2"
_ONE_CPU = ("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")
_RAY = "from ray.scripts.scripts import main; main()"


@dataclass(frozen=True)
class Nodes:
    """A Ray cluster of nodes of one CPU each, without the dashboard; ``environment`` is that of who is to use it."""

    port: int
    folder: str
    environment: dict[str, str]

    @property
    def address(self) -> str:
        return f"{HEAD}:{self.port}"

    def add(self, ip: str) -> None:
        """Start a node; the first one is the head."""
        role = (
            ["--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false"]
            if ip == HEAD
            else [f"--address={self.address}"]
        )
        subprocess.run(
            [sys.executable, "-c", _RAY, "start", *role, f"--node-ip-address={ip}", *_ONE_CPU],
            env={**os.environ, **self.environment},
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=180,
        )

    def processes(self) -> list[psutil.Process]:
        """Everything that the cluster consists of, the program that uses it excepted."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                mine = process.environ().get("RAY_AUTH_TOKEN") == self.environment["RAY_AUTH_TOKEN"]
                if mine and process.pid != os.getpid():
                    found.append(process)
        return found

    def at_work(self, ip: str | None = None) -> list[psutil.Process]:
        """The processes that run a shard now; of one node, where that is said."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                titled = process.cmdline()[:1] == ["ray::Worker.run"]
                if titled and (ip is None or process.ppid() == self._raylet(ip).pid):
                    found.append(process)
        return found

    def kill_node(self, ip: str) -> None:
        """Kill -9 the node's raylet and all that it has started, as a machine that goes down does."""
        raylet = self._raylet(ip)
        for process in [raylet, *raylet.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _raylet(self, ip: str) -> psutil.Process:
        [raylet] = [
            process
            for process in self.processes()
            if process.name() == "raylet" and f"--node_ip_address={ip}" in process.cmdline()
        ]
        return raylet


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    """Two nodes; whatever is left of the cluster is ended behind the block."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder, socket.socket() as probe:
        probe.bind((HEAD, 0))
        port = probe.getsockname()[1]
        probe.close()
        environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_niceness": "0",
            # It looks at the whole machine's memory, which others use too.
            "RAY_memory_monitor_refresh_ms": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        nodes = Nodes(port, folder, environment)
        try:
            nodes.add(HEAD)
            nodes.add(SECOND)
            yield nodes
        finally:
            for process in nodes.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            deadline = time.monotonic() + 20
            while nodes.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
