"""Dagster's storage in a real PostgreSQL, with the dagster.yaml that docs/storage.md gives: the page cannot rot."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import Result
from made_workspace import Workspace, enter_workspace, made_documents, make_workspace, quick_folder, temporal

from audit_pipeline.operate.dagster.in_process import HOST_TAG, PROCESS_TAG

ROOT = Path(__file__).parent.parent.parent
DOCUMENTED = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "storage.md").read_text(encoding="utf-8"), re.DOTALL)
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
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(POSTGRES is None, reason="there is no PostgreSQL on this machine (initdb, pg_ctl)"),
    pytest.mark.skipif(
        importlib.util.find_spec("dagster_postgres") is None, reason="dagster-postgres is not installed"
    ),
]


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


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Started in a folder of its own, with a password, and ended with the module."""
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


@dataclass(frozen=True)
class Shared:
    """A workspace whose Dagster lives in a database, and what its first audit printed."""

    root: Path
    database: str
    first: Result


def enter(root: Path, server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The workspace with the variables that the page names."""
    workspace = enter_workspace(root, monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(root / "home"))
    monkeypatch.setenv("CORPUS_AUDIT_LOGS", str(root / "logs"))
    for name, value in server.variables(database).items():
        monkeypatch.setenv(name, value)
    return workspace


@pytest.fixture(scope="module")
def audited(
    server: Server,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_folder: Callable[[str], Path],
    one_thread: None,
) -> Iterator[Shared]:
    assert DOCUMENTED is not None
    server.query("postgres", "CREATE DATABASE corpus_audit")
    with quick_folder(tmp_path_factory.mktemp("postgres")) as folder:
        with pytest.MonkeyPatch.context() as patch:
            root = folder / "made"
            workspace = make_workspace(root, patch, one=tiny_folder("llama"))
            workspace.write_benchmarks(made=temporal([8, 12]))
            workspace.hold(*made_documents(2, 40))
            (root / "home").mkdir()
            (root / "home" / "dagster.yaml").write_text(DOCUMENTED[1], encoding="utf-8")
            enter(root, server, "corpus_audit", patch)
            first = workspace.run("audit", "--model", "one", "--benchmark", "made")
        yield Shared(root, "corpus_audit", first)


@pytest.fixture
def workspace(audited: Shared, server: Server, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return enter(audited.root, server, audited.database, monkeypatch)


def test_an_audit_keeps_its_records_in_the_database_and_nowhere_else(
    audited: Shared, workspace: Workspace, server: Server
) -> None:
    assert audited.first.exit_code == 0, audited.first.output
    assert DOCUMENTED is not None
    assert (audited.root / "home" / "dagster.yaml").read_text(encoding="utf-8") == DOCUMENTED[1], "left alone"
    assert not workspace.paths.dagster_home.exists()
    assert not [path for path in audited.root.rglob("*") if path.suffix in (".db", ".sqlite")]
    partitions = server.query(audited.database, "SELECT partitions_def_name, partition FROM dynamic_partitions")
    assert sorted(partitions) == [("benchmark", "made_12"), ("benchmark", "made_8"), ("model", "one")]
    jobs = server.query(audited.database, "SELECT pipeline_name, status FROM runs")
    assert {name for name, _ in jobs} >= {"refresh_sources", "build_benchmarks", "audit_pairs", "publish"}
    assert {status for _, status in jobs} == {"SUCCESS"}
    pools = dict(
        server.query(audited.database, "SELECT concurrency_key, count(run_id) FROM concurrency_slots GROUP BY 1")
    )
    assert pools == {"gpu": 0, "duckdb_writer": 0}, "one slot a pool, none held"
    assert any((audited.root / "logs").rglob("*.err"))
    assert "made_12" in workspace.run("sql", "SELECT benchmark FROM leaderboard").stdout


def test_a_dead_run_is_buried_and_the_next_audit_finds_all_cached(
    audited: Shared, workspace: Workspace, server: Server
) -> None:
    with dg.DagsterInstance.get() as instance:
        job = dg.JobDefinition(name="made", graph_def=dg.GraphDefinition(name="made"))
        tags = {HOST_TAG: socket.gethostname(), PROCESS_TAG: f"{os.getpid()}@12.34"}
        dead = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED).run_id
        claim = instance.event_log_storage.claim_concurrency_slot("gpu", dead, "step")
        assert claim.is_claimed
        assert "stale runs" in [line.split("  ")[1].strip() for line in doctor(workspace) if line.startswith("!!")]
    parts = workspace.parts()
    result = workspace.run("audit", "--model", "one", "--benchmark", "made", "--again")
    assert result.exit_code == 0, result.output
    assert "marked 1 dead run(s) of this machine failed" in result.stderr
    assert len(re.findall(r"made_\d+\|one: \d+ texts from the cache, 0 computed", result.stderr)) == 2
    assert workspace.parts() == parts
    [(status,)] = server.query(audited.database, f"SELECT status FROM runs WHERE run_id = '{dead}'")
    assert status == "FAILURE"
    assert server.query(audited.database, "SELECT count(run_id) FROM concurrency_slots") == [(0,)]


def doctor(workspace: Workspace) -> list[str]:
    return workspace.run("doctor").stdout.splitlines()


def test_the_doctor_opens_the_storage_and_says_when_it_cannot(workspace: Workspace) -> None:
    [home] = [line for line in doctor(workspace) if "Dagster home" in line]
    assert home.startswith("ok")
    assert home.rstrip().endswith("storage postgres")
    workspace.monkeypatch.setenv("CORPUS_AUDIT_PG_PASSWORD", "wrong")
    workspace.monkeypatch.setattr("dagster_postgres.utils.calculate_delay", lambda **how: 0.0)
    [storage] = [line for line in doctor(workspace) if "Dagster storage" in line]
    assert storage.startswith("!!")
    assert "cannot be opened" in storage


def test_a_benchmark_is_forgotten_there_too(audited: Shared, workspace: Workspace, server: Server) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    result = workspace.run("forget", "--benchmark", "made_12")
    assert result.exit_code == 0, result.output
    partitions = server.query(audited.database, "SELECT partition FROM dynamic_partitions ORDER BY 1")
    assert partitions == [("made_8",), ("one",)]
    assert "made_12" not in workspace.run("sql", "SELECT benchmark FROM leaderboard").stdout


def test_the_pins_are_those_of_the_installed_dagster() -> None:
    import importlib.metadata
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pin = f"dagster-postgres=={importlib.metadata.version('dagster-postgres')}"
    assert pin in project["project"]["optional-dependencies"]["postgres"]
    assert pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    needs = importlib.metadata.requires("dagster-postgres") or []
    assert f"dagster=={importlib.metadata.version('dagster')}" in needs


def test_the_documented_file_holds_no_secret_and_the_settings_of_the_default_one(workspace: Workspace) -> None:
    from audit_pipeline.operate.dagster.in_process import ensure_dagster_home

    assert DOCUMENTED is not None
    documented = yaml.safe_load(DOCUMENTED[1])
    database = documented["storage"]["postgres"]["postgres_db"]
    assert {name for name, value in database.items() if not isinstance(value, dict)} == {"scheme"}
    assert all(set(value) == {"env"} for name, value in database.items() if name != "scheme")
    workspace.monkeypatch.setenv("DAGSTER_HOME", str(workspace.root / "default"))
    default = yaml.safe_load((ensure_dagster_home(workspace.paths) / "dagster.yaml").read_text())
    assert {name: documented[name] for name in default} == default
