"""Files of a model's results: the values of each kind, the skipped rows, and the files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_files import write_rows

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.model_results import ResultsFile, parse_correctness, read_results


def harness_row(doc_id: int, **values: Any) -> dict[str, Any]:
    """Return a line of lm-evaluation-harness. ``values`` contains its metrics."""
    return {
        **{"doc_id": doc_id, "doc": {"task_id": f"T/{doc_id}"}, "target": "x", "arguments": {}, "resps": [["x"]]},
        **{"filtered_resps": ["x"], "filter": "none", "metrics": ["acc"], "doc_hash": "", **values},
    }


def correct_of(file: ResultsFile) -> list[tuple[str | int | None, float]]:
    return [(result.position if result.name is None else result.name, result.correct) for result in file.results]


@pytest.mark.parametrize(
    ("value", "expected"), [(True, 1), (0, 0), (0.25, 0.25), (" true ", 1), ("no", 0), ("0.5", 0.5)]
)
def test_values_that_are_a_correctness(value: object, expected: float) -> None:
    assert parse_correctness(value) == (expected, None)


@pytest.mark.parametrize("value", [None, 2, -0.1, float("nan"), "perhaps", [1]])
def test_values_that_are_no_correctness(value: object) -> None:
    found, problem = parse_correctness(value)
    assert found == 0
    assert problem


def test_samples_of_the_harness(tmp_path: Path) -> None:
    rows = [harness_row(0, acc=1.0), harness_row(3, acc=0.0), harness_row(1, acc=1.0)]
    path = write_rows(tmp_path / "samples_arc_easy_2026-01-02T03-04-05.678.jsonl", rows)
    file = read_results(path)
    assert (file.kind, file.measure, file.task) == ("lm-evaluation-harness", "acc", "arc_easy")
    assert correct_of(file) == [(0, 1), (3, 0), (1, 1)]
    assert file.results[1].columns == {"task_id": "T/3"}
    assert read_results(write_rows(tmp_path / "samples.jsonl", rows)).task is None


def test_the_order_of_lines_does_not_change_the_chosen_filter_and_metric(tmp_path: Path) -> None:
    rows = [
        harness_row(number, filter=kept, metrics=["f1", "exact_match"], exact_match=value, f1=0.5)
        for kept, value in (("strict-match", 0.0), ("flexible-extract", 1.0))
        for number in (0, 1)
    ]
    for number, lines in enumerate((rows, rows[::-1])):
        file = read_results(write_rows(tmp_path / f"{number}.jsonl", lines))
        assert file.measure == "exact_match, filter flexible-extract"
        assert set(file.other_measures) == {
            "exact_match, filter strict-match",
            "f1, filter flexible-extract",
            "f1, filter strict-match",
        }
        assert sorted(correct_of(file)) == [(0, 1), (1, 1)]
        assert not file.skipped.count


def test_a_file_with_several_unnamed_filters_is_refused(tmp_path: Path) -> None:
    rows = [harness_row(3, filter=name, acc=1.0) for name in (None, "none")]
    with pytest.raises(DataError, match=r"both.jsonl:2 is another result for doc_id 3"):
        read_results(write_rows(tmp_path / "both.jsonl", rows))


def test_older_samples_without_a_list_of_metrics_are_read(tmp_path: Path) -> None:
    row = harness_row(0, acc_norm=1.0, **{"pass@1": 0.0})
    del row["metrics"], row["filter"]
    file = read_results(write_rows(tmp_path / "old.jsonl", [row]))
    assert (file.measure, file.other_measures) == ("pass@1", ("acc_norm",))


def test_a_table_has_names_and_may_have_several_answers(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("item,correct\nb,1\na,yes\nb,0\n7,true\n", encoding="utf-8")
    file = read_results(path)
    assert (file.kind, file.measure) == ("table", "correct")
    assert correct_of(file) == [("b", 1), ("a", 1), ("b", 0), ("7", 1)]
    assert correct_of(read_results(write_rows(tmp_path / "t.jsonl", [{"item": 7, "correct": 1}]))) == [("7", 1)]


def test_unusable_rows_are_counted_and_named(tmp_path: Path) -> None:
    rows = [harness_row(number, acc=acc) for number, acc in ((0, 1.0), (1, 7), (-1, 1.0), (2, None))]
    unusable: list[Any] = [{**rows[0], "doc_id": "three"}, ["no object"]]
    path = write_rows(tmp_path / "samples.jsonl", [*rows, *unusable])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"doc_id": 4, "acc": 1')
    found = read_results(path)
    assert correct_of(found) == [(0, 1)]
    assert found.skipped.count == 6
    reasons = {skipped.location: skipped.reason for skipped in found.skipped.first}
    assert reasons["samples.jsonl:2"] == "acc: 7 is not between 0 and 1"
    assert reasons["samples.jsonl:4"] == "acc: the value is null"
    assert "broken JSON" in reasons["samples.jsonl:7"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.docx", b"x", "the format is unknown"),
        ("a.jsonl", b'{"text": "x"}\n', "A table has the columns item and correct. The columns of this file are: text"),
        ("a.jsonl", b'{"item": "x", "correct": "perhaps"}\n', "no metric is a number between 0 and 1"),
        ("a.jsonl", b'{"doc_id": 0, "doc": {}, "bits_per_byte": 0.9, "bleu": [1, 2]}\n', "The metrics are: bleu"),
    ],
)
def test_a_file_without_results_is_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_results(tmp_path / name)
    assert words in str(caught.value)
