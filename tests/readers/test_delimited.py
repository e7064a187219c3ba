"""Delimiters and quotes of CSV files: they are detected and reported, and ambiguous files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_files import delimited, written
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows, read_rows
from audit_pipeline.readers.row_formats.delimited import USUAL


def rows_of(folder: Path, content: str | bytes, name: str = "t.csv") -> list[tuple[object, ...]]:
    return [tuple(row.values.values()) for row in read_rows(written(folder, name, content)).rows]


@pytest.mark.parametrize("delimiter", list(USUAL))
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_usual_delimiter_is_detected_and_reported(tmp_path: Path, delimiter: str, end: str) -> None:
    lines = [f"text{delimiter}label", *(f"words, words; words {number}{delimiter}1" for number in range(3))]
    if delimiter in ",;":
        lines[1:] = [f'"words, words; words {number}"{delimiter}1' for number in range(3)]
    path = written(tmp_path, "t.csv", end.join(lines))
    assert [dict(row.values) for row in read_rows(path).rows] == [
        {"text": f"words, words; words {number}", "label": "1"} for number in range(3)
    ]
    assert open_rows(path).note == (
        f"{path}: read as CSV with {USUAL[delimiter]} between fields and '\"' as quote; columns: text, label"
    )


def test_texts_with_another_delimiter_do_not_mislead(tmp_path: Path) -> None:
    # Each text has one comma, so the rows would also fit a comma.
    content = "text;label\n" + "".join(f"well, this is text {number};1\n" for number in range(20))
    assert rows_of(tmp_path, content) == [(f"well, this is text {number}", "1") for number in range(20)]


def test_a_header_without_delimiter_means_one_column(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "text\nhello\nfoo; bar\n") == [("hello",), ("foo; bar",)]
    found = read_rows(written(tmp_path, "t.csv", "text\nhello\nworld, the\n"))
    assert [row.reason for row in found.skipped] == ["has 2 fields, but the header has 1"]


def test_rows_decide_between_delimiters_of_the_header(tmp_path: Path) -> None:
    even = "text;label, as given\n" + "".join(f"a text {number};1\n" for number in range(5))
    assert rows_of(tmp_path, even)[0] == ("a text 0", "1")
    assert open_rows(tmp_path / "t.csv").columns == ("text", "label, as given")
    doubtful = "a;b,c\n" + "".join(f"text {number}\n" for number in range(5))
    with pytest.raises(DataError, match="the header contains ',' and ';', and the rows do not show which"):
        read_rows(written(tmp_path, "d.csv", doubtful))


def test_a_header_of_two_columns_is_never_read_as_one(tmp_path: Path) -> None:
    content = "text;label\na text without label\nanother, too\n"
    with pytest.raises(DataError, match=r"none of the 2 rows can be used. .* has 1 fields, but the header has 2"):
        read_rows(written(tmp_path, "t.csv", content))
    assert open_rows(tmp_path / "t.csv").columns == ("text", "label")


def test_quotes_of_a_tsv_file_may_be_ordinary_characters(tmp_path: Path) -> None:
    lone = 'text\tlabel\n"Hello\t1\nsaid "she"\t0\n'
    assert rows_of(tmp_path, lone, "t.tsv") == [('"Hello', "1"), ('said "she"', "0")]
    assert "a tab between fields and no quotes" in str(open_rows(tmp_path / "t.tsv").note)
    quoted = 'text\tlabel\n"two\nlines"\t1\n'
    assert rows_of(tmp_path, quoted, "t.tsv") == [("two\nlines", "1")]
    assert rows_of(tmp_path, "text;x\nonly one, column\n", "t.tsv") == [("only one, column",)]


CELL = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=30)


@max_examples(60)
@given(cells=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=12), delimiter=st.sampled_from(list(USUAL)))
def test_fields_of_the_csv_module_are_read_unchanged(
    cells: list[tuple[str, str]], delimiter: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = delimited([{"text": text, "label": label} for text, label in cells], delimiter)
    assert rows_of(tmp_path_factory.mktemp("cells"), content) == cells
