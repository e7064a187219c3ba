"""All formats of rows: equal rows, estimates, damaged files, standard input, and the choice of the text column."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from made_files import save_dataset, write_rows

from audit_pipeline.errors import DataError
from audit_pipeline.readers.file_bytes import STANDARD_INPUT
from audit_pipeline.readers.formats import (
    SUFFIXES,
    compute_file_digest,
    has_row_format,
    open_rows,
    open_texts,
    read_rows,
)

ROWS = [
    {"text": "a first text, with a comma; and a semicolon", "label": "1"},
    {"text": 'a "quoted" one | with a bar', "label": "0"},
    {"text": "trois\u2028textes et 四个文本", "label": "1"},
]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_has_the_same_rows(tmp_path: Path, suffix: str) -> None:
    path = write_rows(tmp_path / f"Rows{suffix.upper()}", ROWS)
    wanted = [{"text": row["text"]} for row in ROWS] if suffix.startswith(".txt") else ROWS
    found = read_rows(path)
    assert [dict(row.values) for row in found.rows] == wanted
    assert [row.index for row in found.rows] == [0, 1, 2]
    first_line = 2 if suffix.startswith((".csv", ".tsv", ".xlsx", ".ods")) else 1
    assert found.rows[0].location == f"{path.name}:{first_line}"
    assert found.skipped == ()


# One suffix per kind of meter: bytes, compressed bytes (.gz, .zst), a count in the metadata, and rows of a sheet.
@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl.gz", ".txt.zst", ".parquet", ".ods"])
def test_a_stream_is_read_repeatedly_and_estimates_its_length(tmp_path: Path, suffix: str) -> None:
    random_words = random.Random(1)
    rows = [{"text": random_words.randbytes(200).hex(), "label": "0"} for _ in range(3000)]
    texts = open_texts(write_rows(tmp_path / f"t{suffix}", rows))
    first = iter(texts)
    for _ in range(1500):
        next(first)
    halfway = texts.rows.estimate_total(1500)
    exact = texts.rows.count is not None
    assert halfway.is_estimated == (not exact)
    # The decompressor of .zst reads further ahead.
    fewest = 2300 if suffix.endswith(".zst") else 2500
    assert (3000 if exact else fewest) <= halfway.rows <= (3000 if exact else 3600)
    assert [row.text for row in texts] == [row["text"] for row in rows]
    assert texts.rows.estimate_total(3000).rows == 3000


def test_a_folder_that_datasets_saved_is_read(tmp_path: Path) -> None:
    saved = save_dataset(tmp_path / "saved", ROWS, shards=2)
    found = read_rows(saved)
    assert [dict(row.values) for row in found.rows] == ROWS
    assert [row.location for row in found.rows] == ["saved:1", "saved:2", "saved:3"]
    assert open_rows(saved).count == 3
    before = compute_file_digest(saved)
    save_dataset(saved, ROWS[:2])
    assert compute_file_digest(saved) != before


def test_folders_without_one_intact_data_set_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(DataError, match="this folder is not a data set that save_to_disk wrote"):
        read_rows(tmp_path / "plain")
    save_dataset(tmp_path / "splits" / "train", ROWS)
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert has_row_format(tmp_path / "splits")
    with pytest.raises(
        DataError, match=r"the data set has the splits train. Name the folder of one split, such as .*splits/train"
    ):
        read_rows(tmp_path / "splits")
    saved = save_dataset(tmp_path / "saved", ROWS)
    state = json.loads((saved / "state.json").read_text())
    outside = write_rows(tmp_path / "secret.arrow", ROWS)
    for content, message in (
        ("{", r"the file state\.json of the data set cannot be read"),
        ("[" * 100_000, r"the file state\.json of the data set cannot be read"),
        ("[]", r"the file state\.json of the data set has no valid list '"),
        ('{"_data_files": [{"filename": 5}]}', r"the file state\.json of the data set has no valid list '"),
        (json.dumps({**state, "_data_files": [{"filename": "gone.arrow"}]}), "is not a readable Arrow file"),
        (json.dumps({**state, "_data_files": [{"filename": f"../{outside.name}"}]}), "is not a readable Arrow file"),
        ('{"_data_files": []}', "the file contains no rows"),
    ):
        (saved / "state.json").write_text(content)
        with pytest.raises(DataError, match=message):
            read_rows(saved)


@pytest.mark.parametrize("name", ["t.arrow", "t.feather", "t.parquet"])
def test_truncated_columnar_files_are_refused(tmp_path: Path, name: str) -> None:
    path = write_rows(tmp_path / name, ROWS * 50)
    whole = path.read_bytes()
    for length in (0, 3, 6, 8, 40, len(whole) // 3, len(whole) // 2, len(whole) - 20, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"is not a readable (Arrow|Parquet) file"):
            read_rows(path)


def test_an_arrow_stream_is_read_and_a_truncated_stream_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS * 400)
    path = tmp_path / "t.arrow"
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=500)
    assert [dict(row.values) for row in read_rows(path).rows] == ROWS * 400
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(DataError, match="is not a readable Arrow file"):
        read_rows(path)


def test_columnar_formats_read_only_the_selected_columns(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "a text", "label": 1, "embedding": [0.5] * 3}]
    for name in ("t.parquet", "t.arrow"):
        texts = open_texts(write_rows(tmp_path / name, rows), extra_columns=["label", "no such column"])
        assert [dict(row.values) for row in texts] == [{"text": "a text", "label": 1}]


def test_reading_never_has_all_rows_in_memory(tmp_path: Path) -> None:
    # The first 1,000 rows of a file without a header are in memory, because they decide which column is the text.
    rows = [{"text": f"{number:04} " * 800, "label": "0"} for number in range(2000)]
    for suffix in (".jsonl", ".csv", ".json", ".txt.gz", ".parquet"):
        texts = open_texts(write_rows(tmp_path / f"t{suffix}", rows))
        tracemalloc.start()
        try:
            assert sum(len(row.text) > 0 for row in texts) == 2000
            assert tracemalloc.get_traced_memory()[1] < 6 << 20, suffix
        finally:
            tracemalloc.stop()


def test_standard_input_is_lines_of_json_and_can_be_read_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"text": "first"}\n{broken\n\n{"text": "last"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    texts = open_texts(STANDARD_INPUT)
    for _ in range(2):
        assert [(row.location, row.index, row.text) for row in texts] == [
            ("standard input:1", 0, "first"),
            ("standard input:4", 2, "last"),
        ]
        assert [row.location for row in texts.skipped.first] == ["standard input:2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "standard input: the file contains no rows"),
        (b"PAR1 and so on", "none of the 1 rows can be used. The first row is standard input:1: broken JSON"),
        (
            gzip.compress(b'{"text": "a"}', mtime=0),
            "the input is not text, but must consist of lines of JSON. For other formats name a file instead of -",
        ),
        ("{}".encode("utf-16"), "is in UTF-16. Save it as UTF-8."),
        (b"text,label\nhello,1\n", "none of the 2 rows can be used. The first row is standard input:1: broken JSON"),
    ],
)
def test_standard_input_without_json_is_refused(monkeypatch: pytest.MonkeyPatch, content: bytes, message: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(DataError, match=message):
        list(open_texts(STANDARD_INPUT))


def test_the_text_column_is_searched_in_the_first_thousand_rows(tmp_path: Path) -> None:
    early = [{"input": "i", "text": "t"} if number == 900 else {"input": "i"} for number in range(1200)]
    late = [{"input": "i", "text": "t"} if number == 1100 else {"input": "i"} for number in range(1200)]
    assert {row.text for row in open_texts(write_rows(tmp_path / "a.jsonl", early))} == {"t"}
    late_file = write_rows(tmp_path / "b.jsonl", late)
    with pytest.raises(DataError, match=r"the column 'input'. But b.jsonl:1101 has a column 'text', .*--text"):
        list(open_texts(late_file))
    assert len(list(open_texts(late_file, "input"))) == 1200
    # Other columns may begin later.
    further = [{"input": "i", "TITLE": "t"} if number == 1100 else {"input": "i"} for number in range(1200)]
    assert len(list(open_texts(write_rows(tmp_path / "d.jsonl", further)))) == 1200
    # A column that the user named may occur in any row, but must occur.
    named = open_texts(write_rows(tmp_path / "c.jsonl", late), "text")
    assert [row.index for row in named] == [1100]
    assert (named.skipped.count, len(named.skipped.first)) == (1199, 1000)
    with pytest.raises(DataError, match="no column 'body'; the columns are: input"):
        list(open_texts(tmp_path / "c.jsonl", "body"))
