"""A PostgreSQL server for tests, on the loopback interface."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from live_workspace import end, find_free_ports

START_SECONDS = 60.0


def _find_programs() -> Path | None:
    """Return the folder of the server's programs: on the PATH, or the newest folder of Debian."""
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(debian, key=lambda folder: float(folder.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


POSTGRES = _find_programs()


@dataclass(frozen=True)
class Server:
    """A running server and its superuser."""

    port: int
    user: str
    password: str

    def variables(self, database: str) -> dict[str, str]:
        """Return the environment variables with which Corpus Audit uses a database of the server."""
        return {
            "CORPUS_AUDIT_PG_HOST": "127.0.0.1",
            "CORPUS_AUDIT_PG_PORT": str(self.port),
            "CORPUS_AUDIT_PG_DATABASE": database,
            "CORPUS_AUDIT_PG_USER": self.user,
            "CORPUS_AUDIT_PG_PASSWORD": self.password,
        }

    def query(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        import psycopg2

        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, dbname=database
        )
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()


@contextmanager
def running_postgres() -> Iterator[Server]:
    """Run a server with the empty database corpus_audit within the block."""
    import psycopg2

    assert POSTGRES is not None
    folder = Path(tempfile.mkdtemp(prefix="corpus-audit-postgres-"))
    [port] = find_free_ports(1)
    server = Server(port, "auditor", secrets.token_hex(8))
    (folder / "password").write_text(server.password)
    account: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        # PostgreSQL does not run as root.
        account |= {"user": "nobody", "group": None}
        for path in (folder, folder / "password"):
            shutil.chown(path, "nobody")
    initdb = [str(POSTGRES / "initdb"), "-D", str(folder / "data"), "-U", server.user, "--pwfile=password"]
    initdb += ["--auth=password", "--no-sync", "--encoding=UTF8", "--locale=C"]
    subprocess.run(initdb, check=True, capture_output=True, **account)
    command = [str(POSTGRES / "postgres"), "-D", str(folder / "data")]
    for setting in (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"):
        command += ["-c", setting]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **account)
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    server.query("postgres", "CREATE DATABASE corpus_audit")
                    break
                except psycopg2.OperationalError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        pytest.fail((folder / "log").read_text())
                    time.sleep(0.1)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            end(process)
    shutil.rmtree(folder)
