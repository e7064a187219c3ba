"""Files of results: what is taken of each kind, what is left out and named, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.model_results import ResultsFile, read_results, to_correctness


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def harness_row(doc_id: int, **values: Any) -> dict[str, Any]:
    """A line as lm-evaluation-harness writes it; its metrics among ``values``."""
    return {
        **{"doc_id": doc_id, "doc": {"task_id": f"T/{doc_id}"}, "target": "x", "arguments": {}, "resps": [["x"]]},
        **{"filtered_resps": ["x"], "filter": "none", "metrics": ["acc"], "doc_hash": "", **values},
    }


def correct_of(file: ResultsFile) -> list[tuple[str | int | None, float]]:
    return [(result.position if result.name is None else result.name, result.correct) for result in file.results]


@pytest.mark.parametrize(
    ("value", "expected"), [(True, 1), (0, 0), (0.25, 0.25), (" true ", 1), ("no", 0), ("0.5", 0.5)]
)
def test_values_that_say_how_right_an_answer_is(value: object, expected: float) -> None:
    assert to_correctness(value) == (expected, None)


@pytest.mark.parametrize("value", [None, 2, -0.1, float("nan"), "perhaps", [1]])
def test_values_that_do_not(value: object) -> None:
    found, problem = to_correctness(value)
    assert found == 0
    assert problem


def test_samples_of_the_harness(tmp_path: Path) -> None:
    rows = [harness_row(0, acc=1.0), harness_row(3, acc=0.0), harness_row(1, acc=1.0)]
    path = write_lines(tmp_path / "samples_arc_easy_2026-01-02T03-04-05.678.jsonl", *rows)
    file = read_results(path)
    assert (file.kind, file.measure, file.task) == ("lm-evaluation-harness", "acc", "arc_easy")
    assert correct_of(file) == [(0, 1), (3, 0), (1, 1)]
    assert file.results[1].columns == {"task_id": "T/3"}
    assert read_results(write_lines(tmp_path / "samples.jsonl", *rows)).task is None


def test_one_filter_and_one_metric_are_taken_whatever_the_order_of_lines(tmp_path: Path) -> None:
    rows = [
        harness_row(number, filter=kept, metrics=["f1", "exact_match"], exact_match=value, f1=0.5)
        for kept, value in (("strict-match", 0.0), ("flexible-extract", 1.0))
        for number in (0, 1)
    ]
    for number, lines in enumerate((rows, rows[::-1])):
        file = read_results(write_lines(tmp_path / f"{number}.jsonl", *lines))
        assert file.measure == "exact_match, filter flexible-extract"
        assert set(file.other_measures) == {
            "exact_match, filter strict-match",
            "f1, filter flexible-extract",
            "f1, filter strict-match",
        }
        assert sorted(correct_of(file)) == [(0, 1), (1, 1)]
        assert not file.skipped.count


def test_several_runs_or_filters_without_names_in_a_file_are_refused(tmp_path: Path) -> None:
    rows = [harness_row(3, filter=name, acc=1.0) for name in (None, "none")]
    with pytest.raises(DataError, match=r"both.jsonl:2 is another result for doc_id 3"):
        read_results(write_lines(tmp_path / "both.jsonl", *rows))


def test_older_samples_do_not_list_their_metrics(tmp_path: Path) -> None:
    row = harness_row(0, acc_norm=1.0, **{"pass@1": 0.0})
    del row["metrics"], row["filter"]
    file = read_results(write_lines(tmp_path / "old.jsonl", row))
    assert (file.measure, file.other_measures) == ("pass@1", ("acc_norm",))


def test_a_table_has_names_and_several_answers(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("item,correct\nb,1\na,yes\nb,0\n7,true\n", encoding="utf-8")
    file = read_results(path)
    assert (file.kind, file.measure) == ("table", "correct")
    assert correct_of(file) == [("b", 1), ("a", 1), ("b", 0), ("7", 1)]
    assert correct_of(read_results(write_lines(tmp_path / "t.jsonl", {"item": 7, "correct": 1}))) == [("7", 1)]


def test_rows_that_cannot_be_used_are_counted_and_named(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "samples.jsonl",
        harness_row(0, acc=1.0),
        harness_row(1, acc=7),
        harness_row(-1, acc=1.0),
        harness_row(2, acc=None),
        {**harness_row(3, acc=1.0), "doc_id": "three"},
        ["no object"],
    )
    with path.open("a", encoding="utf-8") as file:
        file.write('{"doc_id": 4, "acc": 1')
    found = read_results(path)
    assert correct_of(found) == [(0, 1)]
    assert found.skipped.count == 6
    reasons = {skipped.location: skipped.reason for skipped in found.skipped.first}
    assert reasons["samples.jsonl:2"] == "acc: 7 is not between 0 and 1"
    assert reasons["samples.jsonl:4"] == "acc: is null"
    assert "broken JSON" in reasons["samples.jsonl:7"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.docx", b"x", "unknown format"),
        ("a.jsonl", b'{"text": "x"}\n', "A table has the columns item and correct. The columns of this file are: text"),
        ("a.jsonl", b'{"item": "x", "correct": "perhaps"}\n', "no metric is a number between 0 and 1"),
        ("a.jsonl", b'{"doc_id": 0, "doc": {}, "bits_per_byte": 0.9, "bleu": [1, 2]}\n', "The metrics are: bleu"),
    ],
)
def test_what_is_no_file_of_results(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_results(tmp_path / name)
    assert words in str(caught.value)
