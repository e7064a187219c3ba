"""The ledger: its chain, its files, and writers that are killed, fail or run concurrently."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.workspace_state import WorkspaceState
from audit_pipeline.store import ledger as ledger_module
from audit_pipeline.store import store
from audit_pipeline.store.files import write_table
from audit_pipeline.store.integrity import DamagedError, file_sha256, package_versions
from audit_pipeline.store.ledger import (
    MAX_REASON,
    LineageStep,
    erase_lines,
    file_of,
    find_run_outcome,
    find_writing_run,
    has_entries,
    is_latest_file_whole,
    read_latest_run,
    read_ledger,
    record_entry,
    record_outcome,
)
from audit_pipeline.store.ledger_records import START, Ledger, format_line, parse_lines
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import EXAMPLES, SCORES, TABLES, Pair
from audit_pipeline.tables.table import Column, Table

COLUMNS = (Column("score", pa.float64(), "a number"), Column("run_id", pa.string(), "the run"))
MADE_SCORES = Table("scores", "made up", columns=COLUMNS, key=("run_id",), partitioned_by="pair", storage="runs")
MADE_EXAMPLES = Table(
    "examples", "made up", columns=COLUMNS, key=("run_id",), partitioned_by="benchmark", storage="rewritten"
)
PAIR = Pair("b_32", "org/model")


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path)


def step(run_id: str) -> LineageStep:
    return LineageStep.now(run_id, "scores", "7")


def record(paths: DataPaths, run_id: str, partition: str = "b|m") -> str:
    """Append a line without a file and return its digest."""
    record_entry(paths, step(run_id), SCORES, partition, data_version="v", upstream={})
    return read_ledger(paths).head


def write_rows(paths: DataPaths, table: Table, partition: str, run_id: str, *scores: float) -> Path:
    rows = pa.Table.from_pylist([{"score": score, "run_id": run_id} for score in scores], schema=MADE_SCORES.schema)
    store.write(paths, step(run_id), table, partition, rows, data_version=f"of {run_id}", upstream={})
    return file_of(paths, table, partition, run_id)


# The chain.


def chain_of(length: int, *, partition: str = "b|m") -> list[bytes]:
    lines: list[bytes] = []
    previous = START
    for number in range(length):
        at = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=number)).isoformat()
        fields = {"table": "scores", "partition": partition, "run_id": f"run-{number}", "asset_key": "scores"}
        fields |= {"code_version": "1", "data_version": "v", "upstream": {}, "packages": {}}  # type: ignore[dict-item]
        lines.append(format_line(previous, {**fields, "started_at": at, "finished_at": at}))
        previous = json.loads(lines[-1])["digest"]
    return lines


def test_a_line_by_hand() -> None:
    rest = b'"table": "scores", "partition": "b|\\u00fc", "rows": 3'
    digest = hashlib.sha256(b"0" * 64 + rest).hexdigest()
    fields = {"rows": 3, "table": "scores", "partition": "b|ü"}
    line = format_line(START, fields)
    assert line == b'{"digest": "%b", "previous": "%b", %b}\n' % (digest.encode(), b"0" * 64, rest)
    [parsed] = parse_lines(line)
    assert (parsed.digest, parsed.previous, parsed.fields) == (digest, START, fields)
    assert parse_lines(line + line[:-1]) == [parsed], "a torn last line is none"


@given(st.integers(2, 9), st.data())
def test_every_change_of_a_line_is_detected(length: int, data: st.DataObject) -> None:

    def find_problems(lines: list[bytes]) -> list[str]:
        found = Ledger()
        found.extend(parse_lines(b"".join(lines)))
        return found.problems

    def empty_line(line: bytes) -> bytes:
        """Return the line without its fields, as forgetting leaves it."""
        digest, previous = (json.loads(line)[name].encode() for name in ("digest", "previous"))
        return b'{"digest": "%b", "previous": "%b"}\n' % (digest, previous)

    lines = chain_of(length)
    forgotten = data.draw(st.sets(st.integers(0, length - 1), max_size=2))
    for number in forgotten:
        lines[number] = empty_line(lines[number])
    assert find_problems(lines) == []
    place = data.draw(st.integers(0, length - 2))
    match data.draw(st.sampled_from(["removed", "moved", "put in", "changed"])):
        case "removed":
            del lines[place]
        case "moved":
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
        case "put in":
            lines.insert(place, chain_of(1, partition="other|m")[0])
        case _:
            line = bytearray(lines[place])
            line[data.draw(st.integers(0, len(line) - 2))] ^= 1 << data.draw(st.integers(0, 6))
            lines[place] = bytes(line)
    assert find_problems(lines)


@pytest.mark.slow
def test_a_hundred_thousand_lines_are_checked_in_about_a_second(paths: DataPaths) -> None:
    paths.ledger.mkdir(parents=True)
    paths.ledger_file.write_bytes(b"".join(chain_of(100_000)))
    started = time.process_time()
    ledger = read_ledger(paths)
    assert time.process_time() - started < 3, "below 1 s on an idle machine"
    assert (len(ledger.entries), ledger.problems) == (100_000, [])
    started = time.process_time()
    read_ledger(paths)
    record(paths, "one more")
    assert time.process_time() - started < 1
    assert len(read_ledger(paths).entries) == 100_001


# Appending.


def test_an_entry_records_the_origin_of_rows(paths: DataPaths) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    origin = {"model_fingerprint": "m", "tokenizer_fingerprint": "t", "benchmark_digest": "d", "settings": {"a": 1}}
    record_entry(
        paths,
        step("run-1"),
        SCORES,
        PAIR,
        data_version="v1",
        upstream={"examples/b_32": "e1"},
        **origin,  # type: ignore[arg-type]
    )
    [entry] = read_ledger(paths).entries
    assert (entry.table, entry.partition, entry.run_id) == ("scores", "b_32|org/model", "run-1")
    assert (entry.asset_key, entry.code_version, entry.data_version) == ("scores", "7", "v1")
    assert {name: getattr(entry, name) for name in origin} == origin
    assert (entry.upstream, entry.packages) == ({"examples/b_32": "e1"}, dict(package_versions()))
    assert (entry.rows, entry.file_sha256, entry.line_number, entry.previous) == (None, None, 1, START)
    assert before < entry.started_at <= entry.finished_at
    assert has_entries(paths, SCORES, PAIR)
    assert not has_entries(paths, SCORES, "b|m")


def test_each_line_names_the_previous_line_and_its_file(paths: DataPaths) -> None:
    files = [write_rows(paths, MADE_SCORES, f"b_{number % 2}|m", f"run-{number}", 0.5) for number in range(3)]
    ledger = read_ledger(paths)
    assert [entry.previous for entry in ledger.entries] == [START, *(entry.digest for entry in ledger.entries[:2])]
    assert [entry.file_sha256 for entry in ledger.entries] == list(map(file_sha256, files))
    assert [entry.file(paths) for entry in ledger.entries] == files
    assert [entry.rows for entry in ledger.list_entries("scores", "b_0|m")] == [1, 1]
    assert ledger.head == ledger.entries[-1].digest
    assert ledger.problems == []


def test_an_append_reads_only_the_end_of_the_ledger(paths: DataPaths) -> None:
    record(paths, "run-0")
    line = paths.ledger_file.read_bytes()
    with paths.ledger_file.open("wb") as file:
        # A hole of 64 gigabytes: reading it would take a minute.
        file.truncate(1 << 36)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line)
    record_entry(paths, step("run-1"), SCORES, "b|m", data_version="v", upstream={})
    with paths.ledger_file.open("rb") as file:
        file.seek(1 << 36)
        first, second = parse_lines(file.read().lstrip(b"\n"))
    assert second.previous == first.digest


@pytest.mark.parametrize("length", [1, 10, 70_000])
def test_an_incomplete_last_line_is_removed(paths: DataPaths, length: int) -> None:
    record(paths, "run-0")
    with paths.ledger_file.open("ab") as file:
        file.write(format_line(read_ledger(paths).head, {"table": "scores", "partition": "x" * length})[:-5])
    assert len(read_ledger(paths).lines) == 1
    record(paths, "run-1")
    ledger = read_ledger(paths)
    assert [entry.run_id for entry in ledger.entries] == ["run-0", "run-1"]
    assert ledger.problems == []


KILLED_WRITER = """
import os, sys
from pathlib import Path
import pyarrow as pa
from audit_pipeline.store import ledger, store
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.table import Column, Table

