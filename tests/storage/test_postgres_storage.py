"""Dagster's storage in PostgreSQL, with the dagster.yaml of docs/storage.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import Result
from made_workspace import Workspace, enter_workspace, made_documents, make_workspace, quick_folder, temporal
from postgres_server import Server

from audit_pipeline.pipeline.dagster.instance import ensure_dagster_home
from audit_pipeline.pipeline.dagster.locks import lock_liveness_file

ROOT = Path(__file__).parent.parent.parent
DOCUMENTED = re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "storage.md").read_text(encoding="utf-8"), re.DOTALL)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
]


@dataclass(frozen=True)
class Shared:
    """A workspace whose Dagster storage is a database, and the output of its first audit."""

    root: Path
    database: str
    first: Result


def enter(root: Path, postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Enter the workspace with the variables that the page names."""
    workspace = enter_workspace(root, monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(root / "home"))
    monkeypatch.setenv("CORPUS_AUDIT_LOGS", str(root / "logs"))
    for name, value in postgres.variables(database).items():
        monkeypatch.setenv(name, value)
    return workspace


@pytest.fixture(scope="module")
def audited(
    postgres: Server,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_folder: Callable[[str], Path],
    one_thread: None,
) -> Iterator[Shared]:
    assert DOCUMENTED is not None
    with quick_folder(tmp_path_factory.mktemp("postgres")) as folder:
        with pytest.MonkeyPatch.context() as patch:
            root = folder / "made"
            workspace = make_workspace(root, patch, one=tiny_folder("llama"))
            workspace.write_benchmarks(made=temporal([8, 12]))
            workspace.hold(*made_documents(2, 40))
            (root / "home").mkdir()
            (root / "home" / "dagster.yaml").write_text(DOCUMENTED[1], encoding="utf-8")
            enter(root, postgres, "corpus_audit", patch)
            first = workspace.run("audit", "--model", "one", "--benchmark", "made")
        yield Shared(root, "corpus_audit", first)


@pytest.fixture
def workspace(audited: Shared, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return enter(audited.root, postgres, audited.database, monkeypatch)


def test_an_audit_keeps_its_records_in_the_database_and_nowhere_else(
    audited: Shared, workspace: Workspace, postgres: Server
) -> None:
    assert audited.first.exit_code == 0, audited.first.output
    assert DOCUMENTED is not None
    assert (audited.root / "home" / "dagster.yaml").read_text(encoding="utf-8") == DOCUMENTED[1], "left alone"
    assert not workspace.paths.dagster_home.exists()
    assert not [path for path in audited.root.rglob("*") if path.suffix in (".db", ".sqlite")]
    partitions = postgres.query(audited.database, "SELECT partitions_def_name, partition FROM dynamic_partitions")
    assert sorted(partitions) == [("benchmark", "made_12"), ("benchmark", "made_8"), ("model", "one")]
    jobs = postgres.query(audited.database, "SELECT pipeline_name, status FROM runs")
    assert {name for name, _ in jobs} >= {"refresh_sources", "build_benchmarks", "audit_pairs", "publish"}
    assert {status for _, status in jobs} == {"SUCCESS"}
    assert any((audited.root / "logs").rglob("*.err"))
    assert "made_12" in workspace.run("sql", "SELECT benchmark FROM leaderboard").stdout


def test_a_dead_run_is_marked_and_the_next_audit_uses_the_cache(
    audited: Shared, workspace: Workspace, postgres: Server
) -> None:
    with dg.DagsterInstance.get() as instance:
        job = dg.JobDefinition(name="made", graph_def=dg.GraphDefinition(name="made"))
        dead = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED).run_id
        lock_liveness_file(workspace.paths, dead).release()  # type: ignore[union-attr]
        assert dagster_line(workspace).startswith("!!")
    parts = workspace.parts()
    result = workspace.run("audit", "--model", "one", "--benchmark", "made", "--again")
    assert result.exit_code == 0, result.output
    assert "marked 1 dead run(s) of this machine, whose process has ended, as failed" in result.stderr
    assert len(re.findall(r"made_\d+\|one: \d+ texts from the cache, 0 computed", result.stderr)) == 2
    assert workspace.parts() == parts
    [(status,)] = postgres.query(audited.database, f"SELECT status FROM runs WHERE run_id = '{dead}'")
    assert status == "FAILURE"


def dagster_line(workspace: Workspace) -> str:
    """Return the doctor's line on Dagster."""
    lines = workspace.run("doctor").stdout.splitlines()
    [line] = [line for line in lines if line.split()[1:2] == ["Dagster"]]
    return line


def test_the_doctor_opens_the_storage_and_says_when_it_cannot(workspace: Workspace) -> None:
    assert dagster_line(workspace).startswith("ok")
    workspace.monkeypatch.setenv("CORPUS_AUDIT_PG_PASSWORD", "wrong")
    workspace.monkeypatch.setattr("dagster_postgres.utils.calculate_delay", lambda **how: 0.0)
    said = dagster_line(workspace)
    assert said.startswith("!!")
    assert "is unusable" in said


def test_a_benchmark_is_forgotten_there_too(audited: Shared, workspace: Workspace, postgres: Server) -> None:
    workspace.write_benchmarks(made=temporal([8]))
    result = workspace.run("forget", "--benchmark", "made_12")
    assert result.exit_code == 0, result.output
    partitions = postgres.query(audited.database, "SELECT partition FROM dynamic_partitions ORDER BY 1")
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
    assert DOCUMENTED is not None
    documented = yaml.safe_load(DOCUMENTED[1])
    database = documented["storage"]["postgres"]["postgres_db"]
    assert {name for name, value in database.items() if not isinstance(value, dict)} == {"scheme"}
    assert all(set(value) == {"env"} for name, value in database.items() if name != "scheme")
    workspace.monkeypatch.setenv("DAGSTER_HOME", str(workspace.root / "default"))
    default = yaml.safe_load((ensure_dagster_home(workspace.paths) / "dagster.yaml").read_text())
    assert {name: documented[name] for name in default} == default
