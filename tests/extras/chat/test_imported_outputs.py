"""Imported answers: the columns of a file, the positions of passages, and unusable rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.extras.chat.imported_outputs import DocumentLookup, read_outputs
from audit_pipeline.extras.extraction.documents import SearchedDocument

MILL = SearchedDocument(
    "mill", "The mill-\nwheel turned. “Don’t stop,” she said; the wheel turned 🙂 again.", "The Old Mill"
)
LAKE = SearchedDocument("lake.v1", "A lake lay there, and nobody swam.", "By the Lake")
Row = Mapping[str, object]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Sequence[Row]], Path]:
    def write_rows(rows: Sequence[Row]) -> Path:
        path = tmp_path / "outputs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write_rows


def test_all_columns_of_a_row_are_read(write: Callable[[Sequence[Row]], Path]) -> None:
    row = {
        "document": "THE  old mill",
        "passage": '"DON\'T STOP", she said - the wheel',
        "prompt": "Go on.",
        "output": "Yes 🙂",
        "model": "talker-2",
        "settings": {"top_p": 1, "temperature": 0.5},
        "finish_reason": "stop",
        "asked_at": "2026-01-31T13:00:00+01:00",
        "request_id": "r-7",
    }
    found = read_outputs(write([row, {"document": "mill", "output": ""}]), [MILL, LAKE])
    start = MILL.text.index("Don")
    span = start, MILL.text.index("wheel", start) + len("wheel")
    settings, moment = '{"temperature":0.5,"top_p":1}', datetime(2026, 1, 31, 12, tzinfo=UTC)
    known, empty = (output.model_dump() for output in found.outputs)
    assert known == {**row, "document": "mill", "passage": span, "settings": settings, "asked_at": moment}
    # Missing columns are unknown, and an empty output is an answer.
    assert empty == {**dict.fromkeys(row), "document": "mill", "output": "", "settings": "{}"}
    assert found.skipped.count == 0


@pytest.mark.parametrize(
    ("passage", "found"),
    [
        (3, 3),
        ("3", 3),
        (3.0, 3),
        ("", None),
        ("the millwheel turned", "The mill-\nwheel turned"),
        ("the wheel turned", "the wheel turned"),
        ("the wheel turned twice", None),
        ("🙂", None),
    ],
)
def test_a_passage_is_a_number_or_a_text_of_the_document(
    write: Callable[[Sequence[Row]], Path], passage: object, found: object
) -> None:
    [output] = read_outputs(write([{"document": "mill", "passage": passage, "output": "x"}]), [MILL]).outputs
    assert (MILL.text[slice(*output.passage)] if isinstance(output.passage, tuple) else output.passage) == found


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"output": "x"}, "column 'document': Field required"),
        (
            {"document": "sea", "output": "x"},
            "Unknown document 'sea'. Use the name, title or file name of a document. The first documents are: lake.v1,",
        ),
        ({"document": ["mill"], "output": "x"}, "column 'document': Input should be a valid string"),
        ({"document": "mill"}, "column 'output': Field required"),
        ({"document": "mill", "output": 5}, "column 'output': Input should be a valid string"),
        ({"document": "mill", "output": "a\ud800"}, "column 'output': Value error"),
        ({"document": "mill", "output": "x", "passage": -1}, "column 'passage': Input should be greater than or equal"),
        ({"document": "mill", "output": "x", "passage": 2**31}, "column 'passage': Input should be less than"),
        ({"document": "mill", "output": "x", "passage": True}, "column 'passage': Input should be a valid integer"),
        (
            {"document": "mill", "output": "x", "settings": "{broken"},
            "column 'settings': Value error, The settings are no valid JSON",
        ),
        ({"document": "mill", "output": "x", "asked_at": "yesterday"}, "column 'asked_at': Input should be a valid"),
    ],
)
def test_an_unusable_row_is_skipped_with_its_reason(
    write: Callable[[Sequence[Row]], Path], row: Row, reason: str
) -> None:
    found = read_outputs(write([{"document": "mill", "output": "fine"}, row]), [MILL, LAKE])
    assert [output.output for output in found.outputs] == ["fine"]
    [skipped] = found.skipped.first
    assert skipped.location == "outputs.jsonl:2"
    assert reason in skipped.reason


def test_invalid_utf8_and_broken_lines_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(b'{"document": "mill", "output": "\xff"}\n{"docu\n[]\n{"document": "mill", "output": "x"}\n')
    found = read_outputs(path, [MILL])
    assert [row.location for row in found.skipped.first] == [f"outputs.jsonl:{line}" for line in (1, 2, 3)]
    assert "UTF-8" in found.skipped.first[0].reason
    assert len(found.outputs) == 1


@pytest.mark.parametrize("content", [b"", b'{"document": "sea", "output": "x"}\n'])
def test_a_file_without_a_usable_row_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"outputs\.jsonl"):
        read_outputs(path, [MILL])


def test_all_formats_give_the_same_rows(tmp_path: Path) -> None:
    rows = [
        {"document": "mill.txt", "passage": 2, "output": "a, b", "settings": '{"t": 1}', "asked_at": "2026-01-31"},
        {"document": "lake.v1", "passage": None, "output": "c", "settings": None, "asked_at": None},
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "o.parquet")
    pa.csv.write_csv(table, tmp_path / "o.csv")
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, *others = (read_outputs(tmp_path / f"o.{kind}", [MILL, LAKE]) for kind in ("jsonl", "csv", "parquet"))
    assert [found.outputs for found in others] == [first.outputs] * 2
    assert [output.document for output in first.outputs] == ["mill", "lake.v1"]
    assert first.outputs[0].settings == '{"t":1}'
    assert first.outputs[0].asked_at == datetime(2026, 1, 31, tzinfo=UTC)


def test_a_name_precedes_a_title_and_a_shared_title_is_refused() -> None:
    documents = [
        SearchedDocument("a", "x", "b"),
        SearchedDocument("b", "y", "Same"),
        SearchedDocument("c", "z", "same"),
    ]
    lookup = DocumentLookup(documents)
    assert [lookup.find_document(label) for label in ("a", "b", "books/c.txt")] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="2 documents have the title or file name 'SAME'"):
        lookup.find_document("SAME")


@max_examples(100)
@given(st.lists(st.sampled_from("ab"), max_size=12), st.lists(st.sampled_from("ab"), max_size=4))
def test_the_first_occurrence_of_a_passage_equals_brute_force(document: list[str], passage: list[str]) -> None:
    lookup = DocumentLookup([SearchedDocument("d", " ".join(document))])
    places = [at for at in range(len(document)) if passage and document[at : at + len(passage)] == passage]
    expected = (2 * places[0], 2 * (places[0] + len(passage)) - 1) if places else None
    assert lookup.find_passage("d", "-".join(passage)) == expected
