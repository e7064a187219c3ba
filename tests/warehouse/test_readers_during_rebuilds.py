"""Ten readers query in a loop during rebuilds: no error, and no rows of two builds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_data_folder import Folder

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.warehouse.query import open_read_only, query_warehouse

MOST_REBUILDS = 5
# So that the build gets a turn on a small machine.
PAUSE_SECONDS = 0.2
# After which a reader is taken to hang, on a machine however busy.
PATIENCE_SECONDS = 600
# Every build has two documents and three examples more than the one before it.
DOCUMENTS, EXAMPLES = 12, 60
WHOLE = [(DOCUMENTS + 2 * build, EXAMPLES + 3 * build) for build in range(MOST_REBUILDS + 1)]

BOTH = "SELECT (SELECT count(*) FROM documents) AS documents, (SELECT count(*) FROM examples) AS examples"
# An analyst's own process, with nothing of ours: two statements on one connection, until there is a file named stop.
PLAIN = """
import json, sys, time, duckdb
from pathlib import Path
warehouse, stop = map(Path, sys.argv[1:])
TABLES = ("documents", "examples")
seen = []
while not stop.exists():
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        [[documents]], [[examples]] = (connection.sql(f"SELECT count(*) FROM {one}").fetchall() for one in TABLES)
        counts = documents, examples
    seen.append(counts)
    if len(seen) == 1:
        print("reading", flush=True)
    time.sleep(0.2)
print(json.dumps(seen))
"""

Counts = tuple[int, int]


@pytest.mark.parametrize("rebuilds", [2, pytest.param(MOST_REBUILDS, marks=pytest.mark.slow)])
def test_readers_see_whole_builds_only(folder: Folder, tmp_path: Path, rebuilds: int) -> None:

    def in_one_statement(warehouse: Path) -> Counts:
        (row,) = query_warehouse(warehouse, BOTH).to_pylist()
        return row["documents"], row["examples"]

    def write_for_build(folder: Folder, build: int) -> None:
        documents, examples = WHOLE[build]
        folder.write_documents("notes", n=documents)
        folder.write_examples("notes_32", n=examples)

    def in_two_statements(warehouse: Path) -> Counts:
        with open_read_only(warehouse) as connection:
            counts = [connection.sql(f"SELECT count(*) FROM {table}").fetchall() for table in ("documents", "examples")]
        [[(documents,)], [(examples,)]] = counts
        return documents, examples

    warehouse, stop = folder.paths.warehouse, tmp_path / "stop"
    write_for_build(folder, 0)
    build_warehouse(folder.paths)
    over = threading.Event()
    started = threading.Barrier(7 + 1)

    def read(look: Callable[[Path], Counts]) -> list[Counts]:
        seen = [look(warehouse)]
        started.wait(PATIENCE_SECONDS)
        while not over.is_set():
            seen.append(look(warehouse))
            time.sleep(PAUSE_SECONDS)
        return [*seen, look(warehouse)]

    command = [sys.executable, "-c", PLAIN, str(warehouse), str(stop)]
    plain = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for process in plain:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n"
        with ThreadPoolExecutor(7) as pool:
            threads = [pool.submit(read, look) for look in [in_one_statement] * 4 + [in_two_statements] * 3]
            started.wait(PATIENCE_SECONDS)
            try:
                for build in range(1, rebuilds + 1):
                    write_for_build(folder, build)
                    assert not build_warehouse(folder.paths).left_out
            finally:
                over.set()
                stop.touch()
            answers = [thread.result(PATIENCE_SECONDS) for thread in threads]
        for process in plain:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0
            answers.append([(documents, examples) for documents, examples in json.loads(output)])
    finally:
        for process in plain:
            process.kill()
            process.communicate()

    assert len(answers) == 10
    for seen in answers:
        assert set(seen) <= set(WHOLE[: rebuilds + 1]), "of one whole build"
        assert seen == sorted(seen), "and never of an earlier one than before"
    assert {counts for seen in answers for counts in seen} >= set(WHOLE[:3])
    assert in_one_statement(warehouse) == WHOLE[rebuilds]
    assert not list(folder.paths.root.glob("*.building"))
