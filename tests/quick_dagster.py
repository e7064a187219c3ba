"""Dagster's SQLite storage without its repetitions: what is the same in every home, run and query is made once.

What belongs here: making an instance of Dagster quicker. What does not: instances in which a step is left out.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.execution import compute_logs
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy.engine import Engine

from audit_pipeline.pipeline.dagster.instance import DAGSTER_YAML


@contextmanager
def quick_storage(folder: Path) -> Iterator[None]:
    """Open instances quickly within the block. ``folder`` has the templates."""
    with pytest.MonkeyPatch.context() as patch:
        # To show what steps print, Dagster starts four processes a run, and on a busy machine their end fails the run.
        patch.setattr(compute_logs, "tail_to_stream", lambda path, stream: nullcontext((None, None)))
        _read_migrations_once(patch)
        _keep_engines(patch)
        _copy_new_runs(patch, folder / "run.db")
        _copy_new_homes(patch, folder / "home")
        yield


def _read_migrations_once(patch: pytest.MonkeyPatch) -> None:
    """Read the migration scripts of Dagster's databases once, not per instance."""
    known: dict[str | None, ScriptDirectory] = {}
    read = ScriptDirectory.from_config

    def read_once(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        return known.get(location) or known.setdefault(location, read(config))

    patch.setattr(ScriptDirectory, "from_config", read_once)


def _keep_engines(patch: pytest.MonkeyPatch) -> None:
    """Every query makes an engine, which compiles the statement anew: a database keeps its engine, and all share what
    is compiled. A query still opens its own connection."""
    make_engine = sqlite_event_log.create_engine
    made: dict[str, Engine] = {}
    compiled: dict[object, object] = {}

    def keep_engine(url: str, **options: Any) -> Engine:
        if url not in made:
            made[url] = engine = make_engine(url, **options)
            engine.dialect = next(iter(made.values())).dialect
            engine.update_execution_options(compiled_cache=compiled)
        return made[url]

    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        patch.setattr(module, "create_engine", keep_engine)


def _copy_new_runs(patch: pytest.MonkeyPatch, empty: Path) -> None:
    """Copy an empty database for each new run."""
    make_tables = SqliteEventLogStorage._initdb

    def copy_tables(storage: SqliteEventLogStorage, engine: Engine, for_index_shard: bool = False) -> None:
        file = Path(str(engine.url.database))
        if for_index_shard or file.exists():
            make_tables(storage, engine, for_index_shard)
        elif empty.exists():
            shutil.copyfile(empty, file)
        else:
            make_tables(storage, engine)
            shutil.copyfile(file, empty)

    patch.setattr(SqliteEventLogStorage, "_initdb", copy_tables)


def _copy_new_homes(patch: pytest.MonkeyPatch, empty: Path) -> None:
    """Copy the databases of an empty Dagster home, because creating them takes longer than most tests."""
    open_home = dg.DagsterInstance.from_config

    def open_copy(home: str) -> dg.DagsterInstance:
        settings = Path(home) / "dagster.yaml"
        if settings.read_text() == DAGSTER_YAML and not (Path(home) / "history").exists():
            if not empty.exists():
                empty.mkdir()
                (empty / "dagster.yaml").write_text(DAGSTER_YAML)
                with open_home(str(empty)) as made:
                    job = dg.JobDefinition(name="nothing", graph_def=dg.GraphDefinition(name="nothing"))
                    made.delete_run(made.create_run_for_job(job).run_id)
            shutil.copytree(empty, home, dirs_exist_ok=True)
        return open_home(home)

    patch.setattr(dg.DagsterInstance, "from_config", open_copy)
