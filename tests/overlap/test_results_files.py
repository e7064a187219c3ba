"""Users' results: what is taken of each kind of file, what is left out and named, and what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.overlap import results_files
from audit_pipeline.overlap.results_files import ResultsFile, read_results, to_correctness


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def harness_row(doc_id: int, **values: Any) -> dict[str, Any]:
    """A line as lm-evaluation-harness writes it; its metrics among ``values``."""
    return {
        **{"doc_id": doc_id, "doc": {"task_id": f"T/{doc_id}"}, "target": "x", "arguments": {}, "resps": [["x"]]},
        **{"filtered_resps": ["x"], "filter": "none", "metrics": ["acc"], "doc_hash": "", **values},
    }


def sample(name: int | str, value: object, epoch: int = 1, **more: Any) -> dict[str, Any]:
    """A sample as Inspect writes it."""
    return {"id": name, "epoch": epoch, "input": "q", "target": "a", "scores": {"match": {"value": value}}, **more}


def write_eval(path: Path, members: Mapping[str, object]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name, value if isinstance(value, str | bytes) else json.dumps(value))
    return path


def write_samples(path: Path, samples: Sequence[Mapping[str, Any]]) -> Path:
    members = {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples}
    return write_eval(path, {"header.json": {"version": 2}, **members})


def correct_by_name(file: ResultsFile) -> dict[str | int | None, float]:
    return {one.position if one.name is None else one.name: one.correct for one in file.results}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, 1), (0, 0), (0.25, 0.25), ("C", 1), ("I", 0), ("P", 0.5), ("N", 0), (" true ", 1), ("0.5", 0.5)],
)
def test_values_that_say_how_right_an_answer_is(value: object, expected: float) -> None:
    assert to_correctness(value) == (expected, None)


@pytest.mark.parametrize("value", [None, 2, -0.1, float("nan"), float("inf"), "perhaps", [1], {"a": 1}])
def test_values_that_do_not(value: object) -> None:
    found, problem = to_correctness(value)
    assert found == 0
    assert problem


def test_samples_of_the_harness(tmp_path: Path) -> None:
    rows = [harness_row(0, acc=1.0), harness_row(3, acc=0.0), harness_row(1, acc=1.0)]
    path = write_lines(tmp_path / "samples_arc_easy_2026-01-02T03-04-05.678.jsonl", *rows)
    file = read_results(path)
    assert (file.kind, file.measure, file.task) == ("lm-evaluation-harness", "acc", "arc_easy")
    assert correct_by_name(file) == {0: 1, 3: 0, 1: 1}
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
        assert correct_by_name(file) == {0: 1, 1: 1}
        assert not file.skipped.count


def unnamed_row(doc_id: int, correct: float, **values: Any) -> dict[str, Any]:
    """A line as the harness wrote it before it named filter and metrics."""
    row = harness_row(doc_id, exact_match=correct, arguments=[["prompt", {}]], resps=[[f"response {doc_id}"]])
    return {name: value for name, value in row.items() if name not in ("filter", "metrics")} | values


STRICT, FLEXIBLE = (0.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_filters_without_a_name_the_first_is_taken(tmp_path: Path, ranks: int) -> None:
    # Each process writes all filters of its own documents, filter by filter; together they are .25, .75 and not .5625.
    rows = [
        unnamed_row(number, correct[number], filtered_resps=[name])
        for rank in range(ranks)
        for name, correct in (("strict", STRICT), ("flexible", FLEXIBLE))
        for number in range(rank, 4, ranks)
    ]
    file = read_results(write_lines(tmp_path / "old.jsonl", *rows))
    assert file.measure == "exact_match, filter 1 of 2 (the file names none)"
    assert file.other_measures == ("exact_match, filter 2 of 2 (the file names none)",)
    assert correct_by_name(file) == dict(enumerate(STRICT))
    assert {result.answers for result in file.results} == {1}


def test_repeats_of_one_document_are_one_row(tmp_path: Path) -> None:
    rows = [harness_row(number, acc=1.0, resps=[["a", "b", "a"]]) for number in range(3)]
    file = read_results(write_lines(tmp_path / "repeats.jsonl", *rows))
    assert (file.measure, correct_by_name(file)) == ("acc", {0: 1, 1: 1, 2: 1})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"resps": [["of another model"]]}),
        ({}, {"arguments": [["a prompt with other examples", {}]]}),
        ({}, {"doc": {"task_id": "of another task"}}),
        ({}, {"filter": "none"}),
        ({"filter": "none"}, {}),
        ({"filter": "none"}, {"filter": "none"}),
        ({"filter": "strict-match"}, {"filter": "strict-match"}),
        ({"filter": "strict-match"}, {"filter": "flexible-extract", "doc": {"task_id": "of another task"}}),
    ],
)
def test_rows_of_two_runs_are_refused(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    rows = [unnamed_row(number, correct, **run) for correct, run in ((1.0, first), (0.0, second)) for number in (0, 1)]
    with pytest.raises(DataError, match=r"two.jsonl:1 and two.jsonl:3 both answer doc_id 0"):
        read_results(write_lines(tmp_path / "two.jsonl", *rows))


def test_rows_that_do_not_say_of_which_run_they_are_are_refused(tmp_path: Path) -> None:
    rows = [{"doc_id": 0, "doc": {}, "acc": value} for value in (0.0, 1.0)]
    with pytest.raises(DataError, match="several tasks or runs"):
        read_results(write_lines(tmp_path / "bare.jsonl", *rows))


def test_a_part_of_a_file_without_names_of_filters_is_refused(tmp_path: Path) -> None:
    rows = [unnamed_row(number, value) for value in (0.0, 1.0) for number in range(2)]
    with pytest.raises(DataError, match="doc_id 0 has 2 rows and doc_id 1 has 1"):
        read_results(write_lines(tmp_path / "part.jsonl", *rows[:3]))


def test_older_samples_do_not_list_their_metrics(tmp_path: Path) -> None:
    row = harness_row(0, acc_norm=1.0, **{"pass@1": 0.0})
    del row["metrics"], row["filter"]
    file = read_results(write_lines(tmp_path / "old.jsonl", row))
    assert (file.measure, file.other_measures) == ("pass@1", ("acc_norm",))


def test_a_table_averages_over_epochs(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("item,correct\nb,1\na,1\nb,0\na,true\nb,0\nb,0\n", encoding="utf-8")
    file = read_results(path)
    assert file.kind == "table"
    assert correct_by_name(file) == {"a": 1, "b": 0.25}
    assert {one.name: one.answers for one in file.results} == {"a": 2, "b": 4}


def test_whole_numbers_are_names_and_places(tmp_path: Path) -> None:
    table = read_results(write_lines(tmp_path / "t.jsonl", {"item": 7, "correct": 1}, {"item": "x", "correct": 0}))
    assert [(one.name, one.position) for one in table.results] == [("7", 7), ("x", None)]
    # Inspect counts samples without an id from 1.
    inspect = read_results(write_samples(tmp_path / "log.eval", [sample(1, "C"), sample("x", "I")]))
    assert [(one.name, one.position) for one in inspect.results] == [("1", 0), ("x", None)]


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
    assert correct_by_name(found) == {0: 1}
    assert found.skipped.count == 6
    reasons = {skipped.location: skipped.reason for skipped in found.skipped.first}
    assert reasons["samples.jsonl:2"] == "acc: 7 is not between 0 and 1"
    assert reasons["samples.jsonl:4"] == "acc: is null"
    assert "broken JSON" in reasons["samples.jsonl:7"]


def test_samples_of_inspect(tmp_path: Path) -> None:
    samples = [
        sample("HumanEval/0", "C"),
        sample("HumanEval/0", "I", epoch=2),
        sample("HumanEval/1", "P"),
        sample("HumanEval/2", 1),
        {**sample("HumanEval/3", "C"), "scores": None, "error": {"message": "timeout"}},
    ]
    file = read_results(write_samples(tmp_path / "log.eval", samples))
    assert (file.kind, file.measure) == ("Inspect", "match")
    assert correct_by_name(file) == {"HumanEval/0": 0.5, "HumanEval/1": 0.5, "HumanEval/2": 1}
    [skipped] = file.skipped.first
    assert "HumanEval/3" in skipped.location
    assert "error" in skipped.reason


def test_summaries_are_read_in_place_of_samples(tmp_path: Path) -> None:
    members = {"summaries.json": [sample("a", "C"), sample("b", "I")], "samples/a_epoch_1.json": "not read"}
    file = read_results(write_eval(tmp_path / "log.eval", members))
    assert correct_by_name(file) == {"a": 1, "b": 0}
    assert not file.skipped.count


def pack_by_zstd(path: Path, name: str, content: bytes) -> Path:
    """A zip archive with one member that is packed by method 93, which Python 3.11 does not write."""
    packed = pa.compress(content, "zstd", asbytes=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, packed)
    plain = zipfile.ZipFile(path).infolist()[0]
    raw = bytearray(path.read_bytes())
    # CRC, packed size, size; method before it: in the header of the member and in the directory.
    for magic, method, sizes in ((b"PK\x03\x04", 8, 14), (b"PK\x01\x02", 10, 16)):
        place = raw.index(magic)
        raw[place + method : place + method + 2] = (93).to_bytes(2, "little")
        raw[place + sizes : place + sizes + 4] = zipfile.crc32(content).to_bytes(4, "little")
        raw[place + sizes + 8 : place + sizes + 12] = len(content).to_bytes(4, "little")
    assert plain.file_size == len(packed)
    path.write_bytes(raw)
    return path


def test_members_packed_by_zstd(tmp_path: Path) -> None:
    content = json.dumps([sample("a", "C"), sample("b", "I")]).encode()
    path = pack_by_zstd(tmp_path / "log.eval", "summaries.json", content)
    assert correct_by_name(read_results(path)) == {"a": 1, "b": 0}
    damaged = bytearray(path.read_bytes())
    damaged[len("summaries.json") + 30 + 12] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="cannot be read"):
        read_results(path)


def test_a_member_that_is_broken_or_too_large_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members: dict[str, object] = {f"samples/{name}.json": sample(name, "C") for name in "ab"}
    members |= {"samples/c.json": "{", "samples/d.json": json.dumps(sample("d", "C")) + " " * 5000}
    path = write_eval(tmp_path / "log.eval", members)
    monkeypatch.setattr(results_files, "MEMBER_LIMIT", 4000)
    file = read_results(path)
    assert correct_by_name(file) == {"a": 1, "b": 1}
    assert [skipped.location for skipped in file.skipped.first] == [
        "log.eval: samples/c.json",
        "log.eval: samples/d.json",
    ]
    monkeypatch.setattr(results_files, "UNPACKED_LIMIT", 100)
    with pytest.raises(DataError, match="unpacks to more"):
        read_results(path)


@pytest.mark.parametrize("name", ["nothing.jsonl", "nothing.eval"])
def test_a_file_that_is_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_results(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"", "a.jsonl"),
        ("a.eval", b"", "is no .eval file"),
        ("a.eval", b"PK\x03\x04 and no more", "is no .eval file"),
        ("a.docx", b"x", "cannot tell its format"),
        ("a.jsonl", b'{"text": "x"}\n', "a table needs the columns item and correct; the columns are: text"),
        ("a.jsonl", b'{"item": "x", "correct": "perhaps"}\n', "no metric says"),
        ("a.jsonl", b'{"doc_id": 0, "doc": {}, "bits_per_byte": 0.9, "bleu": [1, 2]}\n', "it has: bleu"),
        ("a.jsonl.gz", b"\x1f\x8b and no more", "gz"),
    ],
)
def test_what_is_no_file_of_results(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_results(tmp_path / name)
    assert words in str(caught.value)


def test_an_archive_that_is_cut_off_or_of_something_else(tmp_path: Path) -> None:
    whole = write_samples(tmp_path / "log.eval", [sample(name, "C") for name in range(1, 40)])
    (tmp_path / "cut.eval").write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(DataError, match="cut off"):
        read_results(tmp_path / "cut.eval")
    with pytest.raises(DataError, match="holds no samples"):
        read_results(write_eval(tmp_path / "other.eval", {"header.json": {}, "samples/": ""}))