ledger.move_into_place = lambda *given: os.kill(os.getpid(), 9)
columns = (Column("score", pa.float64(), "a number"), Column("run_id", pa.string(), "the run"))
table = Table("examples", "made up", columns=columns, key=("run_id",), partitioned_by="benchmark", storage="rewritten")
rows = pa.Table.from_pylist([{"score": 0.7, "run_id": "run-1"}], schema=table.schema)
step = ledger.LineageStep.now("run-1", "scores", "7")
store.write(DataPaths(Path(sys.argv[1])), step, table, "b", rows, data_version="of run-1", upstream={})
"""


def test_a_kill_between_line_and_file_keeps_the_previous_file(paths: DataPaths) -> None:
    file = write_rows(paths, MADE_EXAMPLES, "b", "run-0", 0.5)
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(paths.root)], check=False)
    assert killed.returncode == -9
    ledger = read_ledger(paths)
    assert ([entry.run_id for entry in ledger.entries], ledger.problems) == (["run-0", "run-1"], [])
    assert file_sha256(file) == ledger.entries[0].file_sha256
    assert store.read(paths, MADE_EXAMPLES, "b", label="b")["score"].to_pylist() == [0.5]
    assert not is_latest_file_whole(paths, "examples", "b")
    write_rows(paths, MADE_EXAMPLES, "b", "run-2", 0.9)
    assert is_latest_file_whole(paths, "examples", "b")
    assert read_ledger(paths).problems == []


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()], ids=str)
def test_the_line_of_a_file_that_cannot_be_moved_is_removed(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write_rows(paths, MADE_SCORES, "b|m", "run-0", 0.5)
    before, move = paths.ledger_file.read_bytes(), ledger_module.move_into_place

    def fail(*given: Path) -> None:
        raise error

    def fail_afterwards(*given: Path) -> None:
        move(*given)
        raise error

    monkeypatch.setattr(ledger_module, "move_into_place", fail)
    with pytest.raises(type(error)):
        write_rows(paths, MADE_SCORES, "b|m", "run-1", 0.5)
    assert paths.ledger_file.read_bytes() == before
    assert len(read_ledger(paths).entries) == 1
    assert [file.name for file in paths.table("scores").rglob("*") if file.is_file()] == ["run_id=run-0.parquet"]
    monkeypatch.setattr(ledger_module, "move_into_place", fail_afterwards)
    with pytest.raises(type(error)):
        write_rows(paths, MADE_SCORES, "b|m", "run-1", 0.5)
    assert read_latest_run(paths, "scores", "b|m").run_id == "run-1", "no file is without its line"
    assert read_ledger(paths).problems == []


WRITER = """
import sys
from pathlib import Path
from audit_pipeline.tables import SCORES
from audit_pipeline.store.ledger import LineageStep, record_entry
from audit_pipeline.store.paths import DataPaths

