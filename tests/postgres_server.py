"""A PostgreSQL of the tests' own: where its programs are, and running one on the loopback interface."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 60.0


def postgres_folder() -> Path | None:
    """The folder of the server's programs: on the PATH, or where Debian puts them; the newest."""
    on_path = [Path(found).resolve().parent] if (found := shutil.which("pg_ctl")) else []
    of_debian = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")),
        key=lambda folder: float(folder.parent.name),
        reverse=True,
    )
    return next((folder for folder in [*on_path, *of_debian] if (folder / "initdb").exists()), None)


POSTGRES = postgres_folder()


@dataclass(frozen=True)
class Server:
    """A PostgreSQL that listens on loopback, and its superuser."""

    port: int
    user: str
    password: str

    def variables(self, database: str) -> dict[str, str]:
        return {
            "CORPUS_AUDIT_PG_HOST": "127.0.0.1",
            "CORPUS_AUDIT_PG_PORT": str(self.port),
            "CORPUS_AUDIT_PG_DATABASE": database,
            "CORPUS_AUDIT_PG_USER": self.user,
            "CORPUS_AUDIT_PG_PASSWORD": self.password,
        }

    def query(self, database: str, statement: str) -> list[tuple[Any, ...]]:
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


def server_account() -> str | None:
    """Who runs the server: it refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_postgres() -> Iterator[Server]:
    """Started in a folder of its own, with a password, and ended at the end."""
    import psycopg2

    assert POSTGRES is not None
    account = server_account()
    folder = Path(tempfile.mkdtemp(prefix="corpus-audit-postgres-"))
    made = Server(free_port(), "auditor", secrets.token_hex(8))
    password_file = folder / "password"
    password_file.write_text(made.password)
    if account is not None:
        entry = pwd.getpwnam(account)
        for path in (folder, password_file):
            os.chown(path, entry.pw_uid, entry.pw_gid)
    as_account: dict[str, Any] = {"user": account, "group": None, "cwd": folder} if account else {"cwd": folder}
    data = folder / "data"
    subprocess.run(
        [
            *(POSTGRES / "initdb", "-D", data, "-U", made.user, "--auth=password"),
            *(f"--pwfile={password_file}", "--no-sync", "--encoding=UTF8", "--locale=C"),
        ],
        check=True,
        capture_output=True,
        **as_account,
    )
    log = (folder / "log").open("wb")
    settings = (f"port={made.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off")
    command = [str(POSTGRES / "postgres"), "-D", str(data), *(part for one in settings for part in ("-c", one))]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **as_account)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                made.query("postgres", "SELECT 1")
                break
            except psycopg2.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail((folder / "log").read_text())
                time.sleep(0.1)
        yield made
    finally:
        # A fast shutdown: connections are closed, not waited for.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(folder)
