"""Exports of tables and views: exact Parquet files, CSV for people, no partial files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from made_data_folder import MODELS, Folder

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.warehouse import query as module
from audit_pipeline.warehouse.query import export, query_warehouse
from audit_pipeline.warehouse.schema import VIEWS, list_tables

HOSTILE = ('=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(1)", "\tx", "\rx", "＝1", "－1", "\nx", "-")
HARMLESS = ("", "a=b", "-1", "+2.5e3", " =1", "'quoted", 'a "b", c', "two\nlines", "汉字")


@pytest.fixture(scope="module")
def decided(built: Folder) -> Path:
    """The warehouse of the decided folder."""
    return built.paths.warehouse


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_parquet_holds_exactly_the_view(decided: Path, tmp_path: Path) -> None:
    for name in ("leaderboard", "current_highlights", "cost", "keys"):
        out = tmp_path / "new folder" / f"{name}.parquet"
        rows = export(decided, name, out)
        wanted = query_warehouse(decided, f"FROM {name}")
        stored = pq.read_table(out, partitioning=None)
        assert stored.to_pylist() == wanted.to_pylist()
        assert stored.schema.types == wanted.schema.types
        assert rows == len(wanted)


def test_every_table_and_view_can_be_exported(decided: Path, tmp_path: Path) -> None:
    for name in [definition.name for definition in (*list_tables(include_text=True), *VIEWS)]:
        rows = export(decided, name, tmp_path / f"{name}.csv")
        assert len(read_csv(tmp_path / f"{name}.csv")) == rows
    assert export(decided, "models", tmp_path / "models.PARQUET") == len(MODELS), "a column of JSON"


def test_batches_are_put_together(decided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 100)
    assert export(decided, "current_scores", tmp_path / "scores.csv") == 4 * 60 * 22
    assert len(read_csv(tmp_path / "scores.csv")) == 4 * 60 * 22


def test_lists_of_numbers_are_json_whatever_they_hold(decided: Path, tmp_path: Path) -> None:
    cell = module._build_csv_cell_sql("x", "DOUBLE[]")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {cell} FROM (SELECT ['-inf'::DOUBLE, 'inf', 'nan', 1.5, NULL] AS x)")
        [(text,)] = found.fetchall()
    assert json.loads(text) == ["-Infinity", "Infinity", "NaN", 1.5, None]


def test_csv_has_the_values_of_the_view(decided: Path, tmp_path: Path) -> None:
    export(decided, "current_highlights", tmp_path / "lit.csv")
    (first, *_) = read_csv(tmp_path / "lit.csv")
    (wanted, *_) = query_warehouse(decided, "FROM current_highlights").to_pylist()
    assert json.loads(first["pieces"]) == wanted["pieces"] == ["=made", " up"]
    assert json.loads(first["token_scores"]) == wanted["token_scores"]
    assert float(first["score"]) == wanted["score"]
    export(decided, "leaderboard", tmp_path / "board.csv")
    board = read_csv(tmp_path / "board.csv")
    wanted_board = query_warehouse(decided, "FROM leaderboard").to_pylist()
    assert [float(row["auroc"]) for row in board] == [row["auroc"] for row in wanted_board], "to the last digit"
    assert {row["worst_control"] for row in board} == {"dates", ""}
    assert {row["is_current"] for row in board} == {"true"}


def test_no_exported_text_is_a_formula(folder: Folder, tmp_path: Path) -> None:
    texts = [*HOSTILE, *HARMLESS]
    folder.write_examples("notes_32", n=len(texts))
    for row, text in zip(folder.examples["notes_32"], texts, strict=True):
        row["collection"] = text
    folder.rewrite_examples("notes_32")
    for fingerprint, name in enumerate(("=1+1", "plain")):
        folder.write_card(name, str(fingerprint))
    warehouse = build_warehouse(folder.paths).path
    export(warehouse, "examples", tmp_path / "examples.csv")
    kept = {row["example_id"]: row["collection"] for row in read_csv(tmp_path / "examples.csv")}
    for row, text in zip(folder.examples["notes_32"], texts, strict=True):
        assert kept[str(row["example_id"])] == (f"'{text}" if text in HOSTILE else text)
    export(warehouse, "models", tmp_path / "models.csv")
    assert {row["name"] for row in read_csv(tmp_path / "models.csv")} == {"'=1+1", "plain"}
    export(warehouse, "examples", tmp_path / "examples.parquet")
    exact = pq.read_table(tmp_path / "examples.parquet", columns=["collection"])["collection"].to_pylist()
    assert sorted(exact) == sorted(texts)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("leaderbord", "x.csv", "no table or view 'leaderbord'; did you mean leaderboard"),
        ("zzzzzzzz", "x.csv", "no table or view 'zzzzzzzz'. .*SHOW TABLES"),
        ("leaderboard; DROP TABLE scores", "x.csv", "no table or view"),
        ('leaderboard" --', "x.csv", "no table or view"),
        ("duckdb_tables", "x.csv", "no table or view"),
        ("leaderboard", "x.xlsx", r"ends in \.parquet or \.csv"),
        ("leaderboard", "x", r"ends in \.parquet or \.csv"),
        ("leaderboard", "folder.csv", "is a folder"),
        ("leaderboard", "file/x.csv", "cannot write leaderboard to"),
    ],
)
def test_invalid_exports_are_refused(warehouse: Path, tmp_path: Path, name: str, file: str, words: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match=words) as raised:
        export(warehouse, name, tmp_path / file)
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.csv"]
