"""Rows of users' files: which rows are read or skipped, with the reason, and which files are refused."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_files import written
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_texts, read_rows
from audit_pipeline.readers.text_rows import Skipped, TextRow, explain_unusable_text


def read_texts(path: Path, column: str | None = None) -> tuple[list[TextRow], list[Skipped]]:
    stream = open_texts(path, column, extra_columns=["n"])
    return list(stream), stream.skipped.first


def test_bad_rows_of_jsonl_are_skipped_with_the_reason(tmp_path: Path) -> None:
    lines = [
        b'{"input": "first", "label": 1}',
        b'{"input": "broken"',
        b"",
        b'["not", "an", "object"]',
        b'{"label": 0}',
        b'{"input": null}',
        b'{"input": 7}',
        b'{"input": "  "}',
        b'{"input": "caf\xe9"}',
        b'{"input": "lone \\ud800 surrogate"}',
        b'{"input": "last \\ud83d\\ude00", "label": 0}\r',
    ]
    texts, skipped = read_texts(written(tmp_path, "t.jsonl", b"\n".join(lines)), "input")
    assert [(row.location, row.index, row.text, row.values.get("label")) for row in texts] == [
        ("t.jsonl:1", 0, "first", 1),
        ("t.jsonl:11", 9, "last 😀", 0),
    ]
    assert [(row.location, row.index) for row in skipped] == [
        ("t.jsonl:2", 1),
        ("t.jsonl:4", 2),
        ("t.jsonl:5", 3),
        ("t.jsonl:6", 4),
        ("t.jsonl:7", 5),
        ("t.jsonl:8", 6),
        ("t.jsonl:9", 7),
        ("t.jsonl:10", 8),
    ]
    reasons = [row.reason for row in skipped]
    assert reasons[0].startswith("broken JSON: ")
    assert reasons[1] == "not a JSON object but list"
    assert reasons[2] == "no column 'input'"
    assert reasons[3] == "column 'input' is null"
    assert reasons[4] == "column 'input' is not a string but int"
    assert reasons[5] == "column 'input' is empty"
    assert reasons[6] == "invalid UTF-8 at byte 15 of the line"
    assert "lone surrogate at character 5" in reasons[7]


def test_unicode_line_separators_are_no_line_ends_and_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, "T.JSONL", b'\xef\xbb\xbf{"text": "one\xe2\x80\xa8still one"}\n')
    texts, skipped = read_texts(path)
    assert [row.text for row in texts] == ["one\u2028still one"]
    assert skipped == []


def test_rows_beyond_the_limits_of_the_parser_are_skipped(tmp_path: Path) -> None:
    deep = '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"
    huge = '{"text": "x", "n": ' + "9" * 5000 + "}"
    texts, skipped = read_texts(written(tmp_path, "t.jsonl", f'{deep}\n{huge}\n{{"text": "ok"}}\n'))
    assert [row.index for row in texts] == [2]
    assert [row.index for row in skipped] == [0, 1]


def test_lines_of_txt_are_texts_regardless_of_the_column(tmp_path: Path) -> None:
    texts, skipped = read_texts(written(tmp_path, "t.txt", b"one\n\n  \ntwo words\n\xff\xfe\xfd bad\nthree"), "input")
    assert [(row.location, row.index, row.text) for row in texts] == [
        ("t.txt:1", 0, "one"),
        ("t.txt:4", 1, "two words"),
        ("t.txt:6", 3, "three"),
    ]
    assert [(row.location, row.index) for row in skipped] == [("t.txt:5", 2)]


def test_csv_with_quotes_line_breaks_and_bad_rows(tmp_path: Path) -> None:
    content = (
        b"\xef\xbb\xbftext,label\r\n"
        b'"a ""quoted"" word, and\nsecond line",1\r\n'
        b"too,many,fields\r\n"
        b"\r\n"
        b"caf\xe9,0\r\n"
        b",0\r\n"
        b"plain,0\r\n"
    )
    texts, skipped = read_texts(written(tmp_path, "t.csv", content), "text")
    assert [(row.location, row.index, row.text, row.values["label"]) for row in texts] == [
        ("t.csv:2", 0, 'a "quoted" word, and\nsecond line', "1"),
        ("t.csv:8", 4, "plain", "0"),
    ]
    assert [(row.location, row.index, row.reason) for row in skipped] == [
        ("t.csv:4", 1, "has 3 fields, but the header has 2"),
        ("t.csv:6", 2, "invalid UTF-8"),
        ("t.csv:7", 3, "column 'text' is empty"),
    ]


def test_a_csv_row_with_a_quote_that_is_never_closed_is_skipped(tmp_path: Path) -> None:
    texts, skipped = read_texts(written(tmp_path, "t.csv", 'text,label\ngood,1\n"never closed,0\nrow,1\nrow,0\n'))
    assert [row.text for row in texts] == ["good"]
    assert len(skipped) == 1
    assert skipped[0].location == "t.csv:3"
    assert "broken CSV" in skipped[0].reason
    assert "lines 3 to 5" in skipped[0].reason


def test_an_invalid_csv_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="header is not valid UTF-8"):
        read_rows(written(tmp_path, "b.csv", b"caf\xe9,b\na,b\n"))
    with pytest.raises(DataError, match="contains no rows"):
        read_rows(written(tmp_path, "c.csv", "text,label\n"))


def test_parquet_rows_nulls_and_invalid_utf8(tmp_path: Path) -> None:
    strings = pa.array([b"one", b"caf\xe9", None, b"four"], pa.binary()).view(pa.string())
    path = tmp_path / "label=1" / "t.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"text": strings, "n": [1, 2, 3, 4]}), path)
    texts, skipped = read_texts(path)
    assert [(row.location, row.index, row.text) for row in texts] == [
        ("t.parquet:1", 0, "one"),
        ("t.parquet:4", 3, "four"),
    ]
    assert dict(texts[0].values) == {"text": "one", "n": 1}
    assert [(row.location, row.index, row.reason) for row in skipped] == [
        ("t.parquet:2", 1, "invalid UTF-8 at byte 4 of a value"),
        ("t.parquet:3", 2, "column 'text' is null"),
    ]


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.txt"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(DataError, match="contains no rows"):
        read_rows(written(tmp_path, name, content))


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.txt"])
def test_utf16_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"UTF-16\. Save it as UTF-8\."):
        read_rows(written(tmp_path, name, "text\nhello\n".encode("utf-16")))


def test_missing_files_folders_and_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_rows(tmp_path / "absent.jsonl")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="this folder is not a data set"):
        read_rows(tmp_path / "folder.csv")
    with pytest.raises(DataError, match=r"Use a file whose name ends in one of \.arrow, \.feather, \.parquet, "):
        read_rows(written(tmp_path, "t.docx", "text"))


def test_an_error_about_a_missing_column_lists_the_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "t.jsonl", '{"body": "a", "label": 1}\n{"body": "b", "date": "x"}\n')
    with pytest.raises(DataError, match="no column 'text'; the columns are: body, label, date"):
        read_texts(path, "text")
    with pytest.raises(
        DataError, match=r"it is unclear which column contains the text\. The columns are: body, label, date"
    ):
        read_texts(path)


def test_the_text_column_is_detected_if_the_user_names_none(tmp_path: Path) -> None:
    both = written(tmp_path, "both.jsonl", '{"input": "i", "text": "t"}\n')
    usual = written(tmp_path, "usual.jsonl", '{"label": 1, "input": "i"}\n')
    only = written(tmp_path, "only.jsonl", '{"sentence": "s"}\n')
    assert [read_texts(path)[0][0].text for path in (both, usual, only)] == ["t", "i", "s"]


def test_a_file_without_usable_rows_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    broken = written(tmp_path, "t.jsonl", "{\n{\n{\n")
    with pytest.raises(DataError, match=r"none of the 3 rows can be used. The first row is t\.jsonl:1: broken JSON"):
        read_rows(broken)
    blank = written(tmp_path, "b.jsonl", '{"text": " "}\n{"text": null}\n')
    with pytest.raises(
        DataError, match=r"none of the 2 rows can be used. The first row is b\.jsonl:1: column 'text' is emp"
    ):
        read_texts(blank, "text")


TEXT = st.text(min_size=1, max_size=40)


@max_examples(60)
@given(values=st.lists(TEXT, min_size=1, max_size=8))
def test_every_row_is_read_or_skipped_once(values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rows")
    jsonl, table = folder / "t.jsonl", folder / "t.csv"
    jsonl.write_text("".join(json.dumps({"text": value, "n": 1}) + "\n" for value in values), encoding="utf-8")
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["text", "n"], *([value, "1"] for value in values)])
    parquet = folder / "t.parquet"
    pq.write_table(pa.table({"text": values, "n": [1] * len(values)}), parquet)
    usable = [value for value in values if explain_unusable_text(value) is None]
    for path in (jsonl, table, parquet):
        if not usable:
            with pytest.raises(DataError, match="none of the"):
                read_texts(path, "text")
            continue
        texts, skipped = read_texts(path, "text")
        assert [row.text for row in texts] == usable
        assert sorted([row.index for row in texts] + [row.index for row in skipped]) == list(range(len(values)))


def test_a_compressed_jsonl_has_the_locations_and_indices_of_the_plain_file(tmp_path: Path) -> None:
    lines = b'{"input": "first"}\n\n{"input": "broken"\n{"input": "last"}'
    plain = read_rows(written(tmp_path, "t.jsonl", lines))
    packed = read_rows(written(tmp_path, "t.jsonl.gz", gzip.compress(lines)))
    assert [dict(row.values) for row in packed.rows] == [dict(row.values) for row in plain.rows]
    assert [row.location for row in packed.rows] == ["t.jsonl.gz:1", "t.jsonl.gz:4"]
    assert [row.index for row in packed.skipped] == [row.index for row in plain.skipped] == [1]


def test_a_damaged_gz_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"input": "text"}\n' * 5000)
    damaged = packed[:60] + bytes(byte ^ 255 for byte in packed[60:80]) + packed[80:]
    for content in (packed[: len(packed) // 2], b"not compressed at all", damaged):
        with pytest.raises(DataError, match=r"t.jsonl.gz: the file is not a readable .gz file"):
            read_rows(written(tmp_path, "t.jsonl.gz", content))
    assert len(read_rows(written(tmp_path, "t.jsonl.gz", packed)).rows) == 5000


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.txt", "t.csv"])
def test_a_line_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    content = b'text\n"a long line of a file without rows"\n'
    path = written(tmp_path, name, gzip.compress(content) if name.endswith(".gz") else content)
    monkeypatch.setattr("audit_pipeline.readers.file_bytes.LINE_LIMIT", 10)
    with pytest.raises(DataError, match=r"line 2 is longer than 0 MiB\. Check that the file contains rows"):
        read_rows(path)
