"""JSON files: arrays of objects, objects of columns, lines, and invalid content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_files import written
from profiles import max_examples

from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows, open_texts, read_rows
from audit_pipeline.readers.row_formats import json_document

ROWS = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]


def rows_of(folder: Path, content: str | bytes) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(written(folder, "t.json", content)).rows]


def test_arrays_columns_and_lines_have_the_same_rows(tmp_path: Path) -> None:
    lists = {"text": ["a", "b"], "label": [1, 0]}
    named = {"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}}
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    for content in (json.dumps(ROWS), json.dumps(ROWS, indent=2), f"\ufeff \n{json.dumps(ROWS)}\n", lines):
        assert rows_of(tmp_path, content) == ROWS
    for whole in (lists, named):
        assert rows_of(tmp_path, json.dumps(whole)) == ROWS
        assert rows_of(tmp_path, json.dumps(whole, indent=2)) == ROWS
        assert open_rows(tmp_path / "t.json").count == 2


def test_an_object_without_columns_is_one_row(tmp_path: Path) -> None:
    assert rows_of(tmp_path, json.dumps(ROWS[0], indent=2)) == [ROWS[0]]
    uneven = {"text": ["a", "b"], "label": [1]}
    assert rows_of(tmp_path, json.dumps(uneven)) == [uneven]
    other = {"text": {"0": "a"}, "label": {"1": 1}}
    assert rows_of(tmp_path, json.dumps(other)) == [other]


def test_values_that_are_no_objects_are_skipped(tmp_path: Path) -> None:
    found = read_rows(written(tmp_path, "t.json", '[{"text": "a"}, 7, "b", null, [1], {"text": "c"}]'))
    assert [(row.location, row.index) for row in found.rows] == [("t.json:1", 0), ("t.json:6", 5)]
    assert [row.reason for row in found.skipped] == [
        f"not a JSON object but {kind}" for kind in ("int", "str", "NoneType", "list")
    ]
    assert [dict(row.values) for row in read_rows(tmp_path / "t.json", "text").rows][1] == {"text": "b"}


def test_rows_with_invalid_unicode_are_skipped(tmp_path: Path) -> None:
    content = b'[{"text": "caf\xe9"}, {"text": "\\ud800"}, {"text": "good"}]'
    texts = open_texts(written(tmp_path, "t.json", content))
    assert [row.text for row in texts] == ["good"]
    assert [row.reason for row in texts.skipped.first] == [
        "column 'text' is not valid Unicode: lone surrogate at character 3",
        "column 'text' is not valid Unicode: lone surrogate at character 0",
    ]


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "a"}, {"text": "b"',
        '[{"text": "a"} {"text": "b"}]',
        '[{"text": "a"}, ]',
        '[{"text": "a"}',
        '[{"text": "a"}] and more',
        "[,]",
        "[" * 100_000,
        '[{"text": ' + "[" * 100_000 + "]" * 100_000 + "}]",
        '[{"n": ' + "9" * 5000 + "}]",
    ],
)
def test_broken_and_too_deep_arrays_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"t\.json: the file is not valid JSON: .*. Correct the file"):
        read_rows(written(tmp_path, "t.json", content))


def test_empty_arrays_and_files_are_refused(tmp_path: Path) -> None:
    for content in ("[]", " [ \n] ", "", "\n\n"):
        with pytest.raises(DataError, match="the file contains no rows"):
            read_rows(written(tmp_path, "t.json", content))


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@max_examples(80)
@given(
    rows=st.lists(st.dictionaries(st.text(min_size=1, max_size=5), VALUE, min_size=1, max_size=4), max_size=12),
    piece=st.integers(1, 40),
    indent=st.none() | st.integers(0, 2),
    escaped=st.booleans(),
)
def test_an_array_is_parsed_equally_in_pieces_of_any_size(
    rows: list[dict[str, object]],
    piece: int,
    indent: int | None,
    escaped: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    content = json.dumps(rows, indent=indent, ensure_ascii=escaped).encode(errors="surrogatepass")
    path = written(tmp_path_factory.mktemp("array"), "t.json", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_document, "_PIECE", piece)
        if not rows:
            with pytest.raises(DataError, match="contains no rows"):
                read_rows(path)
            return
        assert [dict(row.values) for row in read_rows(path).rows] == rows
