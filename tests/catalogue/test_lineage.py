"""Lineage: versions that follow content, rows written before what they explain, and finding the latest run."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import read_all

from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import BLIND_SCORES, EXAMPLES, LINEAGE, SCORES, TABLES, Pair
from audit_pipeline.catalogue.files import write_table
from audit_pipeline.catalogue.integrity import DamagedError, file_sha256, row_sha256
from audit_pipeline.catalogue.lineage import (
    LineageStep,
    file_of,
    find_writing_run,
    is_latest_file_whole,
    package_versions,
    read_latest_run,
    record_lineage,
    table_version,
)
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Column, Table
from audit_pipeline.errors import DataError

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.one_of(st.none(), st.text(max_size=5)),
            "score": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            "run_id": st.text(max_size=3),
        }
    ),
    max_size=6,
)
COLUMNS = (
    Column("name", pa.string(), "a name", null=True),
    Column("score", pa.float64(), "a number", null=True),
    Column("run_id", pa.string(), "the run"),
)
MADE_SCORES = Table("scores", "made up", columns=COLUMNS, key=("name",), per="pair", kept="runs")
MADE_EXAMPLES = Table("examples", "made up", columns=COLUMNS, key=("name",), per="benchmark", kept="rewritten")


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=MADE_SCORES.schema)


@given(ROWS, st.randoms(use_true_random=False))
def test_version_ignores_the_order_of_rows_and_the_run(rows: list[dict[str, object]], chance: random.Random) -> None:
    shuffled = [{**row, "run_id": "another"} for row in rows]
    chance.shuffle(shuffled)
    assert table_version(table(rows)) == table_version(table(shuffled))


@given(ROWS.filter(bool), st.data())
def test_version_follows_every_value(rows: list[dict[str, object]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [dict(row) for row in rows]
    changed[place]["name"] = f"{changed[place]['name']} changed"
    assert table_version(table(rows)) != table_version(table(changed))
    assert table_version(table(rows)) != table_version(table([*rows, rows[place]])), "a row more is another table"


def test_version_tells_null_from_its_name_and_leaves_out_what_it_is_told_to() -> None:
    one, other = ({"name": name, "score": 1.0, "run_id": "r"} for name in (None, "None"))
    assert table_version(table([one])) != table_version(table([other]))
    assert table_version(table([one]), without=("name",)) == table_version(table([other]), without=("name",))


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path)


def step(run_id: str) -> LineageStep:
    return LineageStep.now(run_id, "scores", "7")


def write_rows(paths: DataPaths, partition: str, run_id: str) -> None:
    write_table(paths.run_file("scores", partition, run_id), table([]))


def test_a_recorded_row_says_all_that_is_known(paths: DataPaths) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    record_lineage(
        paths,
        step("run-1"),
        SCORES,
        Pair("b_32", "org/model"),
        data_version="v1",
        upstream={"examples/b_32": "e1"},
        model_fingerprint="m",
        tokenizer_fingerprint="t",
        benchmark_digest="d",
    )
    [row] = read_all(paths.table("lineage"), LINEAGE).to_pylist()
    assert {name: row[name] for name in ("table", "partition", "run_id", "asset_key", "code_version")} == {
        "table": "scores",
        "partition": "b_32|org/model",
        "run_id": "run-1",
        "asset_key": "scores",
        "code_version": "7",
    }
    assert (row["model_fingerprint"], row["tokenizer_fingerprint"], row["benchmark_digest"]) == ("m", "t", "d")
    assert json.loads(row["upstream_data_versions"]) == {"examples/b_32": "e1"}
    assert json.loads(row["package_versions"]) == package_versions()
    assert before < row["started_at"] <= row["finished_at"]


def test_latest_run_is_the_last_one_whose_rows_are_there(paths: DataPaths) -> None:
    for number in (1, 2):
        record_lineage(paths, step(f"run-{number}"), SCORES, "b|m", data_version=f"v{number}", upstream={})
        write_rows(paths, "b|m", f"run-{number}")
    # Killed between its entry and its rows; and a run of another partition, later.
    record_lineage(paths, step("run-3"), SCORES, "b|m", data_version="v3", upstream={})
    record_lineage(paths, step("run-4"), SCORES, "b|m2", data_version="v4", upstream={})
    write_rows(paths, "b|m2", "run-4")
    found = read_latest_run(paths, "scores", "b|m")
    assert (found.run_id, found.data_version, found.benchmark_digest) == ("run-2", "v2", None)
    assert read_latest_run(paths, "scores", "b|m2").run_id == "run-4"


def test_latest_run_of_nothing_is_an_error_in_words(paths: DataPaths) -> None:
    record_lineage(paths, step("run-1"), SCORES, "b|m", data_version="v1", upstream={})
    with pytest.raises(DataError, match=r"there are no scores of b\|m yet"):
        read_latest_run(paths, "scores", "b|m")


def test_a_damaged_entry_is_named(paths: DataPaths) -> None:
    record_lineage(paths, step("run-1"), SCORES, "b|m", data_version="v1", upstream={})
    write_rows(paths, "b|m", "run-1")
    [entry] = paths.table("lineage").rglob("*.parquet")
    entry.write_bytes(entry.read_bytes()[:40])
    with pytest.raises(DataError, match=r"run_id=run-1\.parquet cannot be read"):
        read_latest_run(paths, "scores", "b|m")


def rows_of(run_id: str, *scores: float) -> pa.Table:
    return table([{"name": "a", "score": score, "run_id": run_id} for score in scores])


def write_rows_of(paths: DataPaths, of: Table, partition: str, run_id: str, rows: pa.Table) -> Path:
    store.write(paths, step(run_id), of, partition, rows, data_version="v", upstream={})
    return file_of(paths, of, partition, run_id)


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def test_a_lineage_row_names_the_digest_of_its_file(paths: DataPaths) -> None:
    file = write_rows_of(paths, MADE_SCORES, "b|m", "run-1", rows_of("run-1", 0.5))
    [row] = read_all(paths.table("lineage"), LINEAGE).to_pylist()
    assert row["file_sha256"] == file_sha256(file)
    assert row["row_sha256"] == row_sha256(row)
    assert file == paths.run_file("scores", "b|m", "run-1")


@pytest.mark.parametrize("place", [30, -200, -3])
def test_a_file_with_a_flipped_bit_is_refused_wherever_it_is(paths: DataPaths, place: int) -> None:
    file = write_rows_of(paths, MADE_SCORES, "b|m", "run-1", rows_of("run-1", 0.5))
    read = partial(store.read, paths, MADE_SCORES, "b|m", run_id="run-1", label="the scores of b|m")
    assert read().to_pylist() == rows_of("run-1", 0.5).to_pylist()
    flip(file, place)
    with pytest.raises(DamagedError, match=r"the scores of b\|m is damaged: .*run-1\.parquet is not as it was written"):
        read()
    file.unlink()
    with pytest.raises(DataError, match="has not been built yet"):
        read()


def test_a_file_that_every_run_writes_anew_may_be_of_any_run(paths: DataPaths) -> None:
    read = partial(store.read, paths, MADE_EXAMPLES, "b", label="b")
    file = write_rows_of(paths, MADE_EXAMPLES, "b", "run-1", rows_of("run-1", 1.0))
    before = file.read_bytes()
    write_rows_of(paths, MADE_EXAMPLES, "b", "run-2", rows_of("run-2", 2.0))
    assert read()["score"].to_pylist() == [2.0]
    # A run that died between its entry and its rows leaves those of the run before.
    file.write_bytes(before)
    assert read()["score"].to_pylist() == [1.0]
    write_table(file, rows_of("run-3", 3.0))
    with pytest.raises(DamagedError):
        read()


def test_files_of_earlier_versions_are_read_as_they_are(paths: DataPaths) -> None:
    record_lineage(paths, step("run-1"), EXAMPLES, "b", data_version="v", upstream={})
    file = paths.examples("b")
    write_table(file, rows_of("run-1", 1.0))
    [entry] = paths.table("lineage").rglob("*.parquet")
    rows = pq.read_table(entry, partitioning=None)
    pq.write_table(rows.drop_columns(["file_sha256", "row_sha256"]), entry)
    read = partial(store.read, paths, MADE_EXAMPLES, "b", label="b")
    assert read().num_rows == 1
    # As soon as a run has named one, what has another is not as it was written.
    write_rows_of(paths, MADE_EXAMPLES, "b", "run-2", rows_of("run-2", 2.0))
    write_table(file, rows_of("run-1", 1.0))
    with pytest.raises(DamagedError):
        read()


def test_an_entry_that_is_not_as_it_was_written_is_refused(paths: DataPaths) -> None:
    write_rows_of(paths, MADE_SCORES, "b|m", "run-1", rows_of("run-1", 0.5))
    [entry] = paths.table("lineage").rglob("*.parquet")
    rows = pq.read_table(entry, partitioning=None)
    place = rows.column_names.index("data_version")
    pq.write_table(rows.set_column(place, "data_version", pa.array(["w"])), entry)
    with pytest.raises(DamagedError, match=r"run_id=run-1\.parquet is damaged: its row is not as it was written"):
        read_latest_run(paths, "scores", "b|m")


@pytest.mark.parametrize("stopped_by", [OSError("full"), KeyboardInterrupt()], ids=str)
def test_an_entry_whose_rows_did_not_follow_is_taken_back(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch, stopped_by: BaseException
) -> None:
    move, moved = Path.replace, paths.run_file("scores", "b|m", "run-1")

    def stop(self: Path, target: Path) -> Path:
        if target == moved:
            raise stopped_by
        return move(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(type(stopped_by)):
            write_rows_of(paths, MADE_SCORES, "b|m", "run-1", rows_of("run-1", 0.5))
    assert list(paths.root.rglob("*.parquet")) == []

    def stop_a_moment_later(self: Path, target: Path) -> Path:
        found = move(self, target)
        if target == moved:
            raise stopped_by
        return found

    monkeypatch.setattr(Path, "replace", stop_a_moment_later)
    with pytest.raises(type(stopped_by)):
        write_rows_of(paths, MADE_SCORES, "b|m", "run-1", rows_of("run-1", 0.5))
    assert moved.exists()
    assert read_latest_run(paths, "scores", "b|m").run_id == "run-1", "rows are never without their entry"


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
def test_every_entry_says_which_file_it_explains(
    paths: DataPaths, table_name: str, partition: str, name: str | None
) -> None:
    file = TABLES[table_name].file_of(paths, partition, "r")
    assert (None if file is None else file.relative_to(paths.root).as_posix()) == name


def test_the_entry_of_a_rewritten_file_is_the_one_that_names_its_bytes(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert find_writing_run(paths, BLIND_SCORES, "b_8") is None
    row = {"benchmark": "b_8", "example_id": "one", "score": 1.0, "method": "words", "run_id": "r"}
    rows = pa.Table.from_pylist([row], schema=BLIND_SCORES.schema)
    for run, content in (("first", rows), ("second", rows), ("third", rows.slice(0, 0))):
        step = LineageStep.now(run, "split_quality", "1")
        store.write(paths, step, BLIND_SCORES, "b_8", content, data_version=run, upstream={})
        found = find_writing_run(paths, BLIND_SCORES, "b_8")
        assert found is not None
        assert (found.run_id, found.data_version) == (run, run)
    write_table(file_of(paths, BLIND_SCORES, "b_8", ""), rows)
    found = find_writing_run(paths, BLIND_SCORES, "b_8")
    assert found is not None
    assert found.run_id == "second", "of equal bytes the last"
    # Entries of versions that kept no digest have no such column.
    for entry in paths.run_file("lineage", "blind_scores:b_8", "any").parent.glob("*.parquet"):
        write_table(entry, pq.read_table(entry, partitioning=None).drop_columns(["file_sha256", "row_sha256"]))
    assert find_writing_run(paths, BLIND_SCORES, "b_8") is None
    assert is_latest_file_whole(paths, "blind_scores", "b_8")
