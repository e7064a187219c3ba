"""Lineage: versions that follow content, rows written before what they explain, and finding the latest run."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written import read_all

from audit_pipeline.contracts import LINEAGE
from audit_pipeline.errors import DataError
from audit_pipeline.lineage import Step, latest_run, package_versions, record, table_version
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import write_table

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
SCHEMA = pa.schema([("name", pa.string()), ("score", pa.float64()), ("run_id", pa.string())])


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_version_ignores_the_order_of_rows_and_the_run(rows: list[dict[str, object]], chance: random.Random) -> None:
    shuffled = [{**row, "run_id": "another"} for row in rows]
    chance.shuffle(shuffled)
    assert table_version(table(rows)) == table_version(table(shuffled))


@settings(deadline=None)
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


def step(run_id: str) -> Step:
    return Step.now(run_id, "scores", "7")


def write_rows(paths: DataPaths, partition: str, run_id: str) -> None:
    write_table(paths.run_file("scores", partition, run_id), table([]))


def test_a_recorded_row_says_all_that_is_known(paths: DataPaths) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    record(
        paths,
        step("run-1"),
        table="scores",
        partition="b_32|org/model",
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
        record(paths, step(f"run-{number}"), table="scores", partition="b|m", data_version=f"v{number}", upstream={})
        write_rows(paths, "b|m", f"run-{number}")
    # Killed between its entry and its rows; and a run of another partition, later.
    record(paths, step("run-3"), table="scores", partition="b|m", data_version="v3", upstream={})
    record(paths, step("run-4"), table="scores", partition="b|m2", data_version="v4", upstream={})
    write_rows(paths, "b|m2", "run-4")
    found = latest_run(paths, "scores", "b|m")
    assert (found.run_id, found.data_version, found.benchmark_digest) == ("run-2", "v2", None)
    assert latest_run(paths, "scores", "b|m2").run_id == "run-4"


def test_latest_run_of_nothing_is_an_error_in_words(paths: DataPaths) -> None:
    record(paths, step("run-1"), table="scores", partition="b|m", data_version="v1", upstream={})
    with pytest.raises(DataError, match=r"there are no scores of b\|m yet"):
        latest_run(paths, "scores", "b|m")


def test_a_damaged_entry_is_named(paths: DataPaths) -> None:
    record(paths, step("run-1"), table="scores", partition="b|m", data_version="v1", upstream={})
    write_rows(paths, "b|m", "run-1")
    [entry] = paths.table("lineage").rglob("*.parquet")
    entry.write_bytes(entry.read_bytes()[:40])
    with pytest.raises(DataError, match=r"run_id=run-1\.parquet cannot be read"):
        latest_run(paths, "scores", "b|m")
