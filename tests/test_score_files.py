"""Scoring a user's file: rows keep their places, bad ones are named, the table is exactly what is promised."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_models import twin_statistics

from audit_pipeline.detectors.registry import select
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.paths import DataPaths
from audit_pipeline.score_files import FileScores, score_file, separation
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import Progress

pytestmark = pytest.mark.usefixtures("one_thread")
Tiny = Callable[[str], tuple[TokenizedModel, ForwardPass]]
COLUMNS = {
    "example_index": pa.int64(),
    "detector": pa.string(),
    "parameters": pa.string(),
    "score": pa.float64(),
    "status": pa.string(),
    "reason": pa.string(),
}


@pytest.fixture
def score(tiny: Tiny, tmp_path: Path) -> Callable[..., FileScores]:
    model, forward = tiny("llama")

    def run(file: Path, detectors: list[str] | None = None, **options: object) -> FileScores:
        selection = select(detectors)
        paths = DataPaths(tmp_path / "data")
        return score_file(file, tmp_path / "scores.parquet", model, selection, paths, lambda wanted: forward, **options)  # type: ignore[arg-type]

    return run


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_the_table_is_written_as_promised_and_by_the_rows_of_the_file(
    score: Callable[..., FileScores], tiny: Tiny, tmp_path: Path
) -> None:
    lines = ['{"input": "a first text"}', '{"input": "broken', '{"input": "a third text"}', '{"input": "a first text"}']
    done = score(written(tmp_path, "t.jsonl", "\n".join(lines)), ["loss", "min_k"])
    table = pq.read_table(tmp_path / "scores.parquet")
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == COLUMNS
    assert table.equals(done.table)
    rows = table.to_pylist()
    assert [(row["example_index"], row["detector"]) for row in rows] == [
        (place, detector) for place in (0, 2, 3) for detector in ("loss", "min_k")
    ]
    assert [(row.location, row.index) for row in done.skipped] == [("t.jsonl:2", 1)]
    model, forward = tiny("llama")
    expected = {
        place: twin_statistics(model, forward, text)["logprob"].mean()
        for place, text in ((0, "a first text"), (2, "a third text"), (3, "a first text"))
    }
    found = {row["example_index"]: row["score"] for row in rows if row["detector"] == "loss"}
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[place] for place in expected], list(expected.values()), atol=1e-4)
    assert {row["parameters"] for row in rows} == {"{}", '{"k":0.2}'}
    assert (done.summary.own.texts, done.summary.own.texts_computed, done.summary.own.texts_from_cache) == (3, 2, 0)


def test_what_was_scored_before_comes_from_the_cache(score: Callable[..., FileScores], tmp_path: Path) -> None:
    score(written(tmp_path, "one.txt", "first line\nsecond line\n"))
    told: list[Progress] = []
    more = score(written(tmp_path, "two.txt", "second line\nthird line\n"), on_progress=told.append)
    assert (more.summary.own.texts_from_cache, more.summary.own.texts_computed) == (1, 1)
    assert told[-1].texts_done == told[-1].texts_total == 1
    told.clear()
    again = score(written(tmp_path, "two.txt", "second line\nthird line\n"), on_progress=told.append)
    assert (again.summary.own.texts_from_cache, again.summary.own.texts_computed, told) == (2, 0, [])
    assert again.table.equals(more.table)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["1", "0", "", "member"], [1, 0, None, None]),
        (["1.0", "0.0", "true", "FALSE"], [1, 0, 1, 0]),
        ([" 1 ", "2", "-1", "01"], [1, None, None, None]),
    ],
)
def test_labels_of_a_csv_are_read_however_they_are_spelt(
    score: Callable[..., FileScores], tmp_path: Path, values: list[str], labels: list[int | None]
) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "side"), *((f"text {place}", one) for place, one in enumerate(values))])
    done = score(path, ["loss"], label_column="side")
    assert done.labels == dict(enumerate(labels))
    assert done.table.column("status").to_pylist() == ["ok"] * 4, "a label changes no score"


def test_labels_of_other_files_and_of_none(score: Callable[..., FileScores], tmp_path: Path) -> None:
    rows = [{"text": "a text", "label": 1}, {"text": "b text", "label": False}, {"text": "c text", "label": None}]
    path = written(tmp_path, "t.jsonl", "\n".join(map(json.dumps, [*rows, {"text": "d text"}])))
    assert score(path, ["loss"]).labels == {0: 1, 1: 0, 2: None, 3: None}
    assert score(path, ["loss"], label_column="no such column").labels is None


def test_parquet_and_a_named_column(score: Callable[..., FileScores], tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [7, 8], "body": ["one text", None], "text": ["not this", "nor this"]}), path)
    done = score(path, ["zlib"], text_column="body")
    assert done.table.column("example_index").to_pylist() == [0]
    assert [row.reason for row in done.skipped] == ["column 'body' is null"]


def test_a_file_without_a_usable_row_writes_nothing(score: Callable[..., FileScores], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of its 2 rows can be used"):
        score(written(tmp_path, "t.jsonl", "{\n}"))
    assert not (tmp_path / "scores.parquet").exists()
    assert not (tmp_path / "data").exists()


def test_separation_of_labelled_texts_against_counting_pairs(score: Callable[..., FileScores], tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    labels = [1, 0, 1, 0, 1, 0, None, 1]
    rows = [
        {"text": f"the {number} quick foxes " * (number + 1), "label": label} for number, label in enumerate(labels)
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    scores = score(file, ["loss", "zlib", "min_k", "min_k_plus_plus"])
    by_index = {
        (row["detector"], row["example_index"]): row["score"]
        for row in scores.table.to_pylist()
        if row["parameters"] in ("{}", '{"k":0.2}')
    }
    found = separation(scores)
    assert {one.detector for one in found} == {detector for detector, _ in by_index}
    for one in found:
        pairs = [
            (by_index[one.detector, member], by_index[one.detector, other])
            for member, first in enumerate(labels)
            for other, second in enumerate(labels)
            if first == 1 and second == 0
        ]
        assert one.auroc == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))
        assert (one.n_members, one.n_nonmembers) == (4, 3)
        assert one.interval.low is not None
        assert one.interval.low <= one.auroc <= one.interval.high


def test_no_separation_without_both_sides(score: Callable[..., FileScores], tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": f"words {number}", "label": 1}) for number in range(3)))
    assert separation(score(file)) == []
    (tmp_path / "plain.txt").write_text("one line\nanother")
    assert separation(score(tmp_path / "plain.txt")) == []
