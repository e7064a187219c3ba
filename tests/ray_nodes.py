"""A Ray cluster of two nodes on this machine, each with a loopback address and one CPU. Nodes can be killed one by one.

The processes of the cluster are identified by its token, which is in their environment. No other process is ended.
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
from itertools import chain
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
HEAD, SECOND = "127.0.0.1", "127.0.0.2"
_START = ["-c", "from ray.scripts.scripts import main; main()", "start", "--num-cpus=1", "--disable-usage-stats"]


class Nodes:
    """The cluster. A program that uses it needs the variables in ``environment``."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind((HEAD, 0))
            self.address = f"{HEAD}:{probe.getsockname()[1]}"
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_niceness": "0",
            # The monitor includes the memory of other processes on this machine.
            "RAY_memory_monitor_refresh_ms": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        port = self.address.rpartition(":")[2]
        self._start(HEAD, "--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false")
        self._start(SECOND, f"--address={self.address}")

    def _start(self, ip: str, *options: str) -> None:
        command = [sys.executable, *_START, f"--node-ip-address={ip}", "--object-store-memory=80000000", *options]
        environment = {**os.environ, **self.environment}
        subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=180)

    def processes(self, name: str = "", ip: str = HEAD) -> list[psutil.Process]:
        """Return the processes whose name begins with ``name``. If ``ip`` is SECOND: only those of the second node."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("RAY_AUTH_TOKEN") != self.environment["RAY_AUTH_TOKEN"]:
                    continue
                title = [process.name(), *process.cmdline()[:1]]
                options = [*process.cmdline(), *chain.from_iterable(parent.cmdline() for parent in process.parents())]
                is_there = ip == HEAD or f"--node_ip_address={ip}" in options
                if is_there and any(word.startswith(name) for word in title):
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]

    def at_work(self, ip: str = HEAD) -> list[psutil.Process]:
        """Return the processes that run a shard now."""
        return self.processes("ray::Worker.run", ip)

    def kill_second_node(self) -> None:
        """Kill the raylet of the second node and its children with signal 9, like a machine that fails."""
        [raylet] = self.processes("raylet", SECOND)
        for process in [raylet, *raylet.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    """Start the cluster, and end all of its processes at the end."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        nodes = Nodes(folder)
        try:
            yield nodes
        finally:
            for process in nodes.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            deadline = time.monotonic() + 20
            while nodes.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