for number in range(30):
    step = LineageStep.now(f"run-{sys.argv[2]}-{number}", "scores", "1")
    record_entry(DataPaths(Path(sys.argv[1])), step, SCORES, "b|m", data_version="v", upstream={})
"""


def test_two_concurrent_processes_write_one_chain(paths: DataPaths) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(paths.root), name]) for name in ("a", "b")]
    while any(process.poll() is None for process in processes):
        assert read_ledger(paths).problems == [], "nor does a reader see half a line"
        time.sleep(0.02)
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    ledger = read_ledger(paths)
    assert (len({entry.run_id for entry in ledger.entries}), ledger.problems) == (60, [])


# Forgetting.


def test_forgotten_lines_keep_their_place_without_names(paths: DataPaths) -> None:
    digests = [record(paths, f"run-{number}", f"secret_{number}|m") for number in range(4)]
    erase_lines(paths, digests[1:3])
    ledger = read_ledger(paths)
    assert [line.digest for line in ledger.lines] == digests
    assert [entry.run_id for entry in ledger.entries] == ["run-0", "run-3"]
    assert [entry.line_number for entry in ledger.entries] == [1, 4]
    assert (ledger.forgotten_count, ledger.problems) == (2, [])
    assert not ledger.list_entries("scores", "secret_1|m")
    content = paths.ledger_file.read_bytes()
    assert b"secret_1" not in content
    assert b"secret_2" not in content
    erase_lines(paths, [digests[3]])
    erase_lines(paths, digests)
    record(paths, "run-4")
    assert (read_ledger(paths).forgotten_count, read_ledger(paths).problems) == (4, [])


# Reading.


def test_an_incompatible_layout_is_refused(paths: DataPaths) -> None:
    (paths.root / "lineage").mkdir()
    for ask in (read_ledger, partial(record, run_id="run-0")):
        with pytest.raises(DataError, match="made by another version of Corpus Audit: start a new folder"):
            ask(paths)


def test_the_latest_run_is_the_last_run_with_a_file(paths: DataPaths) -> None:
    record(paths, "run-0")
    with pytest.raises(DataError, match=r"there are no scores of b\|m yet"):
        read_latest_run(paths, "scores", "b|m")
    for run in ("run-1", "run-2"):
        write_rows(paths, MADE_SCORES, "b|m", run, 0.5)
    # Killed between its line and its rows; and a run of another partition, later.
    record(paths, "run-3")
    write_rows(paths, MADE_SCORES, "b|m2", "run-4", 0.5)
    assert read_latest_run(paths, "scores", "b|m").run_id == "run-2"
    assert read_latest_run(paths, "scores", "b|m2").run_id == "run-4"
    content = paths.ledger_file.read_bytes()
    other = paths.ledger_file.with_name("other")
    other.write_bytes(content.replace(b'"run_id": "run-2"', b'"run_id": "run-9"'))
    other.replace(paths.ledger_file)
    with pytest.raises(DamagedError, match=r"the ledger has no intact line for .*run_id=run-2\.parquet"):
        read_latest_run(paths, "scores", "b|m")


def test_the_latest_run_of_a_rewritten_table_is_the_run_of_its_file(paths: DataPaths) -> None:
    with pytest.raises(DataError, match="there are no examples of b yet"):
        read_latest_run(paths, "examples", "b")
    for run in ("run-1", "run-2"):
        rows = EXAMPLES.schema.empty_table()
        store.write(paths, step(run), EXAMPLES, "b", rows, data_version=f"of {run}", upstream={})
    assert read_latest_run(paths, "examples", "b").run_id == "run-2"
    paths.examples("b").write_bytes(b"other bytes")
    with pytest.raises(DamagedError, match="the ledger has no intact line for"):
        read_latest_run(paths, "examples", "b")


@pytest.mark.parametrize("place", [30, -200, -3])
def test_a_file_with_a_flipped_bit_is_refused(paths: DataPaths, place: int) -> None:
    file = write_rows(paths, MADE_SCORES, "b|m", "run-1", 0.5)
    read = partial(store.read, paths, MADE_SCORES, "b|m", run_id="run-1", label="the scores of b|m")
    assert read()["score"].to_pylist() == [0.5]
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    with pytest.raises(DamagedError, match=r"the scores of b\|m is damaged: .*run-1\.parquet is corrupt"):
        read()
    file.unlink()
    with pytest.raises(DataError, match="has not been built yet"):
        read()


def test_a_rewritten_file_may_come_from_an_earlier_run(paths: DataPaths) -> None:
    read = partial(store.read, paths, MADE_EXAMPLES, "b", label="b")
    assert find_writing_run(paths, MADE_EXAMPLES, "b") is None
    file = write_rows(paths, MADE_EXAMPLES, "b", "run-1", 1.0)
    before = file.read_bytes()
    write_rows(paths, MADE_EXAMPLES, "b", "run-2", 2.0)
    found = find_writing_run(paths, MADE_EXAMPLES, "b")
    assert found is not None
    assert (found.run_id, read()["score"].to_pylist()) == ("run-2", [2.0])
    # A run that died between its line and its rows leaves those of the run before.
    file.write_bytes(before)
    found = find_writing_run(paths, MADE_EXAMPLES, "b")
    assert found is not None
    assert (found.run_id, read()["score"].to_pylist()) == ("run-1", [1.0])
    write_table(file, MADE_EXAMPLES.empty_table())
    assert find_writing_run(paths, MADE_EXAMPLES, "b") is None
    with pytest.raises(DamagedError):
        read()


@pytest.mark.parametrize(
    ("table_name", "partition", "name"),
    [
        ("documents", "sotu", "documents/source=sotu/documents.parquet"),
        ("examples", "b_8", "examples/benchmark=b_8/examples.parquet"),
        ("split_quality", "b_8", "split_quality/benchmark=b_8/quality.parquet"),
        ("blind_scores", "b_8", "blind_scores/benchmark=b_8/blind_scores.parquet"),
        ("token_frequencies", "a|b|fingerprint", "token_frequencies/corpus=a%7Cb/tokenizer=fingerprint.parquet"),
        ("control_studies", "s", "control_studies/study=s/results.parquet"),
        ("controls", "c", "controls/c/current.json"),
        ("scores", "b|m", "scores/partition=b%7Cm/run_id=r.parquet"),
        ("token_statistics", "b|m", None),
    ],
)
def test_paths_of_files_by_table(paths: DataPaths, table_name: str, partition: str, name: str | None) -> None:
    file = TABLES[table_name].file_of(paths, partition, "r")
    assert (None if file is None else file.relative_to(paths.root).as_posix()) == name


# Pairs that a run gave up.


def test_a_run_records_one_outcome_and_the_last_run_is_the_latest(paths: DataPaths) -> None:
    assert WorkspaceState(paths).find_latest_outcome(PAIR) is None
    first = record_outcome(paths, PAIR, "token_statistics", "not_applicable", "no such model", "r1")
    assert (first.stage, first.status, first.reason) == ("token_statistics", "not_applicable", "no such model")
    assert record_outcome(paths, PAIR, "scores", "failed", "it follows", "r1") == first
    assert find_run_outcome(paths, PAIR, "r1") == WorkspaceState(paths).find_latest_outcome(PAIR) == first
    later = record_outcome(paths, PAIR, "scores", "failed", "another fault", "r2")
    record_outcome(paths, Pair("b_32", "other"), "scores", "failed", "of another pair", "r3")
    assert find_run_outcome(paths, PAIR, "r3") is None
    assert WorkspaceState(paths).find_latest_outcome(PAIR) == later
    assert len(read_ledger(paths).outcomes) == 3


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("two\n lines\tand\r\n blanks ", "two lines and blanks"),
        (" \n", "no reason was given"),
        ("\x1b[31mred\x00", "\ufffd[31mred\ufffd"),
        ("name \udcff of a file", "name \ufffd of a file"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
    ],
)
def test_reasons_are_cleaned_and_shortened(paths: DataPaths, reason: str, kept: str) -> None:
    assert record_outcome(paths, PAIR, "scores", "failed", reason, "r1").reason == kept


@max_examples(25)
@given(st.text(st.characters(), max_size=700))
def test_any_reason_is_one_short_line_that_can_be_read_back(
    tmp_path_factory: pytest.TempPathFactory, reason: str
) -> None:
    paths = DataPaths(tmp_path_factory.mktemp("outcomes"))
    written = record_outcome(paths, PAIR, "scores", "failed", reason, "r1")
    assert find_run_outcome(paths, PAIR, "r1") == written
    assert len(written.reason.splitlines()) == 1
    assert 0 < len(written.reason) <= MAX_REASON
